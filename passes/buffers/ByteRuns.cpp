#include "passes/buffers/ByteRuns.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace lmc;

ByteRuns ByteRuns::spaced(int64_t offset, int64_t rows, int64_t pitch, int64_t bytes) {
  if (rows <= 1 || pitch == 0 || pitch * rows == bytes)
    return dense(offset, bytes);
  return {offset, rows, pitch, bytes / rows};
}

namespace {

// A grid that maps bytes to rows and columns: row r begins at byte anchor + r * pitch.
struct Grid {
  int64_t anchor, pitch;
};

// A box is the bytes [left, right) of the rows [top, bottom) of a grid. left < right <= pitch.
struct Box {
  int64_t top, bottom, left, right;
};

using Boxes = llvm::SmallVector<Box, 3>;

} // namespace

// Returns the boxes of `grid` that cover `runs`, which have the pitch of `grid` or are dense.
static Boxes boxesOf(const ByteRuns &runs, const Grid &grid) {
  Boxes boxes;
  int64_t row = llvm::divideFloorSigned(runs.offset - grid.anchor, grid.pitch);
  int64_t column = runs.offset - grid.anchor - row * grid.pitch;
  if (column + runs.run <= grid.pitch) {
    boxes.push_back({row, row + runs.rows, column, column + runs.run});
  } else if (runs.rows > 1) { // every run begins in one row of the grid and ends in the next
    boxes.push_back({row, row + runs.rows, column, grid.pitch});
    boxes.push_back({row + 1, row + 1 + runs.rows, 0, column + runs.run - grid.pitch});
  } else {
    int64_t rest = runs.run;
    if (column > 0) {
      boxes.push_back({row, row + 1, column, grid.pitch});
      rest -= grid.pitch - column;
      ++row;
    }
    if (int64_t whole = rest / grid.pitch) {
      boxes.push_back({row, row + whole, 0, grid.pitch});
      row += whole;
    }
    if (int64_t tail = rest % grid.pitch)
      boxes.push_back({row, row + 1, 0, tail});
  }
  return boxes;
}

static bool fits(const ByteRuns &runs, int64_t pitch) {
  return runs.rows == 1 || runs.pitch == pitch;
}

// Makes one dense run of a piece if its rows are adjacent both in memory and in the value.
static void joinRows(Piece &piece) {
  const ByteRuns place = piece.place;
  if (place.rows > 1 && (place.run != place.pitch || place.run != piece.fromPitch))
    return;
  piece.place = ByteRuns::dense(place.offset, place.bytes());
  piece.fromPitch = 0;
}

// Returns the part of `piece` that lies in `box`. The box lies inside the piece.
static Piece pieceOf(const Piece &piece, const Grid &grid, const Box &box) {
  Piece part = piece;
  int64_t rows = box.bottom - box.top, run = box.right - box.left;
  part.place = {grid.anchor + box.top * grid.pitch + box.left, rows, grid.pitch, run};
  int64_t inside = part.place.offset - piece.place.offset;
  if (piece.place.rows == 1) {
    part.from = piece.from + inside;
    part.fromPitch = grid.pitch;
  } else {
    int64_t row = inside / grid.pitch;
    part.from = piece.from + row * piece.fromPitch + inside % grid.pitch;
  }
  joinRows(part);
  return part;
}

static std::optional<Box> intersect(const Box &a, const Box &b) {
  Box both{std::max(a.top, b.top), std::min(a.bottom, b.bottom), std::max(a.left, b.left),
           std::min(a.right, b.right)};
  if (both.top >= both.bottom || both.left >= both.right)
    return std::nullopt;
  return both;
}

// Returns boxes that cover the box `a` without the box `inner`, which lies inside `a`.
static Boxes around(const Box &a, const Box &inner) {
  Boxes rest;
  if (a.top < inner.top)
    rest.push_back({a.top, inner.top, a.left, a.right});
  if (a.left < inner.left)
    rest.push_back({inner.top, inner.bottom, a.left, inner.left});
  if (inner.right < a.right)
    rest.push_back({inner.top, inner.bottom, inner.right, a.right});
  if (inner.bottom < a.bottom)
    rest.push_back({inner.bottom, a.bottom, a.left, a.right});
  return rest;
}

