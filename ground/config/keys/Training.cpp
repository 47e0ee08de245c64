// The keys of what is trained: [training], [optimizer], [lr_schedule] and [[phase]].
#include "ground/config/keys/Rows.h"

#include <algorithm>

namespace lmc::config::keys {
namespace {

// Adam divides by 1 - beta^t, so beta must differ from 1 in f32 too.
constexpr double kMaxBeta = 0.999999;
constexpr double kMaxTokens = 9e15;
constexpr double kMaxBatch = 1 << 24, kMaxMicroBatch = 1 << 20; // sequences

// Returns the parameter group with this name, which is added if there is none.
ParameterGroup &groupOf(Config &config, const std::string &name) {
  ParameterGroup &group = config.optimizer.groups[name];
  group.name = name;
  return group;
}

// Returns the phase with this name, which is added if there is none.
PhaseConfig &phaseOf(Config &config, const std::string &name) {
  const auto found = std::ranges::find(config.phases, name, &PhaseConfig::name);
  if (found != config.phases.end())
    return *found;
  config.phases.emplace_back().name = name;
  return config.phases.back();
}

} // namespace

void Rows::training() {
  section("training", "Batch, length and precision.");
  key("sequence_length", FIELD(training.sequenceLength), range(1, kMaxPositions, "tokens"),
      required, identity, "Tokens per sequence.");
  key("batch_size", FIELD(training.batchSize), range(1, kMaxBatch, "sequences"), required, identity,
      "GBS: sequences per optimizer step over all devices. GBS = MBS x GAS x devices, with a whole "
      "number of accumulation steps (GAS).");
  key("micro_batch_size", FIELD(training.microBatchSize), range(1, kMaxMicroBatch, "sequences"),
      choice("auto", 0), defaultText("\"auto\""),
      "MBS: sequences per device and micro-step. `auto` takes the divisor of GBS / devices with "
      "the most predicted tokens/s among those whose plans meet the budget.");
  key("train_iters", FIELD(training.trainIters), range(1, kMaxSteps, "steps"),
      defaultText("from `train_tokens` or `[[phase]]`, else **required**"), runTime,
      "Optimizer steps of the job.");
  key("train_tokens", FIELD(training.trainTokens), range(1, kMaxTokens, "tokens"),
      defaultText("none"),
      "Tokens to train on, in the place of `train_iters`, which follows: the least number of steps "
      "that reads as many.");
  key("compute_dtype", FIELD(training.computeDType), choice("f32", DataType::F32),
      choice("float32", DataType::F32), choice("fp32", DataType::F32),
      choice("bf16", DataType::BF16), choice("bfloat16", DataType::BF16),
      choice("f64", DataType::F64), choice("float64", DataType::F64), choice("fp64", DataType::F64),
      identity,
      "Type of activations and of the weights that GEMMs read. Master weights, main gradients and "
      "moments (see optimizer.type) are f32 with `bf16`. `f64` is for checks.");
  key("document_mask", FIELD(training.documentMask), alias("reset_attention_mask"), identity,
      "Attention stays within a document: a token sees no key before the start of its own "
      "document. A document starts after the end-of-document token of the document before it. This "
      "is Megatron's `reset_attention_mask` (also accepted as a name) and Fast-LLM's "
      "`cross_document_attention: false`. Positions and the loss stay as they are "
      "(`document_positions`, `document_loss_mask`), and MFU is computed as without the mask.");
  key("document_positions", FIELD(training.documentPositions), alias("reset_position_ids"),
      identity,
      "Positions restart at 0 with each document of a row; a document that began before the row "
      "counts from the start of the row. This is Megatron's `reset_position_ids` (also accepted as "
      "a name) and Fast-LLM's `cross_document_position_embeddings: false`. With RoPE, attention "
      "depends only on differences of positions, so with `document_mask` it changes nothing but "
      "rounding; without it, tokens see other documents at other distances. In `gpt2`, it decides "
      "which learned position each token gets.");
  key("document_loss_mask", FIELD(training.documentLossMask), alias("eod_mask_loss"), runTime,
      identity,
      "The last token of a document has no loss, so that nothing is learned from predicting the "
      "first token of the next document; the last token itself is still learned. Where documents "
      "end with an end-of-document token, this is Megatron's `eod_mask_loss` (also accepted as a "
      "name), which leaves out the loss of each position whose input is that token. Validation "
      "leaves these losses out too. With `packing = \"best_fit\"`, training leaves them out even "
      "if the key is false; validation does not.");
  key("z_loss", FIELD(training.zLoss), range(0, 1), identity,
      "z: gradients are those of the cross entropy plus z lse^2 of each token, where lse is the "
      "log of the softmax's denominator, which keeps logits small. PaLM and OLMo 2 use 1e-4 and "
      "1e-5. The loss that is reported is the cross entropy. 0: none.");
  key("seed", FIELD(training.seed), range(0, kUnbounded), runTime, identity,
      "Seed of all random numbers: initial weights and the order of samples.");
}

void Rows::optimizer() {
  section("optimizer", "The optimizer.");
  key("type", FIELD(optimizer.type), choices({"adamw", "adamw8bit", "muon"}), identity,
      "AdamW: decay is decoupled from the gradient. `adamw8bit` keeps the moments of matrices in 8 "
      "bits each, with an f32 scale for each 256 elements: 2.03 bytes per parameter in place of 8. "
      "Norms, biases and matrices whose elements are no multiple of 256 keep f32 moments. Use it "
      "with a `beta2` of 0.95 or less: codes are rounded to nearest, so a slower decay is lost in "
      "rounding. If an element's gradients become 100 times smaller while those of its neighbours "
      "stay large, the root of its second moment stays 1.3 times too large with a `beta2` of 0.9, "
      "2.2 times with 0.95, 36 times with 0.98, and 100 times (it never falls) from 0.985 on. "
      "`muon` steps the matrices of layers by their orthogonalized momentum, as `torch.optim.Muon` "
      "does ([more](optimizers.md#muon)), and the embedding, the head, norms and biases with "
      "AdamW.");
  key("weight_decay", FIELD(optimizer.weightDecay), range(0, kMaxRate), runTime, identity,
      "A step subtracts lr x weight_decay x weight from each decayed weight.");
  key("beta1", FIELD(optimizer.beta1), range(0, kMaxBeta), runTime, identity,
      "Decay of the first moment.");
  key("beta2", FIELD(optimizer.beta2), range(0, kMaxBeta), runTime, identity,
      "Decay of the second moment.");
  key("eps", FIELD(optimizer.eps), range(1e-20, 1), runTime, identity,
      "Added to the root of the second moment.");
  key("muon_lr", FIELD(optimizer.muonLr), range(0, kMaxRate), defaultText("lr_schedule.lr"),
      runTime, identity,
      "Peak learning rate of Muon's matrices. Each step's rate is that of the schedule x `muon_lr` "
      "/ `lr_schedule.lr`.");
  key("muon_momentum", FIELD(optimizer.muonMomentum), range(0, kMaxBeta), runTime, identity,
      "Muon: a step adds 1 - `muon_momentum` of the gradient's difference to the momentum.");
  key("router_bias_update_speed", FIELD(optimizer.routerBiasUpdateSpeed), range(0, 1), runTime,
      identity,
      "Of routers with a bias that keeps experts equally busy: after each step the bias of an "
      "expert grows by so much if the expert got fewer rows than the mean, and shrinks by so much "
      "if it got more. 0: the bias stays as it is. DeepSeek-AI 2024 (2.1.2).");
  key("muon_nesterov", FIELD(optimizer.muonNesterov), identity,
      "Muon: the direction is the momentum as it would be after this gradient once more.");
  key("muon_ns_steps", FIELD(optimizer.muonNsSteps), range(0, 99, "steps"), identity,
      "Muon: steps of the Newton-Schulz iteration.");
  key("muon_ns_a", FIELD(optimizer.muonNsA), range(-100, 100), identity,
      "Muon: the first of `ns_coefficients`. With A = X X^T, a Newton-Schulz step is X = a X + (b "
      "A + c A^2) X.");
  key("muon_ns_b", FIELD(optimizer.muonNsB), range(-100, 100), identity,
      "Muon: the second coefficient.");
  key("muon_ns_c", FIELD(optimizer.muonNsC), range(-100, 100), identity,
      "Muon: the third coefficient.");
  key("muon_eps", FIELD(optimizer.muonEps), range(1e-20, 1), runTime, identity,
      "Muon: smallest norm by which a direction is divided.");
  key("muon_adjust_lr_fn", FIELD(optimizer.muonAdjustLrFn),
      choices({"match_rms_adamw", "original", "spectral_unclamped"}), identity,
      "Muon: what the rate of a matrix is multiplied by, but not in its weight decay. "
      "`match_rms_adamw`: 0.2 sqrt(max(fan_out, fan_in)), for which the rate and the decay of "
      "AdamW fit; `original`: sqrt(max(1, fan_out / fan_in)), with rates about 0.02; "
      "`spectral_unclamped`: sqrt(fan_out / fan_in).");
  key("muon_ns_dtype", FIELD(optimizer.muonNsDType), choices({"bf16", "f32"}), identity,
      "Muon: dtype of the Newton-Schulz iteration; its sums are f32. With `compute_dtype` = "
      "\"f64\" it is f64.");
  key("muon_owners", FIELD(optimizer.muonOwners), choices({"auto", "yes", "no"}),
      "Muon, where ranks divide the state: whether each matrix is orthogonalized by one rank, from "
      "which the others get the result, or by all ranks. `auto`: what the cost model finds faster "
      "for the matrices of each shape (without a device spec: all ranks).");
  key("clip_grad", FIELD(optimizer.clipGrad), range(0, 1e9), runTime, identity,
      "Gradients are scaled down to this global norm; 0: no clipping.");
  key("decay_norms_and_biases", FIELD(optimizer.decayNormsAndBiases), identity,
      "Weight decay on the weights of norms and on biases too.");

  list("optimizer.group",
       "Parameters with a weight decay, a learning rate or moments of their own: a table for each "
       "group ([parameter groups](optimizers.md#parameter-groups)).",
       &Rows::group);
}

void Rows::group(const std::string &name) {
  const auto in = [&](auto ParameterGroup::*member) {
    return [name, member](Config &config) -> Field { return &(groupOf(config, name).*member); };
  };
  key("parameters", in(&ParameterGroup::parameters), required, identity,
      "The group's parameters: patterns of their names in Hugging Face's checkpoints, such as "
      "`*_proj.bias`. `*` is any run of characters, dots too, and `?` one character. A parameter "
      "is of one group at most.");
  key("weight_decay", in(&ParameterGroup::weightDecay), range(0, 10),
      derived("optimizer.weight_decay"), runTimeIfGiven, identity,
      "If it is given, all parameters of the group decay by it, norms and biases too, and `lmc-run "
      "--set` may change it. Otherwise matrices decay by the optimizer's, and norms and biases "
      "with `decay_norms_and_biases`.");
  key("lr_mult", in(&ParameterGroup::lrMult), range(0, 1e4), runTime, identity,
      "The learning rate of each step, or Muon's, is multiplied by it for the group. The name is "
      "Megatron's.");
  key("optim_bits", in(&ParameterGroup::optimBits), range(8, 32, "bits"),
      defaultText("8 with `adamw8bit`, else 32"), identity,
      "8 or 32: with `adamw8bit`, 32 keeps the moments of these parameters in f32. Other "
      "optimizers have no other moments. The name is bitsandbytes'.");
}

void Rows::learningRate() {
  section("lr_schedule", "The learning rate: linear warm-up, then `style`.", runTime, identity);
  key("style", FIELD(lrSchedule.style), choices(kLrStyles),
      "Shape after the linear warm-up: `wsd` is warm-up, stable, decay; `inverse_sqrt` is `lr` x "
      "sqrt(`warmup_iters` / step), at least `min_lr`; `piecewise` takes everything from `points` "
      "([formulas](running.md#the-learning-rate)).");
  key("lr", FIELD(lrSchedule.lr), range(0, kMaxRate), "Peak learning rate.");
  key("min_lr", FIELD(lrSchedule.minLr), range(0, kMaxRate), derived("lr_schedule.lr", 10),
      "Learning rate from step `decay_iters` on; at most `lr`.");
  key("min_lr_ratio", FIELD(lrSchedule.minLrRatio), range(0, 1), defaultText("none"),
      "In the place of `min_lr`: the same as a fraction of `lr`. Of the two, that of a `--set` "
      "goes before that of the file.");
  key("warmup_iters", FIELD(lrSchedule.warmupIters), range(0, kMaxSteps, "steps"),
      "Steps of linear warm-up; below `decay_iters`.");
  key("warmup_ratio", FIELD(lrSchedule.warmupRatio), range(0, 1), defaultText("none"),
      "In the place of `warmup_iters`: the same as a fraction of `decay_iters`, rounded. Of the "
      "two, that of a `--set` goes before that of the file.");
  key("warmup_init", FIELD(lrSchedule.warmupInit), range(0, kMaxRate),
      "Learning rate from which the warm-up starts; it may be above `lr`.");
  key("decay_iters", FIELD(lrSchedule.decayIters), range(1, kMaxSteps, "steps"),
      derived("training.train_iters"),
      "Step at which `min_lr` is reached, counted from `restart_step`; at most the steps up to "
      "`train_iters`, which are the default.");
  key("wsd_decay_fraction", FIELD(lrSchedule.wsdDecayFraction), range(0, 1),
      "wsd: the last part of `decay_iters`, in which the rate falls.");
  key("wsd_decay_style", FIELD(lrSchedule.wsdDecayStyle), choices(kWsdDecayStyles),
      "wsd: the shape of that part, with Megatron's names; `minus_sqrt` is the 1-sqrt cooldown.");
  key("points", FIELD(lrSchedule.points), defaultText("none"),
      "piecewise: \"STEP:RATE\" in ascending order, as in `[\"0:0\", \"100:3e-4\", "
      "\"5000:3e-5\"]`. The rate is linear between points, and constant before the first and after "
      "the last. No other key but `restart_step` has an effect.");
  key("restart_step", FIELD(lrSchedule.restartStep), range(0, kMaxSteps, "steps"),
      "The schedule begins behind this step: every other number of steps counts from it. It is for "
      "runs that go on from a checkpoint of this step or a later one "
      "([example](running.md#the-learning-rate)).");
}

void Rows::phase(const std::string &name) {
  const auto in = [&](auto PhaseConfig::*member) {
    return [name, member](Config &config) -> Field { return &(phaseOf(config, name).*member); };
  };
  key("steps", in(&PhaseConfig::steps), range(1, kMaxSteps, "steps"),
      defaultText("from `tokens` or `share`"), identity,
      "Optimizer steps of the phase. A phase has one of `steps`, `tokens` and `share`.");
  key("tokens", in(&PhaseConfig::tokens), range(1, kMaxTokens, "tokens"), defaultText("none"),
      "Tokens of the phase, rounded up to whole steps.");
  key("share", in(&PhaseConfig::share), range(1e-9, 1), defaultText("none"),
      "The phase's part of `training.train_tokens`, or of the steps `training.train_iters` if that "
      "is what is given, rounded to whole steps.");
  key("sequence_length", in(&PhaseConfig::sequenceLength), range(1, kMaxPositions, "tokens"),
      defaultText("`training.sequence_length`"), identity, "Tokens per sequence in this phase.");
  key("batch_size", in(&PhaseConfig::batchSize), range(1, kMaxBatch, "sequences"),
      defaultText("`training.batch_size`"), identity,
      "GBS in this phase. Phases of growing GBS are a batch ramp-up.");
  key("micro_batch_size", in(&PhaseConfig::microBatchSize), range(1, kMaxMicroBatch, "sequences"),
      choice("auto", 0), defaultText("`training.micro_batch_size`"), "MBS in this phase.");
  key("sources", in(&PhaseConfig::sources), defaultText("all"), runTime, identity,
      "The sources of `[[data.source]]` that the phase reads: \"NAME\", with the source's weight, "
      "or \"NAME=WEIGHT\".");
  const auto styles = std::span(kLrStyles).first<5>(); // all but piecewise
  key("lr_style", in(&PhaseConfig::lrStyle), choices({"continue"}), choices(styles), runTime,
      identity,
      "`continue`: the schedule of `[lr_schedule]`, over the steps of the whole run. Any other "
      "style begins a schedule of its own at the phase's first step, which ends with the phase.");
  key("lr", in(&PhaseConfig::lr), range(0, kMaxRate), derived("lr_schedule.lr"), runTime, identity,
      "Peak learning rate of the phase's own style.");
  key("min_lr", in(&PhaseConfig::minLr), range(0, kMaxRate), derived(current + ".lr", 10), runTime,
      identity, "Learning rate at the end of the phase, with a style of its own.");
  key("warmup_iters", in(&PhaseConfig::warmupIters), range(0, kMaxSteps, "steps"), runTime,
      identity, "Steps of linear warm-up at the beginning of the phase, with a style of its own.");
}

} // namespace lmc::config::keys
