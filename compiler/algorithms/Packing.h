// Packs buffers into an arena.
//
// A buffer occupies `bytes` bytes from the moment `first` to the moment `last`, both included. Two
// buffers that are live at the same moment may not overlap in bytes. The problem is to choose
// offsets so that the arena is small: its size is the maximum of offset + bytes. It is NP-hard
// (dynamic storage allocation). The maximum number of bytes live at one moment is a lower bound.
//
// pack() tries several greedy orders. In each, it places one buffer after the other between the
// buffers placed before: in the lowest hole, or in the smallest hole that is large enough. These
// are the heuristics of TFLite's arena planner (Pisarchyk and Lee 2020,
// https://arxiv.org/abs/2001.03288) and of XLA's buffer assignment. If the result is more than 2%
// above the lower bound, a search tries to improve it (PackingSearch.h).
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <vector>

namespace lmc {

struct PackingBuffer {
  uint64_t bytes;
  int64_t first, last; // moments, first <= last
};

struct PackingProblem {
  std::vector<PackingBuffer> buffers;
  uint64_t alignment = 64; // all offsets are multiples of `alignment`, a power of two

  // Returns an error if the problem is not well formed.
  Result<void> check() const;

  // Returns the maximum number of bytes live at one moment, with sizes rounded up to `alignment`.
  uint64_t lowerBound() const;
};

struct PackingSolution {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;     // arena size
  bool isOptimal = false; // true if it is proven that no packing is smaller

  // Returns an error unless all offsets are aligned, all buffers end within `bytes`, and buffers
  // that are live at the same moment do not overlap.
  Result<void> verify(const PackingProblem &problem) const;
};

// The default for the maximum number of search nodes (PackingSearch.h). With 2000 buffers, the
// search takes about one second on a server core. A time limit would give different solutions on
// different machines.
constexpr uint64_t kPackingSearchNodes = 100'000;

// Packs the buffers. Searches (PackingSearch.h), with at most `searchNodes` search nodes, if the
// greedy orders need more than 1.02 times the lower bound.
PackingSolution pack(const PackingProblem &problem, uint64_t searchNodes = kPackingSearchNodes);

} // namespace lmc
