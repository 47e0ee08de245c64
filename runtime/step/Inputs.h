// Copies the inputs of micro-steps to device memory.
#pragma once

#include "runtime/step/BufferRing.h"

#include <array>
#include <cstdint>
#include <optional>

namespace lmc {

// Returns true if the plan has the variable batch.starts, which attention reads for a document
// mask.
bool hasDocumentMask(const PlanFile &plan);

// Returns true if the plan's inputs depend on where documents start: it has a document mask, or
// positions that restart at each document.
bool readsDocuments(const PlanFile &plan);

class Inputs {
public:
  // Checks the inputs and allocates buffers. Error: an input of the plan is not i32 [mbs * seq].
  static Result<std::unique_ptr<Inputs>> open(const PlanFile &plan, Device &device);

  // Enqueues copies of `tokens`, `targets` and, with a document mask, `documentStarts` ([mbs, seq]
  // int32 each) into batch.tokens, batch.targets and batch.starts, and of the positions that follow
  // from them into batch.positions, if the plan has it. Without these two variables,
  // `documentStarts` is not read. batch.row_positions gets the position of each token in its
  // sequence. The arrays may be changed when the call returns. It waits only if the device is more
  // than kAhead micro-steps behind.
  Result<void> upload(const int32_t *tokens, const int32_t *targets, const int32_t *documentStarts);

  // The host may prepare this many micro-steps before the device has read their inputs.
  static constexpr int kAhead = 3;

private:
  Inputs(Device &device, BufferRing ring) : device(device), ring(std::move(ring)) {}

  Device &device;
  BufferRing ring;
  std::array<std::optional<ArenaRange>, 5>
      places; // of tokens, targets, starts, positions, row positions
  uint64_t sequenceLength = 0;
};

} // namespace lmc
