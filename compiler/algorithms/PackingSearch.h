// Packing by search: slower than the greedy orders, and able to prove a packing optimal.
//
// Within an arena of given size, buffers are placed in order of rising offsets, each on
// top of what is below it. That finds a packing if there is one: in a packing of least
// sum of offsets no buffer can be lowered. For the same reason a branch ends when
// - it would place a buffer above a hole that another unplaced one fits into;
// - at some moment what is alive and unplaced no longer fits above what is placed.
// Buffers left over that fall apart into groups which never meet are packed group by group.
// After MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
// Hardware-Accelerated Machine Learning", ASPLOS 2023), which calls such packings canonical.
#pragma once

#include "compiler/algorithms/Packing.h"

namespace lmc {

// Makes `solution`, which is one of `problem`, smaller until it has `enough` bytes, is
// proven optimal (which it then says) or `nodes` are spent. A node is one buffer placed; it
// costs time linear in the buffers left. Takes what it spends off `nodes`. Problems of more
// than 8192 buffers are left as they are.
void searchPacking(const PackingProblem &problem, uint64_t enough, PackingSolution &solution,
                   uint64_t &nodes);

} // namespace lmc
