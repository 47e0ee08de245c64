#include "runtime/comm/rendezvous/Socket.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lmc {

using nlohmann::json;

namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
  sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }

  std::string text() const {
    char host[NI_MAXHOST] = "";
    (void)::getnameinfo(get(), bytes, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
    return host;
  }

  bool isLoopback() const {
    if (storage.ss_family == AF_INET)
      return ntohl(reinterpret_cast<const sockaddr_in &>(storage).sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6 &>(storage).sin6_addr);
  }
};

Address copyOf(const sockaddr *from, socklen_t bytes) {
  Address address;
  address.bytes = bytes;
  std::memcpy(&address.storage, from, bytes);
  return address;
}

// Returns the addresses of a host. Those of the loopback device come last.
Result<std::vector<Address>> resolve(const std::string &host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed)
    return Error{::gai_strerror(failed)};
  std::vector<Address> addresses;
  for (const addrinfo *each = found; each; each = each->ai_next)
    addresses.push_back(copyOf(each->ai_addr, each->ai_addrlen));
  ::freeaddrinfo(found);
  std::ranges::stable_partition(addresses, [](const Address &a) { return !a.isLoopback(); });
  return addresses;
}

std::string reason(int errorNumber) { return std::strerror(errorNumber); }

// Connects the socket `fd` to the address `to` within `limit`. Returns 0 or an errno value.
int connectWithin(int fd, const Address &to, Milliseconds limit) {
  if (::connect(fd, to.get(), to.bytes) == 0)
    return 0;
  if (errno != EINPROGRESS)
    return errno;
  pollfd wait = {fd, POLLOUT, 0};
  const int ready = ::poll(&wait, 1, static_cast<int>(limit.count()));
  if (ready <= 0)
    return ready == 0 ? ETIMEDOUT : errno;
  int failed = 0;
  socklen_t bytes = sizeof(failed);
  (void)::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &bytes);
  return failed;
}

// Returns the address of this end of a connection (getsockname) or of the other (getpeername).
Address endOf(int fd, decltype(::getsockname) *find) {
  Address end;
  end.bytes = sizeof(end.storage);
  (void)find(fd, end.get(), &end.bytes);
  return end;
}

// TCP may connect a socket with itself, if nobody listens at a port of this machine.
bool connectedToItself(int fd) {
  const Address own = endOf(fd, ::getsockname), other = endOf(fd, ::getpeername);
  return own.bytes == other.bytes && std::memcmp(&own.storage, &other.storage, own.bytes) == 0;
}

} // namespace

Socket::~Socket() {
  if (fd >= 0)
    ::close(fd);
}

Result<Socket> Socket::listenAt(const std::string &host, int port) {
  auto addresses = resolve(host, port);
  if (!addresses)
    return userError("cannot find the address of {}: {}", host, addresses.error().message);
  const Address &address = addresses->front();
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!socket.isOpen() || ::setsockopt(socket.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket.fd, address.get(), address.bytes) != 0 || ::listen(socket.fd, 128) != 0) {
    const int failed = errno;
    if (failed == EADDRINUSE)
      return userError("port {} of {} is taken by another process, perhaps another run: give all "
                       "ranks another port (--master-port, or LMC_PORT)",
                       port, host);
    if (failed == EADDRNOTAVAIL)
      return userError(
          "rank 0 runs on this machine, which does not have the address {} of {}: give all ranks "
          "the name or address of this machine (--master-addr, or MASTER_ADDR)",
          address.text(), host);
    return machineError("cannot wait for ranks at {} port {}: {}", host, port, reason(failed));
  }
  return socket;
}

