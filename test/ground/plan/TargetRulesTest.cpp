// Rules go by the part of a plan's target before the ':'.
#include "ground/plan/TargetRules.h"

#include <gtest/gtest.h>

using namespace lmc::plan;

TEST(TargetRules, AreThoseOfThePlansTarget) {
  EXPECT_EQ(&rulesOf("cuda:sm_90a"), &rulesOf("cuda"));
  EXPECT_EQ(&rulesOf("cpu:x86-64-v3"), &rulesOf("cpu"));
  EXPECT_EQ(rulesOf("cpu").grid, nullptr);
  ASSERT_NE(rulesOf("cuda").grid, nullptr);
  EXPECT_TRUE(rulesOf("cuda").modulesMatch);
}

// A target that is not listed needs nothing beyond what every plan has.
TEST(TargetRules, OtherTargetsAskForNothing) {
  const TargetRules &rules = rulesOf("tpu:v9");
  EXPECT_EQ(rules.grid, nullptr);
  EXPECT_EQ(rules.scratchOf, nullptr);
  EXPECT_FALSE(rules.modulesMatch);
}
