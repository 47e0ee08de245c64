// Packing buffers into an arena.
//
// A buffer occupies `bytes` bytes from the moment `first` to the moment `last`,
// both included. Two buffers whose moments overlap may not overlap in bytes. The
// arena's size is the largest end of any buffer; the problem is to choose offsets
// (multiples of `alignment`) so that it is small. It is NP-hard (dynamic storage
// allocation); the most bytes alive at one moment bound it from below.
//
// Buffers that no chain of overlaps in time joins are packed apart. Several greedy
// orders are tried, each placing a buffer at the lowest or the tightest hole among
// those placed already, and the best result is kept: the heuristics of TFLite's arena
// planner (Pisarchyk and Lee 2020, https://arxiv.org/abs/2001.03288) and of XLA's buffer
// assignment. Where they stay too far above the lower bound a search goes on
// (PackingSearch.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

struct PackingBuffer {
  uint64_t bytes;
  int64_t first, last; // moments, first <= last
};

struct PackingProblem {
  std::vector<PackingBuffer> buffers;
  uint64_t alignment = 64; // of offsets; a power of two

  // Empty when the problem is well formed, else what is wrong with it.
  std::string check() const;

  // The most bytes alive at one moment, each buffer rounded up to the alignment.
  uint64_t lowerBound() const;
};

struct PackingSolution {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;     // arena size
  std::string heuristic;  // which order won where the arena is fullest, or "search"
  bool isOptimal = false; // proven: no packing is smaller

  // Empty when no two live buffers overlap and `bytes` covers all, else the fault.
  std::string verify(const PackingProblem &problem) const;
};

// What the search may spend by default; about a second at 2000 buffers and three at 5000
// (a 2020s server core). Counted, not timed, so that a problem has the same solution on every
// machine.
constexpr uint64_t kPackingSearchNodes = 100'000;

// The search runs when the greedy orders stay more than 2% above the lower bound, and
// spends `searchNodes` nodes at most.
PackingSolution pack(const PackingProblem &problem, uint64_t searchNodes = kPackingSearchNodes);

} // namespace lmc
