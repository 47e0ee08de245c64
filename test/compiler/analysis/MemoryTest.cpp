// Live bytes against a map of every byte, on random plans; the peak, the phases, and the
// error of a budget that cannot be met.
#include "compiler/analysis/Memory.h"
#include "compiler/report/Explain.h"

#include "test/ground/plan/PlanBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

using namespace lmc;
using testing::HasSubstr;

namespace {

// One function of `commands` copies; slices are placed by hand.
class MemoryJob : public test::PlanBuilder {
public:
  explicit MemoryJob(int commands, uint64_t bytes = 1 << 12) {
    plan.arenas[1]->bytes = bytes;
    plan::CopyT copy;
    copy.x = slice(plan::DType::F32, {1});
    copy.d = copy.x;
    for (int i = 0; i < commands; ++i)
      command(copy);
  }

  plan::SliceT &place(uint64_t offset, uint64_t bytes, int first, int last,
                      plan::Category category = plan::Category::Temporaries, uint64_t rows = 1,
                      uint64_t pitch = 0) {
    auto slice = std::make_unique<plan::SliceT>();
    slice->name = "buffer" + std::to_string(plan.slices.size());
    slice->arena = 1;
    slice->function = 0;
    slice->offset = offset;
    slice->bytes = bytes;
    slice->first_command = first;
    slice->last_command = last;
    slice->category = category;
    slice->rows = rows;
    slice->pitch = pitch;
    plan.slices.push_back(std::move(slice));
    return *plan.slices.back();
  }

  const plan::Plan &finish() {
    data = bytes();
    return *plan::GetPlan(data.data());
  }

private:
  std::string data;
};

// Distinct bytes at a command, by marking each.
uint64_t markedBytes(const MemoryJob &job, int command, uint64_t arena) {
  std::vector<bool> used(arena, false);
  for (const auto &slice : job.plan.slices) {
    if (slice->function != 0 || slice->first_command > command || slice->last_command < command)
      continue;
    uint64_t run = slice->bytes / slice->rows;
    for (uint64_t row = 0; row < slice->rows; ++row)
      for (uint64_t i = 0; i < run; ++i)
        used[slice->offset + row * slice->pitch + i] = true;
  }
  return uint64_t(std::count(used.begin(), used.end(), true));
}

} // namespace

TEST(Memory, LiveBytesAreTheDistinctOnes) {
  std::mt19937 random(1);
  auto pick = [&](int below) { return uint64_t(random() % uint64_t(below)); };
  for (int trial = 0; trial < 200; ++trial) {
    const int commands = 12;
    const uint64_t pitch = 16 + 8 * pick(4);
    MemoryJob job(commands);
    for (int i = 0; i < 14; ++i) {
      int first = int(pick(commands)), last = first + int(pick(commands - first));
      auto category = pick(2) ? plan::Category::Activations : plan::Category::Temporaries;
      if (pick(2)) {
        uint64_t rows = 2 + pick(6), run = 1 + pick(int(pitch));
        job.place(pick(400), rows * run, first, last, category, rows, pitch);
      } else {
        job.place(pick(400), 1 + pick(200), first, last, category);
      }
    }
    MemoryTimeline timeline = memoryTimeline(job.finish());
    for (int command = 0; command < commands; ++command)
      ASSERT_EQ(total(timeline.functions[0].live[size_t(command)]),
                markedBytes(job, command, 1 << 12))
          << "trial " << trial << ", command " << command;
  }
}

