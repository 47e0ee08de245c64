// Describes equally spaced runs of bytes and their contents. CheckAliasing computes with them.
//
// A rectangle of a row-major matrix consists of `rows` runs. Each run has `run` bytes, and begins
// `pitch` bytes after the previous run. A piece says that such runs contain bytes of one value,
// which has the number `token`: run r contains the value's bytes from `from` + r `fromPitch` on.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <map>
#include <optional>

namespace lmc {

struct ByteRuns {
  int64_t offset = 0, rows = 1, pitch = 0, run = 0; // in bytes; with one row, pitch is 0

  static ByteRuns dense(int64_t offset, int64_t bytes) { return {offset, 1, 0, bytes}; }
  // Returns `rows` runs with `bytes` bytes in total, as one dense run if the runs are adjacent.
  static ByteRuns spaced(int64_t offset, int64_t rows, int64_t pitch, int64_t bytes);

  int64_t end() const { return offset + (rows - 1) * pitch + run; }
  int64_t bytes() const { return rows * run; }
  friend bool operator==(const ByteRuns &, const ByteRuns &) = default;
};

// Returns true if two sets of runs have a byte in common.
bool overlap(const ByteRuns &a, const ByteRuns &b);

struct Piece {
  ByteRuns place;
  unsigned token = 0;
  int64_t from = 0, fromPitch = 0; // bytes of the value, not of memory
  int64_t writer = -1;             // number of the command that wrote it; -1: initial contents

  bool sameSource(const Piece &other) const {
    return token == other.token && from == other.from && fromPitch == other.fromPitch;
  }
};

// The parts of a piece inside and outside of the runs `by`.
struct CutPiece {
  llvm::SmallVector<Piece, 2> inside, outside;
};
CutPiece cut(const Piece &piece, const ByteRuns &by);

// The pieces of a value that begins at byte 0 and has no gaps. Bytes without a piece are unknown.
using Content = llvm::SmallVector<Piece, 1>;

Content contentOf(unsigned token, int64_t bytes);
// Returns the contents of the runs `part` of `content`, as if there were no gaps between the runs.
Content partOf(const Content &content, const ByteRuns &part);
// Returns `content` with the runs `part` replaced by `source`.
Content replacePart(const Content &content, const ByteRuns &part, const Content &source);

// Bytes that should contain `expected` but contain `found` (nullopt: unknown contents).
struct ContentDifference {
  Piece expected;
  std::optional<Piece> found;
};
std::optional<ContentDifference> findDifference(const Content &expected, const Content &found);

// A range of addresses and the contents of its bytes.
class ByteMemory {
public:
  Content read(const ByteRuns &at) const;
  void write(const ByteRuns &at, const Content &content, int64_t writer);
  void forget(const ByteRuns &at); // makes the contents of these bytes unknown

private:
  // Pieces that may overlap one another. The addresses of different clusters never overlap.
  struct Cluster {
    int64_t end = 0;
    llvm::SmallVector<Piece, 1> pieces;
  };
  using Clusters = std::map<int64_t, Cluster>; // keyed by the address of the first byte

  Clusters::const_iterator firstBehind(int64_t offset) const; // first cluster to end after `offset`
  void insert(const Piece &piece);

  Clusters clusters;
};

} // namespace lmc
