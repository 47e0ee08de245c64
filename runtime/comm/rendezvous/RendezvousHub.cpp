#include "runtime/comm/rendezvous/RendezvousHub.h"

#include "runtime/comm/rendezvous/RendezvousProtocol.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

#include <sys/random.h>

namespace lmc {

using nlohmann::json;

// The destructor waits at most this time for ranks to close their connections.
static constexpr Milliseconds kHubFarewell{2000};

// The maximum number of connections that may wait to be admitted, in addition to one per rank.
static constexpr size_t kStrangers = 32;

Result<std::unique_ptr<RendezvousHub>> RendezvousHub::start(const RendezvousOptions &options,
                                                            const std::string &host) {
  LMC_LET(listener, Socket::listenAt(host, options.port));
  return std::unique_ptr<RendezvousHub>(new RendezvousHub(options, std::move(*listener)));
}

RendezvousHub::RendezvousHub(const RendezvousOptions &options, Socket listener)
    : options(options), deadline(std::chrono::steady_clock::now() + options.join),
      listener(std::move(listener)), members(static_cast<size_t>(options.size)) {
  acceptor = std::thread([this] {
    for (;;) {
      Socket socket = this->listener.accept();
      if (!socket.isOpen())
        return;
      serve(std::move(socket));
    }
  });
  beater = std::thread([this] { beat(); });
}

RendezvousHub::~RendezvousHub() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  changed.notify_all();
  listener.shutdown();
  acceptor.join();
  beater.join();
  {
    // Ranks close their connections first. Otherwise the hub's last messages could be lost.
    std::unique_lock lock(mutex);
    for (const Connection &connection : connections)
      connection->finishSending();
    changed.wait_for(lock, kHubFarewell, [&] { return connections.empty(); });
    for (const Connection &connection : connections)
      connection->shutdown();
  }
  for (Server &server : servers)
    server.thread.join();
}

Result<Socket> RendezvousHub::connectOwnRank() {
  LMC_LET(ends, Socket::connectedPair());
  if (!serve(std::move(ends->first)))
    return Error{"rank 0 cannot start a thread", ExitCode::Failure};
  return std::move(ends->second);
}

std::vector<Progress::State> RendezvousHub::states() {
  std::lock_guard lock(mutex);
  std::vector<Progress::State> all;
  for (const Member &member : members)
    all.push_back(member.state);
  return all;
}

