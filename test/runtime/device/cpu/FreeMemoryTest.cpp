#include "runtime/device/cpu/FreeMemory.h"
#include "test/runtime/checkpoint/TestFolder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

using namespace lmc;

namespace {

// A machine that has only the files that free memory is read from.
class FreeMemory : public testing::Test {
protected:
  void write(const std::string &path, const std::string &text) {
    const std::filesystem::path whole = folder / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  cpu::FreeMemory read() { return cpu::freeMemory(folder / ""); }
  lmc::test::TestFolder folder;
};

TEST_F(FreeMemory, IsThatOfTheMachineWithoutALimit) {
  write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\n");
  write("proc/self/cgroup", "0::/job/a\n");
  write("sys/fs/cgroup/job/a/memory.max", "max\n");
  write("sys/fs/cgroup/job/a/memory.current", "1\n");
  EXPECT_EQ(read().bytes, 400u * 1024);
  EXPECT_EQ(read().source, "MemAvailable");
}

TEST_F(FreeMemory, IsWhatTheGroupAboveLeavesWithTheCacheThatCanBeDropped) {
  write("proc/meminfo", "MemAvailable: 400 kB\n");
  write("proc/self/cgroup", "0::/job/a\n");
  write("sys/fs/cgroup/job/a/memory.max", "max\n");
  write("sys/fs/cgroup/job/memory.max", "100000\n");
  write("sys/fs/cgroup/job/memory.current", "70000\n");
  write("sys/fs/cgroup/job/memory.stat", "anon 50000\ninactive_file 20000\n");
  EXPECT_EQ(read().bytes, 50000u);
  EXPECT_EQ(read().source, "the limit of the control group /job");
  write("sys/fs/cgroup/job/memory.max", "40000\n"); // it was lowered
  EXPECT_EQ(read().bytes, 0u);
}

TEST_F(FreeMemory, ReadsVersionOneAndGroupsOfContainers) {
  write("proc/meminfo", "MemAvailable: 400 kB\n");
  // In a container its group has another name than outside, and is the root of what it sees.
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "90000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "60000\n");
  write("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 10000\n");
  EXPECT_EQ(read().bytes, 40000u);
}

} // namespace
