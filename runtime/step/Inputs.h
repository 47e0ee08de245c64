// Copies the inputs of micro-steps to device memory.
#pragma once

#include "runtime/step/BufferRing.h"

#include <array>
#include <cstdint>
#include <optional>

namespace lmc {

// Returns true if the plan has the variable batch.starts, for a document mask.
bool hasDocumentMask(const PlanFile &plan);

// Returns true if the plan has a document mask, or positions that restart at each document.
bool readsDocuments(const PlanFile &plan);

class Inputs {
public:
  // Error: an input of the plan is not i32 [mbs * seq].
  static Result<std::unique_ptr<Inputs>> open(const PlanFile &plan, Device &device);

  // Enqueues copies of `tokens`, `targets` and `documentStarts` ([mbs, seq] int32 each) into
  // batch.tokens, batch.targets and batch.starts. batch.positions gets each token's position in its
  // document. batch.row_positions gets its position in the sequence. `documentStarts` is read only
  // if the plan has batch.starts or batch.positions. Waits only while the device has not read the
  // inputs of kAhead earlier micro-steps. The arrays may be changed after the call.
  Result<void> upload(const int32_t *tokens, const int32_t *targets, const int32_t *documentStarts);

  // The maximum number of micro-steps whose inputs are uploaded and not yet read by the device.
  static constexpr int kAhead = 3;

private:
  Inputs(Device &device, BufferRing ring) : device(device), ring(std::move(ring)) {}

  Device &device;
  BufferRing ring;
  std::array<std::optional<ArenaRange>, 5>
      places; // tokens, targets, starts, positions, row positions
  uint64_t sequenceLength = 0;
};

} // namespace lmc
