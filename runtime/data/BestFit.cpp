#include "runtime/data/BestFit.h"

#include <algorithm>
#include <set>

namespace lmc {

const PackedWindows::Piece *PackedWindows::find(uint64_t window, uint64_t offset) const {
  // `found` is the last piece that begins at or before `offset`.
  const Piece *found =
      std::upper_bound(pieces.data() + first[window], pieces.data() + first[window + 1], offset,
                       [](uint64_t at, const Piece &piece) { return at < piece.offset; }) -
      1;
  return offset - found->offset < found->length ? found : nullptr;
}

PackedWindows packBestFit(const std::vector<uint64_t> &starts, uint64_t end, uint64_t window) {
  using Piece = PackedWindows::Piece;
  PackedWindows packed;
  std::vector<Piece> falling;
  for (size_t i = 0; i < starts.size(); ++i) {
    const uint64_t next = i + 1 < starts.size() ? starts[i + 1] : end;
    uint64_t at = starts[i];
    packed.cut += next - at > window;
    for (; next - at > window; at += window)
      falling.push_back({.begin = at, .length = static_cast<uint32_t>(window)});
    if (at < next)
      falling.push_back(
          {.begin = at, .length = static_cast<uint32_t>(next - at), .endsDocument = 1});
  }
  std::ranges::stable_sort(falling, std::greater(),
                           [](const Piece &piece) -> uint32_t { return piece.length; });

  // withRoom[n] lists the windows with n free tokens. A piece goes into the last window of the list
  // for the smallest n in `rooms` that is not below the piece's length, else into a new window.
  std::vector<std::vector<uint32_t>> withRoom(window);
  std::set<uint64_t> rooms; // every n for which withRoom[n] has a window
  std::vector<uint32_t> windowOf;
  std::vector<uint64_t> counts; // number of pieces of each window
  for (Piece &piece : falling) {
    uint64_t room = window;
    auto number = static_cast<uint32_t>(counts.size());
    if (const auto found = rooms.lower_bound(piece.length); found != rooms.end()) {
      room = *found;
      number = withRoom[room].back();
      withRoom[room].pop_back();
      if (withRoom[room].empty())
        rooms.erase(found);
    } else {
      counts.push_back(0);
    }
    windowOf.push_back(number);
    piece.offset = static_cast<uint32_t>(window - room);
    ++counts[number];
    if (const uint64_t left = room - piece.length; left > 0) {
      withRoom[left].push_back(number);
      rooms.insert(left);
    }
  }

  packed.first.push_back(0);
  for (uint64_t count : counts)
    packed.first.push_back(packed.first.back() + count);
  std::vector<uint64_t> next(packed.first.begin(), packed.first.end() - 1);
  packed.pieces.resize(falling.size());
  for (size_t i = 0; i < falling.size(); ++i)
    packed.pieces[next[windowOf[i]]++] = falling[i];
  return packed;
}

} // namespace lmc
