// Runs async collectives one after the other on a thread of its own.
#pragma once

#include "ground/support/Result.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lmc {

class CollectiveQueue {
public:
  using Work = std::function<Result<void>()>;

  // Adds a collective, which runs after all earlier ones, and returns its number: 1, 2, 3, ... All
  // that it uses must outlive this object. The destructor waits for the running collective.
  uint64_t add(Work work);

  // Waits until collective `number` has ended. Error: this or an earlier collective failed. After a
  // failure, no later collective runs.
  Result<void> wait(uint64_t number);
  Result<void> waitForAll();

private:
  void run(const std::stop_token &stop);

  std::mutex mutex;
  std::condition_variable_any changed;
  std::deque<Work> waiting;
  uint64_t added = 0, ended = 0;
  Result<void> outcome; // the first Error
  std::jthread thread;  // destroyed first
};

} // namespace lmc
