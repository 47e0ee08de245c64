#include "ground/plan/Steps.h"

#include "test/ground/plan/PlanBuilder.h"

#include <gtest/gtest.h>

using namespace lmc;
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

TEST(Steps, WhatRunsBesideTakesNoTime) {
  lmc::test::PlanBuilder b;
  b.command(plan::CollectiveT());
  b.command(plan::CopyT());
  b.command(plan::WaitT());
  auto &commands = b.plan.functions[0]->commands;
  commands[0]->stream = 1;
  commands[0]->predicted_seconds = 4;
  commands[1]->predicted_seconds = 3;
  commands[2]->predicted_seconds = 1; // what is left of the collective
  const std::string bytes = b.bytes();
  EXPECT_EQ(predictedSeconds(*plan::GetPlan(bytes.data())->functions()->Get(0)), 4);
}
