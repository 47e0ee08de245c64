// The rule for writing a kernel's result over an input: the kernel must read every byte of the
// input before it writes a result to that byte.
//
// The rule relies only on what the code generators guarantee (compiler/kernels/Hero.h,
// LowerKernels.cpp):
// * work items run in any order and at the same time;
// * values that vary along a row are read element by element, before anything is written at the
//   element;
// * a row reduction makes its passes over the row one after the other, and before a pass reads
//   everything that does not vary along the row (with other heroes, several threads may share a
//   row);
// * a pass that reduces comes before everything that needs its result.
#pragma once

#include "dialects/kern/Kern.h"

namespace lmc {

// Returns true if result number `result` may be written over input number `input` of the kernel.
// Returns false if the two differ in shape or in the width of their elements.
bool readsBeforeWriting(kern::KernelOp kernel, unsigned input, unsigned result);

} // namespace lmc
