// Whether a kernel reads every byte of an input before it writes a result there.
//
// What the code generators promise (compiler/kernels/Hero.h, LowerKernels.cpp), and nothing
// more, is taken for granted:
//   * items run in any order and at the same time;
//   * what varies along a row is read element by element, before anything at the element is
//     written;
//   * a row reduction makes its passes over the row one after the other, and reads what does
//     not vary along the row before the pass (other heroes may split a row between threads);
//   * a pass that reduces comes before everything that needs its result.
#pragma once

#include "dialects/kern/Kern.h"

namespace lmc {

// Whether `result` may have the bytes of `input` for its place; both number the kernel's
// own. The two must have one shape and elements of one width, or the answer is no.
bool readsBeforeWriting(kern::KernelOp kernel, unsigned input, unsigned result);

} // namespace lmc
