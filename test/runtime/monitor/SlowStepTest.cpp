#include "runtime/monitor/SlowStep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lmc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr StepTimes kUsual{.seconds = 1, .data = 0.01, .ranks = 0.05, .logs = 0.001};

// In two seconds, the process computes on two processors.
constexpr MachineUse kUsualMachine{
    .seconds = 2, .ownCpu = 3.6, .otherCpu = 0.1, .involuntary = 8, .clockGHz = 3};

std::vector<std::string> causes(const StepTimes &step, const MachineUse &machine) {
  std::vector<std::string> names;
  const auto slow = explainSlowStep(step, kUsual, machine, kUsualMachine, 0);
  EXPECT_TRUE(slow);
  if (slow)
    for (const SlowStepCause &cause : slow->causes)
      names.push_back(cause.name);
  return names;
}

StepTimes step(double seconds) {
  StepTimes times = kUsual;
  times.seconds = seconds;
  return times;
}

TEST(SlowStep, HalfAsLongAgainAndATenthOfASecondIsSlow) {
  EXPECT_FALSE(explainSlowStep(step(1.49), kUsual, {}, {}, 0));
  EXPECT_TRUE(explainSlowStep(step(1.5), kUsual, {}, {}, 0));
  StepTimes usual{.seconds = 0.01}, slow{.seconds = 0.1};
  EXPECT_FALSE(explainSlowStep(slow, usual, {}, {}, 0));
  slow.seconds = 0.12;
  EXPECT_TRUE(explainSlowStep(slow, usual, {}, {}, 0));
}

TEST(SlowStep, WaitsThatTheStepHasMeasured) {
  StepTimes times = step(3);
  times.data = 1.8;
  EXPECT_THAT(causes(times, kUsualMachine), ElementsAre("data", "more_computation"));
  times.data = 2.01;
  EXPECT_THAT(causes(times, kUsualMachine), ElementsAre("data"));
  times = step(3);
  times.ranks = 2.0;
  EXPECT_THAT(causes(times, kUsualMachine), ElementsAre("ranks"));
  times = step(3);
  times.logs = 2.0;
  EXPECT_THAT(causes(times, kUsualMachine), ElementsAre("logs"));
}

TEST(SlowStep, SeveralCausesTheLongestFirst) {
  StepTimes times = step(3);
  times.data = 0.61;
  times.ranks = 1.35;
  EXPECT_THAT(causes(times, kUsualMachine), ElementsAre("ranks", "data"));
}

TEST(SlowStep, WorkBesideIt) {
  StepTimes times = step(3);
  times.save = 5;
  times.validation = 2;
  EXPECT_THAT(causes(times, kUsualMachine), ElementsAre("more_computation", "save", "validation"));
}

TEST(SlowStep, OtherProcesses) {
  MachineUse machine = kUsualMachine;
  machine.otherCpu = 1.5;
  machine.involuntary = 400;
  machine.ownCpu = 1.7;
  EXPECT_THAT(causes(step(2), machine), ElementsAre("other_processes"));
  // The processors were shared before, so that this process was interrupted as often.
  MachineUse shared = kUsualMachine;
  shared.involuntary = 400;
  const auto slow = explainSlowStep(step(2), kUsual, machine, shared, 0);
  ASSERT_TRUE(slow && !slow->causes.empty());
  EXPECT_EQ(slow->causes[0].name, "other_processes");
  // They had processors of their own.
  machine.involuntary = 8;
  machine.ownCpu = 3.6;
  EXPECT_THAT(causes(step(2), machine), ElementsAre("more_computation"));
}

TEST(SlowStep, AHypervisor) {
  MachineUse machine = kUsualMachine;
  machine.stolen = 0.9;
  machine.ownCpu = 1.7;
  EXPECT_THAT(causes(step(2), machine), ElementsAre("hypervisor"));
}

TEST(SlowStep, ALowerClock) {
  MachineUse machine = kUsualMachine;
  machine.clockGHz = 1.5;
  EXPECT_THAT(causes(step(2), machine), ElementsAre("clock"));
  machine.clockGHz = 2.9;
  EXPECT_THAT(causes(step(2), machine), ElementsAre("more_computation"));
  machine.clockGHz = 0; // the system does not say it
  EXPECT_THAT(causes(step(2), machine), ElementsAre("more_computation"));
}

