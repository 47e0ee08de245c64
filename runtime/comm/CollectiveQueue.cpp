#include "runtime/comm/CollectiveQueue.h"

#include "ground/support/Arithmetic.h"

#include <utility>

namespace lmc {

uint64_t CollectiveQueue::add(Work work) {
  std::lock_guard lock(mutex);
  if (!thread.joinable())
    thread = std::jthread([this](const std::stop_token &stop) { run(stop); });
  waiting.push_back(std::move(work));
  changed.notify_all();
  return ++added;
}

Result<void> CollectiveQueue::wait(uint64_t number) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended >= number || !outcome; });
  return outcome;
}

Result<void> CollectiveQueue::waitForAll() {
  uint64_t last;
  {
    std::lock_guard lock(mutex);
    last = added;
  }
  return wait(last);
}

void CollectiveQueue::run(const std::stop_token &stop) {
  useDefaultArithmetic(); // this thread adds floating-point numbers with default rounding
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, stop, [&] { return !waiting.empty(); });
    if (stop.stop_requested() || !outcome)
      return;
    const Work work = std::move(waiting.front());
    waiting.pop_front();
    lock.unlock();
    Result<void> done = work();
    lock.lock();
    ++ended;
    outcome = std::move(done);
    changed.notify_all();
  }
}

} // namespace lmc
