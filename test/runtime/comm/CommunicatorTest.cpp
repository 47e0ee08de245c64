// What every implementation of Communicator and World promises (runtime/comm/Communicator.h and
// World.h). Ranks are threads of this process.
#include "ground/plan/FloatConvert.h"
#include "runtime/comm/GlooWorld.h"
#include "runtime/comm/LocalWorld.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

using namespace lmc;
using plan::Axis;
using plan::DType;

namespace {

struct Implementation {
  const char *name;
  // Calls `body` on a thread of its own for each rank. The thread's world lives until body returns.
  void (*onRanks)(int ranks, int shardRanks, const std::function<void(World &)> &body);
};

void PrintTo(const Implementation &implementation, std::ostream *to) { *to << implementation.name; }

void onLocalRanks(int ranks, int shardRanks, const std::function<void(World &)> &body) {
  std::vector<std::jthread> threads;
  for (std::unique_ptr<World> &world : makeLocalWorlds(ranks, shardRanks))
    threads.emplace_back([&body, world = std::move(world)] { body(*world); });
}

void onGlooRanks(int ranks, int shardRanks, const std::function<void(World &)> &body) {
  const Result<int> port = freePort();
  ASSERT_TRUE(port) << port.error().message;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      RendezvousOptions options;
      options.rank = rank;
      options.size = ranks;
      options.address = "127.0.0.1";
      options.port = *port;
      options.onStuck = [](const Error &failure) { ADD_FAILURE() << failure.message; };
      auto world = joinGlooWorld(options);
      ASSERT_TRUE(world) << world.error().message;
      ASSERT_TRUE((*world)->divide(shardRanks, ranks));
      body(**world);
    });
}

const Implementation kImplementations[] = {{"Local", onLocalRanks}, {"Gloo", onGlooRanks}};

// Elements whose sum depends on the order of the additions: their exponents differ.
double draw(int rank, uint64_t i) {
  uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(rank) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 31) * 0x94d049bb133111eb;
  return static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63 *
         static_cast<double>(1 << (bits >> 8 & 15));
}

// Rounds to the nearest bf16, ties to even. `x` is finite.
uint16_t toBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float fromBf16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

template <typename T> struct Element {
  using Sum = T;
  static T of(double x) { return static_cast<T>(x); }
  static T wide(T x) { return x; }
};
template <> struct Element<uint16_t> { // bf16
  using Sum = float;
  static uint16_t of(double x) { return toBf16(static_cast<float>(x)); }
  static float wide(uint16_t x) { return fromBf16(x); }
};

template <> struct Element<int16_t> { // f16
  using Sum = float;
  static int16_t of(double x) {
    return static_cast<int16_t>(toFloat16(static_cast<float>(x)));
  }
  static float wide(int16_t x) { return fromFloat16(static_cast<uint16_t>(x)); }
};

template <typename T> std::vector<T> drawn(int rank, uint64_t elements) {
  std::vector<T> x(elements);
  for (uint64_t i = 0; i < elements; ++i)
    x[i] = Element<T>::of(draw(rank, i));
  return x;
}

// The sum over `members`, in their order.
template <typename T> std::vector<T> summed(const std::vector<int> &members, uint64_t elements) {
  std::vector<T> d(elements);
  for (uint64_t i = 0; i < elements; ++i) {
    auto x = [&](int rank) { return Element<T>::wide(Element<T>::of(draw(rank, i))); };
    typename Element<T>::Sum total = x(members[0]);
    for (size_t m = 1; m < members.size(); ++m)
      total += x(members[m]);
    d[i] = Element<T>::of(total);
  }
  return d;
}

template <typename T> bool sameBits(const T *a, const T *b, uint64_t elements) {
  return elements == 0 || std::memcmp(a, b, elements * sizeof(T)) == 0;
}

template <typename F> void forEachDType(F body) {
  body(float(), DType::F32);
  body(double(), DType::F64);
  body(uint16_t(), DType::BF16);
  body(int16_t(), DType::F16);
}

// Elements per rank. The last one makes tensors that need several of GlooWorld's chunks.
constexpr uint64_t kSizes[] = {0, 1, 3, 257, (1 << 20) + 3};

std::string messageOf(const Result<void> &result) { return result ? "" : result.error().message; }

