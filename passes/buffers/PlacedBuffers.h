// Names of the attributes and of the module through which the passes of this folder hand over their
// results.
#pragma once

namespace lmc {

// An attribute of a variable: i64, the offset of its first byte in @state.
inline constexpr char kOffset[] = "plan.offset";
// An attribute of a function: array<i64>, the offset of each of its buffers in @workspace. The
// entry of an unused buffer, or of a variable's bytes, has no meaning.
inline constexpr char kOffsets[] = "plan.offsets";
// An attribute of a function: i64, the bytes of @workspace that it needs.
inline constexpr char kPeakBytes[] = "plan.peak_bytes";

// The module that holds the functions on tensors, with their kernels and variables, from
// plan-emit-commands until plan-check-aliasing.
inline constexpr char kTensors[] = "tensors";

} // namespace lmc
