#include "runtime/data/BestFit.h"

#include <algorithm>
#include <set>

namespace lmc {

PackedWindows packBestFit(const std::vector<uint64_t> &starts, uint64_t end, uint64_t window) {
  using Piece = PackedWindows::Piece;
  PackedWindows packed;
  std::vector<Piece> falling;
  for (size_t i = 0; i < starts.size(); ++i) {
    const uint64_t next = i + 1 < starts.size() ? starts[i + 1] : end;
    uint64_t at = starts[i];
    packed.cut += next - at > window;
    for (; next - at > window; at += window)
      falling.push_back({at, static_cast<uint32_t>(window), false});
    if (at < next)
      falling.push_back({at, static_cast<uint32_t>(next - at), true});
  }
  std::ranges::stable_sort(falling, std::greater(), &Piece::length);

  // Windows by the tokens that are free in them. Of equally full windows the latest is taken.
  std::vector<std::vector<uint32_t>> withRoom(window);
  std::set<uint64_t> rooms; // that some window has
  std::vector<uint32_t> windowOf;
  std::vector<uint64_t> counts; // pieces of each window
  for (const Piece &piece : falling) {
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
