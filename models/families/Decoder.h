// A decoder as data: the properties in which families differ. Sizes, the norms' eps and RoPE are
// those of the ModelConfig.
//
// A layer is
//
//   x = x + behind(attention(before(x)))
//   x = x + behind(mlp(before(x)))
//
// where `before` and `behind` are the norms that DecoderLayer names. Attention rotates q and k
// (RoPE), after their norm if they have one. The MLP is down(silu(gate(x)) * up(x)). All names are
// those of Hugging Face's checkpoints, within the layer: `model.layers.3.` + `self_attn.q_proj` +
// `.weight`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

// y = x weight^T (+ bias)
struct Projection {
  std::string name;
  bool bias = false;
};

// Names of RMSNorms; "" means that there is none.
struct Norms {
  std::string before, behind;
};

// The elements of q and k that are normed together before RoPE: none, those of each head, or the
// whole row.
enum class HeadNorm { None, PerHead, WholeRow };

struct DecoderLayer {
  std::string name = "layer"; // of its function in the graph
  Norms attention{"input_layernorm", ""}, mlp{"post_attention_layernorm", ""};
  Projection q{"self_attn.q_proj"}, k{"self_attn.k_proj"}, v{"self_attn.v_proj"},
      o{"self_attn.o_proj"};
  Projection gate{"mlp.gate_proj"}, up{"mlp.up_proj"}, down{"mlp.down_proj"};
  HeadNorm headNorm = HeadNorm::None;
  std::string qNorm = "self_attn.q_norm", kNorm = "self_attn.k_norm";
  int64_t window = 0; // a token sees itself and the window - 1 tokens before it; 0: all
};

struct Decoder {
  std::vector<DecoderLayer> kinds; // of layers, with names of their own
  std::vector<size_t> pattern;     // the kind of each layer; empty: all are of kinds[0]
};

} // namespace lmc
