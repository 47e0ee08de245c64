#include "runtime/plan/Steps.h"

#include <gtest/gtest.h>

using namespace lmc::plan;

TEST(Steps, AStepRunsEachFunctionItsTimes) {
  EXPECT_EQ(runsPerStep("micro_first", 1), 1u);
  EXPECT_EQ(runsPerStep("micro", 1), 0u);
  EXPECT_EQ(runsPerStep("micro_last", 1), 0u);
  EXPECT_EQ(runsPerStep("micro", 2), 0u);
  EXPECT_EQ(runsPerStep("micro_last", 2), 1u);
  EXPECT_EQ(runsPerStep("micro", 8), 6u);
  EXPECT_EQ(runsPerStep("optimizer", 8), 1u);
  EXPECT_EQ(runsPerStep("eval", 8), 0u);
}
