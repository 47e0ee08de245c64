#include "runtime/comm/GlooWorld.h"

#include "ground/plan/PlanFile.h"
#include "ground/support/File.h"
#include "ground/support/Signals.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/comm/NodeCommunicator.h"
#include "runtime/comm/RankOrderSum.h"
#include "runtime/comm/rendezvous/Socket.h"

#include <fmt/format.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sys/epoll.h>
#include <thread>

namespace lmc {

using gloo::transport::UnboundBuffer;
using plan::Axis;
using plan::DType;

namespace {

// The time limit of Gloo's waits. The control connection finds a lost rank much earlier.
constexpr std::chrono::hours kNoLimit{24 * 365};

// Limits in bytes for sums. A rank receives each other rank's part of a sum in chunks. All but the
// last chunk have at least kLeastChunk bytes. Received chunks that are not added yet take at most
// kScratch bytes, or two chunks of kLeastChunk bytes from each other rank if these take more.
constexpr uint64_t kLeastChunk = 64 << 10, kScratch = 16 << 20;

// The waits for messages in all groups of a world. Gloo ends only some waits when a connection is
// closed. So this class ends all waits for a rank that is lost.
class Waits {
public:
  // Adds a wait for `rank`. Returns false if the rank is lost.
  bool add(UnboundBuffer *buffer, int rank) {
    std::lock_guard lock(mutex);
    buffers.emplace(buffer, rank);
    return !allLost && !lost.contains(rank);
  }
  void remove(UnboundBuffer *buffer) {
    std::lock_guard lock(mutex);
    buffers.erase(buffer);
  }
  // Ends the current and all later waits for `rank`, or for all ranks if `rank` is empty.
  void end(std::optional<int> rank) {
    std::lock_guard lock(mutex);
    if (rank)
      lost.insert(*rank);
    else
      allLost = true;
    for (const auto &[buffer, other] : buffers)
      if (!rank || other == *rank) {
        buffer->abortWaitRecv();
        buffer->abortWaitSend();
      }
  }

private:
  std::mutex mutex;
  std::map<UnboundBuffer *, int> buffers; // each wait, with its rank
  std::set<int> lost;
  bool allLost = false;
};

// Lets Gloo use the store of the control connection, Rendezvous::set() and get().
class Store final : public gloo::rendezvous::Store {
public:
  explicit Store(Rendezvous &rendezvous) : rendezvous(rendezvous) {}

  void set(const std::string &key, const std::vector<char> &data) override {
    if (auto result = rendezvous.set(key, data); !result)
      throw std::runtime_error(result.error().message);
  }
  std::vector<char> get(const std::string &key) override {
    auto value = rendezvous.get(key);
    if (!value)
      throw std::runtime_error(value.error().message);
    return *value;
  }
  void wait(const std::vector<std::string> &keys) override {
    for (const std::string &key : keys)
      get(key);
  }
  void wait(const std::vector<std::string> &keys, const Milliseconds &) override { wait(keys); }

private:
  Rendezvous &rendezvous;
};

class GlooCommunicator final : public Communicator {
  // Each message carries a number. This bit is set only in messages of World::exchange().
  static constexpr uint64_t kExchange = uint64_t(1) << 63;

public:
  // This rank is at position `here` of `ranks`. `context` is null if the group has one rank.
  GlooCommunicator(std::vector<int> ranks, int here, std::shared_ptr<gloo::Context> context,
                   Waits &waits, Rendezvous &rendezvous)
      : ranks(std::move(ranks)), here(here), context(std::move(context)), waits(waits),
        rendezvous(rendezvous), exchanges(this->ranks.size()) {}

  int position() const override { return here; }
  int size() const override { return static_cast<int>(ranks.size()); }

  Result<void> allGather(const void *x, void *d, uint64_t bytes) override {
    char *own = static_cast<char *>(d) + static_cast<uint64_t>(here) * bytes;
    if (own != x && bytes > 0)
      std::memcpy(own, x, bytes);
    return gatherPieces(static_cast<char *>(d), bytes * ranks.size(), 1);
  }

  Result<void> reduceScatter(const void *x, void *d, uint64_t elements, DType dtype) override {
    return reducePieces(static_cast<const char *>(x), static_cast<char *>(d),
                        elements * ranks.size(), dtype);
  }

