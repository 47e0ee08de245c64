// Describes a decoder as data: what differs between model families and is not in ModelConfig.
//
// A layer is
//
//   x = x + behind(attention(before(x)))
//   x = x + behind(mlp(before(x)))
//
// where `before` and `behind` are norms. Attention applies RoPE to q and k, after their norm if
// they have one. The MLP is down(silu(gate(x)) * up(x)) or, without a gate, down(gelu(up(x))).
// Names are those of Hugging Face's checkpoints, without the prefix of the layer: the weight of q
// in layer 3 is `model.layers.3.` + `self_attn.q_proj` + `.weight`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

// A linear layer, y = x weight^T (+ bias).
struct Projection {
  std::string name;
  bool bias = false;
};

// The names of the norms before and behind a branch (attention or MLP). "" means no norm.
struct Norms {
  std::string before, behind;
};

// The elements of q or k that are normalized together before RoPE: none, a head, or a whole row.
enum class HeadNorm { None, PerHead, WholeRow };

// An MLP of experts. A router, which is a linear layer without bias, chooses some experts for each
// token. The result is the sum of these experts' results, each multiplied by the router's weight
// for the expert. An expert is down(silu(gate(x)) * up(x)), without biases.
struct Experts {
  int64_t count = 0, chosen = 0; // number of experts (0: none), and number of experts per token
  int64_t intermediateSize = 0;  // inner size of one expert
  bool normalize = false;        // true if the weights of a token add up to 1
  bool sigmoid = false;          // true if scores are sigmoids, false if softmax
  double scale = 1;              // a factor by which all weights are multiplied
  // The name of a bias that is added to the scores only to choose experts (lm.balance_bias), or "".
  std::string bias = "";
  int64_t sharedSize = 0; // inner size of an expert that processes all tokens; 0: none
  // The gate's weight in expert 3 has the name `experts` + `.3.` + `gate` + `.weight`.
  std::string router, experts, gate, up, down;
  // The gate's weight in the shared expert has the name `shared` + `.` + `gate` + `.weight`.
  std::string shared = "";
};

struct DecoderLayer {
  std::string name = "layer"; // name of the layer's function in the graph
  Norms attention{"input_layernorm", ""}, mlp{"post_attention_layernorm", ""};
  Projection q{"self_attn.q_proj"}, k{"self_attn.k_proj"}, v{"self_attn.v_proj"},
      o{"self_attn.o_proj"};
  Projection qkv{""}; // one projection for q, k and v, whose results lie side by side
  Projection gate{"mlp.gate_proj"}, up{"mlp.up_proj"}, down{"mlp.down_proj"};
  Experts experts; // if there are any, they replace gate, up and down
  HeadNorm headNorm = HeadNorm::None;
  std::string qNorm = "self_attn.q_norm", kNorm = "self_attn.k_norm";
  int64_t window = 0; // number of keys that a token sees, itself included; 0: no limit

  void setAttentionBias(bool bias) { q.bias = k.bias = v.bias = o.bias = bias; }
};

// How a decoder encodes a token's position: by RoPE, or by adding a learned vector of the position
// to the embedding.
enum class Positions { Rotary, Learned };

enum class NormKind { Rms, Layer };

struct Decoder {
  std::vector<DecoderLayer> kinds; // the different layers, each with a unique name
  std::vector<size_t> pattern;     // for each layer, an index into `kinds`; empty: all are kinds[0]
  NormKind norm = NormKind::Rms;   // of all norms
  double normEps = 0;              // 0: rms_norm_eps
  Positions positions = Positions::Rotary;
  // True if the weights of layers are [in, out], as in GPT-2's Conv1D, instead of [out, in].
  bool transposedWeights = false;
  // The factor of the balancing loss, which keeps experts equally busy (lm.balance_loss), or 0.
  double balanceLoss = 0;
  // Names in Hugging Face's checkpoints.
  std::string embedding = "model.embed_tokens.weight", positionTable = "", lastNorm = "model.norm",
              layers = "model.layers", head = "lm_head.weight";
};

} // namespace lmc
