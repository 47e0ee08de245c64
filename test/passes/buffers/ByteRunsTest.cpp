// The algebra of spaced runs against sets of single bytes.
#include "passes/buffers/ByteRuns.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

using namespace lmc;

namespace {

using Random = std::mt19937_64;
using Bytes = std::map<int64_t, std::pair<unsigned, int64_t>>; // address -> byte of a token

std::vector<int64_t> addressesOf(const ByteRuns &runs) {
  std::vector<int64_t> addresses;
  for (int64_t row = 0; row < runs.rows; ++row)
    for (int64_t i = 0; i < runs.run; ++i)
      addresses.push_back(runs.offset + row * runs.pitch + i);
  return addresses;
}

void add(Bytes &bytes, const Piece &piece) {
  for (int64_t row = 0; row < piece.place.rows; ++row)
    for (int64_t i = 0; i < piece.place.run; ++i) {
      bool isNew = bytes
                       .emplace(piece.place.offset + row * piece.place.pitch + i,
                                std::make_pair(piece.token, piece.from + row * piece.fromPitch + i))
                       .second;
      EXPECT_TRUE(isNew) << "two pieces for one byte";
    }
}

template <typename Pieces> Bytes bytesOf(const Pieces &pieces) {
  Bytes bytes;
  for (const Piece &piece : pieces)
    add(bytes, piece);
  return bytes;
}

ByteRuns someRuns(Random &random) {
  int64_t offset = int64_t(random() % 40), run = 1 + int64_t(random() % 12);
  if (random() % 2)
    return ByteRuns::dense(offset, run);
  int64_t rows = 1 + int64_t(random() % 5);
  // Few pitches, so that equal ones meet.
  int64_t pitch = run + int64_t(random() % 3) * (random() % 2 ? 12 - run % 12 : 1);
  if (random() % 2)
    pitch = std::max<int64_t>(run, 12);
  return ByteRuns::spaced(offset, rows, pitch, rows * run);
}

Piece somePiece(Random &random, unsigned token) {
  Piece piece;
  piece.place = someRuns(random);
  piece.token = token;
  piece.from = int64_t(random() % 100);
  piece.fromPitch = piece.place.rows > 1 ? piece.place.run + int64_t(random() % 5) : 0;
  return piece;
}

} // namespace

TEST(ByteRunsTest, CutsAPieceIntoItsBytes) {
  Random random(1);
  for (int trial = 0; trial < 20000; ++trial) {
    Piece piece = somePiece(random, 7);
    ByteRuns by = someRuns(random);
    Bytes all = bytesOf(std::vector<Piece>{piece}), inside, outside;
    for (int64_t address : addressesOf(by))
      if (auto it = all.find(address); it != all.end())
        inside.insert(*it);
    for (const auto &entry : all)
      if (!inside.count(entry.first))
        outside.insert(entry);
    CutPiece parts = cut(piece, by);
    ASSERT_EQ(bytesOf(parts.inside), inside) << trial;
    ASSERT_EQ(bytesOf(parts.outside), outside) << trial;
    ASSERT_EQ(overlap(piece.place, by), !inside.empty());
  }
}

// Random writes and reads, against a map from addresses.
TEST(ByteRunsTest, MemoryHoldsWhatWasWrittenLast) {
  Random random(2);
  for (int trial = 0; trial < 400; ++trial) {
    ByteMemory memory;
    Bytes model;
    for (unsigned step = 0; step < 12; ++step) {
      ByteRuns at = someRuns(random);
      std::vector<int64_t> addresses = addressesOf(at);
      memory.write(at, contentOf(step, at.bytes()), step);
      for (auto [i, address] : llvm::enumerate(addresses))
        model[address] = {step, int64_t(i)};
      ByteRuns from = someRuns(random);
      Bytes expected;
      for (auto [i, address] : llvm::enumerate(addressesOf(from)))
        if (model.count(address))
          expected[int64_t(i)] = model[address];
      ASSERT_EQ(bytesOf(memory.read(from)), expected) << trial << " " << step;
    }
  }
}

TEST(ByteRunsTest, ReplacesAPart) {
  Random random(3);
  for (int trial = 0; trial < 5000; ++trial) {
    Content content = contentOf(1, 100);
    ByteRuns part = someRuns(random), other = someRuns(random);
    content = replacePart(content, other, contentOf(2, other.bytes()));
    Bytes model = bytesOf(content);
    Content source = partOf(content, part);
    Bytes expected;
    for (auto [i, address] : llvm::enumerate(addressesOf(part)))
      if (model.count(address))
        expected[int64_t(i)] = model[address];
    ASSERT_EQ(bytesOf(source), expected);
    for (auto [i, address] : llvm::enumerate(addressesOf(part)))
      model[address] = {3, int64_t(i)};
    ASSERT_EQ(bytesOf(replacePart(content, part, contentOf(3, part.bytes()))), model);
  }
}

// A difference is found exactly when a byte that is expected is another or missing.
TEST(ByteRunsTest, FindsEveryDifference) {
  Random random(4);
  int different = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    ByteMemory one, two;
    for (unsigned step = 0; step < 4; ++step) {
      ByteRuns at = someRuns(random);
      one.write(at, contentOf(step, at.bytes()), 0);
      if (random() % 8)
        two.write(at, contentOf(step, at.bytes()), 0);
    }
    ByteRuns all = ByteRuns::dense(0, 200);
    Bytes expected = bytesOf(one.read(all)), found = bytesOf(two.read(all));
    bool differs = llvm::any_of(expected, [&](const auto &entry) {
      auto it = found.find(entry.first);
      return it == found.end() || it->second != entry.second;
    });
    different += differs;
    ASSERT_EQ(findDifference(one.read(all), two.read(all)).has_value(), differs) << trial;
  }
  EXPECT_GT(different, 1000);
  EXPECT_LT(different, 19000);
}
