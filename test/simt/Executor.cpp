#include "test/simt/Executor.h"
#include "test/simt/SourcePlace.h"
#include "test/simt/Warpgroups.h"

#include <boost/context/detail/fcontext.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace lmc::simt {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr uint32_t kLanes = 32, kFullMask = 0xffffffffu;
constexpr size_t kPage = 4096;
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStackBytes = 512 << 10;
#else
constexpr size_t kStackBytes = 128 << 10;
#endif

uint64_t mix(uint64_t x) { // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct Random {
  uint64_t state;
  uint32_t below(uint32_t n) {
    state = mix(state);
    return uint32_t((state >> 32) * n >> 32);
  }
  // Returns the index of a random set bit of `mask`, which must not be 0.
  uint32_t bitOf(uint32_t mask) {
    const uint32_t turn = below(32);
    return (uint32_t(std::countr_zero(std::rotr(mask, int(turn)))) + turn) & 31;
  }
};

// Memory between two guard pages. Every access to a guard page faults.
struct GuardedMemory {
  char *start = nullptr; // the first byte after the first guard page
  size_t bytes = 0;      // bytes between the guard pages, a multiple of kPage

  void reserve(size_t size) {
    const size_t pages = std::max<size_t>(1, (size + kPage - 1) / kPage) * kPage;
    if (pages <= bytes)
      return;
    if (start)
      munmap(start - kPage, bytes + 2 * kPage);
    bytes = pages;
    void *all = mmap(nullptr, bytes + 2 * kPage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
      std::abort();
    start = static_cast<char *>(all) + kPage;
    mprotect(start, bytes, PROT_READ | PROT_WRITE);
  }
  char *end() const { return start + bytes; }
  bool inGuards(const void *at) const {
    auto *p = static_cast<const char *>(at);
    return start && ((p >= start - kPage && p < start) || (p >= end() && p < end() + kPage));
  }
};

// Tells AddressSanitizer that a stack is free, although a failed thread left frames on it.
void forgetFrames([[maybe_unused]] const GuardedMemory &stack) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack.start, stack.bytes);
#endif
}

enum class State { Ready, AtBarrier, AtCollective, AtNamedBarrier, AtProducts, Done };

struct AsyncCopy {
  char *to;
  const char *from; // null: zeros are copied
  uint32_t group;
};

struct Thread {
  GuardedMemory stack;
  fcontext_t context = nullptr;
  Index index;
  uint32_t number;
  State state;
  Place place;             // the barrier or collective that the thread waits at
  const void *instruction; // the return address of the call that waits
  std::vector<AsyncCopy> copies;
  uint32_t group; // the group that new asynchronous copies belong to
  std::vector<std::pair<const void *, uint32_t>> executions;
};

struct Warp {
  uint32_t live, waiting;
  Collective kind[kLanes];
  uint64_t value[kLanes], operand[kLanes], result[kLanes];
  bool transposed[kLanes];
};

const char *nameOf(Collective kind, bool transposed) {
  switch (kind) {
  case Collective::SyncWarp:
    return "__syncwarp";
  case Collective::Shuffle:
    return "__shfl_sync";
  case Collective::Ballot:
    return "__ballot_sync";
  case Collective::LoadMatrix:
    return transposed ? "loadMatrix4Transposed" : "loadMatrix4";
  case Collective::MultiplyAdd:
    return "multiplyAdd16x8x16";
  }
  return "";
}

float fromBf16(uint32_t word, int half) {
  return std::bit_cast<float>((half ? word >> 16 : word) << 16);
}

// Computes d += a b of multiplyAdd16x8x16 for a warp. compiler/targets/cuda/device/platform.cuh
// says which elements each lane holds. AVX2 has no fused multiplications and additions, and so
// gives the same bits.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx2", "default")))
#endif
void multiplyAdd(const uint64_t (&products)[kLanes]) {
  float a[16][16], b[16][8];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const Product &p = *reinterpret_cast<const Product *>(products[lane]);
    const uint32_t g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      a[g][2 * t + half] = fromBf16(p.a[0], half);
      a[g + 8][2 * t + half] = fromBf16(p.a[1], half);
      a[g][2 * t + 8 + half] = fromBf16(p.a[2], half);
      a[g + 8][2 * t + 8 + half] = fromBf16(p.a[3], half);
      b[2 * t + half][g] = fromBf16(p.b0, half);
      b[2 * t + 8 + half][g] = fromBf16(p.b1, half);
    }
  }
  float sums[16][8] = {};
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 8; ++j)
        sums[i][j] += a[i][k] * b[k][j];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    float *d = reinterpret_cast<const Product *>(products[lane])->d;
    const uint32_t g = lane / 4, t = lane % 4;
    d[0] += sums[g][2 * t];
    d[1] += sums[g][2 * t + 1];
    d[2] += sums[g + 8][2 * t];
    d[3] += sums[g + 8][2 * t + 1];
  }
}