  Result<void> allReduce(void *d, uint64_t elements, DType dtype) override {
    char *data = static_cast<char *>(d);
    const uint64_t width = byteWidth(dtype);
    LMC_TRY(reducePieces(data, data + firstOf(here, elements) * width, elements, dtype));
    return gatherPieces(data, elements, width);
  }

  Result<void> broadcast(void *data, uint64_t bytes, int root) override {
    Messages messages(*this);
    if (here == root)
      for (int other = 1; other < size(); ++other)
        LMC_TRY(messages.send(after(other), data, bytes));
    else
      LMC_TRY(messages.receive(root, data, bytes));
    return messages.wait();
  }

  // Implements the dissemination barrier of Hensgen, Finkel, Manber 1988, "Two algorithms for
  // barrier synchronization". In round k = 0, 1, ..., a rank receives from the rank 2^k positions
  // before it.
  Result<void> barrier() override {
    for (int distance = 1; distance < size(); distance *= 2) {
      char sent = 0, received = 0;
      Messages messages(*this);
      LMC_TRY(messages.receive(after(size() - distance), &received, 1));
      LMC_TRY(messages.send(after(distance), &sent, 1));
      LMC_TRY(messages.wait());
    }
    return {};
  }

  // Implements World::exchange() with the rank at position `other`.
  Result<void> exchange(int other, const void *x, void *d, uint64_t bytes) {
    Messages messages(*this, kExchange | exchanges[static_cast<size_t>(other)]++);
    LMC_TRY(messages.receive(other, d, bytes));
    LMC_TRY(messages.send(other, x, bytes));
    return messages.wait();
  }

private:
  // Messages that are sent and received at the same time. All of them carry the number `slot`. All
  // ranks make these objects in the same order, so an object has the same number on all ranks.
  class Messages {
  public:
    explicit Messages(GlooCommunicator &group) : Messages(group, group.slots++) {}
    Messages(GlooCommunicator &group, uint64_t slot) : group(&group), slot(slot) {}
    Messages(Messages &&) = default;
    Messages &operator=(Messages &&) = default;

    Result<void> send(int to, const void *data, uint64_t bytes) {
      return start(to, const_cast<void *>(data), bytes, /*sends=*/true);
    }
    Result<void> receive(int from, void *data, uint64_t bytes) {
      return start(from, data, bytes, /*sends=*/false);
    }

    // Waits until all messages are sent and received.
    Result<void> wait() {
      const Progress::Wait waiting(&group->rendezvous.progress());
      for (const Message &message : messages)
        LMC_TRY(group->guarded(message.other, [&] {
          return message.sends ? message.buffer->waitSend(kNoLimit)
                               : message.buffer->waitRecv(kNoLimit);
        }));
      messages.clear();
      return {};
    }

  private:
    struct Forget {
      Waits *waits;
      void operator()(UnboundBuffer *buffer) const {
        waits->remove(buffer);
        delete buffer;
      }
    };
    struct Message {
      int other; // position of the other rank
      bool sends;
      std::unique_ptr<UnboundBuffer, Forget> buffer;
    };

    Result<void> start(int other, void *data, uint64_t bytes, bool sends) {
      if (bytes == 0)
        return {};
      return group->guarded(other, [&] {
        UnboundBuffer *buffer = group->context->createUnboundBuffer(data, bytes).release();
        const bool goesOn = group->waits.add(buffer, group->ranks[static_cast<size_t>(other)]);
        messages.push_back({other, sends, {buffer, Forget{&group->waits}}});
        if (goesOn)
          sends ? buffer->send(other, slot) : buffer->recv(other, slot);
        return goesOn;
      });
    }

    GlooCommunicator *group;
    uint64_t slot;
    std::vector<Message> messages;
  };

  // Calls `act`. If it fails or throws, returns an Error about the rank at position `other`.
  template <typename F> Result<void> guarded(int other, F act) {
    try {
      if (act())
        return {};
    } catch (const std::bad_alloc &) {
      return Error{"out of memory", ExitCode::Failure};
    } catch (const std::exception &) { // what() is not used: it names addresses, not ranks
    }
    return rendezvous.lossOf(ranks[static_cast<size_t>(other)]);
  }