Result<Socket> Socket::connectTo(const std::string &host, int port, const std::string &from,
                                 Deadline deadline) {
  std::string last;
  for (;;) {
    auto addresses = resolve(host, port);
    if (!addresses)
      last = addresses.error().message;
    for (const Address &address : addresses ? *addresses : std::vector<Address>()) {
      Socket socket(
          ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!socket.isOpen())
        return machineError("cannot open a socket: {}", reason(errno));
      if (!from.empty()) {
        auto own = resolve(from, 0);
        if (!own || ::bind(socket.fd, own->front().get(), own->front().bytes) != 0) {
          last = fmt::format("from {}: {}", from, own ? reason(errno) : own.error().message);
          continue;
        }
      }
      const auto left =
          std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
      const int failed =
          connectWithin(socket.fd, address, std::clamp(left, Milliseconds(1), Milliseconds(3000)));
      if (failed == 0 && connectedToItself(socket.fd)) {
        last = reason(ECONNREFUSED);
        continue;
      }
      if (failed == 0) {
        const int on = 1;
        (void)::setsockopt(socket.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)::fcntl(socket.fd, F_SETFL, 0); // blocking
        return socket;
      }
      last = fmt::format("{}: {}", address.text(), reason(failed));
    }
    if (std::chrono::steady_clock::now() >= deadline)
      return Error{last, ExitCode::RankFailed};
    std::this_thread::sleep_for(Milliseconds(100));
  }
}

Result<std::pair<Socket, Socket>> Socket::connectedPair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return machineError("cannot open a socket: {}", reason(errno));
  return std::pair(Socket(ends[0]), Socket(ends[1]));
}

Socket Socket::accept() const {
  for (;;) {
    Socket socket(::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.isOpen()) {
      const int on = 1;
      (void)::setsockopt(socket.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return socket;
    }
    if (errno == EINVAL || errno == EBADF) // shutdown() was called
      return socket;
    std::this_thread::sleep_for(Milliseconds(10)); // no descriptors left, or a connection was reset
  }
}

void Socket::setTimeout(Milliseconds timeout) {
  timeval time{};
  time.tv_sec = timeout.count() / 1000;
  time.tv_usec = timeout.count() % 1000 * 1000;
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  (void)::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

bool Socket::send(const json &message) {
  std::vector<uint8_t> bytes(4);
  json::to_cbor(message, bytes);
  const size_t length = bytes.size() - 4;
  for (size_t i = 0; i < 4; ++i)
    bytes[i] = static_cast<uint8_t>(length >> 8 * i);
  std::lock_guard lock(sending);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

Socket::Received Socket::read(void *data, size_t bytes) {
  for (size_t got = 0; got < bytes;) {
    const ssize_t n = ::recv(fd, static_cast<char *>(data) + got, bytes - got, 0);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return Received::Silent;
    if (n <= 0)
      return Received::Closed;
    got += static_cast<size_t>(n);
  }
  return Received::Message;
}

Socket::Received Socket::receive(json &message, size_t maximumBytes) {
  uint8_t head[4];
  if (const Received result = read(head, sizeof(head)); result != Received::Message)
    return result;
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i)
    length |= static_cast<size_t>(head[i]) << 8 * i;
  if (length > maximumBytes)
    return Received::Closed;
  std::vector<uint8_t> bytes(length);
  if (const Received result = read(bytes.data(), length); result != Received::Message)
    return result;
  message = json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
  return message.is_object() ? Received::Message : Received::Closed;
}

void Socket::finishSending() { (void)::shutdown(fd, SHUT_WR); }
void Socket::shutdown() { (void)::shutdown(fd, SHUT_RDWR); }

std::string Socket::ownAddress() const { return endOf(fd, ::getsockname).text(); }

int Socket::ownPort() const {
  // The port has the same offset in an IPv6 address (sockaddr_in6) as in an IPv4 address.
  const Address own = endOf(fd, ::getsockname);
  return ntohs(reinterpret_cast<const sockaddr_in &>(own.storage).sin_port);
}

Result<int> freePort() {
  LMC_LET(socket, Socket::listenAt("127.0.0.1", 0));
  return socket->ownPort();
}

Result<Interface> findInterface(const std::string &nameOrAddress) {
  ifaddrs *all = nullptr;
  if (::getifaddrs(&all) != 0)
    return machineError("cannot list the network interfaces: {}", reason(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, ::freeifaddrs);
  std::string known;
  for (int family : {AF_INET, AF_INET6}) // IPv4 comes first, because most clusters use it
    for (const ifaddrs *each = all; each; each = each->ifa_next) {
      if (!each->ifa_addr || each->ifa_addr->sa_family != family)
        continue;
      const std::string address =
          copyOf(each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6))
              .text();
      if (nameOrAddress == each->ifa_name || nameOrAddress == address)
        return Interface{each->ifa_name, address};
      known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", each->ifa_name, address);
    }
  return userError("--interface={}: this machine has {}", nameOrAddress, known);
}

} // namespace lmc