class Executor {
public:
  Executor();
  LaunchResult run(const Launch &launch, Memory &memory, const Order &order);
  Machine table{};

  // The functions of the Machine table (MachineTable.h) call the functions that follow.
  void load(const void *from, void *to, int bytes, const void *instruction);
  void store(void *to, const void *from, int bytes, const void *instruction);
  void *atomic(void *at, int bytes, const void *instruction);
  void copyAsync(void *shared, const void *from, bool valid, const void *instruction);
  void copyAsyncCommit() { ++running->group; }
  void copyAsyncWait(int pending);
  int barrier(BlockVote vote, int predicate, Place place, const void *instruction);
  uint64_t collective(Collective kind, uint32_t mask, uint64_t value, uint64_t operand,
                      bool transposed, Place place, const void *instruction);
  void namedBarrier(int id, int wanted, Place place, const void *instruction);
  void storeForProducts(uint32_t address, const void *from, int bytes, const void *instruction);
  void seenByProducts() { warpgroups.seenByProducts(running->number); }
  void groupBegin(const void *instruction);
  void groupAdd(const GroupProduct &product, Place place, const void *instruction);
  void groupCommit(const void *instruction);
  void groupWait(int pending, Place place, const void *instruction);
  [[noreturn]] void fail(const std::string &what, const void *instruction);

  // The functions that follow handle a thread that faulted or failed.
  std::string faultText(const siginfo_t &info) const;
  [[noreturn]] void abandon(const std::string &what, const void *instruction);
  bool inThread() const { return running != nullptr; }
  // Returns the end of the stack on which a thread that faulted reports its failure.
  char *emergencyStack() const {
    forgetFrames(emergency);
    return emergency.end();
  }

private:
  static void enterThread(transfer_t from);
  void startBlock(uint32_t number);
  void runBlock();
  Thread *pick();
  void enter(Thread &next, fcontext_t &mine);
  void arrived(transfer_t from);
  void suspend(State state, Place place, const void *instruction);
  void wake(Thread &thread);
  void unready(uint32_t place, uint32_t lane);
  void finish();
  void releaseBarrier();
  void completeCollective(uint32_t number);
  void loadMatrices(Warp &warp, const void *instruction);
  Asker asker(const void *instruction);
  void checkShared(const void *at, const char *what, const void *instruction);
  void checkCanaries();
  std::string threadsIn(State state, const Thread &like) const;
  std::string stuckText() const;
  std::string placeOf(const Thread &thread) const;
  std::string blockText() const;
  Warp &warpOf(const Thread &t) { return warps[t.number / kLanes]; }
  void land(const AsyncCopy &copy);
  // Fails if `mistake` is one.
  void require(const std::string &mistake, const void *instruction) {
    if (!mistake.empty())
      fail(mistake, instruction);
  }
  uint32_t offsetOf(const void *inShared) const {
    return uint32_t(static_cast<const unsigned char *>(inShared) - table.shared);
  }

  Launch launch;
  Memory *memory = nullptr;
  Order order;
  Random random{1};
  GuardedMemory shared, emergency;
  std::vector<std::unique_ptr<Thread>> threads; // reused; a block uses the first `launch.threads`
  std::vector<Warp> warps;
  Warpgroups warpgroups;
  struct NamedBarrier {
    std::vector<Thread *> waiting;
    int wanted = 0;
  };
  std::array<NamedBarrier, 16> namedBarriers; // of which 0 is __syncthreads
  // Which threads are ready, and not running. Warps have places: 0 is the one that runs first if
  // they run by priority. These fields are small, because every switch between threads reads them.
  uint32_t readyPlaces = 0;    // bit p: a thread of the warp at place p is ready
  uint32_t readyLanes[kLanes]; // of the warp at a place
  uint8_t placeOfWarp[kLanes], warpAtPlace[kLanes];
  std::vector<void *> arguments;
  fcontext_t scheduler = nullptr;
  Thread *running = nullptr;
  fcontext_t *left = nullptr; // where the place is kept that the next jump leaves; null: nowhere
  uint32_t blockNumber = 0, live = 0, atBarrier = 0;
  int votes = 0, voteResult = 0;
  bool allVoted = false, byPriority = false, atomics = false;
  std::string failure;
};

Executor &executor() {
  static Executor instance;
  return instance;
}

//===--------------------------------------------------------------------===//
// Faults: a thread dereferences a pointer to neither shared nor local memory

std::string pendingFault;
const void *pendingInstruction;

[[noreturn]] void leaveFaultedThread() { executor().abandon(pendingFault, pendingInstruction); }

