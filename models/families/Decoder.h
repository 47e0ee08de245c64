// Describes a decoder as data: the properties in which model families differ. The ModelConfig has
// the sizes, the eps of the norms and RoPE.
//
// A layer is
//
//   x = x + behind(attention(before(x)))
//   x = x + behind(mlp(before(x)))
//
// where `before` and `behind` are the norms that DecoderLayer names. Attention applies RoPE to q
// and k, after their norm if they have one. The MLP is down(silu(gate(x)) * up(x)) or, without a
// gate, down(gelu(up(x))). All names are those of Hugging Face's checkpoints, without the prefix of
// the layer: the weight of q in layer 3 is `model.layers.3.` + `self_attn.q_proj` + `.weight`.
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

// The names of the norms of a branch; "" means that there is none.
struct Norms {
  std::string before, behind;
};

// Which elements of q and k are normalised together before RoPE: none, the elements of each head,
// or the whole row.
enum class HeadNorm { None, PerHead, WholeRow };

// An MLP of experts: a router, a linear layer without bias, chooses some of them for each token,
// and the layer's result is the sum of theirs, each times its weight. An expert is
// down(silu(gate(x)) * up(x)), without biases. There is none if `count` is 0. A shared expert,
// whose result is added, has all tokens; there is none if `sharedSize` is 0.
struct Experts {
  int64_t count = 0, chosen = 0; // how many there are, and how many a token has
  int64_t intermediateSize = 0;  // of one expert
  bool normalize = false;        // the weights of a token add up to 1
  bool sigmoid = false;          // the router's scores are sigmoids, and not a softmax
  double scale = 1;              // factor of the weights
  // The bias that is added to the scores for the choice alone (lm.balance_bias); "": none.
  std::string bias = "";
  int64_t sharedSize = 0;
  // The weight of gate in expert 3 is `experts` + `.3.` + `gate` + `.weight`.
  std::string router, experts, gate, up, down;
  // The weight of the shared expert's gate is `shared` + `.` + `gate` + `.weight`.
  std::string shared = "";
};

struct DecoderLayer {
  std::string name = "layer"; // name of the function in the graph
  Norms attention{"input_layernorm", ""}, mlp{"post_attention_layernorm", ""};
  Projection q{"self_attn.q_proj"}, k{"self_attn.k_proj"}, v{"self_attn.v_proj"},
      o{"self_attn.o_proj"};
  Projection qkv{""}; // one layer in the place of q, k and v, whose outputs stand side by side
  Projection gate{"mlp.gate_proj"}, up{"mlp.up_proj"}, down{"mlp.down_proj"};
  Experts experts; // in the place of gate, up and down
  HeadNorm headNorm = HeadNorm::None;
  std::string qNorm = "self_attn.q_norm", kNorm = "self_attn.k_norm";
  int64_t window = 0; // number of keys that a token sees, itself included; 0: all before it
};

// How a decoder knows the position of a token: RoPE turns q and k, or a learned vector for each
// position is added to the embedding.
enum class Positions { Rotary, Learned };

enum class NormKind { Rms, Layer };

struct Decoder {
  std::vector<DecoderLayer> kinds; // the different layers, each with a unique name
  std::vector<size_t> pattern;     // per layer, an index into kinds; empty: all are kinds[0]
  NormKind norm = NormKind::Rms;   // of all norms
  double normEps = 0;              // 0: rms_norm_eps
  Positions positions = Positions::Rotary;
  // The weights of layers are [in, out], as in GPT-2's Conv1D, and not [out, in].
  bool transposedWeights = false;
  // Factor of the loss that keeps experts equally busy (lm.balance_loss); 0: none.
  double balanceLoss = 0;
  // Names of Hugging Face's checkpoints.
  std::string embedding = "model.embed_tokens.weight", positionTable = "", lastNorm = "model.norm",
              layers = "model.layers", head = "lm_head.weight";
};

} // namespace lmc
