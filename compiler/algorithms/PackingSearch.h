// Packs buffers into an arena by search. This is slower than the greedy orders of Packing.h, but it
// can prove that a packing is optimal.
//
// Within an arena of given size, the search places buffers in order of rising offsets. Each buffer
// lies at offset 0, or directly above a buffer that is live at the same time. If any packing
// exists, one of this form exists. A branch of the search ends when
// * the next buffer would leave a hole below it into which another unplaced buffer fits, or
// * at some moment, the unplaced buffers that are live no longer fit above the placed ones.
//
// Groups of unplaced buffers that are never live together are packed one after the other. The
// method is that of MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
// Hardware-Accelerated Machine Learning", ASPLOS 2023).
//
// The search makes the peak of the shipped models up to 1.27% smaller than the best greedy order
// does (bench/results/planners-2026-11-22.md).
#pragma once

#include "compiler/algorithms/Packing.h"

namespace lmc {

// Improves `solution`. Ends when `solution` has at most `enough` bytes, when it is proven optimal
// (isOptimal becomes true), or after `nodes` search nodes. A search node is the placement of one
// buffer. It takes time linear in the number of unplaced buffers. Subtracts the used search nodes
// from `nodes`. Does nothing if the problem has more than 8192 buffers.
void searchPacking(const PackingProblem &problem, uint64_t enough, PackingSolution &solution,
                   uint64_t &nodes);

} // namespace lmc