void onFault(int signal, siginfo_t *info, void *context) {
#if defined(__x86_64__)
  if (executor().inThread()) {
    auto &registers = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
    pendingFault = executor().faultText(*info);
    pendingInstruction = reinterpret_cast<const void *>(registers[REG_RIP]);
    // After this handler the thread continues in leaveFaultedThread on an intact stack, as if the
    // faulting instruction had called that function.
    registers[REG_RIP] = reinterpret_cast<greg_t>(&leaveFaultedThread);
    registers[REG_RSP] = reinterpret_cast<greg_t>(executor().emergencyStack() - 8);
    return;
  }
#endif
  std::signal(signal, SIG_DFL);
}

class CatchFaults {
public:
  CatchFaults() {
    static GuardedMemory stack;
    stack.reserve(64 << 10);
    stack_t alternative{stack.start, 0, stack.bytes};
    sigaltstack(&alternative, &oldStack);
    struct sigaction action{};
    action.sa_sigaction = onFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &oldSegv);
    sigaction(SIGBUS, &action, &oldBus);
  }
  ~CatchFaults() {
    sigaction(SIGSEGV, &oldSegv, nullptr);
    sigaction(SIGBUS, &oldBus, nullptr);
    sigaltstack(&oldStack, nullptr);
  }

private:
  stack_t oldStack;
  struct sigaction oldSegv, oldBus;
};

std::string Executor::faultText(const siginfo_t &info) const {
  if (shared.inGuards(info.si_addr))
    return fmt::format("out of bounds: an access at byte {} of the block's {} bytes of shared memory",
                       static_cast<char *>(info.si_addr) -
                           reinterpret_cast<char *>(table.shared),
                       launch.sharedBytes);
  if (running->stack.inGuards(info.si_addr))
    return "a thread's stack overflows";
  return "a pointer is dereferenced that is not to shared or local memory (global memory is "
         "touched by loadGlobal, storeGlobal and copyAsync16 only)";
}

//===--------------------------------------------------------------------===//
// Failures

void Executor::abandon(const std::string &what, const void *instruction) {
  const Index &t = running->index;
  failure = fmt::format("{}; {}, thread {}, at {}", what, blockText(),
                        table.blockSize.y * table.blockSize.z == 1
                            ? std::to_string(t.x)
                            : fmt::format("({}, {}, {})", t.x, t.y, t.z),
                        sourcePlace(static_cast<const char *>(instruction)));
  // A failed thread never continues, so its stack can be reused from the start.
  jump_fcontext(scheduler, nullptr);
  std::abort();
}

// `instruction` is the return address of a call, so `instruction` - 1 is inside the call.
void Executor::fail(const std::string &what, const void *instruction) {
  abandon(what, static_cast<const char *>(instruction) - 1);
}

std::string Executor::blockText() const {
  const Index &b = table.block;
  if (table.gridSize.y * table.gridSize.z == 1)
    return fmt::format("block {}", b.x);
  return fmt::format("block ({}, {}, {})", b.x, b.y, b.z);
}

std::string Executor::placeOf(const Thread &t) const {
  return sourcePlace(static_cast<const char *>(t.instruction) - 1);
}

// Returns the numbers of the threads in `state` at the place where `like` waits, such as "threads
// 0-15, 32". For a collective, only threads of the warp of `like` are included.
std::string Executor::threadsIn(State state, const Thread &like) const {
  std::string text;
  for (uint32_t i = 0; i < launch.threads; ++i) {
    auto same = [&](uint32_t n) {
      const Thread &t = *threads[n];
      return t.state == state && (state == State::Done || t.place.line == like.place.line) &&
             (state != State::AtCollective || n / kLanes == like.number / kLanes);
    };
    if (!same(i))
      continue;
    uint32_t last = i;
    while (last + 1 < launch.threads && same(last + 1))
      ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
    if (last > i)
      text += fmt::format("-{}", last);
    i = last;
  }
  return "threads " + text;
}

// Returns an error text for a block in which no thread can continue: which threads wait where.
std::string Executor::stuckText() const {
  std::string text = fmt::format("divergent code: {}", blockText());
  std::vector<std::tuple<State, int, uint32_t>> told;
  for (uint32_t i = 0; i < launch.threads; ++i) {
    const Thread &t = *threads[i];
    std::tuple key{t.state, t.state == State::Done ? 0 : t.place.line,
                   t.state == State::AtCollective ? i / kLanes : 0};
    if (std::find(told.begin(), told.end(), key) != told.end())
      continue;
    told.push_back(key);
    const Warp &w = warps[i / kLanes];
    text += fmt::format("; {} {}", threadsIn(t.state, t),
                        t.state == State::Done ? "have returned"
                        : t.state == State::AtBarrier
                            ? "wait at __syncthreads, " + placeOf(t)
                        : t.state == State::AtNamedBarrier
                            ? "wait at a barrier of some threads, " + placeOf(t)
                        : t.state == State::AtProducts
                            ? "wait for products of their warpgroup, " + placeOf(t)
                            : fmt::format("wait at {}, {}",
                                          nameOf(w.kind[i % kLanes], w.transposed[i % kLanes]),
                                          placeOf(t)));
  }
  return text;
}

