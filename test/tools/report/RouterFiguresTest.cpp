#include "tools/report/RouterFigures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lmc {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

json router(double load) {
  return {{"max_load", load}, {"min_load", 0.01}, {"entropy", 1.5}, {"balance_loss", 2.25}};
}

TEST(RouterFigures, KeepTheLatestStepAndTheHighestLoad) {
  RouterFigures figures;
  EXPECT_TRUE(figures.layers().empty());
  figures.add(1, {{"10", router(0.25)}, {"2", router(0.5)}});
  figures.add(2, {{"10", router(0.75)}, {"2", router(0.125)}});
  figures.add(3, {{"10", {{"max_load", nullptr}, {"entropy", 1.0}}}});
  const auto layers = figures.layers();
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0]->number, 2);
  EXPECT_EQ(layers[0]->maxLoad.latest, std::nullopt) << "the latest step has no such layer";
  EXPECT_EQ(layers[0]->maxLoad.highest->step, 1);
  EXPECT_THAT(layers[0]->maxLoad.groups, ElementsAre(0.5, 0.125, std::nullopt));
  EXPECT_EQ(layers[1]->number, 10);
  EXPECT_EQ(layers[1]->entropy, 1.0);
  EXPECT_EQ(layers[1]->maxLoad.highest->value, 0.75);
  EXPECT_THAT(layers[1]->maxLoad.groups, ElementsAre(0.25, 0.75, std::nullopt));
  EXPECT_THAT(figures.groupSteps(), ElementsAre(1, 2, 3));
  EXPECT_EQ(figures.lastStep(), 3);
}

TEST(RouterFigures, HaveABoundedNumberOfPoints) {
  RouterFigures figures;
  for (int64_t step = 1; step <= 1000; ++step)
    figures.add(step, {{"0", router(step == 501 ? 0.9 : 0.3)}, {"1", router(0.4)}});
  const auto layers = figures.layers();
  EXPECT_EQ(figures.groupSteps().size(), 63u); // groups of 16
  EXPECT_EQ(figures.groupSteps().front(), 16);
  EXPECT_EQ(figures.groupSteps().back(), 1000);
  ASSERT_EQ(layers[0]->maxLoad.groups.size(), 63u);
  for (size_t i = 0; i < 63; ++i)
    EXPECT_EQ(layers[0]->maxLoad.groups[i], i == 500 / 16 ? 0.9 : 0.3) << i;
}

TEST(RouterFigures, TakeNothingElse) {
  RouterFigures figures;
  figures.add(1, json::array({1, 2}));
  figures.add(2, json::object());
  EXPECT_EQ(figures.lastStep(), 0);
  figures.add(3, {{"-1", router(0.5)},
                  {"x", router(0.5)},
                  {"1234567", router(0.5)},
                  {"4", 7},
                  {"5", {{"max_load", "<b>"}}}});
  ASSERT_EQ(figures.layers().size(), 1u);
  EXPECT_EQ(figures.layers()[0]->number, 5);
  EXPECT_EQ(figures.layers()[0]->maxLoad.latest, std::nullopt);
  json many = json::object();
  for (size_t layer = 0; layer < RouterFigures::kMaxLayers + 9; ++layer)
    many[std::to_string(layer)] = router(0.5);
  figures.add(4, many);
  EXPECT_EQ(figures.layers().size(), RouterFigures::kMaxLayers);
  EXPECT_EQ(figures.leftOut(), 9u);
}

} // namespace
} // namespace lmc