TEST(SlowStep, PagesFromDisks) {
  MachineUse machine = kUsualMachine;
  machine.majorFaults = 300;
  machine.swapped = 9000;
  machine.ownCpu = 1;
  EXPECT_THAT(causes(step(2), machine), ElementsAre("stopped", "swap", "page_faults"));
}

TEST(SlowStep, AProcessThatDidNotRun) {
  MachineUse machine = kUsualMachine;
  machine.ownCpu = 0.2;
  EXPECT_THAT(causes(step(2), machine), ElementsAre("stopped"));
}

TEST(SlowStep, TheTextHasTheNumbers) {
  StepTimes times = step(3);
  times.data = 2.01;
  const auto slow = explainSlowStep(times, kUsual, kUsualMachine, kUsualMachine, 0.8);
  EXPECT_EQ(slow->predictedRatio, 3.75);
  EXPECT_EQ(slow->text(), "took 3 s, 3.0 times the usual 1 s (3.75 times the predicted time): "
                          "waiting for data took 2.01 s");
}

TEST(SlowStepWatch, NothingIsJudgedUntilTheUsualIsKnown) {
  SlowStepWatch watch(0);
  // The first two do what is done only once.
  EXPECT_FALSE(watch.observe(step(100), kUsualMachine, 0));
  EXPECT_FALSE(watch.observe(step(100), kUsualMachine, 0));
  for (size_t i = 0; i < SlowStepWatch::kLeast - 1; ++i)
    EXPECT_FALSE(watch.observe(step(1), kUsualMachine, 0));
  EXPECT_FALSE(watch.observe(step(9), kUsualMachine, 0));
  const auto found = watch.observe(step(9), kUsualMachine, 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step.usual, 1);
}

TEST(SlowStepWatch, AWarningAMinute) {
  SlowStepWatch watch(0);
  for (int i = 0; i < 20; ++i)
    watch.observe(step(1), kUsualMachine, 0);
  EXPECT_FALSE(watch.observe(step(1.9), kUsualMachine, 10)->warns); // less than a second longer
  EXPECT_TRUE(watch.observe(step(5), kUsualMachine, 20)->warns);
  EXPECT_FALSE(watch.observe(step(5), kUsualMachine, 79)->warns);
  EXPECT_TRUE(watch.observe(step(5), kUsualMachine, 80)->warns);
}

TEST(SlowStepWatch, WhatTheUserSeesAnywayIsNoWarning) {
  SlowStepWatch watch(0);
  for (int i = 0; i < 20; ++i)
    watch.observe(step(1), kUsualMachine, 0);
  StepTimes blocked = step(5);
  blocked.logs = 4;
  const auto found = watch.observe(blocked, kUsualMachine, 10);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->warns);
}

TEST(SlowStepWatch, TheMachineIsComparedWithAsLongATime) {
  SlowStepWatch watch(0);
  for (int i = 0; i < 20; ++i) // half a processor is usually taken by others
    watch.observe(step(1), {.seconds = 1, .ownCpu = 1, .otherCpu = 0.5, .involuntary = 100}, 0);
  const MachineUse asUsual{.seconds = 6, .ownCpu = 6, .otherCpu = 3, .involuntary = 600};
  auto found = watch.observe(step(5), asUsual, 10);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step.causes.at(0).name, "more_computation");
  MachineUse more = asUsual;
  more.otherCpu = 5;
  more.involuntary = 4000;
  found = watch.observe(step(5), more, 20);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step.causes.at(0).name, "other_processes");
}

TEST(SlowStepWatch, ALastingChangeBecomesUsual) {
  SlowStepWatch watch(0);
  for (size_t i = 0; i < SlowStepWatch::kWindow + 2; ++i)
    watch.observe(step(1), kUsualMachine, 0);
  size_t slow = 0;
  while (watch.observe(step(2), kUsualMachine, 0) && slow < SlowStepWatch::kWindow)
    ++slow;
  EXPECT_LE(slow, SlowStepWatch::kWindow / 2 + 1);
}

} // namespace
} // namespace lmc
