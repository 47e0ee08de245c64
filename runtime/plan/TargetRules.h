// The rules for the contents of a plan that depend on its target.
//
// A target with such rules has a row in TargetRules.cpp. Plans for other targets have kernels
// without a grid, no launches, and no scratch.
#pragma once

#include "plan_generated.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lmc::plan {

// The limits of a kernel with a grid, valid for every device of the target.
struct GridLimits {
  std::array<uint32_t, 3> blocks;   // in each dimension
  uint32_t threads, threadMultiple; // of a block
  uint32_t registers, stackBytes;   // of a thread
  uint32_t sharedBytes;             // of a block
};

// A lower limit of a size: the product of `extents`, in elements of `dtype`.
struct Scratch {
  DType dtype;
  std::array<uint64_t, 4> extents = {1, 1, 1, 1};
};

struct TargetRules {
  std::string_view name; // of plans for "NAME" or "NAME:..."
  // The limits of kernels with code, each of which must have a grid. Null if no kernel has a grid
  // and no command has launches.
  const GridLimits *grid = nullptr;
  bool modulesMatch = false; // every module is for just the plan's target
  // Returns the workspace that a command needs; most commands need none. The operands of the
  // command must exist.
  std::optional<Scratch> (*scratchOf)(const Plan &plan, const Command &command) = nullptr;
};

// Returns the rules for a plan's target, such as "cuda:sm_90a".
const TargetRules &rulesOf(std::string_view target);

// Returns the dtype of sums over elements of `dtype`.
inline DType sumType(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

} // namespace lmc::plan
