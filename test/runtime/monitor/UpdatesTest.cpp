#include "runtime/monitor/Metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lmc {
namespace {

StepUpdates updatesOf(int64_t step) {
  return {step, 0.25, {{"b", true, 0.5, 2}, {"a", false, std::nullopt, std::nan(""), false}}};
}

TEST(Updates, ALineHasRatiosAndSizesInThePlansOrder) {
  EXPECT_EQ(lineOf(updatesOf(1)), R"({"step":1,"lr":0.25,"update_ratio":{"b":0.5,"a":null},)"
                                  R"("weight_rms":{"b":2.0,"a":null}})");
}

} // namespace
} // namespace lmc
