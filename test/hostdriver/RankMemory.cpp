#include "test/hostdriver/RankMemory.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lmc::hostdriver {

// The system fills new memory with zeros.
struct RankMemory::Layout {
  enum State : int { Absent, Here, Failed };
  struct Rank {
    std::atomic<int> state, process, device;
    std::atomic<bool> left;
    std::atomic<uint64_t> shown, finished;
    Shown what;
  };
  Rank ranks[kMostRanks];
};

static constexpr uint64_t kInputs = 1 << 16; // where the inputs start

std::string Shown::text() const {
  return fmt::format("{} of {} bytes of {}{}", plan::EnumNameCollectiveKind(kind), inputBytes,
                     plan::EnumNameDType(dtype), captured ? " in a graph" : "");
}

std::unique_ptr<RankMemory> RankMemory::open(const std::string &name, int rank, int ranks,
                                             int device) {
  static_assert(sizeof(Layout) <= kInputs && std::atomic<uint64_t>::is_always_lock_free);
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks)
    return nullptr;
  const int file = ::shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0)
    return nullptr;
  const uint64_t bytes =
      kInputs + uint64_t(ranks) * kMostBytes; // pages that nobody uses cost nothing
  void *at = MAP_FAILED;
  if (::ftruncate(file, off_t(bytes)) == 0)
    at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED)
    return nullptr;
  auto *layout = static_cast<Layout *>(at);
  layout->ranks[rank].device = device;
  layout->ranks[rank].process = ::getpid();
  return std::unique_ptr<RankMemory>(new RankMemory(layout, name, rank, ranks));
}

RankMemory::~RankMemory() { ::munmap(layout, kInputs + uint64_t(ranks) * kMostBytes); }

void RankMemory::join(bool failed) {
  layout->ranks[rank].state = failed ? Layout::Failed : Layout::Here;
}

// The name is removed when all ranks have come, or cannot come: the memory ends with the last
// process that uses it.
std::string RankMemory::awaitAll() {
  std::string missing = findMissing();
  if (rank == 0 || !missing.empty())
    ::shm_unlink(name.c_str());
  return missing;
}

std::string RankMemory::findMissing() const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (;;) {
    int missing = -1;
    for (int other = 0; other < ranks; ++other) {
      const Layout::Rank &at = layout->ranks[other];
      if (at.state == Layout::Failed || (at.process && ::kill(at.process, 0) != 0))
        return fmt::format("rank {} has failed", other);
      if (at.state == Layout::Absent)
        missing = other;
    }
    if (missing < 0)
      return "";
    if (std::chrono::steady_clock::now() > end)
      return fmt::format("rank {} has not come", missing);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

int RankMemory::findDuplicate() const {
  for (int other = 0; other < ranks; ++other)
    if (other != rank && layout->ranks[rank].device >= 0 &&
        layout->ranks[other].device == layout->ranks[rank].device)
      return other;
  return -1;
}

void RankMemory::leave() { layout->ranks[rank].left = true; }

int RankMemory::awaitLeaving(uint64_t milliseconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  for (int other = 0; other < ranks && layout->ranks[rank].device >= 0; ++other) {
    const Layout::Rank &at = layout->ranks[other];
    while (at.device >= 0 && !at.left) {
      // One that has died does not come any more, but may just have said that it leaves.
      const bool late = ::kill(at.process, 0) != 0 || std::chrono::steady_clock::now() > end;
      if (late && !at.left)
        return other;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return -1;
}

char *RankMemory::input(int other) const {
  return reinterpret_cast<char *>(layout) + kInputs + uint64_t(other) * kMostBytes;
}

bool RankMemory::show(uint64_t number, const Shown &shown, const void *bytes) {
  for (int other = 0; other < ranks; ++other)
    if (layout->ranks[other].finished < number - 1)
      return false;
  layout->ranks[rank].what = shown;
  std::memcpy(input(rank), bytes, shown.inputBytes);
  layout->ranks[rank].shown = number;
  return true;
}

bool RankMemory::allShow(uint64_t number) const {
  for (int other = 0; other < ranks; ++other)
    if (layout->ranks[other].shown < number)
      return false;
  return true;
}

bool RankMemory::someoneWaits() const {
  for (int other = 0; other < ranks; ++other)
    if (layout->ranks[other].shown > layout->ranks[rank].shown)
      return true;
  // One that has shown its input waits until this rank has finished the collective before, too.
  return layout->ranks[rank].shown > layout->ranks[rank].finished;
}

Shown RankMemory::shownBy(int other) const { return layout->ranks[other].what; }

const void *RankMemory::inputOf(int other) const { return input(other); }

void RankMemory::finish(uint64_t number) { layout->ranks[rank].finished = number; }

} // namespace lmc::hostdriver