static Piece rowOf(const Piece &piece, int64_t row) {
  Piece one = piece;
  one.place = ByteRuns::dense(piece.place.offset + row * piece.place.pitch, piece.place.run);
  one.from += row * piece.fromPitch;
  one.fromPitch = 0;
  return one;
}

static bool extentsOverlap(const ByteRuns &a, const ByteRuns &b) {
  return a.offset < b.end() && b.offset < a.end();
}

CutPiece lmc::cut(const Piece &piece, const ByteRuns &by) {
  CutPiece result;
  const ByteRuns &place = piece.place;
  if (!extentsOverlap(place, by)) {
    result.outside.push_back(piece);
    return result;
  }
  if (by == place || (by.rows == 1 && by.offset <= place.offset && place.end() <= by.end())) {
    result.inside.push_back(piece);
    return result;
  }
  if (place.rows > 1 && by.rows > 1 && place.pitch != by.pitch) {
    for (int64_t row = 0; row < place.rows; ++row) {
      CutPiece one = cut(rowOf(piece, row), by);
      result.inside.append(one.inside);
      result.outside.append(one.outside);
    }
    return result;
  }
  // The rows that both are cut along. If neither has a pitch, there is one row, from the first byte
  // to the last byte of both.
  int64_t low = std::min(place.offset, by.offset);
  Grid grid = by.rows > 1      ? Grid{by.offset, by.pitch}
              : place.rows > 1 ? Grid{place.offset, place.pitch}
                               : Grid{low, std::max(place.end(), by.end()) - low};
  Boxes rest = boxesOf(place, grid);
  for (const Box &hole : boxesOf(by, grid)) {
    Boxes next;
    for (const Box &box : rest)
      if (std::optional<Box> both = intersect(box, hole)) {
        result.inside.push_back(pieceOf(piece, grid, *both));
        next.append(around(box, *both));
      } else {
        next.push_back(box);
      }
    rest = std::move(next);
  }
  for (const Box &box : rest)
    result.outside.push_back(pieceOf(piece, grid, box));
  return result;
}

bool lmc::overlap(const ByteRuns &a, const ByteRuns &b) {
  return extentsOverlap(a, b) && !cut({.place = a}, b).inside.empty();
}

// Divides `piece` into boxes of `grid` and calls `use` for each.
static void forEachBox(const Piece &piece, const Grid &grid,
                       llvm::function_ref<void(const Piece &, const Box &)> use) {
  if (fits(piece.place, grid.pitch)) {
    for (const Box &box : boxesOf(piece.place, grid))
      use(pieceOf(piece, grid, box), box);
    return;
  }
  for (int64_t row = 0; row < piece.place.rows; ++row)
    forEachBox(rowOf(piece, row), grid, use);
}

// Moves byte n of `from` to byte n of `to`, for each n, and appends the moved pieces to `result`.
// `from` and `to` have equally many bytes, and at least one of them is dense.
static void move(const Piece &piece, const ByteRuns &from, const ByteRuns &to,
                 llvm::SmallVectorImpl<Piece> &result) {
  if (from.rows == 1 && to.rows == 1) {
    result.push_back(piece);
    result.back().place.offset += to.offset - from.offset;
    return;
  }
  const ByteRuns &spaced = from.rows > 1 ? from : to;
  Grid source{from.offset, from.rows > 1 ? from.pitch : spaced.run};
  Grid target{to.offset, to.rows > 1 ? to.pitch : spaced.run};
  forEachBox(piece, source, [&](const Piece &part, const Box &box) {
    Piece &moved = result.emplace_back(part);
    const int64_t run = box.right - box.left;
    if (part.place.rows == 1)
      moved.fromPitch = run;
    moved.place = {target.anchor + box.top * target.pitch + box.left, box.bottom - box.top,
                   target.pitch, run};
    joinRows(moved);
  });
}

Content lmc::contentOf(unsigned token, int64_t bytes) {
  return {{.place = ByteRuns::dense(0, bytes), .token = token}};
}

Content lmc::partOf(const Content &content, const ByteRuns &part) {
  Content result;
  for (const Piece &piece : content)
    for (const Piece &inside : cut(piece, part).inside)
      move(inside, part, ByteRuns::dense(0, part.bytes()), result);
  return result;
}