//===--------------------------------------------------------------------===//
// Memory

Asker Executor::asker(const void *instruction) {
  auto &list = running->executions;
  auto found = std::find_if(list.begin(), list.end(),
                            [&](const auto &entry) { return entry.first == instruction; });
  if (found == list.end())
    found = list.insert(list.end(), {instruction, 0});
  return {blockNumber, running->number / kLanes, reinterpret_cast<uint64_t>(instruction),
          found->second++};
}

void Executor::load(const void *from, void *to, int bytes, const void *instruction) {
  const char *real = memory->resolve(from, bytes, Memory::Kind::Load, asker(instruction));
  if (!real)
    fail(memory->problem(), instruction);
  std::memcpy(to, real, bytes);
}

void Executor::store(void *to, const void *from, int bytes, const void *instruction) {
  char *real = memory->resolve(to, bytes, Memory::Kind::Store, asker(instruction));
  if (!real)
    fail(memory->problem(), instruction);
  std::memcpy(real, from, bytes);
}

void *Executor::atomic(void *at, int bytes, const void *instruction) {
  atomics = true;
  auto *p = static_cast<unsigned char *>(at);
  if (p >= table.shared && p + bytes <= table.shared + launch.sharedBytes)
    return at;
  char *real = memory->resolve(at, bytes, Memory::Kind::Atomic, asker(instruction));
  if (!real)
    fail(memory->problem(), instruction);
  return real;
}

// Checks that the 16 bytes at `at`, which a warp-wide or asynchronous instruction accesses, lie in
// shared memory and are aligned.
void Executor::checkShared(const void *at, const char *what, const void *instruction) {
  const int64_t offset = static_cast<const unsigned char *>(at) - table.shared;
  if (offset < 0 || offset + 16 > launch.sharedBytes)
    fail(fmt::format("out of bounds: {} of 16 bytes at byte {} of the block's {} bytes of shared "
                     "memory",
                     what, offset, launch.sharedBytes),
         instruction);
  if (offset % 16)
    fail(fmt::format("misaligned: {} of 16 bytes at byte {} of shared memory", what, offset),
         instruction);
}

void Executor::copyAsync(void *to, const void *from, bool valid, const void *instruction) {
  checkShared(to, "an asynchronous copy", instruction);
  const char *real = nullptr;
  if (valid && !(real = memory->resolve(from, 16, Memory::Kind::Load, asker(instruction))))
    fail(memory->problem(), instruction);
  AsyncCopy copy{static_cast<char *>(to), real, running->group};
  require(warpgroups.copyBegins(offsetOf(to)), instruction);
  if (!order.lateCopies)
    return land(copy);
  fillGarbage(to, 16, order.garbage, static_cast<unsigned char *>(to) - table.shared + 1);
  running->copies.push_back(copy);
}

void Executor::land(const AsyncCopy &copy) {
  if (copy.from)
    std::memcpy(copy.to, copy.from, 16);
  else
    std::memset(copy.to, 0, 16);
  warpgroups.copyLands(running->number, offsetOf(copy.to));
}

// Completes the running thread's asynchronous copies, except those of the last `pending` committed
// groups and of the group that is still open.
void Executor::copyAsyncWait(int pending) {
  auto &copies = running->copies;
  size_t kept = 0;
  for (const AsyncCopy &copy : copies)
    if (int64_t(copy.group) < int64_t(running->group) - pending)
      land(copy);
    else
      copies[kept++] = copy;
  copies.resize(kept);
}

//===--------------------------------------------------------------------===//
// Barriers and collectives

