// A kernel may write a result to the bytes of an input only if it reads every byte of the input
// before it writes to that byte.
//
// The rule relies only on what the code generators guarantee (compiler/kernels/Hero.h,
// LowerKernels.cpp):
// * work items run in any order and at the same time;
// * an element whose indices vary along a row is read before a result is written to that element;
// * a row reduction makes its passes over the row one after the other; before each pass it reads
//   what does not vary along the row (a kernel with another hero may divide a row among threads);
// * a pass that reduces comes before every op that needs its result.
#pragma once

#include "dialects/kern/Kern.h"

namespace lmc {

// Returns true if result number `result` may be written over input number `input` of the kernel.
// Returns false if the two differ in shape or in the width of their elements.
bool readsBeforeWriting(kern::KernelOp kernel, unsigned input, unsigned result);

} // namespace lmc
