#include "compiler/phases/Padding.h"

#include "compiler/kernels/Target.h"
#include "dialects/lm/Lm.h"
#include "ground/config/ModelFamily.h"

#include "llvm/Support/MathExtras.h"

#include <nlohmann/json.hpp>

using namespace lmc;
using cost::GemmWork;

nlohmann::json PaddedSize::toJson() const {
  nlohmann::json json = {
      {"size", size}, {"padded", padded}, {"multiple", multiple}, {"added_bytes", addedBytes}};
  if (seconds && unpaddedSeconds) {
    json["seconds_per_step"] = *seconds;
    json["unpadded_seconds_per_step"] = *unpaddedSeconds;
  }
  return json;
}

// Returns the time of y = x w^T and of its gradients, where x is [tokens, in] and w is [out, in].
static double secondsOf(const cost::CostModel &model, DataType dtype, int64_t tokens, int64_t in,
                        int64_t out) {
  const DataType sums = dtype == DataType::F64 ? DataType::F64 : DataType::F32;
  GemmWork forward{tokens, out, in, dtype, dtype};
  for (int64_t row : {in, out})
    if (row * elementBytes(dtype) % 16 != 0)
      forward.unalignedRow = row;
  GemmWork input = forward, weight = forward;
  input.n = in;
  input.k = out;
  weight.m = out;
  weight.n = in;
  weight.k = tokens;
  weight.output = sums;
  weight.accumulate = true;
  return model.gemm(forward).seconds + model.gemm(input).seconds + model.gemm(weight).seconds;
}

// The number of tokens for which the times of products are predicted. The padding must not depend
// on the batch size, because all training phases of a run must have the same state.
static constexpr int64_t kTokens = 4096;

// Returns the number of tokens per rank and optimizer step, divided by kTokens.
static double timesPerStep(const TrainingConfig &training) {
  return double(training.microBatchSize * training.sequenceLength) *
         double(training.gradientAccumulationSteps) / double(kTokens);
}

static double headSeconds(const Config &config, const cost::CostModel &model, int64_t rows) {
  return secondsOf(model, config.training.computeDType, kTokens, config.model.hiddenSize, rows) *
         timesPerStep(config.training);
}

static double mlpSeconds(const Config &config, const cost::CostModel &model, int64_t width) {
  const DataType dtype = config.training.computeDType;
  const int64_t hidden = config.model.hiddenSize;
  const double layer = secondsOf(model, dtype, kTokens, hidden, 2 * width) +
                       secondsOf(model, dtype, kTokens, width, hidden);
  return layer * double(config.model.numHiddenLayers) * timesPerStep(config.training);
}

// Returns the bytes of parameter, compute copy, gradient and moments for one element of a weight.
static double stateBytes(const Config &config) {
  const double master = config.training.computeDType == DataType::F64 ? 8 : 4;
  const double copy = config.training.computeDType == DataType::BF16 ? 2 : 0;
  const double moments =
      config.optimizer.type == "adamw8bit" ? 2 + 8.0 / double(lm::AdamW8bitOp::kBlock) : 2 * master;
  return master + copy + /*gradient=*/master + moments;
}

// Returns `size` padded to a multiple of `forced`, or of `suggested` if `forced` is 0 ("auto").
// With "auto", there is no padding unless it makes the products faster; they take seconds(size).
static PaddedSize padded(const Config &config, const cost::CostModel *model, int64_t size,
                         int64_t forced, int64_t suggested,
                         double (*seconds)(const Config &, const cost::CostModel &, int64_t)) {
  PaddedSize made;
  made.size = size;
  made.multiple = forced > 0 ? forced : suggested;
  made.padded = int64_t(llvm::alignTo(uint64_t(size), uint64_t(made.multiple)));
  if (!made.isPadded())
    return made;
  if (model) {
    made.seconds = seconds(config, *model, made.padded);
    made.unpaddedSeconds = seconds(config, *model, size);
  }
  if (forced > 0 || !model || *made.seconds < *made.unpaddedSeconds)
    return made;
  PaddedSize plain;
  plain.size = plain.padded = size;
  return plain;
}

Padding lmc::paddingOf(const Config &config, const cost::CostModel *model) {
  const codegen::Target *target = codegen::findTarget(config.target.device);
  const int64_t suggested = target ? target->paddedMultiple(config.training.computeDType) : 1;
  const ModelConfig &shape = config.model;
  Padding padding;
  padding.vocabulary =
      padded(config, model, shape.vocabSize, config.target.vocabMultiple, suggested, headSeconds);
  padding.vocabulary.addedBytes =
      double((padding.vocabulary.padded - shape.vocabSize) * shape.hiddenSize) * stateBytes(config);
  // True if "auto" must not pad the MLPs.
  const bool isKept = config.optimizer.type == "adamw8bit" || !shape.family->mayPadMlp;
  padding.intermediate =
      padded(config, model, shape.intermediateSize, config.target.intermediateMultiple,
             isKept ? 1 : suggested, mlpSeconds);
  const int64_t biases = shape.mlpBias ? 2 : 0; // the biases of the gate and up projections
  padding.intermediate.addedBytes =
      double((padding.intermediate.padded - shape.intermediateSize) * shape.numHiddenLayers *
             (3 * shape.hiddenSize + biases)) *
      stateBytes(config);
  return padding;
}
