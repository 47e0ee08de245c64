#include "runtime/monitor/MachineUse.h"

#include <gtest/gtest.h>

namespace lmc {
namespace {

TEST(MachineUse, TheTicksOfSomeProcessors) {
  // proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice
  const char *text = "cpu  111 0 0 0 0 0 0 0 0 0\n"
                     "cpu0 100 20 30 4000 500 6 7 80 9 1\n"
                     "cpu1 1 2 3 4 5 6 7 8 9 10\n"
                     "cpu10 1000 0 0 0 0 0 0 2 0 0\n"
                     "intr 1 2 3\n";
  CpuTicks ticks = parseCpuTicks(text, {0});
  EXPECT_EQ(ticks.busy, 100 + 20 + 30 + 6 + 7);
  EXPECT_EQ(ticks.stolen, 80);
  ticks = parseCpuTicks(text, {1, 10});
  EXPECT_EQ(ticks.busy, 1 + 2 + 3 + 6 + 7 + 1000);
  EXPECT_EQ(ticks.stolen, 10);
  EXPECT_EQ(parseCpuTicks("", {0}).busy, 0);
}

TEST(MachineUse, SwappedPages) {
  EXPECT_EQ(parseSwappedPages("pgpgin 5\npswpin 30\npswpout 4\npgfault 9\n"), 34);
  EXPECT_EQ(parseSwappedPages(""), 0);
}

TEST(MachineUse, WhatIsDoneBetweenTwoReadings) {
  const MachineCounters before{.time = 10, .ownCpu = 5, .busy = 100, .stolen = 1, .clockGHz = 3};
  MachineCounters after{.time = 12, .ownCpu = 8, .busy = 104, .stolen = 1.5, .clockGHz = 2};
  MachineUse use = after - before;
  EXPECT_EQ(use.seconds, 2);
  EXPECT_EQ(use.ownCpu, 3);
  EXPECT_EQ(use.otherCpu, 1);
  EXPECT_EQ(use.stolen, 0.5);
  EXPECT_EQ(use.clockGHz, 2);
  after.busy = 102; // ticks are coarse
  EXPECT_EQ((after - before).otherCpu, 0);
}

TEST(MachineUse, OwnProcessorTimeGrowsWithWork) {
  MachineReader reader;
  const MachineCounters before = reader.read(1);
  MachineCounters after = before;
  while (after.ownCpu < before.ownCpu + 0.02)
    after = reader.read(2);
  EXPECT_EQ((after - before).seconds, 1);
  EXPECT_GT(after.busy, 0);
  EXPECT_GE(after.busy, before.busy);
}

TEST(MachineUse, TheClockIsReadAtMostEveryTenSeconds) {
  int readings = 0;
  MachineReader reader([&] { return static_cast<double>(++readings); });
  EXPECT_EQ(reader.read(100).clockGHz, 1);
  EXPECT_EQ(reader.read(109.9).clockGHz, 1);
  EXPECT_EQ(reader.read(110).clockGHz, 2);
  EXPECT_EQ(reader.read(119).clockGHz, 2);
}

} // namespace
} // namespace lmc
