#include "ground/config/Keys.h"

#include "ground/config/ModelFamily.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace lmc::config {
namespace {

// With these upper bounds, every product of sizes (parameters, tokens, bytes) is below 2^63.
constexpr double kMaxWidth = 1 << 20;
constexpr double kMaxHeads = 4096;
constexpr double kMaxLayers = 4096;
constexpr double kMaxPositions = 1 << 26;
constexpr double kMaxSteps = 1e12;
constexpr double kMaxTokens = 9e15;
constexpr double kMaxInt32 = 2147483647;
// Adam divides by 1 - beta^t, so beta must differ from 1 in f32 too.
constexpr double kMaxBeta = 0.999999;

template <typename E> constexpr int of(E value) { return static_cast<int>(value); }

// Returns the field of `model.architecture`, whose initial value is the first family.
Field architecture(Config &config, const ModelFamilies &families) {
  if (config.model.architecture.empty())
    config.model.architecture = families.front()->name;
  return &config.model.architecture;
}

std::vector<Key> makeKeys(const ModelFamilies &families) {
  std::vector<Choice> architectures;
  std::vector<std::string> modelTypes;
  for (const ModelFamily *family : families) {
    architectures.push_back({family->name});
    modelTypes.push_back(family->modelType);
  }
#define FIELD(PATH) [](Config &config) -> Field { return &config.PATH; }
  return {
      {.section = "model",
       .name = "config",
       .field = FIELD(model.config),
       .defaultText = "none",
       .doc = fmt::format("A Hugging Face `config.json` ({}), relative to the TOML file. Keys "
                          "of this section override its values.",
                          listed(modelTypes, "or"))},
      {.section = "model",
       .name = "architecture",
       .field = [families](Config &config) { return architecture(config, families); },
       .choices = architectures,
       .identity = true,
       .doc = "Family of the model; names the class of exported checkpoints."},
      {.section = "model",
       .name = "vocab_size",
       .field = FIELD(model.vocabSize),
       .unit = "tokens",
       .minimum = 1,
       .maximum = kMaxInt32,
       .required = true,
       .identity = true,
       .doc = "Rows of the embedding and of the head. Token ids are below it."},
      {.section = "model",
       .name = "hidden_size",
       .alias = "n_embd",
       .field = FIELD(model.hiddenSize),
       .minimum = 1,
       .maximum = kMaxWidth,
       .required = true,
       .identity = true,
       .doc = "Width of the residual stream. GPT-2's `n_embd` is accepted too."},
      {.section = "model",
       .name = "intermediate_size",
       .alias = "n_inner",
       .field = FIELD(model.intermediateSize),
       .minimum = 1,
       .maximum = 16 * kMaxWidth,
       .required = true,
       .identity = true,
       .doc = "Width inside the MLP. GPT-2's `n_inner` is accepted too; in `gpt2` the default is "
              "4 x `hidden_size`."},
      {.section = "model",
       .name = "num_hidden_layers",
       .alias = "n_layer",
       .field = FIELD(model.numHiddenLayers),
       .unit = "layers",
       .minimum = 1,
       .maximum = kMaxLayers,
       .required = true,
       .identity = true,
       .doc = "Transformer layers. GPT-2's `n_layer` is accepted too."},
      {.section = "model",
       .name = "num_attention_heads",
       .alias = "n_head",
       .field = FIELD(model.numAttentionHeads),
       .unit = "heads",
       .minimum = 1,
       .maximum = kMaxHeads,
       .required = true,
       .identity = true,
       .doc =
           "Query heads. They divide `hidden_size` unless `head_dim` is given. GPT-2's `n_head` is "
           "accepted too."},
      {.section = "model",
       .name = "num_key_value_heads",
       .field = FIELD(model.numKeyValueHeads),
       .unit = "heads",
       .minimum = 1,
       .maximum = kMaxHeads,
       .derived = {"model.num_attention_heads"},
       .identity = true,
       .doc = "Key and value heads (GQA). They divide `num_attention_heads`."},
      {.section = "model",
       .name = "head_dim",
       .field = FIELD(model.headDim),
       .minimum = 2,
       .maximum = 4096,
       .defaultText = "hidden_size / num_attention_heads",
       .identity = true,
       .doc = "Width of one head; even, because RoPE turns pairs."},
      {.section = "model",
       .name = "max_position_embeddings",
       .alias = "n_positions",
       .field = FIELD(model.maxPositionEmbeddings),
       .unit = "tokens",
       .minimum = 1,
       .maximum = kMaxPositions,
       .derived = {"training.sequence_length"},
       .identity = true,
       .doc =
           "Longest context that the model is meant for; at least `sequence_length`. In `gpt2` it "
           "is the number of learned positions; GPT-2's `n_positions` is accepted too."},
      {.section = "model",
       .name = "rope_theta",
       .field = FIELD(model.ropeTheta),
       .minimum = 1,
       .maximum = 1e15,
       .identity = true,
       .doc = "Base of the RoPE frequencies."},
      {.section = "model",
       .name = "rms_norm_eps",
       .field = FIELD(model.rmsNormEps),
       .minimum = 1e-15,
       .maximum = 0.1,
       .identity = true,
       .doc = "Added to the mean square in RMSNorm."},
      {.section = "model",
       .name = "tie_word_embeddings",
       .field = FIELD(model.tieWordEmbeddings),
       .identity = true,
       .doc = "The head uses the embedding's weights."},
      {.section = "model",
       .name = "attention_bias",
       .field = FIELD(model.attentionBias),
       .identity = true,
       .doc =
           "Biases on the q, k, v and o projections. In `mistral` and `qwen2` it must be false."},
      {.section = "model",
       .name = "mlp_bias",
       .field = FIELD(model.mlpBias),
       .identity = true,
       .doc = "Biases on the gate, up and down projections. In all but `llama` it must be false."},
      {.section = "model",
       .name = "embedding_norm",
       .field = FIELD(model.embeddingNorm),
       .identity = true,
       .doc =
           "A norm of the model's kind behind the embedding, like the LayerNorm in the "
           "StableEmbedding of bitsandbytes: an RMSNorm with the weights "
           "`model.embed_norm.weight` or, in `gpt2`, a LayerNorm of the sum of the embedding and "
           "the position's vector, with `transformer.embed_norm.weight` and `.bias`. Hugging "
           "Face's classes do not have it, so checkpoints cannot be exported."},
      {.section = "model",
       .name = "sliding_window",
       .field = FIELD(model.slidingWindow),
       .unit = "tokens",
       .minimum = 0,
       .maximum = kMaxPositions,
       .identity = true,
       .doc = "A token sees itself and the `sliding_window` - 1 tokens before it; 0: all."},
      {.section = "model",
       .name = "initializer_range",
       .field = FIELD(model.initializerRange),
       .minimum = 1e-9,
       .maximum = 1,
       .identity = true,
       .doc = "Standard deviation of the initial embedding, and of all linear weights with "
              "`initializer = \"normal\"`."},
      {.section = "model",
       .name = "initializer",
       .field = FIELD(model.initializer),
       .choices = {{"fan_in"}, {"normal"}},
       .identity = true,
       .doc = "Standard deviation of initial linear weights: `fan_in` is 1 / sqrt(fan_in), for "
              "down_proj 1 / sqrt(hidden_size), "
              "`normal` is `initializer_range`. Both divide it by sqrt(2 x layers) for the o and "
              "down projections."},

      {.section = "model.rope_scaling",
       .name = "rope_type",
       .alias = "type",
       .field = FIELD(model.ropeScaling.type),
       .choices = {{"none", of(RopeScalingType::None)},
                   {"default", of(RopeScalingType::None)},
                   {"linear", of(RopeScalingType::Linear)},
                   {"llama3", of(RopeScalingType::Llama3)},
                   {"dynamic", of(RopeScalingType::Dynamic)},
                   {"yarn", of(RopeScalingType::Yarn)}},
       .identity = true,
       .doc = "How the RoPE frequencies are stretched. `default` is another name for `none`."},
      {.section = "model.rope_scaling",
       .name = "factor",
       .field = FIELD(model.ropeScaling.factor),
       .minimum = 1,
       .maximum = 1e6,
       .identity = true,
       .doc = "The new context length divided by the original one."},
      {.section = "model.rope_scaling",
       .name = "low_freq_factor",
       .field = FIELD(model.ropeScaling.lowFreqFactor),
       .minimum = 1e-6,
       .maximum = 1e6,
       .identity = true,
       .doc = "llama3: wavelengths above `original_max_position_embeddings` / `low_freq_factor` "
              "are stretched by `factor`."},
      {.section = "model.rope_scaling",
       .name = "high_freq_factor",
       .field = FIELD(model.ropeScaling.highFreqFactor),
       .minimum = 1e-6,
       .maximum = 1e6,
       .identity = true,
       .doc = "llama3: wavelengths below `original_max_position_embeddings` / "
              "`high_freq_factor` stay; more than `low_freq_factor`."},
      {.section = "model.rope_scaling",
       .name = "original_max_position_embeddings",
       .field = FIELD(model.ropeScaling.originalMaxPositionEmbeddings),
       .unit = "tokens",
       .minimum = 1,
       .maximum = kMaxPositions,
       .derived = {"model.max_position_embeddings"},
       .identity = true,
       .doc = "Context before stretching."},
      {.section = "model.rope_scaling",
       .name = "attention_factor",
       .field = FIELD(model.ropeScaling.attentionFactor),
       .minimum = 0,
       .maximum = 1e3,
       .identity = true,
       .doc = "yarn: scale of cos and sin; 0: the paper's 0.1 ln(factor) + 1."},
      {.section = "model.rope_scaling",
       .name = "beta_fast",
       .field = FIELD(model.ropeScaling.betaFast),
       .minimum = 1e-6,
       .maximum = 1e6,
       .identity = true,
       .doc = "yarn: dimensions that make more than `beta_fast` turns over the original context "
              "stay."},
      {.section = "model.rope_scaling",
       .name = "beta_slow",
       .field = FIELD(model.ropeScaling.betaSlow),
       .minimum = 1e-6,
       .maximum = 1e6,
       .identity = true,
       .doc = "yarn: dimensions that make fewer than `beta_slow` turns over the original "
              "context are stretched by `factor`; less than `beta_fast`."},

      {.section = "training",
       .name = "sequence_length",
       .field = FIELD(training.sequenceLength),
       .unit = "tokens",
       .minimum = 1,
       .maximum = kMaxPositions,
       .required = true,
       .identity = true,
       .doc = "Tokens per sequence."},
      {.section = "training",
       .name = "batch_size",
       .field = FIELD(training.batchSize),
       .unit = "sequences",
       .minimum = 1,
       .maximum = 1 << 24,
       .required = true,
       .identity = true,
       .doc = "GBS: sequences per optimizer step over all devices. GBS = MBS x GAS x devices, "
              "with a whole number of accumulation steps (GAS)."},
      {.section = "training",
       .name = "micro_batch_size",
       .field = FIELD(training.microBatchSize),
       .unit = "sequences",
       .minimum = 1,
       .maximum = 1 << 20,
       .choices = {{"auto", 0}},
       .defaultText = "\"auto\"",
       .doc = "MBS: sequences per device and micro-step. `auto` takes the divisor of GBS / "
              "devices with the most predicted tokens/s among those whose plans meet the budget."},
      {.section = "training",
       .name = "train_iters",
       .field = FIELD(training.trainIters),
       .unit = "steps",
       .minimum = 1,
       .maximum = kMaxSteps,
       .defaultText = "from `train_tokens` or `[[phase]]`, else **required**",
       .runTime = true,
       .doc = "Optimizer steps of the job."},
      {.section = "training",
       .name = "train_tokens",
       .field = FIELD(training.trainTokens),
       .unit = "tokens",
       .minimum = 1,
       .maximum = kMaxTokens,
       .defaultText = "none",
       .doc = "Tokens to train on, in the place of `train_iters`, which follows: the least number "
              "of steps that reads as many."},
      {.section = "training",
       .name = "compute_dtype",
       .field = FIELD(training.computeDType),
       .choices = {{"f32", of(DataType::F32)},
                   {"float32", of(DataType::F32)},
                   {"fp32", of(DataType::F32)},
                   {"bf16", of(DataType::BF16)},
                   {"bfloat16", of(DataType::BF16)},
                   {"f64", of(DataType::F64)},
                   {"float64", of(DataType::F64)},
                   {"fp64", of(DataType::F64)}},
       .identity = true,
       .doc = "Type of activations and of the weights that GEMMs read. Master weights, main "
              "gradients and moments (see optimizer.type) are f32 with `bf16`. `f64` is for "
              "checks."},
      {.section = "training",
       .name = "document_mask",
       .alias = "reset_attention_mask",
       .field = FIELD(training.documentMask),
       .identity = true,
       .doc = "Attention stays within a document: a token sees no key before the start of its "
              "own document. A document starts after the end-of-document token of the document "
              "before it. This is Megatron's `reset_attention_mask` (also accepted as a name) and "
              "Fast-LLM's `cross_document_attention: false`. Positions and the loss stay as "
              "they are (`document_positions`, `document_loss_mask`), and MFU is computed as "
              "without the mask."},
      {.section = "training",
       .name = "document_positions",
       .alias = "reset_position_ids",
       .field = FIELD(training.documentPositions),
       .identity = true,
       .doc = "Positions restart at 0 with each document of a row; a document that began "
              "before the row counts from the start of the row. This is Megatron's "
              "`reset_position_ids` (also accepted as a name) and Fast-LLM's "
              "`cross_document_position_embeddings: false`. With RoPE, attention depends only on "
              "differences of positions, so with `document_mask` it changes nothing but rounding; "
              "without it, tokens see other documents at other distances. In `gpt2`, it decides "
              "which learned position each token gets."},
      {.section = "training",
       .name = "document_loss_mask",
       .alias = "eod_mask_loss",
       .field = FIELD(training.documentLossMask),
       .runTime = true,
       .identity = true,
       .doc =
           "The last token of a document has no loss, so that nothing is learned from predicting "
           "the first token of the next document; the last token itself is still learned. Where "
           "documents end with an end-of-document token, this is Megatron's `eod_mask_loss` "
           "(also accepted as a name), which leaves out the loss of each position whose input is "
           "that token. Validation leaves these losses out too. With `packing = "
           "\"best_fit\"`, training leaves them out even if the key is false; validation does "
           "not."},
      {.section = "training",
       .name = "z_loss",
       .field = FIELD(training.zLoss),
       .minimum = 0,
       .maximum = 1,
       .identity = true,
       .doc =
           "z: gradients are those of the cross entropy plus z lse^2 of each token, where lse is "
           "the log of the softmax's denominator, which keeps logits small. PaLM and OLMo 2 "
           "use 1e-4 and 1e-5. The loss that is reported is the cross entropy. 0: none."},
      {.section = "training",
       .name = "seed",
       .field = FIELD(training.seed),
       .minimum = 0,
       .maximum = kUnbounded,
       .runTime = true,
       .identity = true,
       .doc = "Seed of all random numbers: initial weights and the order of samples."},

      {.section = "optimizer",
       .name = "type",
       .field = FIELD(optimizer.type),
       .choices = {{"adamw"}, {"adamw8bit"}, {"muon"}},
       .identity = true,
       .doc = "AdamW: decay is decoupled from the gradient. `adamw8bit` keeps the moments of "
              "matrices in 8 bits each, with an f32 scale for each 256 elements: 2.03 bytes per "
              "parameter in place of 8. Norms, biases and matrices whose elements are no multiple "
              "of 256 keep f32 moments. Use it with a `beta2` of 0.95 or less: codes are "
              "rounded to nearest, so a slower decay is lost in rounding. If an element's "
              "gradients become 100 times smaller while those of its neighbours stay large, "
              "the root of its second moment stays 1.3 times too large with a `beta2` of 0.9, "
              "2.2 times with 0.95, 36 times with 0.98, and 100 times (it never falls) from "
              "0.985 on. `muon` steps the matrices of layers by their orthogonalized momentum, as "
              "`torch.optim.Muon` does ([more](optimizers.md#muon)), and the embedding, the head, "
              "norms and biases with AdamW."},
      {.section = "optimizer",
       .name = "weight_decay",
       .field = FIELD(optimizer.weightDecay),
       .minimum = 0,
       .maximum = 10,
       .runTime = true,
       .identity = true,
       .doc = "A step subtracts lr x weight_decay x weight from each decayed weight."},
      {.section = "optimizer",
       .name = "beta1",
       .field = FIELD(optimizer.beta1),
       .minimum = 0,
       .maximum = kMaxBeta,
       .runTime = true,
       .identity = true,
       .doc = "Decay of the first moment."},
      {.section = "optimizer",
       .name = "beta2",
       .field = FIELD(optimizer.beta2),
       .minimum = 0,
       .maximum = kMaxBeta,
       .runTime = true,
       .identity = true,
       .doc = "Decay of the second moment."},
      {.section = "optimizer",
       .name = "eps",
       .field = FIELD(optimizer.eps),
       .minimum = 1e-20,
       .maximum = 1,
       .runTime = true,
       .identity = true,
       .doc = "Added to the root of the second moment."},
      {.section = "optimizer",
       .name = "muon_lr",
       .field = FIELD(optimizer.muonLr),
       .minimum = 0,
       .maximum = 10,
       .defaultText = "lr_schedule.lr",
       .runTime = true,
       .identity = true,
       .doc = "Peak learning rate of Muon's matrices. Each step's rate is that of the schedule "
              "x `muon_lr` / `lr_schedule.lr`."},
      {.section = "optimizer",
       .name = "muon_momentum",
       .field = FIELD(optimizer.muonMomentum),
       .minimum = 0,
       .maximum = kMaxBeta,
       .runTime = true,
       .identity = true,
       .doc =
           "Muon: a step adds 1 - `muon_momentum` of the gradient's difference to the momentum."},
      {.section = "optimizer",
       .name = "router_bias_update_speed",
       .field = FIELD(optimizer.routerBiasUpdateSpeed),
       .minimum = 0,
       .maximum = 1,
       .runTime = true,
       .identity = true,
       .doc = "Of routers with a bias that keeps experts equally busy: after each step the bias of "
              "an expert grows by so much if the expert got fewer rows than the mean, and shrinks "
              "by so much if it got more. 0: the bias stays as it is. DeepSeek-AI 2024 (2.1.2)."},
      {.section = "optimizer",
       .name = "muon_nesterov",
       .field = FIELD(optimizer.muonNesterov),
       .identity = true,
       .doc = "Muon: the direction is the momentum as it would be after this gradient once more."},
      {.section = "optimizer",
       .name = "muon_ns_steps",
       .field = FIELD(optimizer.muonNsSteps),
       .unit = "steps",
       .minimum = 0,
       .maximum = 99,
       .identity = true,
       .doc = "Muon: steps of the Newton-Schulz iteration."},
      {.section = "optimizer",
       .name = "muon_ns_a",
       .field = FIELD(optimizer.muonNsA),
       .minimum = -100,
       .maximum = 100,
       .identity = true,
       .doc = "Muon: the first of `ns_coefficients`. With A = X X^T, a Newton-Schulz step is "
              "X = a X + (b A + c A^2) X."},
      {.section = "optimizer",
       .name = "muon_ns_b",
       .field = FIELD(optimizer.muonNsB),
       .minimum = -100,
       .maximum = 100,
       .identity = true,
       .doc = "Muon: the second coefficient."},
      {.section = "optimizer",
       .name = "muon_ns_c",
       .field = FIELD(optimizer.muonNsC),
       .minimum = -100,
       .maximum = 100,
       .identity = true,
       .doc = "Muon: the third coefficient."},
      {.section = "optimizer",
       .name = "muon_eps",
       .field = FIELD(optimizer.muonEps),
       .minimum = 1e-20,
       .maximum = 1,
       .runTime = true,
       .identity = true,
       .doc = "Muon: smallest norm by which a direction is divided."},
      {.section = "optimizer",
       .name = "muon_adjust_lr_fn",
       .field = FIELD(optimizer.muonAdjustLrFn),
       .choices = {{"match_rms_adamw"}, {"original"}, {"spectral_unclamped"}},
       .identity = true,
       .doc = "Muon: what the rate of a matrix is multiplied by, but not in its weight decay. "
              "`match_rms_adamw`: 0.2 sqrt(max(fan_out, fan_in)), for which the rate and the decay "
              "of AdamW fit; `original`: sqrt(max(1, fan_out / fan_in)), with rates about 0.02; "
              "`spectral_unclamped`: sqrt(fan_out / fan_in)."},
      {.section = "optimizer",
       .name = "muon_ns_dtype",
       .field = FIELD(optimizer.muonNsDType),
       .choices = {{"bf16"}, {"f32"}},
       .identity = true,
       .doc = "Muon: dtype of the Newton-Schulz iteration; its sums are f32. With "
              "`compute_dtype` = \"f64\" it is f64."},
      {.section = "optimizer",
       .name = "muon_owners",
       .field = FIELD(optimizer.muonOwners),
       .choices = {{"auto"}, {"yes"}, {"no"}},
       .doc =
           "Muon, where ranks divide the state: whether each matrix is orthogonalized by one rank, "
           "from which the others get the result, or by all ranks. `auto`: what the cost model "
           "finds faster for the matrices of each shape (without a device spec: all ranks)."},
      {.section = "optimizer",
       .name = "clip_grad",
       .field = FIELD(optimizer.clipGrad),
       .minimum = 0,
       .maximum = 1e9,
       .runTime = true,
       .identity = true,
       .doc = "Gradients are scaled down to this global norm; 0: no clipping."},
      {.section = "optimizer",
       .name = "decay_norms_and_biases",
       .field = FIELD(optimizer.decayNormsAndBiases),
       .identity = true,
       .doc = "Weight decay on the weights of norms and on biases too."},

      {.section = "lr_schedule",
       .name = "style",
       .field = FIELD(lrSchedule.style),
       .choices = {{"constant"}, {"linear"}, {"cosine"}, {"wsd"}, {"inverse_sqrt"}, {"piecewise"}},
       .runTime = true,
       .identity = true,
       .doc = "Shape after the linear warm-up: `wsd` is warm-up, stable, decay; `inverse_sqrt` is "
              "`lr` x sqrt(`warmup_iters` / step), at least `min_lr`; `piecewise` takes everything "
              "from `points` ([formulas](running.md#the-learning-rate))."},
      {.section = "lr_schedule",
       .name = "lr",
       .field = FIELD(lrSchedule.lr),
       .minimum = 0,
       .maximum = 10,
       .runTime = true,
       .identity = true,
       .doc = "Peak learning rate."},
      {.section = "lr_schedule",
       .name = "min_lr",
       .field = FIELD(lrSchedule.minLr),
       .minimum = 0,
       .maximum = 10,
       .derived = {"lr_schedule.lr", 10},
       .runTime = true,
       .identity = true,
       .doc = "Learning rate from step `decay_iters` on; at most `lr`."},
      {.section = "lr_schedule",
       .name = "min_lr_ratio",
       .field = FIELD(lrSchedule.minLrRatio),
       .minimum = 0,
       .maximum = 1,
       .defaultText = "none",
       .runTime = true,
       .identity = true,
       .doc = "In the place of `min_lr`: the same as a fraction of `lr`. Of the two, that of a "
              "`--set` goes before that of the file."},
      {.section = "lr_schedule",
       .name = "warmup_iters",
       .field = FIELD(lrSchedule.warmupIters),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .runTime = true,
       .identity = true,
       .doc = "Steps of linear warm-up; below `decay_iters`."},
      {.section = "lr_schedule",
       .name = "warmup_ratio",
       .field = FIELD(lrSchedule.warmupRatio),
       .minimum = 0,
       .maximum = 1,
       .defaultText = "none",
       .runTime = true,
       .identity = true,
       .doc = "In the place of `warmup_iters`: the same as a fraction of `decay_iters`, rounded. "
              "Of the two, that of a `--set` goes before that of the file."},
      {.section = "lr_schedule",
       .name = "warmup_init",
       .field = FIELD(lrSchedule.warmupInit),
       .minimum = 0,
       .maximum = 10,
       .runTime = true,
       .identity = true,
       .doc = "Learning rate from which the warm-up starts; it may be above `lr`."},
      {.section = "lr_schedule",
       .name = "decay_iters",
       .field = FIELD(lrSchedule.decayIters),
       .unit = "steps",
       .minimum = 1,
       .maximum = kMaxSteps,
       .derived = {"training.train_iters"},
       .runTime = true,
       .identity = true,
       .doc = "Step at which `min_lr` is reached, counted from `restart_step`; at most the steps "
              "up to `train_iters`, which are the default."},
      {.section = "lr_schedule",
       .name = "wsd_decay_fraction",
       .field = FIELD(lrSchedule.wsdDecayFraction),
       .minimum = 0,
       .maximum = 1,
       .runTime = true,
       .identity = true,
       .doc = "wsd: the last part of `decay_iters`, in which the rate falls."},
      {.section = "lr_schedule",
       .name = "wsd_decay_style",
       .field = FIELD(lrSchedule.wsdDecayStyle),
       .choices = {{"linear"}, {"cosine"}, {"exponential"}, {"minus_sqrt"}},
       .runTime = true,
       .identity = true,
       .doc = "wsd: the shape of that part, with Megatron's names; `minus_sqrt` is the 1-sqrt "
              "cooldown."},
      {.section = "lr_schedule",
       .name = "points",
       .field = FIELD(lrSchedule.points),
       .defaultText = "none",
       .runTime = true,
       .identity = true,
       .doc = "piecewise: \"STEP:RATE\" in ascending order, as in `[\"0:0\", \"100:3e-4\", "
              "\"5000:3e-5\"]`. The rate is linear between points, and constant before the first "
              "and after the last. No other key but `restart_step` has an effect."},
      {.section = "lr_schedule",
       .name = "restart_step",
       .field = FIELD(lrSchedule.restartStep),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .runTime = true,
       .identity = true,
       .doc = "The schedule begins behind this step: every other number of steps counts from it. "
              "It is for runs that go on from a checkpoint of this step or a later one "
              "([example](running.md#the-learning-rate))."},

      {.section = "memory",
       .name = "budget",
       .field = FIELD(memory.budget),
       .unit = "bytes",
       .minimum = 0,
       .maximum = kUnbounded,
       .doc = "Planned peak of device memory that a plan may not exceed; 0: what the device spec "
              "leaves to a plan (docs/devices.md). Without a spec there is no limit."},
      {.section = "memory",
       .name = "recompute",
       .field = FIELD(memory.recompute),
       .choices = {{"none", of(RecomputeMode::None)},
                   {"activation", of(RecomputeMode::Activation)},
                   {"full", of(RecomputeMode::Full)},
                   {"block", of(RecomputeMode::Block)},
                   {"auto", of(RecomputeMode::Auto)},
                   {"keep-all", of(RecomputeMode::KeepAll)}},
       .doc = "What the backward pass recomputes: `none` only what costs no extra kernel, "
              "`activation` the norms and the output of the MLP's activation (in a Llama the "
              "same as `none`), `full` also the MLP's first linear layers (gate and up), "
              "`block` whole layers, `auto` whatever meets the budget in the least time. "
              "`keep-all` keeps every value, for comparisons."},
      {.section = "memory",
       .name = "recompute_stride",
       .field = FIELD(memory.recomputeStride),
       .unit = "layers",
       .minimum = 1,
       .maximum = kMaxLayers,
       .doc = "`recompute = \"block\"`: every n-th layer is recomputed."},
      {.section = "memory",
       .name = "loss_chunk",
       .field = FIELD(memory.lossChunk),
       .unit = "tokens",
       .minimum = 1,
       .maximum = kMaxInt32,
       .choices = {{"auto", 0}},
       .defaultText = "\"auto\"",
       .doc = "Tokens whose logits exist at a time. For each chunk of so many tokens, the gradient "
              "of the head's weights is read and written once: larger chunks are faster and take "
              "more memory. `auto` takes the fastest that meets the budget, with at most 4 GiB of "
              "logits (without a device spec 256 MiB). The chunk changes only the order in which "
              "this gradient is summed."},

      {.section = "distributed",
       .name = "nodes",
       .field = FIELD(distributed.nodes),
       .unit = "nodes",
       .minimum = 1,
       .maximum = 1 << 20,
       .doc = "Machines of the job."},
      {.section = "distributed",
       .name = "devices_per_node",
       .field = FIELD(distributed.devicesPerNode),
       .unit = "devices",
       .minimum = 1,
       .maximum = 1024,
       .doc = "Devices in each machine; one process drives one device."},
      {.section = "distributed",
       .name = "strategy",
       .field = FIELD(distributed.strategy),
       .choices = {{"no_shard", of(ShardingStrategy::NoShard)},
                   {"ddp", of(ShardingStrategy::NoShard)},
                   {"zero1", of(ShardingStrategy::Zero1)},
                   {"zero2", of(ShardingStrategy::Zero2)},
                   {"zero3", of(ShardingStrategy::Zero3)},
                   {"full_shard", of(ShardingStrategy::Zero3)},
                   {"hybrid_shard", of(ShardingStrategy::HybridShard)},
                   {"hybrid_shard_zero2", of(ShardingStrategy::HybridShardZero2)}},
       .doc = "What the devices divide between them: `no_shard` (another name: `ddp`) nothing, "
              "`zero1` optimizer state, `zero2` also gradients, `zero3` (another name: "
              "`full_shard`) also weights. `hybrid_shard` divides like `zero3` inside a node and "
              "copies across nodes, `hybrid_shard_zero2` like `zero2`."},
      {.section = "distributed",
       .name = "shard_group",
       .field = FIELD(distributed.shardGroup),
       .unit = "devices",
       .minimum = 1,
       .maximum = kMaxInt32,
       .choices = {{"auto", int(DistributedConfig::kAutoGroup)},
                   {"node", int(DistributedConfig::kNodeGroup)},
                   {"world", int(DistributedConfig::kWorldGroup)}},
       .defaultText = "\"auto\"",
       .doc = "Devices that divide the state between them: those of a `node`, all of the `world`, "
              "or so many consecutive ones. `auto` is `node` for the hybrid strategies, else "
              "`world`."},
      {.section = "distributed",
       .name = "reduce_gradients",
       .field = FIELD(distributed.reduce),
       .choices = {{"auto"}, {"each"}, {"last"}},
       .doc =
           "With gradient accumulation: whether gradients are summed over devices in `each` "
           "micro-step, which keeps only a device's piece of them, or in the `last` one, which "
           "moves fewer bytes. `auto` is `last` where the strategy divides no gradients, and else "
           "the faster of the two within the budget (without a device spec: `each`)."},
      {.section = "distributed",
       .name = "reduce_dtype",
       .field = FIELD(distributed.reduceDType),
       .choices = {{"f32"}, {"bf16"}, {"f16"}},
       .identity = true,
       .doc = "The dtype in which gradients travel between devices. Sums over micro-steps stay in "
              "f32. Models in f64 keep f64. `f16` rounds to 11 bits where `bf16` rounds to 8: the "
              "gradients of a layer are scaled by one power of two, which the largest of them on "
              "any device gives, so that no sum overflows. Gradients smaller than that largest one "
              "times the number of devices, divided by 2^27, lose further bits."},
      {.section = "distributed",
       .name = "reshard_after_forward",
       .field = FIELD(distributed.reshardAfterForward),
       .choices = {{"auto"}, {"yes"}, {"no"}},
       .doc =
           "Where weights are divided: `yes` gathers them again for the backward pass, `no` "
           "keeps them from the forward pass, which takes memory. `auto` decides for each layer, "
           "together with `memory.recompute`: the fastest plan within the budget; with "
           "`memory.recompute_stride` above 1 it is `yes`."},
      {.section = "distributed",
       .name = "overlap",
       .field = FIELD(distributed.overlap),
       .choices = {{"auto"}, {"yes"}, {"gathers"}, {"no"}},
       .doc =
           "What devices exchange while they compute: `gathers` only gathers weights before they "
           "are needed, `yes` also sums gradients while the backward pass goes on, `no` does "
           "neither. Both take memory. `auto` is the fastest of the three within the budget."},
      {.section = "distributed",
       .name = "expert_parallel",
       .field = FIELD(distributed.expertParallel),
       .unit = "devices",
       .minimum = 1,
       .maximum = 1024,
       .doc =
           "Devices that divide the experts of a layer between them: each has 1/N of the experts, "
           "and computes the choices of all N devices that are of its experts. Divides the number "
           "of experts, and the devices that divide the state (`shard_group`)."},
      {.section = "distributed",
       .name = "expert_capacity",
       .field = FIELD(distributed.expertCapacity),
       .minimum = 0,
       .maximum = 1024,
       .doc =
           "With `expert_parallel` = N: how many choices a device computes at a time, in multiples "
           "of what it gets if all devices' experts are equally busy. It gets at most N times as "
           "many (fewer with more choices per token than experts per device). What is beyond is "
           "computed after it, in the same memory if it is recomputed (`memory.recompute`), and "
           "counted (`late` of `router` in metrics.jsonl). No choice is dropped. 0: all at once."},

      {.section = "data",
       .name = "train",
       .field = FIELD(data.train),
       .defaultText = "none",
       .runTime = true,
       .identity = true,
       .doc = "Token files or globs to train on, relative to the TOML file; `lmc-run` needs it, "
              "or `[[data.source]]` in its place."},
      {.section = "data",
       .name = "validation",
       .field = FIELD(data.validation),
       .defaultText = "none",
       .runTime = true,
       .doc = "Token files or globs of the validation set; several sets with names: "
              "`[[validation]]`."},
      {.section = "data",
       .name = "end_of_document",
       .field = FIELD(data.endOfDocument),
       .unit = "token id",
       .minimum = -1,
       .maximum = kMaxInt32,
       .runTime = true,
       .identity = true,
       .doc = "For `document_mask`, `document_positions` and `document_loss_mask`: the token after "
              "which the next document starts, in token files "
              "that do not say where documents start; -1: such files have no such token. The "
              "token counts as the last token of a document, as nanoGPT writes it. llm.c writes "
              "it in front of each document: then it counts as the end of the document before, "
              "and a document's first token does not see it. Files of `lmc-data pack` say where "
              "documents start and do not need this key."},
      {.section = "data",
       .name = "format",
       .field = FIELD(data.format),
       .choices = {{"auto"}, {"uint16"}, {"uint32"}, {"megatron"}},
       .runTime = true,
       .doc = "Format of `.bin` files that have no header. `auto`: a file beside an `.idx` file of "
              "the same name is Megatron's format, any other is `uint16`, as nanoGPT writes it, "
              "unless its contents contradict, which is an error. Files of `lmc-data pack` and of "
              "llm.c are known by their header."},
      {.section = "data",
       .name = "shuffle_block",
       .field = FIELD(data.shuffleBlock),
       .unit = "tokens",
       .minimum = 1,
       .maximum = kMaxPositions,
       .derived = {"training.sequence_length"},
       .runTime = true,
       .identity = true,
       .doc = "Tokens that stay together when the training data is shuffled; a multiple of "
              "`sequence_length`. A run can go on with another sequence length if it divides the "
              "block: give the longest length of the whole training. The end of a file that is "
              "shorter than a block is not used."},
      {.section = "data",
       .name = "packing",
       .field = FIELD(data.packing),
       .choices = {{"concatenate"}, {"best_fit"}},
       .runTime = true,
       .identity = true,
       .doc = "How the documents of a training file come to sequences. `concatenate`: one after "
              "the other, cut wherever a sequence ends. `best_fit`: a document that fits into a "
              "sequence is not cut ([packing](data.md#packing)); `shuffle_block` is "
              "`sequence_length` then, and files say where documents start, as those of `lmc-data "
              "pack` do."},
      {.section = "data",
       .name = "allow_repeats",
       .field = FIELD(data.allowRepeats),
       .runTime = true,
       .doc = "Train even if the data has fewer sequences than a global batch, which then has some "
              "of them more than once, or a file is given twice."},
      {.section = "data",
       .name = "num_workers",
       .field = FIELD(data.numWorkers),
       .unit = "threads",
       .minimum = 1,
       .maximum = 1024,
       .runTime = true,
       .doc = "Threads that prepare batches ahead of time."},

      {.section = "checkpoint",
       .name = "interval",
       .field = FIELD(checkpoint.interval),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .defaultText = "by `interval_minutes`",
       .runTime = true,
       .doc = "Steps between checkpoints; 0: only at the end."},
      {.section = "checkpoint",
       .name = "interval_minutes",
       .field = FIELD(checkpoint.intervalMinutes),
       .unit = "minutes",
       .minimum = 0,
       .maximum = 1e6,
       .runTime = true,
       .doc =
           "Minutes between checkpoints, in the place of `interval`: the run takes as many steps "
           "as the predicted time of a step gives, so that all ranks and all restarts save after "
           "the same steps. Without a prediction (a plan without a device spec) it is 1,000 "
           "steps. 0: only at the end."},
      {.section = "checkpoint",
       .name = "keep",
       .field = FIELD(checkpoint.keep),
       .unit = "checkpoints",
       .minimum = 0,
       .maximum = kMaxInt32,
       .runTime = true,
       .doc = "Newest checkpoints to keep; 0: all."},
      {.section = "checkpoint",
       .name = "keep_every",
       .field = FIELD(checkpoint.keepEvery),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .runTime = true,
       .doc =
           "Checkpoints whose step is a multiple of this are made, whatever `interval` says, and "
           "kept beside the newest; 0: none."},
      {.section = "checkpoint",
       .name = "keep_best",
       .field = FIELD(checkpoint.keepBest),
       .defaultText = "none",
       .runTime = true,
       .doc =
           "The checkpoint with the lowest validation loss is kept beside the newest: "
           "`data.validation`, or the name of a `[[validation]]` set. The loss of a checkpoint is "
           "that of the latest validation before it."},
      {.section = "checkpoint",
       .name = "save_best",
       .field = FIELD(checkpoint.saveBest),
       .runTime = true,
       .doc = "Save, too, after each validation in which the loss of `keep_best` is the lowest of "
              "the run."},
      {.section = "checkpoint",
       .name = "background",
       .field = FIELD(checkpoint.background),
       .runTime = true,
       .doc = "Copy the state to the host's memory, and write checkpoints and exports from there "
              "behind the next steps. If the host has too little memory for the copy, steps wait, "
              "as with `false`."},
      {.section = "checkpoint",
       .name = "export_interval",
       .field = FIELD(checkpoint.exportInterval),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .runTime = true,
       .doc = "Steps between Hugging Face exports, which are kept; 0: none."},
      {.section = "checkpoint",
       .name = "export_command",
       .field = FIELD(checkpoint.exportCommand),
       .defaultText = "none",
       .runTime = true,
       .doc = "Command for `/bin/sh` that is run for each export of `export_interval`, such as "
              "lm-evaluation-harness ([evaluating exports](running.md#evaluating-exports))."},

      {.section = "monitoring",
       .name = "log_interval",
       .field = FIELD(monitoring.logInterval),
       .unit = "steps",
       .minimum = 1,
       .maximum = kMaxSteps,
       .runTime = true,
       .doc = "Steps between lines on the console; `metrics.jsonl` has every step."},
      {.section = "monitoring",
       .name = "validation_interval",
       .field = FIELD(monitoring.validationInterval),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .runTime = true,
       .doc = "Steps between validations; 0: only at the end."},
      {.section = "monitoring",
       .name = "validation_iters",
       .field = FIELD(monitoring.validationIters),
       .unit = "batches",
       .minimum = 0,
       .maximum = kMaxSteps,
       .runTime = true,
       .doc = "Global batches per validation; 0: all of the data."},
      {.section = "monitoring",
       .name = "tensorboard",
       .field = FIELD(monitoring.tensorboard),
       .runTime = true,
       .doc = "Write TensorBoard event files to `tensorboard/` in the run's folder."},
      {.section = "monitoring",
       .name = "prometheus",
       .field = FIELD(monitoring.prometheus),
       .defaultText = "none",
       .runTime = true,
       .doc = "File for the textfile collector of Prometheus's node_exporter; its name ends in "
              "`.prom`. A relative path is in the run's folder."},
      {.section = "monitoring",
       .name = "on_event",
       .field = FIELD(monitoring.onEvent),
       .defaultText = "none",
       .runTime = true,
       .doc = "Command for `/bin/sh` that is started for each event of the run ([watching a "
              "run](running.md#watching-a-run)) and never waited for."},
      {.section = "monitoring",
       .name = "wandb_project",
       .field = FIELD(monitoring.wandbProject),
       .defaultText = "none",
       .runTime = true,
       .doc =
           "Project of Weights & Biases that `lmc-wandb`, which is started beside the run, sends "
           "the metrics to."},
      {.section = "monitoring",
       .name = "wandb_entity",
       .field = FIELD(monitoring.wandbEntity),
       .defaultText = "that of the user",
       .runTime = true,
       .doc = "User or team of that project."},
      {.section = "monitoring",
       .name = "wandb_group",
       .field = FIELD(monitoring.wandbGroup),
       .defaultText = "none",
       .runTime = true,
       .doc = "Group of the run there."},
      {.section = "monitoring",
       .name = "wandb_name",
       .field = FIELD(monitoring.wandbName),
       .defaultText = "the name of the run's folder",
       .runTime = true,
       .doc = "Name of the run there."},
      {.section = "monitoring",
       .name = "logits",
       .field = FIELD(monitoring.logits),
       .doc = "For debugging: also compile a function that writes the logits."},
      {.section = "monitoring",
       .name = "router",
       .field = FIELD(monitoring.router),
       .doc = "Write to `metrics.jsonl` what the [routers](running.md#routers-of-experts) of each "
              "layer with experts do. Without it the plan has no command for that."},

      {.section = "generation",
       .name = "prompts",
       .field = FIELD(generation.prompts),
       .defaultText = "none",
       .runTime = true,
       .doc =
           "File with prompts that the model continues now and then, relative to this file: one "
           "per line or, if its name ends in `.jsonl`, one object `{\"prompt\": TEXT}` per line. "
           "The results go to `generated.jsonl`. The plan must be compiled with a file; a run "
           "may name another."},
      {.section = "generation",
       .name = "interval",
       .field = FIELD(generation.interval),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .runTime = true,
       .doc = "Steps between generations; 0: only at the end."},
      {.section = "generation",
       .name = "max_new_tokens",
       .field = FIELD(generation.maxNewTokens),
       .unit = "tokens",
       .minimum = 1,
       .maximum = 1e6,
       .runTime = true,
       .doc = "Tokens that are generated for a prompt at most. Each costs a forward pass over MBS "
              "sequences."},
      {.section = "generation",
       .name = "temperature",
       .field = FIELD(generation.temperature),
       .minimum = 0,
       .maximum = 100,
       .runTime = true,
       .doc = "Logits are divided by this before a token is drawn; 0: the most likely token is "
              "taken."},
      {.section = "generation",
       .name = "top_p",
       .field = FIELD(generation.topP),
       .minimum = 0,
       .maximum = 1,
       .runTime = true,
       .doc = "A token is drawn from the fewest tokens whose probabilities have at least this sum "
              "(nucleus sampling, arXiv 1904.09751)."},

      {.section = "guard",
       .name = "action",
       .field = FIELD(guard.action),
       .choices = {{"stop"}, {"warn"}, {"off"}},
       .runTime = true,
       .doc =
           "What happens when the loss has diverged for good: `stop` ends the run with exit code "
           "4 and keeps the diverged state aside, `warn` only warns, `off` does not look."},
      {.section = "guard",
       .name = "on_spike",
       .field = FIELD(guard.onSpike),
       .choices = {{"warn"}, {"skip"}, {"rollback"}, {"stop"}},
       .runTime = true,
       .identity = true,
       .doc =
           "What happens at a spike: `warn` only warns; `skip` leaves out the update of each step "
           "that is above the limits of `spike`, as the steps up to two before it give them; "
           "`rollback` goes back to the newest checkpoint from before the spike, and on behind the "
           "data that was read so far; `stop` ends the run with exit code 4."},
      {.section = "guard",
       .name = "rollbacks",
       .field = FIELD(guard.rollbacks),
       .minimum = 0,
       .maximum = 1e6,
       .runTime = true,
       .doc = "How often a run goes back at most; a further spike ends it with exit code 4. See "
              "`refund`."},
      {.section = "guard",
       .name = "refund",
       .field = FIELD(guard.refund),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .runTime = true,
       .doc =
           "After so many steps without a spike, the rollbacks before count no more; 0: all of a "
           "run count."},
      {.section = "guard",
       .name = "skip_steps",
       .field = FIELD(guard.skipSteps),
       .defaultText = "none",
       .runTime = true,
       .identity = true,
       .doc = "Steps whose update is left out, such as `\"120,130-140\"`. Their data is read, and "
              "the schedule goes on, but weights and moments stay as they are."},
      {.section = "guard",
       .name = "window",
       .field = FIELD(guard.window),
       .unit = "steps",
       .minimum = 10,
       .maximum = 1e6,
       .runTime = true,
       .doc = "Steps over which the running deviations of the loss and of the gradient norm reach; "
              "their running means reach over a tenth of it."},
      {.section = "guard",
       .name = "spike",
       .field = FIELD(guard.spike),
       .unit = "deviations",
       .minimum = 2,
       .maximum = 1000,
       .runTime = true,
       .doc = "A step is high if its loss or gradient norm is more than this many deviations above "
              "its running mean. Two high steps in a row are a spike, which gives a warning, and "
              "so is one whose loss and norm are both high, or that is far outside of what the run "
              "has shown ([spikes](running.md#spikes-and-divergence))."},
      {.section = "guard",
       .name = "patience",
       .field = FIELD(guard.patience),
       .unit = "steps",
       .minimum = 1,
       .maximum = 1e6,
       .runTime = true,
       .doc = "A loss that stays high for this many steps, and does not fall back, has diverged."},
      {.section = "guard",
       .name = "rise",
       .field = FIELD(guard.rise),
       .unit = "nats",
       .minimum = 0.01,
       .maximum = 1000,
       .runTime = true,
       .doc = "A loss of more than this above its lowest level is high."},
      {.section = "guard",
       .name = "plateau",
       .field = FIELD(guard.plateau),
       .minimum = 0,
       .maximum = 1,
       .runTime = true,
       .doc =
           "A loss whose mean over the latest eighth of the run's steps is less than this part of "
           "it below that of the eighth before gives a warning, if noise does not hide a fall; "
           "0: none."},
      {.section = "guard",
       .name = "validation",
       .field = FIELD(guard.validation),
       .unit = "nats",
       .minimum = 0,
       .maximum = 1000,
       .runTime = true,
       .doc =
           "A validation loss of more than this above the lowest one of its set gives a warning: "
           "a model that learns its data by heart gets worse at other text; 0: none."},
      {.section = "guard",
       .name = "compare_weights",
       .field = FIELD(guard.compareWeights),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .runTime = true,
       .doc = "Steps between two comparisons of all weights that exist twice: on several ranks, or "
              "as a compute copy beside its master weights. A difference ends the run with exit "
              "code 4, because a machine has damaged them; 0: none."},
      {.section = "guard",
       .name = "update_ratio",
       .field = FIELD(guard.updateRatio),
       .minimum = 0,
       .maximum = 1000,
       .runTime = true,
       .doc = "A step whose update of a matrix is more than this part of its weights (L2 norms) "
              "gives a warning, and so does a tensor without a gradient. They are looked at when a "
              "save is written behind the steps; 0: not at all."},
      {.section = "guard",
       .name = "dead_expert",
       .field = FIELD(guard.deadExpert),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .runTime = true,
       .doc =
           "An expert that gets no token in this many steps in a row gives a warning; 0: none is "
           "looked for."},

      {.section = "target",
       .name = "device",
       .field = FIELD(target.device),
       .doc = "`cpu`, or `cuda:sm_XY` with the GPU's compute capability (`cuda:sm_90a`)."},
      {.section = "target",
       .name = "cpu",
       .field = FIELD(target.cpu),
       .doc = "CPU to generate code for: `native`, or a name that LLVM knows (`x86-64`, "
              "`x86-64-v3`, `sapphirerapids`)."},
      {.section = "target",
       .name = "spec",
       .field = FIELD(target.spec),
       .defaultText = "by `device`",
       .doc = "What the device can do (docs/devices.md): `h100-sxm`, `h200`, `a100-80gb`, "
              "`a100-40gb`, `cpu`, or a TOML file, relative to this one."},
      {.section = "target",
       .name = "make_vocab_size_divisible_by",
       .field = FIELD(target.vocabMultiple),
       .unit = "rows",
       .minimum = 1,
       .maximum = 65536,
       .choices = {{"auto", 0}},
       .defaultText = "\"auto\"",
       .doc =
           "The head's weights (with tied embeddings, these too) are padded with rows of zeros to "
           "a multiple of this. Padded rows are no tokens: the training, checkpoints and exports "
           "stay the same. `auto` is 64 on a GPU in bf16 if the products of the head are predicted "
           "to be faster then, else 1. The name is Megatron's."},
      {.section = "target",
       .name = "make_intermediate_size_divisible_by",
       .field = FIELD(target.intermediateMultiple),
       .unit = "columns",
       .minimum = 1,
       .maximum = 65536,
       .choices = {{"auto", 0}},
       .defaultText = "\"auto\"",
       .doc =
           "The MLPs are padded with columns of zeros to a multiple of this: `gate_proj` and "
           "`up_proj` get rows, `down_proj` columns. They stay zeros, so the training, "
           "checkpoints and exports stay the same. `auto` is 64 on a GPU in bf16 if the products "
           "of the MLPs are predicted to be faster then, else 1; with `adamw8bit` and in `gpt2`, "
           "whose MLPs have no gate, it is 1."},
      {.section = "target",
       .name = "peak_tflops",
       .field = FIELD(target.peakTflops),
       .unit = "TFLOP/s",
       .minimum = 0,
       .maximum = 1e6,
       .runTime = true,
       .doc = "Peak of one device, for MFU; 0: from the device's specification."},
  };
#undef FIELD
}

// Returns the keys of the table [[data.source]] with this name.
std::vector<Key> sourceKeys(const std::string &name) {
  const std::string section = "data.source." + name;
#define FIELD(MEMBER) [name](Config &config) -> Field { return &config.data.sources[name].MEMBER; }
  return {
      {.section = section,
       .name = "paths",
       .field = FIELD(paths),
       .required = true,
       .runTime = true,
       .identity = true,
       .doc = "Token files or globs of the source, relative to the TOML file."},
      {.section = section,
       .name = "weight",
       .field = FIELD(weight),
       .minimum = 1e-9,
       .maximum = 1e15,
       .required = true,
       .runTime = true,
       .identity = true,
       .doc = "The source's share of the trained tokens is its weight, divided by the sum of all "
              "weights: 70, 20 and 10 are the same as 0.7, 0.2 and 0.1."},
      {.section = section,
       .name = "max_epochs",
       .field = FIELD(maxEpochs),
       .unit = "epochs",
       .minimum = 0,
       .maximum = 1e9,
       .runTime = true,
       .doc = "A run whose steps would read the source more often than this is refused before its "
              "first step; 1.5 allows half of the source to be read twice; 0: any number."},
  };
#undef FIELD
}

// Returns the parameter group with this name, which is added if there is none.
ParameterGroup &parameterGroup(Config &config, const std::string &name) {
  ParameterGroup &group = config.optimizer.groups[name];
  group.name = name;
  return group;
}

// Returns the keys of the table [[optimizer.group]] with this name.
std::vector<Key> groupKeys(const std::string &name) {
  const std::string section = "optimizer.group." + name;
#define FIELD(MEMBER)                                                                              \
  [name](Config &config) -> Field { return &parameterGroup(config, name).MEMBER; }
  return {
      {.section = section,
       .name = "parameters",
       .field = FIELD(parameters),
       .required = true,
       .identity = true,
       .doc = "The group's parameters: patterns of their names in Hugging Face's checkpoints, such "
              "as `*_proj.bias`. `*` is any run of characters, dots too, and `?` one character. "
              "A parameter is of one group at most."},
      {.section = section,
       .name = "weight_decay",
       .field = FIELD(weightDecay),
       .minimum = 0,
       .maximum = 10,
       .derived = {"optimizer.weight_decay"},
       .runTimeIfGiven = true,
       .identity = true,
       .doc = "If it is given, all parameters of the group decay by it, norms and biases too, and "
              "`lmc-run --set` may change it. Otherwise matrices decay by the optimizer's, and "
              "norms and biases with `decay_norms_and_biases`."},
      {.section = section,
       .name = "lr_mult",
       .field = FIELD(lrMult),
       .minimum = 0,
       .maximum = 1e4,
       .runTime = true,
       .identity = true,
       .doc = "The learning rate of each step, or Muon's, is multiplied by it for the group. The "
              "name is Megatron's."},
      {.section = section,
       .name = "optim_bits",
       .field = FIELD(optimBits),
       .unit = "bits",
       .minimum = 8,
       .maximum = 32,
       .defaultText = "8 with `adamw8bit`, else 32",
       .identity = true,
       .doc = "8 or 32: with `adamw8bit`, 32 keeps the moments of these parameters in f32. Other "
              "optimizers have no other moments. The name is bitsandbytes'."},
  };
#undef FIELD
}

// Returns the phase with this name, which is added if there is none.
PhaseConfig &phaseOf(Config &config, const std::string &name) {
  auto found = std::ranges::find(config.phases, name, &PhaseConfig::name);
  if (found == config.phases.end()) {
    config.phases.emplace_back().name = name;
    return config.phases.back();
  }
  return *found;
}

// Returns the keys of the table [[phase]] with this name.
std::vector<Key> phaseKeys(const std::string &name) {
  const std::string section = "phase." + name;
  const std::vector<Key> all = makeKeys({});
  // Returns a key with the type and range of another.
  auto like = [&](std::string_view path, const char *keyName, std::function<Field(Config &)> field,
                  std::string doc) {
    Key key = *std::ranges::find_if(all, [&](const Key &other) { return other.path() == path; });
    key.section = section;
    key.name = keyName;
    key.alias = "";
    key.field = std::move(field);
    key.required = false;
    key.derived = {};
    key.doc = std::move(doc);
    return key;
  };
#define FIELD(MEMBER) [name](Config &config) -> Field { return &phaseOf(config, name).MEMBER; }
  Key length = like("training.sequence_length", "sequence_length", FIELD(sequenceLength),
                    "Tokens per sequence in this phase.");
  length.defaultText = "`training.sequence_length`";
  Key batch = like("training.batch_size", "batch_size", FIELD(batchSize),
                   "GBS in this phase. Phases of growing GBS are a batch ramp-up.");
  batch.defaultText = "`training.batch_size`";
  Key microBatch = like("training.micro_batch_size", "micro_batch_size", FIELD(microBatchSize),
                        "MBS in this phase.");
  microBatch.defaultText = "`training.micro_batch_size`";
  Key style = like("lr_schedule.style", "lr_style", FIELD(lrStyle),
                   "`continue`: the schedule of `[lr_schedule]`, over the steps of the whole run. "
                   "Any other style begins a schedule of its own at the phase's first step, which "
                   "ends with the phase.");
  style.choices.insert(style.choices.begin(), Choice{"continue"});
  std::erase_if(style.choices,
                [](const Choice &choice) { return choice.name == std::string_view("piecewise"); });
  Key lr = like("lr_schedule.lr", "lr", FIELD(lr), "Peak learning rate of the phase's own style.");
  lr.derived = {"lr_schedule.lr"};
  Key minLr = like("lr_schedule.min_lr", "min_lr", FIELD(minLr),
                   "Learning rate at the end of the phase, with a style of its own.");
  minLr.derived = {section + ".lr", 10};
  Key warmup =
      like("lr_schedule.warmup_iters", "warmup_iters", FIELD(warmupIters),
           "Steps of linear warm-up at the beginning of the phase, with a style of its own.");
  Key steps =
      like("training.train_iters", "steps", FIELD(steps),
           "Optimizer steps of the phase. A phase has one of `steps`, `tokens` and `share`.");
  steps.defaultText = "from `tokens` or `share`";
  steps.runTime = false;
  steps.identity = true;
  Key tokens = like("training.train_tokens", "tokens", FIELD(tokens),
                    "Tokens of the phase, rounded up to whole steps.");
  Key share = like("lr_schedule.lr", "share", FIELD(share),
                   "The phase's part of `training.train_tokens`, or of the steps "
                   "`training.train_iters` if that is what is given, rounded to whole steps.");
  share.minimum = 1e-9;
  share.maximum = 1;
  share.defaultText = "none";
  share.runTime = share.identity = false;
  Key sources = like("data.train", "sources", FIELD(sources),
                     "The sources of `[[data.source]]` that the phase reads: \"NAME\", with the "
                     "source's weight, or \"NAME=WEIGHT\".");
  sources.defaultText = "all";
  return {std::move(steps), std::move(tokens),     std::move(share),   std::move(length),
          std::move(batch), std::move(microBatch), std::move(sources), std::move(style),
          std::move(lr),    std::move(minLr),      std::move(warmup)};
#undef FIELD
}

// Returns the keys of the table [[validation]] with this name.
std::vector<Key> validationKeys(const std::string &name) {
  const std::string section = "validation." + name;
#define FIELD(MEMBER) [name](Config &config) -> Field { return &config.validations[name].MEMBER; }
  return {
      {.section = section,
       .name = "paths",
       .field = FIELD(paths),
       .required = true,
       .runTime = true,
       .doc = "Token files or globs of the set, relative to the TOML file."},
      {.section = section,
       .name = "interval",
       .field = FIELD(interval),
       .unit = "steps",
       .minimum = 0,
       .maximum = kMaxSteps,
       .derived = {"monitoring.validation_interval"},
       .runTime = true,
       .doc = "Steps between validations with the set; 0: only at the end."},
      {.section = section,
       .name = "iters",
       .field = FIELD(iters),
       .unit = "batches",
       .minimum = 0,
       .maximum = kMaxSteps,
       .derived = {"monitoring.validation_iters"},
       .runTime = true,
       .doc = "Global batches of a validation, from the beginning of the set; 0: all of it."},
  };
#undef FIELD
}

} // namespace

