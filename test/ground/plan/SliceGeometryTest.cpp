// The bytes that slices cover, against sets of bytes.
#include "ground/plan/SliceGeometry.h"

#include "test/Draws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

using namespace lmc;

namespace {

class SliceGeometry : public testing::Test {
protected:
  // A slice of `rows` runs of `run` bytes; pitch 0: one after the other.
  const plan::Slice &slice(uint64_t offset, uint64_t rows, uint64_t run, uint64_t pitch) {
    plan::SliceT made;
    made.offset = offset;
    made.bytes = rows * run;
    made.rows = rows;
    made.pitch = pitch;
    flatbuffers::FlatBufferBuilder &buffer = buffers.emplace_back();
    buffer.Finish(plan::Slice::Pack(buffer, &made));
    return *flatbuffers::GetRoot<plan::Slice>(buffer.GetBufferPointer());
  }

  // A random slice with this pitch; 0: dense.
  const plan::Slice &drawn(uint64_t pitch) {
    uint64_t run = 1 + random() % (pitch ? pitch : 24);
    return slice(random() % 40, pitch ? 1 + random() % 4 : 1, run, pitch);
  }

  static std::set<uint64_t> bytesOf(const plan::Slice &slice) {
    std::set<uint64_t> bytes;
    uint64_t run = slice.bytes() / slice.rows();
    for (uint64_t row = 0; row < slice.rows(); ++row)
      for (uint64_t i = 0; i < run; ++i)
        bytes.insert(slice.offset() + row * (slice.pitch() ? slice.pitch() : run) + i);
    return bytes;
  }

  std::deque<flatbuffers::FlatBufferBuilder> buffers;
  std::mt19937 random{1};
};

TEST_F(SliceGeometry, ColumnsOfARowDoNotOverlap) {
  const plan::Slice &left = slice(0, 8, 8, 24), &right = slice(8, 8, 16, 24),
                    &across = slice(4, 8, 8, 24);
  EXPECT_FALSE(overlap(left, right));
  EXPECT_TRUE(overlap(left, across));
  EXPECT_TRUE(overlap(right, across));
  EXPECT_EQ(extentOf(left), 7u * 24 + 8);
  EXPECT_EQ(endOf(right), 8 + 7u * 24 + 16);
  EXPECT_EQ(unionBytes({&left, &right}), 192u);
  EXPECT_EQ(unionBytes({&left, &across}), 8u * 12);
}

TEST_F(SliceGeometry, OverlapOfDrawnSlicesOfOnePitchIsExact) {
  const int64_t count = test::drawCount(4000);
  int overlaps = 0;
  for (int64_t round = 0; round < count; ++round) {
    uint64_t pitch = round % 4 == 0 ? 0 : 2 + random() % 12;
    const plan::Slice &a = drawn(pitch), &b = drawn(pitch);
    std::set<uint64_t> inA = bytesOf(a), inB = bytesOf(b);
    EXPECT_EQ(endOf(a), *inA.rbegin() + 1) << "round " << round;
    bool shares = std::any_of(inA.begin(), inA.end(), [&](uint64_t x) { return inB.count(x); });
    EXPECT_EQ(overlap(a, b), shares) << "round " << round;
    EXPECT_EQ(overlap(b, a), shares) << "round " << round;
    overlaps += shares;
  }
  EXPECT_GT(overlaps, count / 8);
  EXPECT_LT(overlaps, count * 7 / 8);
}

TEST_F(SliceGeometry, UnionOfDrawnSlicesOfOnePitchIsExact) {
  const int64_t count = test::drawCount(2000);
  for (int64_t round = 0; round < count; ++round) {
    uint64_t pitch = 2 + random() % 12;
    std::vector<const plan::Slice *> slices;
    std::set<uint64_t> all;
    for (int i = 0; i < 3; ++i) {
      slices.push_back(&drawn(random() % 3 ? pitch : 0));
      all.merge(bytesOf(*slices.back()));
    }
    EXPECT_EQ(unionBytes(slices), all.size()) << "round " << round;
  }
}

} // namespace