  // Returns the position that is `distance` after this rank's position, cyclically.
  int after(int distance) const { return (here + distance) % size(); }

  // Divides `elements` elements into one piece per rank. Returns the index at which piece i begins.
  uint64_t firstOf(int i, uint64_t elements) const {
    return elements * static_cast<uint64_t>(i) / ranks.size();
  }
  uint64_t countOf(int i, uint64_t elements) const {
    return firstOf(i + 1, elements) - firstOf(i, elements);
  }

  // Sends this rank's piece of d to all other ranks, and receives their pieces.
  Result<void> gatherPieces(char *d, uint64_t elements, uint64_t width) {
    Messages messages(*this);
    auto piece = [&](int i) { return d + firstOf(i, elements) * width; };
    for (int distance = 1; distance < size(); ++distance) {
      const int from = after(size() - distance);
      LMC_TRY(messages.receive(from, piece(from), countOf(from, elements) * width));
      LMC_TRY(messages.send(after(distance), piece(here), countOf(here, elements) * width));
    }
    return messages.wait();
  }

  // Computes piece `here`, this rank's piece, of the sum of all ranks' x, and stores it in d. d may
  // be piece `here` of x. Chunks of the piece are added while the next chunks arrive.
  Result<void> reducePieces(const char *x, char *d, uint64_t elements, DType dtype) {
    const uint64_t width = byteWidth(dtype), others = ranks.size() - 1;
    const uint64_t most = (elements + others) / ranks.size(); // elements of the largest piece
    if (others == 0) {
      if (d != x)
        std::memcpy(d, x, elements * width);
      return {};
    }
    const uint64_t chunk = std::min(most, std::max(kLeastChunk, kScratch / (2 * others)) / width);
    if (chunk == 0)
      return {};
    scratch.resize(std::max(scratch.size(), 2 * others * chunk * width));

    // Returns the memory into which chunk k of the rank at position `from` is received.
    auto place = [&](uint64_t k, int from) {
      const uint64_t slot = k % 2 * others + static_cast<uint64_t>(from < here ? from : from - 1);
      return scratch.data() + slot * chunk * width;
    };
    auto chunkOf = [&](int i, uint64_t k) {
      const uint64_t count = countOf(i, elements);
      return std::min(chunk, count - std::min(count, k * chunk));
    };
    auto start = [&](uint64_t k) -> Result<Messages> {
      Messages messages(*this);
      for (int distance = 1; distance < size(); ++distance) {
        const int from = after(size() - distance), to = after(distance);
        LMC_TRY(messages.receive(from, place(k, from), chunkOf(here, k) * width));
        LMC_TRY(messages.send(to, x + (firstOf(to, elements) + k * chunk) * width,
                              chunkOf(to, k) * width));
      }
      return messages;
    };

    const char *own = x + firstOf(here, elements) * width;
    LMC_LET(next, start(0));
    for (uint64_t k = 0; k * chunk < most; ++k) {
      Messages messages = std::move(*next);
      if ((k + 1) * chunk < most) {
        next = start(k + 1);
        LMC_TRY(next);
      }
      LMC_TRY(messages.wait());
      std::vector<const void *> xs;
      for (int i = 0; i < size(); ++i)
        xs.push_back(i == here ? own + k * chunk * width : place(k, i));
      sumInRankOrder(xs.data(), size(), chunkOf(here, k), dtype, d + k * chunk * width);
    }
    return {};
  }

  const std::vector<int> ranks; // indexed by position
  const int here;
  const std::shared_ptr<gloo::Context> context;
  Waits &waits;
  Rendezvous &rendezvous;
  std::vector<char> scratch;
  uint64_t slots = 0;
  std::vector<uint64_t> exchanges; // the number of exchange() calls with the rank at each position
};

class GlooWorld final : public World {
public:
  static Result<std::unique_ptr<World>> join(const RendezvousOptions &options) {
    LMC_LET(rendezvous, Rendezvous::join(options));
    std::unique_ptr<GlooWorld> world(new GlooWorld(options, std::move(*rendezvous)));
    LMC_TRY(world->checkHosts());
    LMC_TRY(world->connect());
    return std::unique_ptr<World>(std::move(world));
  }

