#include "runtime/comm/rendezvous/Rendezvous.h"

#include "runtime/comm/rendezvous/RendezvousHub.h"
#include "runtime/comm/rendezvous/RendezvousProtocol.h"

#include <fmt/format.h>

#include <future>
#include <system_error>

#include <unistd.h>

namespace lmc {

using nlohmann::json;

// The destructor waits at most this time for the hub to close the connection.
static constexpr Milliseconds kRankFarewell{2000};

static std::string hostName() {
  char name[256] = "";
  (void)::gethostname(name, sizeof(name) - 1);
  return name;
}

static Error failure(const std::string &text) {
  return Error{text + "; start the run again to go on from its last checkpoint",
               ExitCode::RankFailed};
}

// Prints the failure and ends the process. If Ctrl-S has stopped the terminal, writing blocks for
// ever. So another thread writes, and the caller waits for it at most 1 s. The writer does not use
// stdio, because the main thread may hold the lock of stderr for ever.
static void endProcess(const Error &failure) {
  const std::string line = fmt::format("lmc-run: error: {}\n", failure.message);
  std::promise<void> written;
  try {
    std::thread([&] {
      (void)!::write(STDERR_FILENO, line.data(), line.size());
      written.set_value();
    }).detach();
    (void)written.get_future().wait_for(std::chrono::seconds(1));
  } catch (const std::system_error &) { // the system has no memory for a thread
  }
  ::_exit(static_cast<int>(failure.code));
}

Rendezvous::Rendezvous(const RendezvousOptions &options) : options(options), host(hostName()) {}

Result<std::unique_ptr<Rendezvous>> Rendezvous::join(const RendezvousOptions &options) {
  std::unique_ptr<Rendezvous> self(new Rendezvous(options));
  LMC_TRY(self->connect());
  LMC_TRY(self->greet());
  self->socket.setTimeout(options.silence);
  self->reader = std::thread([rendezvous = self.get()] { rendezvous->read(); });
  self->beater = std::thread([rendezvous = self.get()] { rendezvous->beat(); });
  LMC_TRY(self->awaitStart());
  return self;
}

Rendezvous::~Rendezvous() {
  bool inOrder = false;
  {
    std::lock_guard lock(mutex);
    closing = true;
    inOrder = !failed && !needed;
  }
  changed.notify_all();
  if (!reader.joinable())
    return;
  beater.join();
  if (inOrder)
    socket.send({{"is", "leave"}});
  // The hub closes the connection. If this rank closed it while messages are unread, the system
  // would reset the connection, and the hub might not get the message `leave`.
  socket.finishSending();
  {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kRankFarewell, [&] { return readerDone; });
  }
  socket.shutdown();
  reader.join();
}

Result<void> Rendezvous::connect() {
  std::string from;
  if (!options.interface.empty()) {
    LMC_LET(own, findInterface(options.interface));
    from = own->address;
  }
  if (options.rank == 0) {
    LMC_SET(hub, RendezvousHub::start(options, from.empty() ? options.address : from));
    address = hub->address();
    LMC_SET(socket, hub->connectOwnRank());
    return {};
  }
  const Deadline deadline = std::chrono::steady_clock::now() + options.join;
  auto connected = Socket::connectTo(options.address, options.port, from, deadline);
  if (!connected)
    return Error{fmt::format("rank {} has not reached rank 0 at {} port {} within {:.3g} s ({}): "
                             "check that rank 0 runs on that host, that the port is the same on "
                             "all ranks, and that no firewall keeps it closed",
                             options.rank, options.address, options.port,
                             options.join.count() / 1e3, connected.error().message),
                 ExitCode::RankFailed};
  socket = std::move(*connected);
  address = socket.ownAddress();
  return {};
}

Result<void> Rendezvous::greet() {
  const auto foreign = [&] {
    return userError("what listens at {} port {} is not rank 0 of this run: give all ranks rank "
                     "0's host and another port (--master-port, or LMC_PORT)",
                     options.address, options.port);
  };
  socket.setTimeout(std::min(options.join, Milliseconds(5000)));
  try {
    json challenge, answer;
    if (socket.receive(challenge, kGreetingBytes) != Socket::Received::Message ||
        !challenge.contains("lmc"))
      return foreign();
    if (challenge.at("lmc") != kRendezvousProtocol)
      return userError("rank 0 on {} runs another release of lmc-run than rank {} on {}",
                       options.address, options.rank, host);
    const std::string nonce = challenge.at("nonce");
    json hello = {{"lmc", kRendezvousProtocol},
                  {"nonce", RendezvousHub::newNonce()},
                  {"rank", options.rank},
                  {"size", options.size},
                  {"host", host}};
    hello["proof"] = rendezvousProof(options.secret, Side::Rank, nonce, hello);
    socket.send(hello);
    if (socket.receive(answer, kGreetingBytes) != Socket::Received::Message)
      return foreign();
    if (answer.contains("refused"))
      return Error{answer.at("refused").get<std::string>()};
    if (answer.at("proof") != rendezvousProof(options.secret, Side::Hub, nonce, hello))
      return userError("rank 0 at {} port {} does not know the secret of rank {}: give all ranks "
                       "the same --secret-file",
                       options.address, options.port, options.rank);
    return {};
  } catch (const json::exception &) {
    return foreign();
  }
}