static bool isSame(const Place &a, const Place &b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

void Executor::suspend(State state, Place place, const void *instruction) {
  Thread &self = *running;
  self.state = state;
  self.place = place;
  self.instruction = instruction;
  if (Thread *next = pick()) {
    enter(*next, self.context);
  } else {
    left = &self.context;
    arrived(jump_fcontext(scheduler, nullptr));
  }
}

// Jumps to the thread `next`, and returns when something jumps to `mine`, which is the context of
// the caller: a thread, or the scheduler. Threads jump to each other, because a way through the
// scheduler has two jumps.
void Executor::enter(Thread &next, fcontext_t &mine) {
  left = &mine;
  running = &next;
  table.thread = next.index;
  arrived(jump_fcontext(next.context, arguments.data()));
}

// Keeps the place that the jump to here has left.
void Executor::arrived(transfer_t from) {
  if (left)
    *left = from.fctx;
  left = nullptr;
}

void Executor::wake(Thread &thread) {
  thread.state = State::Ready;
  const uint32_t place = placeOfWarp[thread.number / kLanes];
  readyLanes[place] |= 1u << thread.number % kLanes;
  readyPlaces |= 1u << place;
}

// Takes a thread that runs from those that are ready.
void Executor::unready(uint32_t place, uint32_t lane) {
  readyLanes[place] &= ~(1u << lane);
  if (!readyLanes[place])
    readyPlaces &= ~(1u << place);
}

int Executor::barrier(BlockVote vote, int predicate, Place place, const void *instruction) {
  Thread &self = *running;
  self.place = place;
  self.instruction = instruction;
  votes += predicate != 0;
  if (++atBarrier == live) {
    self.state = State::AtBarrier;
    releaseBarrier();
    unready(placeOfWarp[self.number / kLanes], self.number % kLanes);
  } else {
    suspend(State::AtBarrier, place, instruction);
  }
  self.state = State::Ready;
  return vote == BlockVote::Count ? voteResult
         : vote == BlockVote::Or  ? voteResult != 0
                                  : allVoted;
}

// Threads that arrive at a barrier of some threads of the block. Each of the 15 barriers can be used
// again once all have left it.
void Executor::namedBarrier(int id, int wanted, Place place, const void *instruction) {
  if (id < 1 || id > 15 || wanted <= 0 || wanted % int(kLanes) || wanted > int(launch.threads))
    fail(fmt::format("a barrier {} of {} threads: there are barriers 1 to 15, of whole warps of the block", id,
                     wanted),
         instruction);
  NamedBarrier &barrier = namedBarriers[size_t(id)];
  if (!barrier.waiting.empty() && barrier.wanted != wanted)
    fail(fmt::format("a barrier {} of {} threads, at which others wait for {}", id, wanted, barrier.wanted),
         instruction);
  barrier.wanted = wanted;
  running->place = place;
  running->instruction = instruction;
  if (int(barrier.waiting.size()) + 1 < wanted) {
    barrier.waiting.push_back(running);
    suspend(State::AtNamedBarrier, place, instruction);
    running->state = State::Ready;
    return;
  }
  barrier.waiting.push_back(running);
  for (const Thread *thread : barrier.waiting) {
    const auto ofWarp = std::ranges::count_if(barrier.waiting, [&](const Thread *other) {
      return other->number / kLanes == thread->number / kLanes && isSame(other->place, thread->place);
    });
    if (ofWarp != kLanes)
      fail(fmt::format("divergent code: only {} threads of a warp are at one place of barrier {}", ofWarp, id),
           instruction);
  }
  for (Thread *thread : barrier.waiting)
    if (thread != running)
      wake(*thread);
  barrier.waiting.clear();
  require(warpgroups.maybeRun(random.below(4) == 0), instruction);
}

void Executor::storeForProducts(uint32_t address, const void *from, int bytes,
                                const void *instruction) {
  require(warpgroups.store(running->number, address, from, uint32_t(bytes)), instruction);
}

void Executor::groupBegin(const void *instruction) {
  require(warpgroups.begin(running->number), instruction);
}

void Executor::groupAdd(const GroupProduct &product, Place place, const void *instruction) {
  require(warpgroups.add(running->number, product, place, random.below(2) == 0), instruction);
}

void Executor::groupCommit(const void *instruction) {
  require(warpgroups.commit(running->number), instruction);
}

void Executor::groupWait(int pending, Place place, const void *instruction) {
  const uint32_t first = running->number / Warpgroups::kThreads * Warpgroups::kThreads;
  bool all = false;
  require(warpgroups.wait(running->number, pending, place, all), instruction);
  if (!all) {
    suspend(State::AtProducts, place, instruction);
    running->state = State::Ready;
    return;
  }
  for (uint32_t i = first; i < first + Warpgroups::kThreads; ++i)
    if (threads[i]->state == State::AtProducts)
      wake(*threads[i]);
}

void Executor::releaseBarrier() {
  const Thread *first = nullptr;
  for (uint32_t i = 0; i < launch.threads; ++i) {
    Thread &t = *threads[i];
    if (t.state != State::AtBarrier)
      continue;
    if (!first)
      first = &t;
    if (!isSame(t.place, first->place))
      fail(fmt::format("a barrier in divergent code: {} are at {}, {} at {}",
                       threadsIn(State::AtBarrier, *first), placeOf(*first),
                       threadsIn(State::AtBarrier, t), placeOf(t)),
           running->instruction);
  }
  for (uint32_t i = 0; i < launch.threads; ++i)
    if (threads[i]->state == State::AtBarrier)
      wake(*threads[i]);
  atBarrier = 0;
  require(warpgroups.maybeRun(random.below(4) == 0), running->instruction);
  voteResult = votes;
  allVoted = votes == int(live);
  votes = 0;
}

uint64_t Executor::collective(Collective kind, uint32_t mask, uint64_t value, uint64_t operand,
                              bool transposed, Place place, const void *instruction) {
  Thread &self = *running;
  Warp &warp = warpOf(self);
  const uint32_t lane = self.number % kLanes;
  if (mask != kFullMask)
    fail(fmt::format("{} with the mask {:#x}: device code uses the full one",
                     nameOf(kind, transposed), mask),
         instruction);
  warp.kind[lane] = kind;
  warp.value[lane] = value;
  warp.operand[lane] = operand;
  warp.transposed[lane] = transposed;
  warp.waiting |= 1u << lane;
  self.place = place;
  self.instruction = instruction;
  if (warp.waiting == warp.live) {
    self.state = State::AtCollective;
    completeCollective(self.number / kLanes);
    unready(placeOfWarp[self.number / kLanes], lane);
    self.state = State::Ready;
  } else {
    suspend(State::AtCollective, place, instruction);
  }
  return warp.result[lane];
}

// Executes the collective that warp `number` waits at. All lanes that have not returned must have
// reached it.
void Executor::completeCollective(uint32_t number) {
  Warp &warp = warps[number];
  const uint32_t first = uint32_t(std::countr_zero(warp.waiting));
  const Thread &leader = *threads[number * kLanes + first];
  uint64_t ballot = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (!(warp.waiting >> lane & 1))
      continue;
    const Thread &t = *threads[number * kLanes + lane];
    if (warp.kind[lane] != warp.kind[first] || !isSame(t.place, leader.place))
      fail(fmt::format("a collective in divergent code: {} are at {}, {}; {} at {}, {}",
                       threadsIn(State::AtCollective, leader),
                       nameOf(warp.kind[first], warp.transposed[first]), placeOf(leader),
                       threadsIn(State::AtCollective, t),
                       nameOf(warp.kind[lane], warp.transposed[lane]), placeOf(t)),
           running->instruction);
    ballot |= warp.value[lane] << lane;
  }
  switch (warp.kind[first]) {
  case Collective::SyncWarp:
    break;
  case Collective::Ballot:
    std::fill_n(warp.result, kLanes, ballot);
    break;
  case Collective::Shuffle:
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t from = warp.operand[lane] < kLanes ? warp.operand[lane] : lane;
      // A shuffle from a lane that has returned gives an undefined value.
      warp.result[lane] = warp.waiting >> from & 1 ? warp.value[from] : mix(order.garbage);
    }
    break;
  case Collective::LoadMatrix:
  case Collective::MultiplyAdd:
    if (warp.waiting != kFullMask)
      fail(fmt::format("{} by a warp of which threads have returned",
                       nameOf(warp.kind[first], warp.transposed[first])),
           leader.instruction);
    if (warp.kind[first] == Collective::LoadMatrix)
      loadMatrices(warp, leader.instruction);
    else
      multiplyAdd(warp.value);
    break;
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    if (warp.waiting >> lane & 1)
      wake(*threads[number * kLanes + lane]);
  warp.waiting = 0;
}