  int rank() const override { return index; }
  int size() const override { return ranks; }
  Communicator &all() override { return *everyone; }
  Communicator &background() override { return *behind; }
  Result<void> divide(int shardRanks, int ranksPerNode, int expertRanks) override {
    ++divisions; // groups' names contain this number, so no two calls use the same names
    return connected([&] {
      for (Axis axis : plan::EnumValuesAxis())
        if (axis != Axis::ExpertShard || expertRanks > 1)
          axes[static_cast<size_t>(axis)] = makeAxis(
              nameOf(axis), axisGroups(axis, index, ranks, shardRanks, ranksPerNode, expertRanks));
    });
  }
  Communicator &along(Axis axis) override { return *axes[static_cast<size_t>(axis)]; }
  Result<void> exchange(int other, const void *x, void *d, uint64_t bytes) override {
    return everyone->exchange(other, x, d, bytes);
  }
  Progress &progress() override { return rendezvous->progress(); }
  std::vector<Progress::State> progressOfRanks() const override {
    return rendezvous->progressOfRanks();
  }
  std::string hostOf(int rank) const override {
    return rendezvous->hosts()[static_cast<size_t>(rank)];
  }
  std::optional<Error> loss() const override { return rendezvous->anyLoss(); }

private:
  GlooWorld(const RendezvousOptions &options, std::unique_ptr<Rendezvous> joined)
      : index(options.rank), ranks(options.size), limit(options.join),
        rendezvous(std::move(joined)) {
    rendezvous->onLoss([this](std::optional<int> rank) { waits.end(rank); });
  }

  // Error: the ranks are not numbered host by host.
  Result<void> checkHosts() const {
    const std::vector<std::string> &hosts = rendezvous->hosts();
    std::set<std::string> seen;
    for (size_t i = 0; i < hosts.size(); ++i)
      if ((i == 0 || hosts[i] != hosts[i - 1]) && !seen.insert(hosts[i]).second)
        return userError("ranks {} and {} are on host {}, and rank {} on host {}: number the ranks "
                         "host by host (Slurm: srun --distribution=block)",
                         std::ranges::find(hosts, hosts[i]) - hosts.begin(), i, hosts[i], i - 1,
                         hosts[i - 1]);
    return {};
  }

  Result<void> connect() {
    // Without this, SIGPIPE would end this process if Gloo wrote to a rank that has died.
    ignoreFailedWrites();
    return connected([&] {
      gloo::transport::tcp::attr place;
      place.hostname = rendezvous->ownAddress();
      device = gloo::transport::tcp::CreateDevice(place);
      std::vector<int> members(static_cast<size_t>(ranks));
      std::iota(members.begin(), members.end(), 0);
      everyone = makeGroup("all", members);
      behind = makeGroup("background", std::move(members));
    });
  }

  // Calls `open`, which opens this rank's connections, and waits until all ranks have done this: a
  // rank that goes on earlier could close connections that others still need.
  template <typename Open> Result<void> connected(Open open) try {
    open();
    return everyone->barrier();
  } catch (const std::exception &e) {
    if (const std::optional<Error> loss = rendezvous->anyLoss())
      return *loss;
    return Error{fmt::format("rank {} cannot open its data connections from {}: {}; check that the "
                             "address is reached by all ranks (--interface) and that no firewall "
                             "stands between them",
                             index, rendezvous->ownAddress(), e.what()),
                 ExitCode::RankFailed};
  }

  std::unique_ptr<Communicator> makeAxis(const std::string &axis, AxisGroups groups) {
    // Groups of one axis and kind have no rank in common, so the first rank makes a name unique.
    auto make = [&](const char *kind, std::vector<int> members) {
      const std::string name = fmt::format("{} {} {} {}", divisions, axis, kind, members.front());
      return makeGroup(name, std::move(members));
    };
    if (groups.onNode.empty())
      return make("", std::move(groups.all));
    auto onNode = make("on a node", std::move(groups.onNode));
    return std::make_unique<NodeCommunicator>(std::move(onNode),
                                              make("across nodes", std::move(groups.acrossNodes)));
  }

