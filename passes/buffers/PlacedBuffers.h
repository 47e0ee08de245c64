// Names the attributes and the module that carry results from one pass of this folder to the next.
#pragma once

namespace lmc {

// An attribute of a variable: i64, the offset of its first byte in @state.
inline constexpr char kOffset[] = "plan.offset";
// An attribute of a function: array<i64>, the offset of each of its buffers in @workspace; 0 for an
// unused buffer and for a variable.
inline constexpr char kOffsets[] = "plan.offsets";
// An attribute of a function: i64, the number of bytes of @workspace that the function needs.
inline constexpr char kPeakBytes[] = "plan.peak_bytes";

// plan-emit-commands keeps the functions on tensors in this module, with their kernels and
// variables. plan-check-aliasing reads them.
inline constexpr char kTensors[] = "tensors";

} // namespace lmc
