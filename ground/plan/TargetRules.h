// The rules for valid plans that depend on the plan's target. TargetRules.cpp has a row for each
// known target. For unknown targets, kernels have no grid, and commands have no launches and no
// scratch.
#pragma once

#include "plan_generated.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lmc::plan {

// Upper limits of a GPU kernel's launch. No device of the target can exceed them.
struct GridLimits {
  std::array<uint32_t, 3> blocks;   // maximum number of thread blocks in x, y and z
  uint32_t threads, threadMultiple; // per block: at most `threads`, a multiple of `threadMultiple`
  uint32_t registers, stackBytes;   // maxima per thread
  uint32_t sharedBytes;             // maximum dynamic shared memory of a thread block
};

// The minimum workspace of a command. The product of `extents` is its number of elements.
struct Scratch {
  DType dtype;
  std::array<uint64_t, 4> extents = {1, 1, 1, 1};
};

// Which matrix products may have factors that are 8-bit floats.
enum class EightBits {
  None,
  AnyLayout, // any product of one matrix by another
  // Only products of a [m, k] by b [n, k], transposed. All three extents are multiples of 16, and
  // so are the factors' addresses (cuBLASLt on sm_89, sm_90 and sm_120; its manual,
  // cublasLtMatmul).
  RowsOfK,
};

struct TargetRules {
  std::string_view name; // the part of a plan's target before ':', such as "cpu"
  // The limits of a kernel launch. If null, kernels have no grid, and commands have no launches.
  const GridLimits *grid = nullptr;
  bool modulesMatch = false; // true if Module.target must equal the target of the plan
  // The address of a matrix product's workspace (i8) is a multiple of this number of bytes. 0:
  // matrix products have no workspace.
  uint32_t gemmWorkspaceAlignment = 0;
  EightBits eightBits = EightBits::None;
  // Returns the minimum workspace of `command`, whose slices must exist; nullopt if it needs none.
  std::optional<Scratch> (*scratchOf)(const Plan &plan, const Command &command) = nullptr;
};

// Returns the rules for plans whose target is `target`, such as "cuda:sm_90a".
const TargetRules &rulesOf(std::string_view target);

// Returns true if the plan's kernels run on the processors of the host.
inline bool computesOnHost(const Plan &plan) {
  return rulesOf(plan.target()->string_view()).grid == nullptr;
}

// Returns the dtype for sums of elements of `dtype`: F64 for F64, else F32.
inline DType sumType(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

} // namespace lmc::plan
