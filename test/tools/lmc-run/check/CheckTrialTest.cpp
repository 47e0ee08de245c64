#include "tools/lmc-run/check/CheckTrial.h"

#include <gtest/gtest.h>

using namespace lmc;

namespace {

TEST(CheckTrial, NamesTheFirstThingThatAResumeChanges) {
  TrialOutcome straight;
  straight.steps[2] = {{"loss", "1.5"}, {"grad_norm", "0.25"}};
  straight.steps[3] = {{"loss", "1.25"}, {"grad_norm", "null"}};
  straight.state = {{"model.safetensors", 7}, {"moment1.safetensors", 8}};
  TrialOutcome resumed = straight;
  EXPECT_EQ(differenceOf(straight, resumed), "");

  resumed.state["moment1.safetensors"] = 9;
  EXPECT_NE(differenceOf(straight, resumed).find("moment1.safetensors"), std::string::npos);
  resumed.state.erase("moment1.safetensors");
  EXPECT_NE(differenceOf(straight, resumed).find("moment1.safetensors"), std::string::npos);
  resumed.steps[3]["grad_norm"] = "0.5";
  EXPECT_NE(differenceOf(straight, resumed).find("grad_norm of step 3"), std::string::npos);
  resumed.steps[3] = {{"loss", "1.2500001"}, {"grad_norm", "null"}};
  EXPECT_NE(differenceOf(straight, resumed).find("loss of step 3 is 1.25 in one go"),
            std::string::npos);
  resumed.steps.erase(2);
  EXPECT_EQ(differenceOf(straight, resumed), "step 2 was not trained again");
}

} // namespace