void Executor::loadMatrices(Warp &warp, const void *instruction) {
  uint16_t rows[32][8]; // rows[l]: row l % 8 of matrix l / 8
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    auto *from = reinterpret_cast<const void *>(warp.operand[lane]);
    checkShared(from, "loadMatrix4", instruction);
    std::memcpy(rows[lane], from, 16);
  }
  const bool transposed = warp.transposed[0];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    auto *to = reinterpret_cast<uint32_t *>(warp.value[lane]);
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      const auto *m = rows + 8 * matrix;
      to[matrix] = transposed ? m[2 * t][g] | uint32_t(m[2 * t + 1][g]) << 16
                              : m[g][2 * t] | uint32_t(m[g][2 * t + 1]) << 16;
    }
  }
}

//===--------------------------------------------------------------------===//
// Blocks and threads

void Executor::enterThread(transfer_t from) {
  Executor &e = executor();
  e.arrived(from);
  e.launch.entry(static_cast<void *const *>(from.data));
  e.finish();
  Thread *next = e.pick();
  if (next) {
    e.running = next;
    e.table.thread = next->index;
  }
  jump_fcontext(next ? next->context : e.scheduler, next ? e.arguments.data() : nullptr);
  std::abort();
}

// Ends the running thread. If all other threads of its warp or block wait at a collective or
// barrier, they continue.
void Executor::finish() {
  Warp &warp = warpOf(*running);
  require(warpgroups.end(running->number), running->instruction);
  running->state = State::Done;
  running->copies.clear();
  warp.live &= ~(1u << running->number % kLanes);
  --live;
  if (warp.live && warp.waiting == warp.live)
    completeCollective(running->number / kLanes);
  if (live && atBarrier == live)
    releaseBarrier();
}