const std::vector<Section> &sections() {
  static const std::vector<Section> table = {
      {"model", "The model, in the names of Hugging Face's `config.json`."},
      {"model.rope_scaling", "Longer contexts through RoPE, in Hugging Face's names; as a section "
                             "or as an inline table in `[model]`."},
      {"training", "Batch, length and precision."},
      {"optimizer", "The optimizer."},
      {"optimizer.group",
       "Parameters with a weight decay, a learning rate or moments of their own: a table for each "
       "group ([parameter groups](optimizers.md#parameter-groups)).",
       groupKeys},
      {"lr_schedule", "The learning rate: linear warm-up, then `style`."},
      {"memory", "What device memory may be used, and what is recomputed to save it."},
      {"distributed", "The cluster, and what is sharded over it."},
      {"data", "Token files, as `lmc-data pack` writes them."},
      {"data.source",
       "Training data from several sources, in the place of `train` of `[data]`: a table for each "
       "source ([mixtures](data.md#mixtures)).",
       sourceKeys},
      {"phase",
       "A part of the run, with another sequence length, batch, mixture or learning rate: a table "
       "for each, in the order in which they are trained ([phases](running.md#phases)).",
       phaseKeys},
      {"validation",
       "Validation with several sets, in the place of `validation` of `[data]`: a table for each "
       "set ([validation sets](data.md#validation-sets)).",
       validationKeys},
      {"checkpoint", "What is saved, and how often."},
      {"monitoring", "What is reported, and how often."},
      {"generation", "Prompts that the model continues during training, for people to read."},
      {"guard", "When to warn of a run that goes wrong, and when to stop it."},
      {"target", "What the plan is compiled for."},
  };
  return table;
}

