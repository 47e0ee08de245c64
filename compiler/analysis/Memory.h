// How much memory a plan uses at each command.
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

// Returns a name such as "optimizer_state".
std::string categoryName(plan::Category category);

// A buffer that is live at a command: a slice together with the views that overlap it.
struct LiveBuffer {
  std::string source; // name of the op that wrote the largest slice of the buffer
  plan::Category category = plan::Category::Temporaries;
  uint64_t bytes = 0;
};

// Commands of a function: the forward or the backward pass of a micro-step, or the whole function.
struct MemoryPhase {
  std::string name;         // "forward", "backward"; "" for a function that has no backward pass
  int first = 0, last = -1; // commands
  int peakCommand = -1;
};

// The workspace of one function; state is not included.
struct FunctionMemory {
  std::vector<CategoryBytes> live; // per command, distinct live bytes
  uint64_t peakBytes = 0;
  int peakCommand = -1;            // the first command at the peak; -1: no commands
  std::vector<LiveBuffer> largest; // live at peakCommand, largest first
  std::vector<MemoryPhase> phases;
};

struct MemoryTimeline {
  CategoryBytes state{}; // bytes of the variables, which are always live
  std::vector<FunctionMemory> functions;
  int worst = -1; // the function with the highest peak

  // Returns the maximum, over a function's commands, of the bytes kept for its backward pass.
  uint64_t activationBytes() const;
};

// Computes a plan's use of memory, in O(n log n) for n slices if buffers have few views.
MemoryTimeline memoryTimeline(const plan::Plan &plan);

} // namespace lmc