void Executor::startBlock(uint32_t number) {
  const auto &g = launch.grid;
  blockNumber = number;
  table.block = {number % g[0], number / g[0] % g[1], number / g[0] / g[1]};
  fillGarbage(table.shared, launch.sharedBytes, order.garbage, uint64_t(number + 1) << 32);
  // A GPU puts shared memory behind what it needs for itself: kernels may rely on 128 bytes only.
  table.sharedBase = 128 * random.below(16);
  warpgroups.startBlock(table.shared, launch.sharedBytes, table.sharedBase, launch.threads,
                        Warpgroups::When(random.below(3)));
  for (NamedBarrier &barrier : namedBarriers)
    barrier.waiting.clear();
  live = launch.threads;
  atBarrier = 0;
  votes = 0;
  // Some mistakes show only if warps interleave, others only if one warp runs ahead of the rest, so
  // each block does one of the two at random.
  byPriority = random.below(2);
  warps.resize(launch.threads / kLanes);
  std::vector<std::pair<uint32_t, uint32_t>> ranked; // rank, warp
  for (uint32_t i = 0; i < warps.size(); ++i) {
    warps[i].live = kFullMask;
    warps[i].waiting = 0;
    ranked.emplace_back(byPriority ? kFullMask - random.below(1u << 31) : i, i);
  }
  std::sort(ranked.begin(), ranked.end());
  for (uint32_t place = 0; place < ranked.size(); ++place) {
    warpAtPlace[place] = uint8_t(ranked[place].second);
    placeOfWarp[ranked[place].second] = uint8_t(place);
    readyLanes[place] = kFullMask;
  }
  readyPlaces = kFullMask >> (kLanes - ranked.size());
  while (threads.size() < launch.threads) {
    threads.push_back(std::make_unique<Thread>());
    threads.back()->stack.reserve(kStackBytes);
  }
  for (uint32_t i = 0; i < launch.threads; ++i) {
    Thread &t = *threads[i];
    forgetFrames(t.stack);
    t.context = make_fcontext(t.stack.end(), t.stack.bytes, enterThread);
    t.index = {i, 0, 0};
    t.number = i;
    t.state = State::Ready;
    t.place = {"", 0};
    t.instruction = nullptr;
    t.copies.clear();
    t.group = 0;
    t.executions.clear();
  }
}

Thread *Executor::pick() {
  if (!readyPlaces)
    return nullptr;
  const uint32_t place =
      byPriority ? uint32_t(std::countr_zero(readyPlaces)) : random.bitOf(readyPlaces);
  const uint32_t lane = random.bitOf(readyLanes[place]);
  unready(place, lane);
  return threads[warpAtPlace[place] * kLanes + lane].get();
}

// Runs the block's threads until all have returned, one fails, or none can go on.
void Executor::runBlock() {
  Thread *first = pick();
  enter(*first, scheduler);
  running = nullptr;
  if (live && failure.empty())
    failure = stuckText();
}

constexpr size_t kCanary = 128;
constexpr unsigned char kCanaryByte = 0xc5;

// Checks that the bytes between shared memory and its guard pages are unchanged.
void Executor::checkCanaries() {
  auto *last = reinterpret_cast<unsigned char *>(shared.end());
  for (auto *p = reinterpret_cast<unsigned char *>(shared.start); p < last; ++p) {
    if (p == table.shared)
      p += launch.sharedBytes;
    if (p == last || *p == kCanaryByte)
      continue;
    failure = fmt::format("out of bounds: {} wrote to byte {} of its {} bytes of shared memory",
                          blockText(), p - table.shared, launch.sharedBytes);
    return;
  }
}

LaunchResult Executor::run(const Launch &wanted, Memory &launched, const Order &orders) {
  launch = wanted;
  memory = &launched;
  order = orders;
  atomics = false;
  failure.clear();
  random.state = mix(order.threads);
  const auto &g = launch.grid;
  if (launch.threads == 0 || launch.threads % kLanes || launch.threads > 1024)
    return {fmt::format("a block of {} threads: it takes 32 to 1024, whole warps", launch.threads),
            false};
  if (g[0] == 0 || g[1] == 0 || g[1] > 65535 || g[2] == 0 || g[2] > 65535)
    return {fmt::format("a grid of {} x {} x {} blocks cannot be launched", g[0], g[1], g[2]),
            false};
  table.gridSize = {g[0], g[1], g[2]};
  table.blockSize = {launch.threads, 1, 1};
  emergency.reserve(256 << 10);
  const size_t rounded = (launch.sharedBytes + 127) / 128 * 128;
  shared = GuardedMemory();
  shared.reserve(rounded + kCanary);
  table.shared = reinterpret_cast<unsigned char *>(shared.end() - rounded);
  std::memset(shared.start, kCanaryByte, shared.bytes);
  arguments.resize(memory->traffic().size());
  for (size_t i = 0; i < arguments.size(); ++i)
    arguments[i] = memory->tagged(i);

  std::vector<uint32_t> blocks(size_t(g[0]) * g[1] * g[2]);
  std::iota(blocks.begin(), blocks.end(), 0u);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(order.blocks));
  {
    CatchFaults faults;
    for (uint32_t block : blocks) {
      startBlock(block);
      runBlock();
      if (failure.empty())
        checkCanaries();
      if (!failure.empty())
        break;
      memory->endBlock();
    }
  }
  munmap(shared.start - kPage, shared.bytes + 2 * kPage);
  shared = GuardedMemory();
  if (failure.empty())
    failure = memory->endLaunch();
  return {failure, atomics};
}

