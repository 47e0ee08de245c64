// Packs buffers into an arena.
//
// A buffer occupies `bytes` bytes from the moment `first` to the moment `last`, both included. Two
// buffers that are live at the same moment may not overlap in bytes. The problem is to choose
// offsets so that the largest end of any buffer is small. It is NP-hard (dynamic storage
// allocation). The largest sum of bytes live at one moment is a lower bound.
//
// pack() tries several greedy orders. Each places one buffer after the other in the lowest hole, or
// in the smallest sufficient one, between the buffers placed before. These are the heuristics of
// TFLite's arena planner (Pisarchyk and Lee 2020, https://arxiv.org/abs/2001.03288) and of XLA's
// buffer assignment. If the result is more than 2% above the lower bound, a search tries to improve
// it (PackingSearch.h).
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

  // Returns an error that names the fault unless the problem is well formed.
  Result<void> check() const;

  // Returns the largest sum of bytes live at one moment, each buffer rounded up to the alignment.
  uint64_t lowerBound() const;
};

struct PackingSolution {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;     // arena size
  bool isOptimal = false; // true if it is proven that no packing is smaller

  // Returns an error that names the fault unless buffers that are live at the same moment never
  // overlap in bytes and `bytes` covers all of them.
  Result<void> verify(const PackingProblem &problem) const;
};

// The default limit of the search, in placements of one buffer. They take about one second for 2000
// buffers on a server core. A limit in seconds would give different solutions on different
// machines.
constexpr uint64_t kPackingSearchNodes = 100'000;

// Packs the buffers; searches with at most `searchNodes` placements of one buffer.
PackingSolution pack(const PackingProblem &problem, uint64_t searchNodes = kPackingSearchNodes);

} // namespace lmc