Result<void> Rendezvous::awaitStart() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return failed || !names.empty(); });
  if (failed)
    return *failed;
  return {};
}

std::vector<Progress::State> Rendezvous::progressOfRanks() const {
  return hub ? hub->states() : std::vector<Progress::State>();
}

std::string Rendezvous::nameOf(int rank) const {
  if (names.empty()) // before all ranks have joined, only rank 0 has a known address
    return fmt::format("rank {} at {} port {}", rank, options.address, options.port);
  return fmt::format("rank {} (host {})", rank, names[static_cast<size_t>(rank)]);
}

Error Rendezvous::endOf(int rank) const {
  return Error{nameOf(rank) + " has ended", ExitCode::RankFailed};
}

void Rendezvous::read() {
  json message;
  for (;;) {
    const Socket::Received received = socket.receive(message, kMessageBytes);
    std::unique_lock lock(mutex);
    if (received != Socket::Received::Message) {
      const bool expected = closing || left.contains(0);
      const std::string zero = nameOf(0);
      lock.unlock();
      if (received == Socket::Received::Silent)
        fail(fmt::format("{} has not answered for {:.3g} s", zero, options.silence.count() / 1e3));
      else if (!expected)
        fail(zero + " has ended");
      break;
    }
    try {
      const std::string &is = message.at("is").get_ref<const std::string &>();
      if (is == "start") {
        names = message.at("hosts").get<std::vector<std::string>>();
      } else if (is == "left") {
        left.emplace(message.at("rank"), std::chrono::steady_clock::now() + options.arrival);
      } else if (is == "value") {
        const json::binary_t &bytes = message.at("value").get_binary();
        values[message.at("key")].assign(bytes.begin(), bytes.end());
      } else if (is == "failed") {
        lock.unlock();
        fail(message.at("text"));
        break;
      }
    } catch (const json::exception &) {
      lock.unlock();
      fail("rank 0 sends what no rank understands");
      break;
    }
    lock.unlock();
    changed.notify_all();
  }
  socket.shutdown(); // the hub may still wait for messages of this rank; this ends its wait
  {
    std::lock_guard lock(mutex);
    readerDone = true;
  }
  changed.notify_all();
}

// Sends signs of life to rank 0. Calls wake(rank) options.arrival milliseconds after a rank left.
void Rendezvous::beat() {
  std::set<int> woken;
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, options.beat, [&] { return closing; })) {
    std::vector<int> gone;
    for (const auto &[rank, limit] : left)
      if (std::chrono::steady_clock::now() >= limit && woken.insert(rank).second)
        gone.push_back(rank);
    const Wake waker = wake;
    lock.unlock();
    socket.send(beatOf(state.state()));
    for (int rank : gone)
      if (waker)
        waker(rank);
    lock.lock();
  }
}

void Rendezvous::fail(const std::string &text) {
  std::unique_lock lock(mutex);
  failed = names.empty() ? Error{text, ExitCode::RankFailed} : failure(text);
  const Error why = *failed;
  const Wake waker = wake;
  lock.unlock();
  changed.notify_all();
  if (waker)
    waker(std::nullopt);
  lock.lock();
  if (changed.wait_for(lock, options.grace, [&] { return closing; }))
    return;
  lock.unlock();
  options.onStuck ? options.onStuck(why) : endProcess(why);
}

Result<void> Rendezvous::set(const std::string &key, const std::vector<char> &value) {
  socket.send({{"is", "set"},
               {"key", key},
               {"value", json::binary(std::vector<uint8_t>(value.begin(), value.end()))}});
  std::lock_guard lock(mutex);
  if (failed)
    return *failed;
  return {};
}

Result<std::vector<char>> Rendezvous::get(const std::string &key) {
  const Progress::Wait waiting(&state);
  std::unique_lock lock(mutex);
  if (!values.contains(key)) {
    lock.unlock();
    socket.send({{"is", "get"}, {"key", key}});
    lock.lock();
  }
  changed.wait(lock, [&] { return failed || !left.empty() || values.contains(key); });
  if (const auto found = values.find(key); found != values.end())
    return found->second;
  if (failed)
    return *failed;
  return endOf(left.begin()->first);
}

void Rendezvous::onLoss(Wake callback) {
  std::unique_lock lock(mutex);
  wake = std::move(callback);
  const Wake now = failed ? wake : nullptr;
  lock.unlock();
  if (now)
    now(std::nullopt);
}

std::optional<Error> Rendezvous::anyLoss() const {
  std::lock_guard lock(mutex);
  if (failed)
    return failed;
  return left.empty() ? std::nullopt : std::optional(endOf(left.begin()->first));
}

Error Rendezvous::lossOf(int rank) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, options.silence + 2 * options.beat,
                   [&] { return failed || left.contains(rank) || left.contains(0); });
  if (failed)
    return *failed;
  // The hub sends this text to all ranks.
  const std::string text = left.contains(rank)
                               ? endOf(rank).message
                               : fmt::format("{} has lost its data connection with {}",
                                             nameOf(options.rank), nameOf(rank));
  needed = true;
  lock.unlock();
  socket.send({{"is", "failed"}, {"text", text}});
  return failure(text);
}

} // namespace lmc
