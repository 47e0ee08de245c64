// Packs buffers into an arena.
//
// A buffer occupies `bytes` bytes from the moment `first` to the moment `last`, both included. Two
// buffers that are live at the same moment may not overlap in bytes. The arena's size is the
// largest end of any buffer; the problem is to choose offsets (multiples of `alignment`) so that
// this size is small. The problem is NP-hard (dynamic storage allocation). The largest sum of bytes
// live at one moment is a lower bound of the size.
//
// Buffers that are not connected by a chain of overlaps in time are packed separately. pack() tries
// several greedy orders, each of which places a buffer in the lowest or the smallest sufficient
// hole between the buffers placed before, and keeps the best result: these are the heuristics of
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

  // Fails, with what is wrong, unless the problem is well formed.
  Result<void> check() const;

  // Returns the largest sum of bytes live at one moment, each buffer rounded up to the alignment.
  uint64_t lowerBound() const;
};

struct PackingSolution {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;     // arena size
  bool isOptimal = false; // true if it is proven that no packing is smaller

  // Fails, with the fault, unless buffers that live together never overlap in bytes and `bytes`
  // covers all of them.
  Result<void> verify(const PackingProblem &problem) const;
};

// The default limit of the search, in nodes (placements of one buffer): about one second at 2000
// buffers and three at 5000 on a server core of the 2020s. The limit counts nodes rather than time,
// so that a problem has the same solution on every machine.
constexpr uint64_t kPackingSearchNodes = 100'000;

// Packs the buffers. The search runs when the greedy orders stay more than 2% above the lower
// bound, and places at most `searchNodes` buffers.
PackingSolution pack(const PackingProblem &problem, uint64_t searchNodes = kPackingSearchNodes);

} // namespace lmc
