#include "runtime/data/BestFit.h"

#include "test/Draws.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <functional>
#include <random>

namespace lmc {
namespace {

// Returns the number of windows by the definition: longest first, each into the fullest that fits.
size_t windowsByDefinition(std::vector<uint64_t> lengths, uint64_t window) {
  std::vector<uint64_t> pieces, rooms;
  for (uint64_t length : lengths) {
    pieces.insert(pieces.end(), length / window, window);
    if (length % window != 0)
      pieces.push_back(length % window);
  }
  std::ranges::sort(pieces, std::greater());
  for (uint64_t piece : pieces) {
    auto best = rooms.end();
    for (auto room = rooms.begin(); room != rooms.end(); ++room)
      if (*room >= piece && (best == rooms.end() || *room < *best))
        best = room;
    if (best == rooms.end())
      best = rooms.insert(best, window);
    *best -= piece;
  }
  return rooms.size();
}

void expectPacked(const std::vector<uint64_t> &lengths, uint64_t window) {
  std::vector<uint64_t> starts, documentOf;
  for (uint64_t length : lengths) {
    starts.push_back(documentOf.size());
    documentOf.insert(documentOf.end(), length, starts.size() - 1);
  }
  const PackedWindows packed = packBestFit(starts, documentOf.size(), window);
  ASSERT_EQ(packed.size(), windowsByDefinition(lengths, window));
  EXPECT_EQ(packed.first.back(), packed.pieces.size());
  std::vector<int> visits(documentOf.size());
  uint64_t cut = 0;
  for (uint64_t length : lengths)
    cut += length > window;
  EXPECT_EQ(packed.cut, cut);
  for (uint64_t w = 0; w < packed.size(); ++w) {
    uint64_t tokens = 0;
    ASSERT_LT(packed.first[w], packed.first[w + 1]);
    for (uint64_t i = packed.first[w]; i < packed.first[w + 1]; ++i) {
      const PackedWindows::Piece &piece = packed.pieces[i];
      ASSERT_EQ(piece.offset, tokens);
      for (uint64_t in : {0u, piece.length - 1u})
        ASSERT_EQ(packed.find(w, tokens + in), &piece);
      tokens += piece.length;
      ASSERT_LE(piece.begin + piece.length, documentOf.size());
      const uint64_t document = documentOf[piece.begin], end = piece.begin + piece.length;
      ASSERT_EQ(document, documentOf[end - 1]);
      if (lengths[document] <= window) {
        ASSERT_EQ(piece.length, lengths[document]) << "document " << document << " is cut";
      }
      ASSERT_EQ(piece.endsDocument, end == starts[document] + lengths[document]);
      for (uint64_t t = piece.begin; t < end; ++t)
        ++visits[t];
    }
    ASSERT_LE(tokens, window);
    if (tokens < window) {
      ASSERT_EQ(packed.find(w, tokens), nullptr) << "padding";
      ASSERT_EQ(packed.find(w, window - 1), nullptr);
    }
  }
  EXPECT_TRUE(std::ranges::all_of(visits, [](int count) { return count == 1; }));
}

TEST(BestFit, PacksSmallCases) {
  expectPacked({3}, 8);
  expectPacked({8}, 8);
  expectPacked({8, 8}, 8);
  expectPacked({16}, 8);
  expectPacked({17}, 8);
  expectPacked({5, 4, 3, 4}, 8); // two full windows
  expectPacked({0, 3, 0, 0, 5, 0}, 8);
  expectPacked({1, 1, 1}, 1);
  EXPECT_EQ(packBestFit({0, 5, 9, 12}, 16, 8).size(), 2u);
}

TEST(BestFit, PacksDrawnDocuments) {
  std::mt19937 random(3);
  const int64_t rounds = test::drawCount(200);
  for (int64_t round = 0; round < rounds; ++round) {
    const uint64_t window = 1 + random() % 60;
    std::vector<uint64_t> lengths(1 + random() % 200);
    for (uint64_t &length : lengths)
      length = random() % (random() % 8 == 0 ? 4 * window : window + 1);
    if (std::ranges::count(lengths, 0) == int64_t(lengths.size()))
      lengths.push_back(1);
    expectPacked(lengths, window);
  }
}

} // namespace
} // namespace lmc
