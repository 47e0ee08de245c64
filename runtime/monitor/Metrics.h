// The file OUT/metrics.jsonl has one JSON object per optimizer step, for plots and tests.
#pragma once

#include "runtime/monitor/Routers.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// How much of a data source the run has read.
struct SourceRecord {
  std::string name;
  uint64_t tokens = 0;
  double epochs = 0;
};

// The result of evaluating a set of validation data.
struct ValidationRecord {
  std::string set;                        // name of the set; "": data.validation
  double loss = 0;                        // nats per token
  std::optional<double> bitsPerByte = {}; // absent if a token's number of text bytes is unknown
};

// Adds "validation_loss", "validation_perplexity" and, if it is known, "validation_bits_per_byte".
// A set with a name has these values without the prefix, in the object json["validation"][NAME].
void addValidation(const ValidationRecord &record, nlohmann::ordered_json &json);

// Why the optimizer left the state unchanged: the gradient norm is not finite, the step exceeded a
// limit of the guard, or guard.skip_steps names the step.
enum class SkipReason { None, NotFinite, Spike, Named };

// Returns "not_finite", "spike" or "named"; "" for None.
const char *nameOf(SkipReason reason);

// The measurements of one optimizer step. Numbers that are not finite are written as null.
struct StepRecord {
  int64_t step = 0; // number of the step, from 1
  std::string phase; // phase of the run; "": the run has no phases
  double loss = 0;   // mean over the step's targets with a loss
  double lr = 0;
  double gradNorm = 0;        // L2 norm of the gradient before clipping
  double updateRatio = 0;     // L2 norm of the update / L2 norm of the parameters
  uint64_t tokens = 0;        // tokens trained on so far, including this step
  double tokensPerSecond = 0; // of this step
  double mfuCausal = 0;       // MFU with only unmasked attention scores counted
  double mfuFull = 0;         // MFU with all attention scores counted
  double deviceFlops = 0;     // FLOP/s per device for the causal MFU; 0: unknown
  double stepSeconds = 0;     // without validation and checkpoints
  double dataSeconds = 0;     // part of stepSeconds: waiting for the batch
  // The seconds of the validations after this step, and of the saves and exports before this step.
  double validationSeconds = 0, saveSeconds = 0;
  // Estimated seconds of all future validations, checkpoints and exports; not in metrics.jsonl.
  double pendingSeconds = 0;
  uint64_t memoryBytes = 0;   // bytes of device memory
  SkipReason skipped = SkipReason::None;
  std::vector<ValidationRecord> validations; // results of the validations after this step
  std::vector<SourceRecord> sources; // empty: the data has no named sources
  std::vector<RouterRecord> routers; // one per layer with experts, if the plan has router sums
  // The part of `loss` that is the routers' balancing loss; absent if the plan does not compute it.
  std::optional<double> balanceLoss = {};
};

// Returns the record's line in metrics.jsonl, with the present time.
std::string lineOf(const StepRecord &record);

// The update of a tensor by a step.
struct TensorUpdate {
  std::string name;      // Hugging Face's name
  bool isMatrix = false; // false for norms and biases
  // L2 norm of the update / L2 norm of the weights before the step; absent if these may be zero.
  std::optional<double> ratio;
  double weightRms = 0;    // root mean square of the weights after the step
  bool isFinite = true;    // false if a weight or an update is not finite; `ratio` is then absent
  bool hasGradient = true; // false if every gradient so far was zero
};

// A line of OUT/updates.jsonl. A step has a line if the host got a copy of its state, to write a
// checkpoint or an export in the background.
struct StepUpdates {
  int64_t step = 0;
  double lr = 0;
  std::vector<TensorUpdate> tensors; // in the plan's order
};

// Returns the line in updates.jsonl: {"step", "lr", "update_ratio": {TENSOR: RATIO}, "weight_rms":
// {TENSOR: RMS}}. An absent ratio is null.
std::string lineOf(const StepUpdates &updates);

} // namespace lmc
