// The keys of the training itself: [training], [optimizer], [lr_schedule] and [[phase]].
#include "ground/config/keys/Rows.h"

namespace lmc::config::keys {
namespace {

// Adam divides by 1 - beta^t, so beta must differ from 1 in f32 too.
constexpr double kMaxBeta = 0.999999;
constexpr double kMaxTokens = 9e15;
constexpr double kMaxBatch = 1 << 24, kMaxMicroBatch = 1 << 20; // sequences

} // namespace

void Rows::training() {
  section("training", "Batch, length and precision.", identity);
  KEY(training.sequenceLength, tokens(1), required, "Tokens per sequence.");
  KEY(training.batchSize, range(1, kMaxBatch, "sequences"), required,
      "GBS: sequences per optimizer step over all devices. GBS = MBS x GAS x devices, with a whole "
      "number of accumulation steps (GAS).");
  KEY(training.microBatchSize, sameModel, range(1, kMaxMicroBatch, "sequences"), orAuto,
      "MBS: sequences per device and micro-step. `auto` takes the divisor of GBS / devices with "
      "the most predicted tokens/s among those whose plans meet the budget.");
  KEY(training.trainIters, sameModel, steps(1),
      defaultText("from `train_tokens` or `[[phase]]`, else **required**"), runTime,
      "Optimizer steps of the job.");
  KEY(training.trainTokens, sameModel, range(1, kMaxTokens, "tokens"), optional,
      "Tokens to train on, in the place of `train_iters`, which follows: the least number of steps "
      "that reads as many.");
  using enum DataType;
  KEY(training.computeDType, choice("f32", F32), choice("float32", F32), choice("fp32", F32),
      choice("bf16", BF16), choice("bfloat16", BF16), choice("f64", F64), choice("float64", F64),
      choice("fp64", F64),
      "Type of activations and of the weights that GEMMs read. Master weights, main gradients and "
      "moments (see optimizer.type) are f32 with `bf16`. `f64` is for checks.");
  KEY(training.fp8, choices({"none", "tensor", "block"}),
      "Linear layers multiply 8-bit floats: E4M3 forward, E5M2 for the gradient of their results. "
      "`tensor`: a tensor has one scale, a power of two that its own largest value gives "
      "(torchao's *tensorwise*, Transformer Engine's *current scaling*). `block`: 128 elements of "
      "a "
      "row have one, and a weight's 128 x 128 (DeepSeek-V3's recipe, Transformer Engine's "
      "*Float8BlockScaling*), and gradients are E4M3, too. Nothing is carried from step to step. "
      "The head, routers, attention, norms, the optimizer, experts with `tensor`, and those that "
      "compute every token work as without `fp8`. Master weights, main gradients and all sums stay "
      "f32 "
      "([more](fp8.md)).");
  KEY(training.fp8Filter, optional,
      "With `fp8`: patterns of the names of weights, as in `[[optimizer.group]]`, whose products "
      "stay in the compute dtype, such as `[\"model.layers.0.*\", \"*.down_proj.weight\"]` "
      "(torchtitan's "
      "`filter_fqns`). Products that share an input are one, and stay if one weight matches.");
  KEY(training.documentMask, alias("reset_attention_mask"),
      "Attention stays within a document: a token sees no key before the start of its own "
      "document. A document starts after the end-of-document token of the document before it. This "
      "is Megatron's `reset_attention_mask` (also accepted as a name) and Fast-LLM's "
      "`cross_document_attention: false`. Positions and the loss stay as they are "
      "(`document_positions`, `document_loss_mask`), and MFU is computed as without the mask.");
  KEY(training.documentPositions, alias("reset_position_ids"),
      "Positions restart at 0 with each document of a row; a document that began before the row "
      "counts from the start of the row. This is Megatron's `reset_position_ids` (also accepted as "
      "a name) and Fast-LLM's `cross_document_position_embeddings: false`. With RoPE, attention "
      "depends only on differences of positions, so with `document_mask` it changes nothing but "
      "rounding; without it, tokens see other documents at other distances. In `gpt2`, it decides "
      "which learned position each token gets.");
  KEY(training.documentLossMask, alias("eod_mask_loss"), runTime,
      "The last token of a document has no loss, so that nothing is learned from predicting the "
      "first token of the next document; the last token itself is still learned. Where documents "
      "end with an end-of-document token, this is Megatron's `eod_mask_loss` (also accepted as a "
      "name), which leaves out the loss of each position whose input is that token. Validation "
      "leaves these losses out too. With `packing = \"best_fit\"`, training leaves them out even "
      "if the key is false; validation does not.");
  KEY(training.zLoss, fraction,
      "z: gradients are those of the cross entropy plus z lse^2 of each token, where lse is the "
      "log of the softmax's denominator, which keeps logits small. PaLM and OLMo 2 use 1e-4 and "
      "1e-5. The loss that is reported is the cross entropy. 0: none.");
  KEY(training.seed, range(0, kUnbounded), runTime,
      "Seed of all random numbers: initial weights and the order of samples.");

  section("optimizer", "The optimizer.", identity);
  KEY(optimizer.type, choices({"adamw", "adamw8bit", "muon"}),
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
  KEY(optimizer.weightDecay, rate, runTime,
      "A step subtracts lr x weight_decay x weight from each decayed weight.");
  KEY(optimizer.beta1, range(0, kMaxBeta), runTime, "Decay of the first moment.");
  KEY(optimizer.beta2, range(0, kMaxBeta), runTime, "Decay of the second moment.");
  KEY(optimizer.eps, range(1e-20, 1), runTime, "Added to the root of the second moment.");
  KEY(optimizer.muonLr, rate, defaultText("lr_schedule.lr"), runTime,
      "Peak learning rate of Muon's matrices. Each step's rate is that of the schedule x `muon_lr` "
      "/ `lr_schedule.lr`.");
  KEY(optimizer.muonMomentum, range(0, kMaxBeta), runTime,
      "Muon: a step adds 1 - `muon_momentum` of the gradient's difference to the momentum.");
  KEY(optimizer.routerBiasUpdateSpeed, fraction, runTime,
      "Of routers with a bias that keeps experts equally busy: after each step the bias of an "
      "expert grows by so much if the expert got fewer rows than the mean, and shrinks by so much "
      "if it got more. 0: the bias stays as it is. DeepSeek-AI 2024 (2.1.2).");
  KEY(optimizer.muonNesterov,
      "Muon: the direction is the momentum as it would be after this gradient once more.");
  KEY(optimizer.muonNsSteps, range(0, 99, "steps"), "Muon: steps of the Newton-Schulz iteration.");
  KEY(optimizer.muonNsA, range(-100, 100),
      "Muon: the first of `ns_coefficients`. With A = X X^T, a Newton-Schulz step is X = a X + (b "
      "A + c A^2) X.");
  KEY(optimizer.muonNsB, range(-100, 100), "Muon: the second coefficient.");
  KEY(optimizer.muonNsC, range(-100, 100), "Muon: the third coefficient.");
  KEY(optimizer.muonEps, range(1e-20, 1), runTime,
      "Muon: smallest norm by which a direction is divided.");
  KEY(optimizer.muonAdjustLrFn, choices({"match_rms_adamw", "original", "spectral_unclamped"}),
      "Muon: what the rate of a matrix is multiplied by, but not in its weight decay. "
      "`match_rms_adamw`: 0.2 sqrt(max(fan_out, fan_in)), for which the rate and the decay of "
      "AdamW fit; `original`: sqrt(max(1, fan_out / fan_in)), with rates about 0.02; "
      "`spectral_unclamped`: sqrt(fan_out / fan_in).");
  KEY(optimizer.muonNsDType, choices({"bf16", "f32"}),
      "Muon: dtype of the Newton-Schulz iteration; its sums are f32. With `compute_dtype` = "
      "\"f64\" it is f64.");
  KEY(optimizer.muonOwners, sameModel, choices({"auto", "yes", "no"}),
      "Muon, where ranks divide the state: whether each matrix is orthogonalized by one rank, from "
      "which the others get the result, or by all ranks. `auto`: what the cost model finds faster "
      "for the matrices of each shape (without a device spec: all ranks).");
  KEY(optimizer.clipGrad, range(0, 1e9), runTime,
      "Gradients are scaled down to this global norm; 0: no clipping.");
  KEY(optimizer.decayNormsAndBiases, "Weight decay on the weights of norms and on biases too.");

  list("optimizer.group",
       "Parameters with a weight decay, a learning rate or moments of their own: a table for each "
       "group ([parameter groups](optimizers.md#parameter-groups)).",
       &Rows::group, identity);

  section("lr_schedule", "The learning rate: linear warm-up, then `style`.", runTime, identity);
  KEY(lrSchedule.style, choices(kLrStyles),
      "Shape after the linear warm-up: `wsd` is warm-up, stable, decay; `inverse_sqrt` is `lr` x "
      "sqrt(`warmup_iters` / step), at least `min_lr`; `piecewise` takes everything from `points` "
      "([formulas](running.md#the-learning-rate)).");
  KEY(lrSchedule.lr, rate, "Peak learning rate.");
  KEY(lrSchedule.minLr, rate, derived("lr_schedule.lr", 10),
      "Learning rate from step `decay_iters` on; at most `lr`.");
  KEY(lrSchedule.minLrRatio, fraction, optional,
      "In the place of `min_lr`: the same as a fraction of `lr`. Of the two, that of a `--set` "
      "goes before that of the file.");
  KEY(lrSchedule.warmupIters, steps(0), "Steps of linear warm-up; below `decay_iters`.");
  KEY(lrSchedule.warmupRatio, fraction, optional,
      "In the place of `warmup_iters`: the same as a fraction of `decay_iters`, rounded. Of the "
      "two, that of a `--set` goes before that of the file.");
  KEY(lrSchedule.warmupInit, rate,
      "Learning rate from which the warm-up starts; it may be above `lr`.");
  KEY(lrSchedule.decayIters, steps(1), derived("training.train_iters"),
      "Step at which `min_lr` is reached, counted from `restart_step`; at most the steps up to "
      "`train_iters`, which are the default.");
  KEY(lrSchedule.wsdDecayFraction, fraction,
      "wsd: the last part of `decay_iters`, in which the rate falls.");
  KEY(lrSchedule.wsdDecayStyle, choices(kWsdDecayStyles),
      "wsd: the shape of that part, with Megatron's names; `minus_sqrt` is the 1-sqrt cooldown.");
  KEY(lrSchedule.points, optional,
      "piecewise: \"STEP:RATE\" in ascending order, as in `[\"0:0\", \"100:3e-4\", "
      "\"5000:3e-5\"]`. The rate is linear between points, and constant before the first and after "
      "the last. No other key but `restart_step` has an effect.");
  KEY(lrSchedule.restartStep, steps(0),
      "The schedule begins behind this step: every other number of steps counts from it. It is for "
      "runs that go on from a checkpoint of this step or a later one "
      "([example](running.md#the-learning-rate)).");
}

void Rows::group(const std::string &name) {
  KEY(groupNamed(name).parameters, required,
      "The group's parameters: patterns of their names in Hugging Face's checkpoints, such as "
      "`*_proj.bias`. `*` is any run of characters, dots too, and `?` one character. A parameter "
      "is of one group at most.");
  KEY(groupNamed(name).weightDecay, range(0, 10), derived("optimizer.weight_decay"), runTimeIfGiven,
      "If it is given, all parameters of the group decay by it, norms and biases too, and `lmc-run "
      "--set` may change it. Otherwise matrices decay by the optimizer's, and norms and biases "
      "with `decay_norms_and_biases`.");
  KEY(groupNamed(name).lrMult, range(0, 1e4), runTime,
      "The learning rate of each step, or Muon's, is multiplied by it for the group. The name is "
      "Megatron's.");
  KEY(groupNamed(name).optimBits, range(8, 32, "bits"), defaultText("8 with `adamw8bit`, else 32"),
      "8 or 32: with `adamw8bit`, 32 keeps the moments of these parameters in f32. Other "
      "optimizers have no other moments. The name is bitsandbytes'.");
}

void Rows::phase(const std::string &name) {
  KEY(phaseNamed(name).steps, steps(1), defaultText("from `tokens` or `share`"),
      "Optimizer steps of the phase. A phase has one of `steps`, `tokens` and `share`.");
  KEY(phaseNamed(name).tokens, sameModel, range(1, kMaxTokens, "tokens"), optional,
      "Tokens of the phase, rounded up to whole steps.");
  KEY(phaseNamed(name).share, sameModel, range(1e-9, 1), optional,
      "The phase's part of `training.train_tokens`, or of the steps `training.train_iters` if that "
      "is what is given, rounded to whole steps.");
  KEY(phaseNamed(name).sequenceLength, tokens(1), defaultText("`training.sequence_length`"),
      "Tokens per sequence in this phase.");
  KEY(phaseNamed(name).batchSize, range(1, kMaxBatch, "sequences"),
      defaultText("`training.batch_size`"),
      "GBS in this phase. Phases of growing GBS are a batch ramp-up.");
  KEY(phaseNamed(name).microBatchSize, sameModel, range(1, kMaxMicroBatch, "sequences"), orAuto,
      defaultText("`training.micro_batch_size`"), "MBS in this phase.");
  KEY(phaseNamed(name).sources, defaultText("all"), runTime,
      "The sources of `[[data.source]]` that the phase reads: \"NAME\", with the source's weight, "
      "or \"NAME=WEIGHT\".");
  const auto styles = std::span(kLrStyles).first<5>(); // all but piecewise
  KEY(phaseNamed(name).lrStyle, choices({"continue"}), choices(styles), runTime,
      "`continue`: the schedule of `[lr_schedule]`, over the steps of the whole run. Any other "
      "style begins a schedule of its own at the phase's first step, which ends with the phase.");
  KEY(phaseNamed(name).lr, rate, derived("lr_schedule.lr"), runTime,
      "Peak learning rate of the phase's own style.");
  KEY(phaseNamed(name).minLr, rate, derived(current + ".lr", 10), runTime,
      "Learning rate at the end of the phase, with a style of its own.");
  KEY(phaseNamed(name).warmupIters, steps(0), runTime,
      "Steps of linear warm-up at the beginning of the phase, with a style of its own.");
}

} // namespace lmc::config::keys