// `members` are the ranks of the group, by position.
void checkGroup(Communicator &group, const std::vector<int> &members, uint64_t elements) {
  const int size = static_cast<int>(members.size());
  ASSERT_EQ(group.size(), size);
  const int here = group.position(), rank = members[static_cast<size_t>(here)];
  forEachDType([&](auto zero, DType dtype) {
    using T = decltype(zero);
    SCOPED_TRACE(std::string(plan::EnumNameDType(dtype)) + " " + std::to_string(elements));
    const uint64_t all = elements * members.size(), own = elements * static_cast<uint64_t>(here);
    std::vector<T> gathered;
    for (int member : members) {
      const std::vector<T> x = drawn<T>(member, elements);
      gathered.insert(gathered.end(), x.begin(), x.end());
    }
    const std::vector<T> sum = summed<T>(members, all), x = drawn<T>(rank, all);
    std::vector<T> d(all);
    ASSERT_EQ(messageOf(group.allGather(x.data(), d.data(), elements * sizeof(T))), "");
    EXPECT_TRUE(sameBits(d.data(), gathered.data(), all)) << "allGather";

    std::fill(d.begin(), d.end(), T{});
    std::copy_n(x.begin(), elements, d.begin() + static_cast<ptrdiff_t>(own));
    ASSERT_EQ(messageOf(group.allGather(d.data() + own, d.data(), elements * sizeof(T))), "");
    EXPECT_TRUE(sameBits(d.data(), gathered.data(), all)) << "allGather in place";

    std::vector<T> piece(elements);
    ASSERT_EQ(messageOf(group.reduceScatter(x.data(), piece.data(), elements, dtype)), "");
    EXPECT_TRUE(sameBits(piece.data(), sum.data() + own, elements)) << "reduceScatter";
    EXPECT_TRUE(sameBits(x.data(), drawn<T>(rank, all).data(), all)) << "x was changed";

    // A size that `size` does not divide.
    const uint64_t uneven = all == 0 ? 0 : all - 1;
    d = x;
    ASSERT_EQ(messageOf(group.allReduce(d.data(), uneven, dtype)), "");
    EXPECT_TRUE(sameBits(d.data(), sum.data(), uneven)) << "allReduce";
    EXPECT_TRUE(uneven == all || sameBits(&d[uneven], &x[uneven], 1)) << "past the end";

    for (int root : {0, size - 1}) {
      d = x;
      ASSERT_EQ(messageOf(group.broadcast(d.data(), all * sizeof(T), root)), "");
      const std::vector<T> expected = drawn<T>(members[static_cast<size_t>(root)], all);
      EXPECT_TRUE(sameBits(d.data(), expected.data(), all)) << "broadcast from " << root;
    }
  });
}

class Communicators : public testing::TestWithParam<Implementation> {};

