// Packing by search: slower than the greedy orders, but able to prove a packing optimal.
//
// Within an arena of given size, buffers are placed in order of rising offsets, each directly above
// the buffers below it. This finds a packing if one exists: in a packing with the least sum of
// offsets no buffer can be lowered. A branch of the search ends when
// * it would place a buffer above a hole that another unplaced buffer fits into, or
// * at some moment the unplaced buffers alive no longer fit above the placed ones.
//
// When the unplaced buffers divide into groups that never live together, each group is packed by
// itself. The method is that of MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator
// for Hardware-Accelerated Machine Learning", ASPLOS 2023), which calls such packings canonical.
//
// Measured on the shipped models: the search makes the peak up to 1.27% smaller than the best
// greedy order does (llama1b with recompute "auto"). It saves nothing with a named recompute mode,
// nor on models of 7B and 8B: there the greedy orders are within 0.4% of the lower bound.
// bench/results/planners-2026-11-22.md has all figures.
#pragma once

#include "compiler/algorithms/Packing.h"

namespace lmc {

// Improves `solution`, a solution of `problem`, until it has at most `enough` bytes, is proven
// optimal (`isOptimal` is then set) or `nodes` are spent. A node is one buffer placed; it takes
// time linear in the number of unplaced buffers. The nodes spent are subtracted from `nodes`. A
// problem of more than 8192 buffers is left unchanged.
void searchPacking(const PackingProblem &problem, uint64_t enough, PackingSolution &solution,
                   uint64_t &nodes);

} // namespace lmc