KeyTable::KeyTable(const ModelFamilies &families) : families(families) {
  std::ranges::move(makeKeys(families), std::back_inserter(keys));
  for (const ModelFamily *family : families)
    for (const Key &own : family->keys) {
      const auto same = [&](const Key &key) { return key.path() == own.path(); };
      auto key = std::find_if(keys.begin(), keys.end(), same);
      if (key == keys.end()) {
        key = keys.insert(endOf(own.section), own);
        key->identity = true; // it describes the model
      }
      key->families.push_back(family);
    }
  for (Key &key : keys) {
    const auto isAbsent = [&](const ModelFamily *family) {
      return std::ranges::any_of(family->absent, [&](const std::string &name) {
        return key.path() == "model." + name || key.section == "model." + name;
      });
    };
    if (!key.families.empty() || std::ranges::none_of(families, isAbsent))
      continue;
    std::ranges::remove_copy_if(families, std::back_inserter(key.families), isAbsent);
  }
}

std::list<Key>::const_iterator KeyTable::endOf(std::string_view section) const {
  const auto isIn = [&](const Key &key) {
    const Section *list = listOf(key.section);
    return key.section == section || (list && list->name == section);
  };
  return std::find_if(keys.rbegin(), keys.rend(), isIn).base();
}

void KeyTable::addTable(const Section &list, const std::string &name) {
  // Its keys stand behind those of the nearest section up to the list that has some.
  auto section = std::ranges::find(sections(), std::string_view(list.name), &Section::name);
  while (endOf(section->name) == keys.begin())
    --section;
  std::vector<Key> own = list.keysOf(name);
  keys.insert(endOf(section->name), std::make_move_iterator(own.begin()),
              std::make_move_iterator(own.end()));
}

