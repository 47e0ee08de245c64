#include "runtime/watch/DiskSpace.h"

#include <gtest/gtest.h>

using namespace lmc;

namespace {

TEST(DiskNeed, CountsTheCheckpointsThatAreThereAndTheOneThatReplacesTheOldest) {
  DiskNeed need{.checkpoint = 100, .keep = 3, .saves = 50, .logs = 7};
  EXPECT_EQ(need.forSaves(), 400u);
  need.present = 2;
  EXPECT_EQ(need.forSaves(), 200u);
  need.present = 9; // an earlier start kept more
  EXPECT_EQ(need.forSaves(), 100u);
  EXPECT_EQ(need.forJob(), 107u);
}

TEST(DiskNeed, AllSavesAreThoseOfTheJobIfAllAreKept) {
  DiskNeed need{
      .checkpoint = 100, .keep = 0, .saves = 50, .exportBytes = 30, .exports = 2, .logs = 7};
  EXPECT_EQ(need.forSaves(), 200u);
  EXPECT_EQ(need.forJob(), 5067u);
  need.saves = 1;
  EXPECT_EQ(need.forSaves(), 100u);
}

TEST(JudgeDisk, IsAnErrorWithoutRoomForCheckpointsAndAWarningWithoutRoomForTheJob) {
  const DiskNeed need{.checkpoint = 100, .keep = 3, .saves = 50, .exportBytes = 30, .exports = 2};
  const Finding none = judgeDisk(need, 399, "/disk");
  EXPECT_EQ(none.severity, Severity::Error);
  EXPECT_TRUE(none.doesNotFit);
  EXPECT_NE(none.text.find("4 checkpoints of 100 B (checkpoint.keep + 1) need 400 B"),
            std::string::npos);
  EXPECT_NE(none.text.find("free 1 B"), std::string::npos);
  EXPECT_EQ(judgeDisk(need, 400, "/disk").severity, Severity::Warning);
  EXPECT_EQ(judgeDisk(need, 459, "/disk").severity, Severity::Warning);
  EXPECT_EQ(judgeDisk(need, 460, "/disk").severity, Severity::Ok);
}

TEST(Findings, AreErrorsOfSizeOnlyIfAllAre) {
  Findings findings;
  findings.warning("data", "a");
  EXPECT_EQ(findings.code(), ExitCode::Success);
  findings.add({"disk", Severity::Error, "b", true});
  EXPECT_EQ(findings.code(), ExitCode::DoesNotFit);
  findings.error("job", "rank 1: c");
  EXPECT_EQ(findings.code(), ExitCode::UserError);
  findings.error("data", "c"); // it is known
  EXPECT_EQ(findings.all().size(), 3u);
}

} // namespace
