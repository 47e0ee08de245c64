#include "runtime/watch/CompareWeights.h"

#include "ground/plan/FloatConvert.h"
#include "runtime/comm/LocalWorld.h"
#include "test/runtime/loop/TinyPlan.h"

#include <gmock/gmock.h>

#include <functional>
#include <thread>

namespace lmc {
namespace {

using test::TestFolder;
using test::TinyPlan;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

// A rank whose weights a test may damage.
class Rank {
public:
  Rank(const PlanFile &plan, World &world) : plan(plan), world(world) {
    auto opened = openDevice(plan, {.threads = 1, .world = &world});
    EXPECT_TRUE(opened) << opened.error().message;
    device = std::move(*opened);
    EXPECT_TRUE(device->load(plan));
    master.resize(TinyPlan::kVocab * TinyPlan::kVocab);
    std::vector<uint16_t> copy(master.size());
    for (size_t i = 0; i < master.size(); ++i) {
      master[i] = 0.01f * static_cast<float>(i) - 1;
      copy[i] = toBFloat16(master[i]);
    }
    EXPECT_TRUE(device->copyIn(slice("model.w"), master.data(), 4 * master.size()));
    EXPECT_TRUE(device->copyIn(slice("model.w.compute"), copy.data(), 2 * copy.size()));
  }

  int slice(const char *name) const {
    return static_cast<int>(
        plan->variables()->Get(static_cast<unsigned>(plan.findVariable(name)))->slice());
  }
  // Flips a bit of the byte at `offset`.
  void damage(const char *name, uint64_t offset) {
    char byte = 0;
    EXPECT_TRUE(device->copyOut(slice(name), &byte, 1, offset));
    byte ^= 1;
    EXPECT_TRUE(device->copyIn(slice(name), &byte, 1, offset));
  }
  // Writes an element of master and copy.
  void set(size_t element, float value) {
    const uint16_t rounded = toBFloat16(value);
    EXPECT_TRUE(device->copyIn(slice("model.w"), &value, 4, 4 * element));
    EXPECT_TRUE(device->copyIn(slice("model.w.compute"), &rounded, 2, 2 * element));
  }

  const PlanFile &plan;
  World &world;
  std::unique_ptr<Device> device;
  std::vector<float> master;
};

// Returns what each of `ranks` ranks finds after act(rank, its number).
std::vector<std::vector<WeightDifference>> compared(
    int ranks, const std::function<void(Rank &, int)> &act = [](Rank &, int) {}) {
  TestFolder folder;
  TinyPlan tiny;
  tiny.plan.batch->ranks = static_cast<uint64_t>(ranks);
  tiny.plan.devices_per_node = static_cast<uint32_t>(ranks);
  tiny.plan.batch->global_batch_size *= static_cast<uint64_t>(ranks);
  auto plan = PlanFile::open(tiny.write(folder));
  EXPECT_TRUE(plan) << plan.error().message;
  auto worlds = makeLocalWorlds(ranks, 1);
  std::vector<std::vector<WeightDifference>> found(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      Rank rank(**plan, *worlds[static_cast<size_t>(r)]);
      act(rank, r);
      auto comparison = WeightComparison::open(**plan, *rank.device, rank.world);
      ASSERT_TRUE(comparison && *comparison);
      auto differences = (*comparison)->compare();
      ASSERT_TRUE(differences) << differences.error().message;
      found[static_cast<size_t>(r)] = std::move(*differences);
      EXPECT_TRUE(rank.world.all().barrier());
    });
  for (std::thread &thread : threads)
    thread.join();
  return found;
}

TEST(CompareWeights, SoundWeightsAreEqual) {
  for (const int ranks : {1, 2, 3, 5})
    for (const auto &found : compared(ranks))
      EXPECT_TRUE(found.empty());
}

TEST(CompareWeights, AllRanksNameTheOneThatDiffersFromMost) {
  for (const auto &found : compared(4, [](Rank &rank, int number) {
         if (number == 2)
           rank.set(17, 5);
       })) {
    ASSERT_EQ(found.size(), 2u); // the parameter and its copy
    for (const WeightDifference &difference : found) {
      EXPECT_THAT(difference.ranks, ElementsAre(2));
      EXPECT_FALSE(difference.beside);
    }
    EXPECT_THAT((std::vector{found[0].tensor, found[1].tensor}),
                UnorderedElementsAre("model.w", "model.w.compute"));
  }
}

TEST(CompareWeights, OfTwoRanksThatDifferBothAreNamed) {
  for (const auto &found : compared(2, [](Rank &rank, int number) {
         if (number == 1)
           rank.set(0, -3);
       }))
    EXPECT_THAT(found.at(0).ranks, ElementsAre(0, 1));
}

TEST(CompareWeights, ACopyMustBeItsRoundedMaster) {
  // A bit of the last element of the copy; and the lowest exponent bit of the first master.
  for (const auto &[name, offset] :
       {std::pair("model.w.compute", uint64_t(2 * 575)), {"model.w", 2}})
    for (const auto &found : compared(1, [&](Rank &rank, int) { rank.damage(name, offset); })) {
      ASSERT_EQ(found.size(), 1u) << name;
      EXPECT_EQ(found[0].tensor, "model.w.compute");
      EXPECT_TRUE(found[0].beside);
      EXPECT_THAT(found[0].ranks, ElementsAre(0));
    }
}

TEST(CompareWeights, BitsOfAMasterThatRoundingRemovesAreSeenByOtherRanksOnly) {
  const auto lowest = [](Rank &rank, int) { rank.damage("model.w", 4 * 5); };
  EXPECT_TRUE(compared(1, lowest).at(0).empty());
  const auto found = compared(3, [&](Rank &rank, int number) {
    if (number == 0)
      lowest(rank, number);
  });
  ASSERT_EQ(found.at(1).size(), 1u);
  EXPECT_EQ(found.at(1).at(0).tensor, "model.w");
  EXPECT_THAT(found.at(1).at(0).ranks, ElementsAre(0));
}

TEST(CompareWeights, NotANumberIsNoDifference) {
  const auto nan = [](Rank &rank, int) {
    const float master = std::nanf("1");
    const uint16_t copy = 0xFFC1;
    EXPECT_TRUE(rank.device->copyIn(rank.slice("model.w"), &master, 4));
    EXPECT_TRUE(rank.device->copyIn(rank.slice("model.w.compute"), &copy, 2));
  };
  EXPECT_TRUE(compared(1, nan).at(0).empty());
}

TEST(CompareWeights, SaysWhichTensorAndRank) {
  const auto worlds = makeLocalWorlds(3, 1);
  EXPECT_EQ(describe({{.tensor = "a", .ranks = {1}}}, *worlds[0]),
            "1 tensor differs; a of rank 1 has not the bits of the other ranks");
  EXPECT_EQ(describe({{.tensor = "a", .ranks = {0, 2}}, {.tensor = "b", .ranks = {2}}}, *worlds[0]),
            "2 tensors differ; a of ranks 0, 2 have not the bits of the other ranks");
  EXPECT_EQ(describe({{.tensor = "a.compute", .ranks = {2}, .beside = true}}, *worlds[0]),
            "1 tensor differs; a.compute of rank 2 is not its rounded master");
}

} // namespace
} // namespace lmc