bool Key::isOf(const ModelFamily &family) const {
  return families.empty() || std::find(families.begin(), families.end(), &family) != families.end();
}

std::function<Field(Config &)> familyField(const char *name, FamilyValue initial) {
  return [=](Config &config) {
    auto &value = config.model.familyValues.try_emplace(name, initial).first->second;
    return std::visit([](auto &value) -> Field { return &value; }, value);
  };
}

std::string listed(const std::vector<std::string> &names, const char *word) {
  if (names.size() < 2)
    return fmt::format("{}", fmt::join(names, ""));
  return fmt::format("{} {} {}", fmt::join(names.begin(), names.end() - 1, ", "), word,
                     names.back());
}

const Section *findSection(std::string_view name) {
  const auto found = std::ranges::find(sections(), name, &Section::name);
  return found == sections().end() ? nullptr : &*found;
}

const Section *listOf(std::string_view section) {
  const size_t dot = section.rfind('.');
  const Section *list =
      dot == std::string_view::npos ? nullptr : findSection(section.substr(0, dot));
  return list && list->keysOf ? list : nullptr;
}

std::string headerText(std::string_view section) {
  const Section *list = listOf(section);
  return list ? fmt::format("[[{}]] {}", list->name, section.substr(section.rfind('.') + 1))
              : fmt::format("[{}]", section);
}