// The functions of the Machine table. The return address of a call identifies the kernel's
// instruction that made the call.
#define LMC_CALLER __builtin_return_address(0)
void loadEntry(const void *from, void *to, int bytes) {
  executor().load(from, to, bytes, LMC_CALLER);
}
void storeEntry(void *to, const void *from, int bytes) {
  executor().store(to, from, bytes, LMC_CALLER);
}
void *atomicEntry(void *at, int bytes) { return executor().atomic(at, bytes, LMC_CALLER); }
void copyAsyncEntry(void *to, const void *from, bool valid) {
  executor().copyAsync(to, from, valid, LMC_CALLER);
}
void copyAsyncCommitEntry() { executor().copyAsyncCommit(); }
void copyAsyncWaitEntry(int pending) { executor().copyAsyncWait(pending); }
int barrierEntry(BlockVote vote, int predicate, Place place) {
  return executor().barrier(vote, predicate, place, LMC_CALLER);
}
unsigned long long collectiveEntry(Collective kind, unsigned mask, unsigned long long value,
                                   unsigned long long operand, bool transposed, Place place) {
  return executor().collective(kind, mask, value, operand, transposed, place, LMC_CALLER);
}
void namedBarrierEntry(int id, int threads, Place place) {
  executor().namedBarrier(id, threads, place, LMC_CALLER);
}
void storeForProductsEntry(unsigned address, const void *from, int bytes) {
  executor().storeForProducts(address, from, bytes, LMC_CALLER);
}
void seenByProductsEntry() { executor().seenByProducts(); }
void groupBeginEntry() { executor().groupBegin(LMC_CALLER); }
void groupAddEntry(const GroupProduct *product, Place place) {
  executor().groupAdd(*product, place, LMC_CALLER);
}
void groupCommitEntry() { executor().groupCommit(LMC_CALLER); }
void groupWaitEntry(int pending, Place place) { executor().groupWait(pending, place, LMC_CALLER); }
void trapEntry() { executor().fail("__trap", LMC_CALLER); }
#undef LMC_CALLER

Executor::Executor() {
  table.load = loadEntry;
  table.store = storeEntry;
  table.atomic = atomicEntry;
  table.copyAsync = copyAsyncEntry;
  table.copyAsyncCommit = copyAsyncCommitEntry;
  table.copyAsyncWait = copyAsyncWaitEntry;
  table.barrier = barrierEntry;
  table.collective = collectiveEntry;
  table.namedBarrier = namedBarrierEntry;
  table.storeForProducts = storeForProductsEntry;
  table.seenByProducts = seenByProductsEntry;
  table.groupBegin = groupBeginEntry;
  table.groupAdd = groupAddEntry;
  table.groupCommit = groupCommitEntry;
  table.groupWait = groupWaitEntry;
  table.trap = trapEntry;
}

} // namespace

Machine *machine() { return &executor().table; }

LaunchResult execute(const Launch &launch, Memory &memory, const Order &order) {
  return executor().run(launch, memory, order);
}

void fillGarbage(void *to, uint64_t bytes, uint64_t seed, uint64_t salt) {
  auto *p = static_cast<unsigned char *>(to);
  const uint64_t mixedSeed = mix(seed);
  // Four words of 8 bytes come from one mixed number, and there is no branch, because this takes
  // much of the time of kernels with much shared memory.
  constexpr uint64_t kWord = 8, kBlock = 4 * kWord;
  constexpr uint64_t kOdd[] = {1, 0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu};
  auto blockAt = [&](uint64_t at, unsigned char *block) {
    const uint64_t mixed = mix(mixedSeed ^ (salt + at) * 0xd6e8feb86659fd93u);
    for (uint64_t i = 0; i < 4; ++i) {
      const uint64_t word = mixed * kOdd[i];
      // About every fourth word contains NaN, in f32 and in bf16.
      const uint64_t isNaN = word >> 62 == 0 ? ~uint64_t(0) : 0;
      const uint64_t garbage = word | (isNaN & 0x7fc07fc07fc07fc0u);
      std::memcpy(block + i * kWord, &garbage, kWord);
    }
  };
  uint64_t at = 0;
  for (; at + kBlock <= bytes; at += kBlock)
    blockAt(at, p + at);
  if (at < bytes) {
    unsigned char block[kBlock];
    blockAt(at, block);
    std::memcpy(p + at, block, bytes - at);
  }
}

} // namespace lmc::simt
