// Collectives that run beside the computation, one after the other, on a thread of their own.
#pragma once

#include "ground/support/Result.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace lmc {

class CollectiveQueue {
public:
  using Work = std::function<Result<void>()>;

  // Adds a collective behind all others. Returns its number: 1, 2, 3, ... The first one starts the
  // thread. Everything that a collective uses must outlive this object, whose destructor waits for
  // the one that runs.
  uint64_t add(Work work);

  // Waits until collective `number` and all before it have ended. Error: one of them failed; those
  // behind it are not run.
  Result<void> wait(uint64_t number);
  Result<void> waitForAll();

private:
  void run(const std::stop_token &stop);

  std::mutex mutex;
  std::condition_variable_any changed;
  std::deque<Work> waiting;
  uint64_t added = 0, ended = 0;
  std::optional<Error> failure;
  std::jthread thread; // destroyed first
};

} // namespace lmc
