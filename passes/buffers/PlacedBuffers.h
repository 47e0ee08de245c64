// Names of the attributes and of the module through which the passes of this folder hand over their
// results.
#pragma once

namespace lmc {

// Of a variable: i64, its first byte in @state.
inline constexpr char kOffset[] = "plan.offset";
// Of a function: array<i64>, the first byte in @workspace of each of its buffers. The entry of a
// buffer that no op uses, or that is a variable's bytes, has no meaning.
inline constexpr char kOffsets[] = "plan.offsets";
// Of a function: i64, the bytes of @workspace that it needs.
inline constexpr char kPeakBytes[] = "plan.peak_bytes";

// The module that holds the functions on tensors, with their kernels and variables, from
// plan-emit-commands until plan-check-aliasing.
inline constexpr char kTensors[] = "tensors";

} // namespace lmc