TEST_P(Communicators, EveryFunctionGivesTheBitsOfTheReference) {
  for (int ranks : {1, 2, 3, 4}) {
    std::vector<int> members(static_cast<size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    for (uint64_t elements : kSizes)
      if (elements < 1000 || ranks == 4)
        GetParam().onRanks(ranks, ranks, [&](World &world) {
          EXPECT_EQ(world.size(), ranks);
          EXPECT_EQ(world.all().position(), world.rank());
          checkGroup(world.all(), members, elements);
        });
  }
}

// Mesh: replicate 2 x shard 2.
TEST_P(Communicators, GroupsOfTheAxesHoldTheirRanks) {
  GetParam().onRanks(4, 2, [&](World &world) {
    const int rank = world.rank(), node = rank / 2 * 2, slot = rank % 2;
    EXPECT_EQ(world.along(Axis::Shard).position(), slot);
    EXPECT_EQ(world.along(Axis::Replicate).position(), rank / 2);
    for (uint64_t elements : {1, 300}) {
      checkGroup(world.along(Axis::Shard), {node, node + 1}, elements);
      checkGroup(world.along(Axis::Replicate), {slot, slot + 2}, elements);
      checkGroup(world.all(), {0, 1, 2, 3}, elements);
    }
  });
}

TEST_P(Communicators, TheGroupOfAllWorksBesideAGroupOfAnAxis) {
  GetParam().onRanks(4, 2, [&](World &world) {
    std::jthread host([&] {
      for (uint64_t elements = 1; elements < 40; ++elements)
        checkGroup(world.all(), {0, 1, 2, 3}, elements);
    });
    const int node = world.rank() / 2 * 2;
    for (uint64_t elements = 40; elements > 0; --elements)
      checkGroup(world.along(Axis::Shard), {node, node + 1}, elements * 100);
  });
}

// Pairs exchange different numbers of messages between calls of the group.
TEST_P(Communicators, TwoRanksExchangeWhatTheOthersDoNotSee) {
  GetParam().onRanks(4, 2, [&](World &world) {
    const int rank = world.rank();
    for (int round = 0; round < 3; ++round) {
      const int other = rank ^ (1 + round % 3);
      const int messages = 1 + (rank + other) % 3;
      for (int message = 0; message < messages; ++message)
        for (size_t elements : {size_t(1), size_t(100000)}) {
          const std::vector<double> x = drawn<double>(rank + message, elements);
          std::vector<double> d(elements);
          ASSERT_EQ(messageOf(world.exchange(other, x.data(), d.data(), elements * sizeof(double))),
                    "");
          EXPECT_EQ(d, drawn<double>(other + message, elements));
        }
      checkGroup(world.all(), {0, 1, 2, 3}, 3);
    }
  });
}

TEST_P(Communicators, AnExchangeWithARankThatHasLeftNamesIt) {
  GetParam().onRanks(2, 1, [&](World &world) {
    double x = 1, d = 0;
    ASSERT_EQ(messageOf(world.exchange(1 - world.rank(), &x, &d, sizeof x)), "");
    if (world.rank() == 1)
      return;
    const Result<void> result = world.exchange(1, &x, &d, sizeof x);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("rank 1"), std::string::npos) << result.error().message;
  });
}

// No rank returns from the barrier before the last one has called it.
TEST_P(Communicators, ABarrierWaitsForAllRanks) {
  std::atomic<int> arrived = 0;
  GetParam().onRanks(3, 1, [&](World &world) {
    for (int round = 1; round <= 20; ++round) {
      if (world.rank() == round % 3)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++arrived;
      ASSERT_EQ(messageOf(world.all().barrier()), "");
      EXPECT_GE(arrived, 3 * round);
      ASSERT_EQ(messageOf(world.all().barrier()), "");
    }
  });
}

TEST_P(Communicators, ARankThatLeavesIsNamedOnAllOthers) {
  GetParam().onRanks(3, 3, [&](World &world) {
    std::vector<float> x(3000, 1), d(1000);
    for (int round = 0; round < 5; ++round)
      ASSERT_EQ(
          messageOf(
              world.along(Axis::Shard).reduceScatter(x.data(), d.data(), d.size(), DType::F32)),
          "");
    if (world.rank() == 1)
      return;
    const Result<void> result =
        world.along(Axis::Shard).reduceScatter(x.data(), d.data(), d.size(), DType::F32);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("rank 1"), std::string::npos) << result.error().message;
    EXPECT_EQ(result.error().code, ExitCode::RankFailed);
  });
}

// The last call of a rank that leaves in order succeeds on all ranks.
TEST_P(Communicators, ARankMayLeaveWhenItsLastCallHasReturned) {
  for (int round = 0; round < 5; ++round)
    GetParam().onRanks(3, 3, [&](World &world) {
      checkGroup(world.along(Axis::Shard), {0, 1, 2}, 1000);
      if (world.rank() == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      checkGroup(world.along(Axis::Shard), {0, 1, 2}, 1);
    });
}

// Otherwise Gloo's thread spins while another thread holds the lock of a connection
// (GlooWorld.cpp).
TEST(GlooWorld, WaitsForConnectionsByAFunctionOfThisProgram) {
  Dl_info program{}, found{};
  ASSERT_TRUE(dladdr(reinterpret_cast<void *>(&joinGlooWorld), &program));
  ASSERT_TRUE(dladdr(dlsym(RTLD_DEFAULT, "epoll_wait"), &found));
  EXPECT_STREQ(found.dli_fname, program.dli_fname);
}

INSTANTIATE_TEST_SUITE_P(Worlds, Communicators, testing::ValuesIn(kImplementations),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
