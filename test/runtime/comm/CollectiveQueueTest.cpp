#include "runtime/comm/CollectiveQueue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

using namespace lmc;

TEST(CollectiveQueue, RunsInOrderBesideTheCaller) {
  std::vector<int> order;
  std::atomic<bool> go = false;
  CollectiveQueue queue;
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(queue.add([&, i]() -> Result<void> {
      go.wait(false);
      order.push_back(i);
      return {};
    }),
              uint64_t(i) + 1);
  EXPECT_TRUE(order.empty()); // add() does not wait
  go = true;
  go.notify_all();
  ASSERT_TRUE(queue.wait(4));
  EXPECT_GE(order.size(), 4u);
  ASSERT_TRUE(queue.wait(10));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(CollectiveQueue, AFailureEndsAllWaitsAndWhatFollows) {
  bool ran = false;
  CollectiveQueue queue;
  queue.add([] { return Result<void>(Error{"rank 3 has ended", ExitCode::RankFailed}); });
  const uint64_t last = queue.add([&]() -> Result<void> {
    ran = true;
    return {};
  });
  auto waited = queue.wait(last);
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().message, "rank 3 has ended");
  EXPECT_EQ(waited.error().code, ExitCode::RankFailed);
  EXPECT_FALSE(queue.wait(1));
  EXPECT_FALSE(ran);
}

TEST(CollectiveQueue, WhatIsNotBegunAtTheEndIsDropped) {
  std::atomic<int> ran = 0;
  std::atomic<bool> begun = false, go = false;
  std::thread release;
  {
    CollectiveQueue queue;
    for (int i = 0; i < 3; ++i)
      queue.add([&]() -> Result<void> {
        ++ran;
        begun = true;
        begun.notify_all();
        go.wait(false);
        return {};
      });
    begun.wait(false);
    release = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      go = true;
      go.notify_all();
    });
  }
  release.join();
  EXPECT_EQ(ran, 1);
}
