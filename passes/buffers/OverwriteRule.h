// A kernel's result may be written over an input only if the kernel reads every byte of the input
// before it writes a result to that byte.
//
// The rule relies only on what the code generators guarantee (compiler/kernels/Hero.h,
// LowerKernels.cpp):
// * work items run in any order and at the same time;
// * an element of a value that varies along a row is read before a result is written there;
// * a row reduction makes its passes over the row one after the other; before a pass it reads
//   everything that does not vary along the row (other heroes may divide a row among threads);
// * a pass that reduces comes before everything that needs its result.
#pragma once

#include "dialects/kern/Kern.h"

namespace lmc {

// Returns true if result number `result` may be written over input number `input` of the kernel.
// Returns false if the two differ in shape or in the width of their elements.
bool readsBeforeWriting(kern::KernelOp kernel, unsigned input, unsigned result);

} // namespace lmc
