// Launches, collectives and what a device tells of itself.
#include "test/runtime/device/conformance/Conformance.h"

#include <numeric>

using namespace lmc;
using namespace lmc::test;

TEST_P(Conformance, RunsLaunchesInChunks) {
  uint32_t x = b.slice(DType::F32, {105}), d = b.slice(DType::F32, {105});
  uint32_t calls = b.slice(DType::I32, {11});
  auto launch = launchOf(kDoubleRows, {x, calls, d, calls}, 2);
  launch->items = 105;
  launch->chunk = 10;
  b.command(*launch);
  for (int variant : {1, 2, 7}) {
    ASSERT_NO_FATAL_FAILURE(record(variant));
    std::vector<float> in(105);
    std::iota(in.begin(), in.end(), 1.0f);
    write(x, in);
    run();
    run();
    const auto out = read<float>(d);
    for (size_t i = 0; i < 105; ++i)
      EXPECT_EQ(out[i], 2 * in[i]);
    const auto counts = read<int32_t>(calls);
    for (size_t i = 0; i < 11; ++i)
      EXPECT_EQ(counts[i], i == 10 ? 10 : 20) << "two runs of each chunk";
  }
}

TEST_P(Conformance, TimesEachCommandOfARun) {
  uint32_t x = b.slice(DType::F32, {105}), d = b.slice(DType::F32, {105});
  uint32_t calls = b.slice(DType::I32, {11});
  auto launch = launchOf(kDoubleRows, {x, calls, d, calls}, 2);
  launch->items = 105;
  launch->chunk = 10;
  b.command(*launch);
  plan::CopyT copy;
  copy.x = d;
  copy.d = x;
  b.command(copy);
  ASSERT_NO_FATAL_FAILURE(record());
  write(x, std::vector<float>(105, 1));
  run();
  auto times = device->submitTimed(*executable);
  ASSERT_TRUE(times) << times.error().message;
  ASSERT_EQ(times->size(), 2u);
  EXPECT_EQ((*times)[0].start, 0);
  EXPECT_GT((*times)[0].seconds, 0);
  EXPECT_GE((*times)[1].start, (*times)[0].start + (*times)[0].seconds);
  EXPECT_EQ(read<float>(x), std::vector<float>(105, 4)) << "the run in submit, and the timed one";
  EXPECT_EQ(read<int32_t>(calls)[0], 20);
}

// With one rank, a collective of any kind copies x to d. The second run may be captured.
TEST_P(Conformance, RunsCollectives) {
  const uint32_t x = b.slice(DType::F32, {105}), gathered = b.slice(DType::F32, {105});
  const uint32_t reduced = b.slice(DType::F32, {105}), copied = b.slice(DType::F32, {105});
  auto collective = [&](plan::CollectiveKind kind, plan::Axis axis, uint32_t from, uint32_t to) {
    plan::CollectiveT op;
    op.kind = kind;
    op.axis = axis;
    op.x = from;
    op.d = to;
    b.command(op);
  };
  collective(plan::CollectiveKind::AllGather, plan::Axis::Shard, x, gathered);
  collective(plan::CollectiveKind::ReduceScatter, plan::Axis::Shard, gathered, reduced);
  collective(plan::CollectiveKind::AllReduce, plan::Axis::Replicate, reduced, reduced);
  plan::CopyT copy;
  copy.x = reduced;
  copy.d = copied;
  b.command(copy);
  for (int variant : {1, 2, 3, 6}) {
    ASSERT_NO_FATAL_FAILURE(record(variant));
    for (float first : {1.0f, 7.0f, 9.0f}) {
      std::vector<float> in(105);
      std::iota(in.begin(), in.end(), first);
      write(x, in);
      ASSERT_NO_FATAL_FAILURE(run());
      EXPECT_EQ(read<float>(copied), in) << "variant " << variant;
    }
    executable = nullptr;
    device = nullptr;
  }
}

// A collective that a later command waits for, with others between them.
TEST_P(Conformance, RunsACollectiveBesideOtherCommands) {
  const uint32_t x = b.slice(DType::F32, {105}), other = b.slice(DType::F32, {105});
  const uint32_t copied = b.slice(DType::F32, {105});
  auto copy = [&](uint32_t from, uint32_t to) {
    plan::CopyT op;
    op.x = from;
    op.d = to;
    b.command(op);
  };
  plan::CollectiveT sum;
  sum.kind = plan::CollectiveKind::AllReduce;
  sum.x = sum.d = x;
  b.command(sum); // beside the next command
  b.plan.functions[0]->commands[0]->stream = 1;
  copy(other, copied);
  plan::WaitT wait;
  b.command(wait);
  copy(x, copied);
  for (int variant : {1, 2, 3, 6}) {
    ASSERT_NO_FATAL_FAILURE(record(variant));
    write(other, std::vector<float>(105, 0));
    for (float value : {1.0f, 7.0f, 9.0f}) {
      write(x, std::vector<float>(105, value));
      ASSERT_NO_FATAL_FAILURE(run());
      EXPECT_EQ(read<float>(copied), std::vector<float>(105, value)) << "variant " << variant;
    }
    executable = nullptr;
    device = nullptr;
  }
}

TEST_P(Conformance, LoadsOnePlanAndRunsItsOwnFunctions) {
  b.slice(DType::F32, {4});
  ASSERT_NO_FATAL_FAILURE(record());
  EXPECT_FALSE(device->load(*plan));
  std::unique_ptr<PlanFile> first = std::move(plan);
  std::unique_ptr<Device> owner = std::move(device);
  std::unique_ptr<Executable> executableOfFirst = std::move(executable);
  ASSERT_NO_FATAL_FAILURE(record());
  EXPECT_FALSE(device->submit(*executableOfFirst));
  EXPECT_TRUE(device->submit(*executable));
}

TEST_P(Conformance, KnowsItself) {
  ASSERT_NO_FATAL_FAILURE(open(2));
  DeviceInfo info = device->info(DType::F32);
  EXPECT_FALSE(info.name.empty());
  EXPECT_GT(info.memoryBytes, 1u << 20);
}

TEST_P(Conformance, KnowsItsSpeed) {
  if (GetParam().noSpeed)
    GTEST_SKIP() << GetParam().noSpeed;
  ASSERT_NO_FATAL_FAILURE(open(2));
  DeviceInfo single = device->info(DType::F32), twice = device->info(DType::F64);
  EXPECT_EQ(single.threads, 2);
  EXPECT_FALSE(single.peakSource.empty());
#if defined(__x86_64__)
  EXPECT_GT(single.peakFlops, 2 * 8 * 5e8);
#endif
  EXPECT_LE(twice.peakFlops, single.peakFlops);
}
