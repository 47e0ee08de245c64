// Where the bytes of a plan are, command by command.
#pragma once

#include "plan_generated.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

inline constexpr size_t kCategories = size_t(plan::Category::MAX) + 1;
using CategoryBytes = std::array<uint64_t, kCategories>;

uint64_t total(const CategoryBytes &bytes);

// "optimizer_state"
std::string categoryName(plan::Category category);

// A buffer in use at one command: a slice with the views that overlap it.
struct LiveBuffer {
  std::string source; // op that made it, of the largest of its slices
  plan::Category category = plan::Category::Temporaries;
  uint64_t bytes = 0;
};

// A stretch of a function: the forward or the backward pass of a micro-step, or all of it.
struct MemoryPhase {
  std::string name;         // "forward", "backward"; "" for a function that has no backward pass
  int first = 0, last = -1; // commands
  int peakCommand = -1;
};

// The workspace of one function, without the state.
struct FunctionMemory {
  std::vector<CategoryBytes> live; // per command: distinct bytes that must be kept
  uint64_t peakBytes = 0;
  int peakCommand = -1;            // the first that needs so much; -1: none does
  std::vector<LiveBuffer> largest; // then; largest first
  std::vector<MemoryPhase> phases;
};

struct MemoryTimeline {
  CategoryBytes state{}; // of variables, which live throughout
  std::vector<FunctionMemory> functions;
  int worst = -1; // the function with the highest peak

  // The most bytes that any function holds for its backward pass at one moment.
  uint64_t activationBytes() const;
};

// A sweep over the commands: O(n log n) in the slices, for buffers of few views.
MemoryTimeline memoryTimeline(const plan::Plan &plan);

} // namespace lmc