bool KeyTable::hasSection(std::string_view section) const {
  return std::ranges::any_of(keys, [&](const Key &key) { return key.section == section; });
}

const Key *KeyTable::find(std::string_view section, std::string_view name) const {
  for (const Key &key : keys)
    if (key.section == section && (key.name == name || (*key.alias && key.alias == name)))
      return &key;
  return nullptr;
}

std::vector<std::string> choiceNames(const Key &key) {
  Config config;
  const bool words = std::holds_alternative<std::string *>(key.field(config));
  std::vector<std::string> names;
  int last = -1;
  for (const Choice &choice : key.choices) {
    if (words || choice.value != last)
      names.push_back(choice.name);
    last = choice.value;
  }
  return names;
}

std::string typeText(const Key &key) {
  Config config;
  struct {
    std::string operator()(int64_t *) const { return "an integer"; }
    std::string operator()(uint64_t *) const { return "an integer"; }
    std::string operator()(double *) const { return "a number"; }
    std::string operator()(bool *) const { return "true or false"; }
    std::string operator()(std::vector<std::string> *) const {
      return "a string or a list of strings";
    }
    std::string operator()(std::vector<int64_t> *) const { return "a list of integers"; }
    std::string operator()(void *) const { return "a string"; }
  } name;
  std::string text = key.isSize() ? "a size in bytes or with a unit, such as \"76GiB\""
                                  : std::visit(name, key.field(config));
  if (text == "an integer" && !key.choices.empty())
    text += fmt::format(" or \"{}\"", key.choices.front().name);
  return text;
}

std::string docText(const Key &key) {
  std::vector<std::string> names;
  for (const ModelFamily *family : key.families)
    names.push_back(fmt::format("`{}`", family->name));
  return names.empty() ? key.doc : fmt::format("{} Only of {}.", key.doc, listed(names, "and"));
}

std::string rangeText(const Key &key) {
  // Bounds are whole numbers up to 2^53 or short decimals; both are printed exactly.
  auto number = [](double value) {
    return value == std::floor(value) && std::abs(value) < 9e15
               ? fmt::format("{}", static_cast<int64_t>(value))
               : fmt::format("{}", value);
  };
  if (std::isinf(key.minimum))
    return "";
  if (std::isinf(key.maximum))
    return fmt::format("at least {}", number(key.minimum));
  return fmt::format("from {} to {}", number(key.minimum), number(key.maximum));
}

} // namespace lmc::config
