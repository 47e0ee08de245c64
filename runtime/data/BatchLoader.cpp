// Worker threads make batches and put batch b into element b % size of a ring. next() takes the
// batches in order. A worker starts a batch only when its element is free.

#include "runtime/data/DataSource.h"

#include <algorithm>

namespace lmc {

namespace {

constexpr uint64_t kBatchesPerWorker = 2; // one batch that a worker makes, and one that is ready

Result<BatchLoader::Batch> makeBatch(const DataSource &source, const BatchRows &rows,
                                     uint64_t position) {
  BatchLoader::Batch batch;
  const uint64_t length = source.sequenceLength(), count = rows.perStep / rows.ranks;
  batch.tokens.resize(count * length);
  batch.targets.resize(batch.tokens.size());
  if (source.hasDocumentMask())
    batch.starts.resize(batch.tokens.size());
  for (uint64_t done = 0; done < count; done += rows.perMicroStep) {
    const uint64_t row = done * rows.ranks + rows.rank * rows.perMicroStep, at = done * length;
    LMC_TRY(source.fill(position + row * length, rows.perMicroStep, batch.tokens.data() + at,
                        batch.targets.data() + at,
                        batch.starts.empty() ? nullptr : batch.starts.data() + at));
  }
  batch.validTargets = std::ranges::count_if(batch.targets, [](int32_t id) { return id >= 0; });
  return batch;
}

} // namespace

Result<BatchLoader::Batch> BatchLoader::make(uint64_t number) const {
  return makeBatch(source, rows, position + number * rows.perStep * source.sequenceLength());
}

void BatchLoader::work() {
  std::unique_lock lock(mutex);
  while (true) {
    freed.wait(lock, [&] { return stopping || nextClaim < nextTake + ring.size(); });
    if (stopping)
      return;
    uint64_t number = nextClaim++;
    lock.unlock();
    Result<Batch> batch = make(number);
    lock.lock();
    ring[number % ring.size()] = std::move(batch);
    filled.notify_one();
  }
}

BatchLoader::BatchLoader(const DataSource &source, const BatchRows &rows, uint64_t position,
                         int workers)
    : source(source), rows(rows), position(position) {
  if (workers <= 0)
    return;
  ring.resize(workers * kBatchesPerWorker);
  for (int i = 0; i < workers; ++i)
    threads.emplace_back([this] { work(); });
}

BatchLoader::~BatchLoader() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  freed.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

Result<BatchLoader::Batch> BatchLoader::next() {
  if (failure)
    return *failure;
  Result<Batch> batch = [&]() -> Result<Batch> {
    if (threads.empty())
      return make(nextTake++);
    std::unique_lock lock(mutex);
    auto &slot = ring[nextTake % ring.size()];
    filled.wait(lock, [&] { return slot.has_value(); });
    Result<Batch> taken = std::move(*slot);
    slot.reset();
    ++nextTake;
    freed.notify_all();
    return taken;
  }();
  if (!batch)
    failure = batch.error();
  return batch;
}

} // namespace lmc
