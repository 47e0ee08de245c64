// Copies between host and device, and inside a device.
#include "test/runtime/device/conformance/Conformance.h"

#include "runtime/device/Ranges.h"

#include <numeric>

using namespace lmc;
using namespace lmc::test;

TEST_P(Conformance, CopiesStayInsideTheirSlice) {
  uint32_t x = b.slice(DType::F32, {4});
  b.slice(DType::F32, {4}, 1);
  ASSERT_NO_FATAL_FAILURE(open());
  char data[32] = {};
  EXPECT_FALSE(device->copyIn(int(x), data, 4)) << "nothing is loaded";
  EXPECT_FALSE(device->record(0)) << "nothing is loaded";
  ASSERT_TRUE(device->load(*plan));
  EXPECT_EQ(device->allocatedBytes(), 64u + 64u);
  EXPECT_TRUE(device->copyIn(int(x), data, 8, 8));
  EXPECT_FALSE(device->copyIn(int(x), data, 9, 8));
  EXPECT_FALSE(device->copyOut(int(x), data, 1, ~0ull));
  EXPECT_FALSE(device->copyOut(9, data, 1));
  EXPECT_FALSE(device->copyOut(-1, data, 1));
  EXPECT_FALSE(device->record(1));
  EXPECT_FALSE(device->record(-1));
}

// Copies and runs are executed in the order in which they are enqueued; a host buffer may be used
// again after a wait for a mark behind its copy.
TEST_P(Conformance, OrdersCopiesAndRuns) {
  uint32_t x = b.slice(DType::F32, {105}), d = b.slice(DType::F32, {105});
  uint32_t calls = b.slice(DType::I32, {11});
  auto launch = launchOf(kDoubleRows, {x, calls, d, calls}, 2);
  launch->items = 105;
  launch->chunk = 10;
  b.command(*launch);
  ASSERT_NO_FATAL_FAILURE(record());
  constexpr uint64_t kBytes = 105 * sizeof(float);
  auto in = device->hostBuffer(2 * kBytes), out = device->hostBuffer(3 * kBytes);
  ASSERT_TRUE(in && out);
  ASSERT_EQ((*in)->bytes(), 2 * kBytes);
  EXPECT_EQ(std::vector<char>((*in)->data(), (*in)->data() + 2 * kBytes),
            std::vector<char>(2 * kBytes))
      << "host buffers start as zeros";
  auto *values = reinterpret_cast<float *>((*in)->data());
  auto *results = reinterpret_cast<float *>((*out)->data());
  auto begin = device->makeMark(), end = device->makeMark();
  ASSERT_TRUE(begin && end);
  EXPECT_TRUE(device->wait(**begin)) << "it was never placed";
  auto place = [&](uint32_t slice) { return *rangeInSlice(&**plan, int(slice), kBytes, 0); };
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 210; ++i)
      values[i] = float(i + 1000 * round);
    ASSERT_TRUE(device->place(**begin));
    ASSERT_TRUE(device->upload(place(x), **in, 0));
    ASSERT_TRUE(device->submit(*executable));
    ASSERT_TRUE(device->download(place(d), **out, 0));
    ASSERT_TRUE(device->upload(place(x), **in, kBytes));
    ASSERT_TRUE(device->submit(*executable));
    ASSERT_TRUE(device->download(place(d), **out, kBytes));
    ASSERT_TRUE(device->download(place(x), **out, 2 * kBytes));
    ASSERT_TRUE(device->place(**end));
    ASSERT_TRUE(device->wait(**end));
    auto reached = device->reached(**end);
    ASSERT_TRUE(reached);
    EXPECT_TRUE(*reached);
    auto seconds = device->secondsBetween(**begin, **end);
    ASSERT_TRUE(seconds);
    EXPECT_GE(*seconds, 0);
    EXPECT_LT(*seconds, 60);
    for (int i = 0; i < 315; ++i)
      EXPECT_EQ(results[i], i < 210 ? 2 * float(i + 1000 * round) : float(i - 105 + 1000 * round));
  }
}

TEST_P(Conformance, HostBuffersAreCopiedInsideTheirBounds) {
  uint32_t x = b.slice(DType::F32, {4});
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_TRUE(device->load(*plan));
  auto buffer = device->hostBuffer(16);
  ASSERT_TRUE(buffer);
  const ArenaRange all = *rangeInSlice(&**plan, int(x), 16, 0);
  const uint64_t arena = (*plan)->arenas()->Get(0)->bytes();
  EXPECT_TRUE(device->upload(all, **buffer, 0));
  EXPECT_TRUE(device->synchronize());
  for (const auto &[range, offset] : std::vector<std::pair<ArenaRange, uint64_t>>{
           {all, 1}, {all, ~0ull}, {{0, arena - 8, 16}, 0}, {{0, ~0ull, 16}, 0}, {{7, 0, 16}, 0}}) {
    EXPECT_FALSE(device->upload(range, **buffer, offset));
    EXPECT_FALSE(device->download(range, **buffer, offset));
  }
  EXPECT_TRUE(device->synchronize()) << "a refused copy is not a failure of the device";
}

// Both sides' rows may lie apart: columns 1 and 2 of a [3, 4] matrix go to columns 0 and 1.
TEST_P(Conformance, CopiesRows) {
  uint32_t x = b.slice(DType::F32, {3, 4}), d = b.slice(DType::F32, {3, 4});
  plan::CopyT copy;
  copy.x = b.columns(x, 1, 2);
  copy.d = b.columns(d, 0, 2);
  b.command(copy);
  ASSERT_NO_FATAL_FAILURE(record());
  std::vector<float> values(12);
  std::iota(values.begin(), values.end(), 0.0f);
  write(x, values);
  ASSERT_NO_FATAL_FAILURE(run());
  EXPECT_EQ(read<float>(d), (std::vector<float>{1, 2, 0, 0, 5, 6, 0, 0, 9, 10, 0, 0}));
}