TEST(Memory, ViewsOfABufferAreOneBuffer) {
  MemoryJob job(4);
  // A [8, 24]-byte buffer and its columns [0, 8), [8, 24) as views; and another beside it.
  job.place(64, 192, 0, 3, plan::Category::Activations).name = "qkv";
  job.place(64, 64, 1, 2, plan::Category::Temporaries, 8, 24).name = "q";
  job.place(72, 128, 1, 3, plan::Category::Temporaries, 8, 24).name = "kv";
  job.place(512, 100, 1, 1).name = "other";
  MemoryTimeline timeline = memoryTimeline(job.finish());
  const FunctionMemory &memory = timeline.functions[0];
  EXPECT_EQ(total(memory.live[0]), 192u);
  EXPECT_EQ(memory.peakBytes, 292u);
  EXPECT_EQ(memory.peakCommand, 1);
  EXPECT_EQ(timeline.activationBytes(), 192u);
  ASSERT_EQ(memory.largest.size(), 2u);
  EXPECT_EQ(memory.largest[0].source, "qkv");
  EXPECT_EQ(memory.largest[0].bytes, 192u);
  EXPECT_EQ(memory.largest[1].source, "other");
}

TEST(Memory, PhasesOfAMicroStep) {
  MemoryJob job(6);
  job.plan.functions[0]->commands[4]->backward = true; // 5 follows it, marked or not
  job.place(0, 100, 0, 4, plan::Category::Activations);
  job.place(100, 50, 2, 2);
  job.place(200, 30, 4, 5);
  MemoryTimeline timeline = memoryTimeline(job.finish());
  const auto &phases = timeline.functions[0].phases;
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[0].name, "forward");
  EXPECT_EQ(phases[0].last, 3);
  EXPECT_EQ(phases[0].peakCommand, 2);
  EXPECT_EQ(phases[1].name, "backward");
  EXPECT_EQ(phases[1].peakCommand, 4);
}

// 80 layers: 3 functions of 6,000 commands and 12,000 slices each.
TEST(Memory, ManyLayersTakeNoTime) {
  MemoryJob job(6000, 1ull << 40);
  for (int f = 0; f < 3; ++f) {
    if (f > 0) {
      auto function = std::make_unique<plan::FunctionT>(*job.plan.functions[0]);
      job.plan.functions.push_back(std::move(function));
    }
    for (int i = 0; i < 6000; ++i) {
      bool kept = i < 3000 && i % 3 == 0;
      auto &slice = job.place(kept ? uint64_t(i) << 20 : (1ull << 36) + (uint64_t(i % 16) << 22),
                              1 << 20, i, kept ? 6000 - i - 1 : std::min(5999, i + 4),
                              kept ? plan::Category::Activations : plan::Category::Temporaries);
      slice.function = f;
      auto &view =
          job.place(slice.offset + 256, 1 << 19, i, slice.last_command, slice.category, 1024, 1024);
      view.function = f;
    }
  }
  const plan::Plan &plan = job.finish();
  MemoryTimeline timeline = memoryTimeline(plan);
  EXPECT_GT(timeline.activationBytes(), 900ull << 20);
}

TEST(BudgetError, NamesWhatTakesTheMemory) {
  MemoryJob job(3, 2 << 20);
  job.plan.functions[0]->commands[1]->source = "layers.0/mlp";
  job.place(0, 1 << 20, 0, 2, plan::Category::Activations).name = "layers.0/up";
  job.place(1 << 20, 1 << 19, 1, 2).name = "layers.0/down";
  std::string message = budgetError(job.finish(), "job.toml", 1 << 20, 3 << 20);
  EXPECT_THAT(message,
              HasSubstr("job.toml: error: memory.budget is 1.0 MiB, but the plan needs 2.0 "
                        "MiB; the smallest budget that works is 3145728 bytes (3.0 MiB)\n"));
  EXPECT_THAT(message, HasSubstr("       1.0 MiB  activations\n"));
  EXPECT_THAT(message, HasSubstr("     512.0 KiB  fragmentation\n"));
  EXPECT_THAT(message, HasSubstr("at the peak (micro_first, command 1, layers.0/mlp):\n"));
  EXPECT_THAT(message, HasSubstr("       1.0 MiB  activations  layers.0/up\n"));
  EXPECT_THAT(message, HasSubstr("     512.0 KiB  temporaries  layers.0/down"));
  EXPECT_NE(message.back(), '\n');
}
