// The attributes and the module that carry the results of one pass of this folder to the next.
#pragma once

namespace lmc {

// An attribute of a variable: i64, the offset of its first byte in @state.
inline constexpr char kOffset[] = "plan.offset";
// An attribute of a function: array<i64>, the offset of each of its buffers in @workspace; 0 for an
// unused buffer and for a variable.
inline constexpr char kOffsets[] = "plan.offsets";
// An attribute of a function: i64, the number of bytes of @workspace that the function needs.
inline constexpr char kPeakBytes[] = "plan.peak_bytes";

// From plan-emit-commands to plan-check-aliasing, this module holds the functions on tensors, with
// their kernels and variables.
inline constexpr char kTensors[] = "tensors";

} // namespace lmc