Content lmc::replacePart(const Content &content, const ByteRuns &part, const Content &source) {
  Content result;
  for (const Piece &piece : content)
    result.append(cut(piece, part).outside);
  for (const Piece &piece : source)
    move(piece, ByteRuns::dense(0, part.bytes()), part, result);
  return result;
}

// Returns true if two pieces have the same contents where their places overlap.
static bool sameBytes(const Piece &expected, const Piece &found) {
  if (expected.place == found.place)
    return expected.sameSource(found);
  for (int64_t row = 0; row < expected.place.rows; ++row)
    for (int64_t other = 0; other < found.place.rows; ++other) {
      Piece a = rowOf(expected, row), b = rowOf(found, other);
      int64_t shift = b.place.offset - a.place.offset;
      if (extentsOverlap(a.place, b.place) && (a.token != b.token || b.from - a.from != shift))
        return false;
    }
  return true;
}

std::optional<ContentDifference> lmc::findDifference(const Content &expected,
                                                     const Content &found) {
  // Nearly always, both contents consist of the same pieces.
  auto same = [](const Piece &x, const Piece &y) { return x.place == y.place && x.sameSource(y); };
  if (llvm::equal(expected, found, same))
    return std::nullopt;
  for (const Piece &piece : expected) {
    llvm::SmallVector<Piece, 2> rest{piece};
    for (const Piece &there : found) {
      llvm::SmallVector<Piece, 2> next;
      for (const Piece &part : rest) {
        CutPiece parts = cut(part, there.place);
        next.append(parts.outside);
        for (const Piece &covered : parts.inside)
          for (const Piece &held : cut(there, covered.place).inside)
            if (!sameBytes(covered, held))
              return ContentDifference{covered, held};
      }
      rest = std::move(next);
    }
    if (!rest.empty())
      return ContentDifference{rest.front(), std::nullopt};
  }
  return std::nullopt;
}

ByteMemory::Clusters::const_iterator ByteMemory::firstBehind(int64_t offset) const {
  auto it = clusters.upper_bound(offset);
  if (it != clusters.begin() && std::prev(it)->second.end > offset)
    --it;
  return it;
}

Content ByteMemory::read(const ByteRuns &at) const {
  Content result;
  ByteRuns dense = ByteRuns::dense(0, at.bytes());
  for (auto it = firstBehind(at.offset); it != clusters.end() && it->first < at.end(); ++it)
    for (const Piece &piece : it->second.pieces)
      for (const Piece &inside : cut(piece, at).inside)
        move(inside, at, dense, result);
  return result;
}

void ByteMemory::insert(const Piece &piece) {
  int64_t begin = piece.place.offset;
  Cluster cluster;
  cluster.end = piece.place.end();
  for (auto it = firstBehind(begin); it != clusters.end() && it->first < cluster.end;) {
    begin = std::min(begin, it->first);
    cluster.end = std::max(cluster.end, it->second.end);
    cluster.pieces.append(it->second.pieces);
    it = clusters.erase(it);
  }
  cluster.pieces.push_back(piece);
  clusters.emplace(begin, std::move(cluster));
}

// A piece may have another pitch than the bytes that are cut out of it. Then at most this many of
// its rows are cut. With more rows, the contents of the whole piece count as unknown. The check may
// then report a mistake that does not exist, but no plan so far has such a piece in a live buffer.
static constexpr int64_t kExactRows = 1024;

void ByteMemory::forget(const ByteRuns &at) {
  llvm::SmallVector<Piece> kept;
  for (auto it = firstBehind(at.offset); it != clusters.end() && it->first < at.end();) {
    for (const Piece &piece : it->second.pieces)
      if (piece.place.rows <= kExactRows || fits(at, piece.place.pitch) ||
          !extentsOverlap(piece.place, at))
        kept.append(cut(piece, at).outside);
    it = clusters.erase(it);
  }
  for (const Piece &piece : kept)
    insert(piece);
}

void ByteMemory::write(const ByteRuns &at, const Content &content, int64_t writer) {
  forget(at);
  llvm::SmallVector<Piece> placed;
  for (const Piece &piece : content)
    move(piece, ByteRuns::dense(0, at.bytes()), at, placed);
  for (Piece &piece : placed) {
    piece.writer = writer;
    insert(piece);
  }
}