  std::unique_ptr<GlooCommunicator> makeGroup(const std::string &name, std::vector<int> members) {
    const int here = static_cast<int>(std::ranges::find(members, index) - members.begin());
    std::shared_ptr<gloo::rendezvous::Context> context;
    if (members.size() > 1) {
      Store store(*rendezvous);
      gloo::rendezvous::PrefixStore named(name, store);
      context = std::make_shared<gloo::rendezvous::Context>(here, static_cast<int>(members.size()));
      context->setTimeout(limit / 5); // Gloo waits for a connection 5 times this timeout
      context->connectFullMesh(named, device);
    }
    return std::make_unique<GlooCommunicator>(std::move(members), here, std::move(context), waits,
                                              *rendezvous);
  }

  const int index, ranks;
  int divisions = 0;
  const Milliseconds limit;
  Waits waits;
  std::shared_ptr<gloo::transport::Device> device;
  std::unique_ptr<GlooCommunicator> everyone, behind;
  std::array<std::unique_ptr<Communicator>, 4> axes; // indexed by plan::Axis
  std::unique_ptr<Rendezvous> rendezvous;            // destroyed first, as its threads use `waits`
};

} // namespace

Result<std::unique_ptr<World>> joinGlooWorld(const RendezvousOptions &options) {
  return GlooWorld::join(options);
}

StallLimits stallLimits(const LaunchOptions &options, StallLimits stall) {
  if (options.hangSeconds) {
    stall.seconds = static_cast<double>(*options.hangSeconds);
    stall.otherSeconds = std::max(stall.otherSeconds, stall.seconds);
  }
  if (options.slowSeconds)
    stall.otherSeconds = static_cast<double>(*options.slowSeconds);
  return stall;
}

Result<std::unique_ptr<World>> openWorld(const LaunchOptions &options,
                                         const RendezvousOptions &times) {
  LMC_LET(launch, findLaunch(options, std::getenv));
  if (launch->size == 1)
    return std::move(makeLocalWorlds(1, 1).front());
  RendezvousOptions rendezvous = times;
  rendezvous.rank = launch->rank;
  rendezvous.size = launch->size;
  rendezvous.address = launch->address;
  rendezvous.port = launch->port;
  rendezvous.interface = options.interface;
  if (!options.interface.empty()) {
    LMC_LET(interface, findInterface(options.interface));
    // Without "=", NCCL would use all interfaces whose names begin with this name.
    ::setenv("NCCL_SOCKET_IFNAME", ("=" + interface->name).c_str(), /*overwrite=*/0);
  }
  if (options.joinSeconds)
    rendezvous.join = std::chrono::seconds(*options.joinSeconds);
  rendezvous.stall = stallLimits(options, rendezvous.stall);
  if (options.hangSeconds)
    rendezvous.silence =
        std::max<Milliseconds>(rendezvous.silence, std::chrono::seconds(*options.hangSeconds));
  if (!options.secretFile.empty()) {
    LMC_LET(secret, readTextFile(options.secretFile, 4096));
    rendezvous.secret = secret->substr(0, secret->find_last_not_of(" \r\n") + 1);
    if (rendezvous.secret.empty())
      return userError("--secret-file={}: the file is empty", options.secretFile);
  }
  return joinGlooWorld(rendezvous);
}

} // namespace lmc

// Replaces libc's epoll_wait() for Gloo, which is a shared library. This function also sleeps 20 us
// if Gloo calls it again and again without doing anything.
//
// Gloo does so if epoll reports a connection whose lock another thread holds. If that other thread
// needs the core, Gloo's calls keep the core busy for milliseconds. Two ranks on two shared cores
// spent 90% of their processor time in such calls.
extern "C" int epoll_wait(int epoll, epoll_event *events, int most, int timeout) {
  using Clock = std::chrono::steady_clock;
  // If the next call comes within kNothing after a return, the caller read and wrote nothing.
  constexpr std::chrono::microseconds kNothing{2}, kSleep{20};
  constexpr int kPatience = 16; // the number of such calls in a row before a sleep
  thread_local Clock::time_point returned;
  thread_local int nothing = 0;

  nothing = Clock::now() - returned < kNothing ? nothing + 1 : 0;
  if (nothing > kPatience)
    std::this_thread::sleep_for(kSleep);
  const int count = epoll_pwait(epoll, events, most, timeout, nullptr);
  returned = Clock::now();
  return count;
}