std::string RendezvousHub::newNonce() {
  unsigned char bytes[32];
  (void)::getrandom(bytes, sizeof(bytes), 0);
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

bool RendezvousHub::serve(Socket socket) {
  const Connection connection = std::make_shared<Socket>(std::move(socket));
  std::lock_guard lock(mutex);
  if (stopping)
    return false;
  std::erase_if(servers, [](Server &server) {
    if (server.ended)
      server.thread.join();
    return server.ended;
  });
  // Ranks are admitted fast. If too many connections wait, the oldest is not from a rank: close it.
  if (strangers.size() >= members.size() + kStrangers) {
    strangers.front()->shutdown();
    strangers.pop_front();
  }
  Server &server = servers.emplace_back();
  try {
    server.thread = std::thread([this, connection, &server] { serve(connection, server); });
  } catch (const std::system_error &) {
    servers.pop_back();
    return false;
  }
  connections.insert(connection);
  strangers.push_back(connection);
  return true;
}

void RendezvousHub::serve(const Connection &connection, Server &server) {
  connection->setTimeout(std::min(options.join, Milliseconds(5000)));
  std::optional<int> rank;
  try {
    rank = admit(connection);
  } catch (const json::exception &) { // the message does not have the form of a rank's message
  }
  {
    std::lock_guard lock(mutex);
    strangers.remove(connection);
  }
  if (rank) {
    connection->setTimeout(options.silence);
    try {
      follow(*rank, *connection);
    } catch (const json::exception &) {
      fail(fmt::format("rank {} sends what rank 0 does not understand", *rank));
    }
  }
  std::lock_guard lock(mutex);
  if (rank)
    members[static_cast<size_t>(*rank)].connection = nullptr;
  connections.erase(connection);
  server.ended = true;
  changed.notify_all();
}

// Returns the rank of a process that has connected, or refuses the process.
std::optional<int> RendezvousHub::admit(const Connection &connection) {
  const std::string nonce = newNonce();
  json hello;
  connection->send({{"lmc", kRendezvousProtocol}, {"nonce", nonce}});
  if (connection->receive(hello, kGreetingBytes) != Socket::Received::Message)
    return std::nullopt;
  const int rank = hello.at("rank"), size = hello.at("size");
  const std::string host = hello.at("host");

  std::lock_guard lock(mutex);
  auto why = [&]() -> std::string {
    const std::string place = fmt::format("rank 0 at {} port {}", options.address, options.port);
    if (hello.at("lmc") != kRendezvousProtocol)
      return fmt::format("{} runs another release of lmc-run than rank {} (host {})", place, rank,
                         host);
    if (hello.at("proof") != rendezvousProof(options.secret, Side::Rank, nonce, hello))
      return fmt::format(
          "rank {} (host {}) does not know the secret of {}: give all ranks the same "
          "--secret-file",
          rank, host, place);
    if (size != options.size)
      return fmt::format("rank {} (host {}) was started as one of {} ranks, and {} as one of {}: "
                         "start all with the same number",
                         rank, host, size, place, options.size);
    if (rank < 0 || rank >= size)
      return fmt::format("there is no rank {} among {} ranks", rank, size);
    if (started || !failure.empty())
      return fmt::format("rank {} (host {}) comes too late, because {} {}: start all ranks again",
                         rank, host, place,
                         started ? "has all its ranks" : "has given up: " + failure);
    if (const Member &member = members[static_cast<size_t>(rank)]; !member.host.empty())
      return fmt::format(
          "two processes are started as rank {}, on hosts {} and {}: give each a rank "
          "of its own",
          rank, member.host, host);
    return "";
  }();
  if (!why.empty()) {
    refused = why;
    connection->send({{"refused", why}});
    return std::nullopt;
  }
  connection->send({{"proof", rendezvousProof(options.secret, Side::Hub, nonce, hello)}});
  Member &member = members[static_cast<size_t>(rank)];
  member.connection = connection;
  member.host = host.empty() ? "?" : host;
  member.heard = member.moved = std::chrono::steady_clock::now();
  if (std::ranges::none_of(members, [](const Member &m) { return m.host.empty(); })) {
    started = true;
    json hosts = json::array();
    for (const Member &member : members)
      hosts.push_back(member.host);
    sendAll({{"is", "start"}, {"hosts", hosts}});
  }
  return rank;
}

// Serves a rank until its connection ends.
void RendezvousHub::follow(int rank, Socket &socket) {
  Member &member = members[static_cast<size_t>(rank)];
  const std::string who = fmt::format("rank {} (host {})", rank, member.host);
  json message;
  for (;;) {
    const Socket::Received received = socket.receive(message, kMessageBytes);
    if (received == Socket::Received::Silent)
      return fail(
          fmt::format("{} has not answered for {:.3g} s", who, options.silence.count() / 1e3));
    if (received == Socket::Received::Closed) {
      if (!member.left)
        fail(who + " has ended");
      return;
    }
    const std::string is = message.at("is");
    if (is == "failed")
      fail(message.at("text"));
    std::lock_guard lock(mutex);
    if (is == "beat") {
      const Progress::State state = progressOf(message);
      member.heard = std::chrono::steady_clock::now();
      if (state.moves != member.state.moves)
        member.moved = member.heard;
      member.state = state;
    } else if (is == "leave") {
      member.left = true;
      sendAll({{"is", "left"}, {"rank", rank}});
    } else if (is == "set") {
      const std::string key = message.at("key");
      store[key] = message.at("value");
      for (int asked : waiting[key])
        if (const Connection &to = members[static_cast<size_t>(asked)].connection)
          to->send({{"is", "value"}, {"key", key}, {"value", store[key]}});
      waiting.erase(key);
    } else if (is == "get") {
      const std::string key = message.at("key");
      if (const auto found = store.find(key); found != store.end())
        socket.send({{"is", "value"}, {"key", key}, {"value", found->second}});
      else
        waiting[key].push_back(rank);
    }
  }
}

void RendezvousHub::beat() {
  std::unique_lock lock(mutex);
  for (;;) {
    const auto due = std::chrono::steady_clock::now() + options.beat;
    if (changed.wait_until(lock, due, [&] { return stopping; }))
      return;
    // If this thread wakes late, the whole job was probably suspended. So the delay does not count.
    const auto now = std::chrono::steady_clock::now();
    if (now - due > options.beat)
      for (Member &member : members)
        member.moved = std::min(member.moved + (now - due), now);
    sendAll({{"is", "beat"}});
    const std::string text = !failure.empty()                               ? ""
                             : started                                      ? stalled()
                             : std::chrono::steady_clock::now() >= deadline ? missing()
                                                                            : "";
    if (text.empty())
      continue;
    lock.unlock();
    fail(text);
    lock.lock();
  }
}

// Returns a text about the rank that makes no progress, or "".
std::string RendezvousHub::stalled() const {
  // Only the time before the latest sign of life counts: on a busy link, the next sign may be late.
  std::vector<RankProgress> ranks;
  for (const Member &member : members)
    ranks.push_back({member.state,
                     std::chrono::duration<double>(member.heard - member.moved).count(),
                     member.connection && !member.left});
  const std::optional<Stall> stall = findStall(ranks, options.stall);
  if (!stall)
    return "";
  const Member &member = members[static_cast<size_t>(std::max(stall->rank, 0))];
  if (stall->rank < 0)
    return fmt::format("no rank has made progress for {:.0f} s ({}): all wait for each other or "
                       "for their devices",
                       stall->seconds, describe(member.state));
  return fmt::format("rank {} (host {}) has made no progress for {:.0f} s ({}), and the others "
                     "wait for it",
                     stall->rank, member.host, stall->seconds, describe(member.state));
}

// Only the first failure counts, because it causes the later ones.
void RendezvousHub::fail(const std::string &text) {
  std::lock_guard lock(mutex);
  if (!failure.empty())
    return;
  failure = text;
  sendAll({{"is", "failed"}, {"text", text}});
}

void RendezvousHub::sendAll(const json &message) {
  for (const Member &member : members)
    if (member.connection)
      member.connection->send(message);
}

// Returns a text about the ranks that have not joined.
std::string RendezvousHub::missing() const {
  std::vector<int> ranks;
  size_t count = 0;
  for (size_t rank = 0; rank < members.size(); ++rank)
    if (members[rank].host.empty() && ++count <= 8)
      ranks.push_back(static_cast<int>(rank));
  return fmt::format("{} {}{} of {} did not join rank 0 at {} port {} within {:.3g} s: {}",
                     count == 1 ? "rank" : "ranks", fmt::join(ranks, ", "),
                     count > 8 ? fmt::format(" and {} more", count - 8) : "", options.size,
                     listener.ownAddress(), options.port, options.join.count() / 1e3,
                     refused.empty() ? "their logs say why" : "refused: " + refused);
}

} // namespace lmc
