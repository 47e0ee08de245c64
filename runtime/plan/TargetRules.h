// What a plan has to carry for the device that runs it.
//
// A target that needs something has a row in TargetRules.cpp. The plans of other targets have
// kernels without a grid, no launches, and scratch for no command.
#pragma once

#include "plan_generated.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lmc::plan {

// The most that a kernel with a grid may ask of a device, whatever device of the target it is.
struct GridLimits {
  std::array<uint32_t, 3> blocks;   // in each dimension
  uint32_t threads, threadMultiple; // of a block
  uint32_t registers, stackBytes;   // of a thread
  uint32_t sharedBytes;             // of a block
};

// The product of `extents` elements of `dtype`, at least.
struct Scratch {
  DType dtype;
  std::array<uint64_t, 4> extents = {1, 1, 1, 1};
};

struct TargetRules {
  std::string_view name; // of plans for "NAME" or "NAME:..."
  // Null: no kernel has a grid, and no command has launches. Otherwise a kernel with code has a
  // grid within these limits.
  const GridLimits *grid = nullptr;
  bool modulesMatch = false; // every module is for just the plan's target
  // The workspace that a command needs, none for most. The command's operands exist.
  std::optional<Scratch> (*scratchOf)(const Plan &plan, const Command &command) = nullptr;
};

// The rules for a plan's target: "cuda:sm_90a".
const TargetRules &rulesOf(std::string_view target);

// The dtype that sums of `dtype` are held in.
inline DType sumType(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

} // namespace lmc::plan
