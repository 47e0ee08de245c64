// Packing buffers into an arena.
//
// A buffer occupies `bytes` bytes from the moment `first` to the moment `last`, both included. Two
// buffers whose moments overlap may not overlap in bytes. The arena's size is the largest end of
// any buffer; the problem is to choose offsets (multiples of `alignment`) so that it is small. The
// problem is NP-hard (dynamic storage allocation). The largest sum of bytes alive at one moment is
// a lower bound.
//
// Buffers that are not connected by a chain of overlaps in time are packed separately. Several
// greedy orders are tried, each of which places a buffer in the lowest or the tightest hole between
// the buffers placed before, and the best result is kept: these are the heuristics of TFLite's
// arena planner (Pisarchyk and Lee 2020, https://arxiv.org/abs/2001.03288) and of XLA's buffer
// assignment. Where the result stays too far above the lower bound, a search improves it
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

  // Returns an empty string when the problem is well formed, else what is wrong with it.
  std::string check() const;

  // The largest sum of bytes alive at one moment, each buffer rounded up to the alignment.
  uint64_t lowerBound() const;
};

struct PackingSolution {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;     // arena size
  std::string heuristic;  // the order that packed the largest component, or "search"
  bool isOptimal = false; // proven: no packing is smaller

  // Returns an empty string when buffers that live together never overlap in bytes and `bytes`
  // covers all of them, else the fault.
  std::string verify(const PackingProblem &problem) const;
};

// The default limit of the search: about one second at 2000 buffers and three at 5000 on a server
// core of the 2020s. The limit counts nodes rather than time, so that a problem has the same
// solution on every machine.
constexpr uint64_t kPackingSearchNodes = 100'000;

// Packs the buffers. The search runs when the greedy orders stay more than 2% above the lower
// bound, and spends at most `searchNodes` nodes.
PackingSolution pack(const PackingProblem &problem, uint64_t searchNodes = kPackingSearchNodes);

} // namespace lmc
