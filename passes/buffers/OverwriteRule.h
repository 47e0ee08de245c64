// A kernel may write a result to the bytes of an input only if it reads every byte of the input
// before it writes to that byte.
//
// The rule relies only on what the code generators guarantee (compiler/kernels/Hero.h,
// LowerKernels.cpp):
// * Work items run in any order and at the same time.
// * A value that varies along a row is read element by element, before anything is written at the
//   same element.
// * A row reduction makes its passes over a row one after the other. Before each pass it reads the
//   elements that the whole row shares. Other heroes may divide a row and do not guarantee this.
// * A pass that reduces comes before every op that needs its result.
#pragma once

#include "dialects/kern/Kern.h"

namespace lmc {

// Returns true if result number `result` may be written over input number `input` of the kernel.
// Returns false if the two differ in shape or in the width of their elements.
bool readsBeforeWriting(kern::KernelOp kernel, unsigned input, unsigned result);

} // namespace lmc
