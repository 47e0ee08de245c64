// Packs buffers into an arena by search: slower than the greedy orders of Packing.h, but able to
// prove that a packing is optimal.
//
// Within an arena of given size, the search places buffers in order of rising offsets, each
// directly above the buffers below it (at offset 0 if there are none). If a packing exists, one of
// A branch of the search ends when
// * placing the next buffer would leave a hole below that buffer into which another unplaced buffer
//   fits, or
// * at some moment the unplaced buffers that are live then no longer fit above the placed ones.
//
// When the unplaced buffers divide into groups of which no two are live at the same moment, each
// group is packed by itself. The method is that of MiniMalloc (Moffitt, "MiniMalloc: A Lightweight
// Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023), which calls packings
// of this form canonical.
//
// Measured on the shipped models: the search makes the peak up to 1.27% smaller than the best
// greedy order does (llama1b with recompute "auto"). The search saves nothing where the recompute
// mode is not "auto", nor on models of 7B and 8B parameters, where the greedy orders are within
// 0.4% of the lower bound. All figures are in bench/results/planners-2026-11-22.md.
#pragma once

#include "compiler/algorithms/Packing.h"

namespace lmc {

// Improves `solution`, a solution of `problem`, until it has at most `enough` bytes, is proven
// optimal (`isOptimal` is then set) or no node is left. One node is the placement of one buffer; it
// takes time linear in the number of unplaced buffers. Subtracts the number of nodes used from
// `nodes`. Leaves a problem of more than 8192 buffers unchanged.
void searchPacking(const PackingProblem &problem, uint64_t enough, PackingSolution &solution,
                   uint64_t &nodes);

} // namespace lmc
