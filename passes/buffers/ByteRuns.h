// Equally spaced runs of bytes, and what bytes hold: the algebra of CheckAliasing.
//
// A rectangle of a row-major matrix is `rows` runs of `run` bytes that begin `pitch` bytes
// apart. A piece says that such runs hold bytes of a value, the value being known by a
// token: byte `from` of it at the first byte, and `fromPitch` bytes further on for each row.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <map>
#include <optional>

namespace lmc {

struct ByteRuns {
  int64_t offset = 0, rows = 1, pitch = 0, run = 0; // bytes; one row: pitch 0

  static ByteRuns dense(int64_t offset, int64_t bytes) { return {offset, 1, 0, bytes}; }
  // `bytes` bytes in `rows` runs; dense where the runs touch.
  static ByteRuns spaced(int64_t offset, int64_t rows, int64_t pitch, int64_t bytes);

  int64_t end() const { return offset + (rows - 1) * pitch + run; }
  int64_t bytes() const { return rows * run; }
  friend bool operator==(const ByteRuns &, const ByteRuns &) = default;
};

// Whether two sets of runs have a byte in common.
bool overlap(const ByteRuns &a, const ByteRuns &b);

struct Piece {
  ByteRuns place;
  unsigned token = 0;
  int64_t from = 0, fromPitch = 0; // bytes of the token; one row: fromPitch 0
  int64_t writer = -1;             // the command that wrote it; -1: there from the start

  bool sameSource(const Piece &other) const {
    return token == other.token && from == other.from && fromPitch == other.fromPitch;
  }
};

// A piece cut in two: what lies inside of `by`, and the rest.
struct CutPiece {
  llvm::SmallVector<Piece, 2> inside, outside;
};
CutPiece cut(const Piece &piece, const ByteRuns &by);

// What a value's bytes hold, the places counted from its first byte as if it were dense.
// Bytes that no piece covers hold nothing in particular.
using Content = llvm::SmallVector<Piece, 1>;

Content contentOf(unsigned token, int64_t bytes);
// The bytes of `content` at `part`, as a dense value.
Content partOf(const Content &content, const ByteRuns &part);
// `content` with `part` of it replaced by `source`.
Content replacePart(const Content &content, const ByteRuns &part, const Content &source);

// Where two contents differ: bytes that should hold `expected` and hold `found`, or nothing.
struct ContentDifference {
  Piece expected;
  std::optional<Piece> found;
};
std::optional<ContentDifference> findDifference(const Content &expected, const Content &found);

// A range of addresses and what its bytes hold.
class ByteMemory {
public:
  Content read(const ByteRuns &at) const;
  void write(const ByteRuns &at, const Content &content, int64_t writer);
  void forget(const ByteRuns &at); // something else is there now

private:
  // Pieces whose extents overlap, so that extents of clusters don't.
  struct Cluster {
    int64_t end = 0;
    llvm::SmallVector<Piece, 1> pieces;
  };
  using Clusters = std::map<int64_t, Cluster>; // by first byte

  Clusters::const_iterator firstBehind(int64_t offset) const; // that ends behind `offset`
  void insert(const Piece &piece);

  Clusters clusters;
};

} // namespace lmc
