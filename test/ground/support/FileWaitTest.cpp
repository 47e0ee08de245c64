#include "ground/support/FileWait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace lmc {
namespace {

TEST(FileWait, TheOldestIsNamed) {
  EXPECT_FALSE(longestFileWait(0));
  const std::string first = "a.bin", second = "b.bin";
  {
    const FileWait reading("reading", first);
    std::thread([&] {
      const FileWait writing("writing", second);
      EXPECT_EQ(longestFileWait(0)->substr(0, 18), "reading a.bin for ");
    }).join();
    EXPECT_FALSE(longestFileWait(1000));
    EXPECT_TRUE(longestFileWait(0));
  }
  EXPECT_FALSE(longestFileWait(0));
}

TEST(FileWait, OneThatEndsLeavesTheOthers) {
  const std::string names[] = {"a", "b", "c"};
  std::optional<FileWait> waits[3];
  for (int i = 0; i < 3; ++i)
    waits[i].emplace("reading", names[i]);
  waits[1].reset();
  EXPECT_EQ(longestFileWait(0)->substr(0, 10), "reading a ");
  waits[0].reset();
  EXPECT_EQ(longestFileWait(0)->substr(0, 10), "reading c ");
  waits[2].reset();
  EXPECT_FALSE(longestFileWait(0));
}

} // namespace
} // namespace lmc
