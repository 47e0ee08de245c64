// TCP connections that carry messages. A message is a JSON object. It is sent as a 4-byte
// little-endian number of bytes, followed by the object as CBOR (RFC 8949).
#pragma once

#include "ground/support/Result.h"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace lmc {

using Milliseconds = std::chrono::milliseconds;
using Deadline = std::chrono::steady_clock::time_point;

class Socket {
public:
  Socket() = default;
  explicit Socket(int fd) : fd(fd) {}
  Socket(Socket &&other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Socket(); // closes the socket

  // Listens at `host`, an address or a name of this machine. If a name has several addresses,
  // prefers one that is not the loopback device's.
  static Result<Socket> listenAt(const std::string &host, int port);

  // Connects to `host`. If nothing answers, tries again until `deadline`. `from` is the local
  // address of the connection; "": any. The Error only says why the last try failed.
  static Result<Socket> connectTo(const std::string &host, int port, const std::string &from,
                                  Deadline deadline);

  static Result<std::pair<Socket, Socket>> connectedPair();

  // Waits for a connection. After shutdown(), returns a socket that is not open.
  Socket accept() const;

  bool isOpen() const { return fd >= 0; }

  // Sets the maximum time that receive() and send() wait.
  void setTimeout(Milliseconds timeout);

  // Returns false if the connection is closed. Several threads may call send() at once.
  bool send(const nlohmann::json &message);

  enum class Received { Message, Closed, Silent };
  // Waits for a message. Returns Closed also if the message is malformed or exceeds maximumBytes.
  Received receive(nlohmann::json &message, size_t maximumBytes);

  // Ends sending. Messages that were sent before still arrive.
  void finishSending();
  // Closes both directions. Threads that wait in receive() or accept() return.
  void shutdown();

  std::string ownAddress() const;
  int ownPort() const;

private:
  Received read(void *data, size_t bytes);

  int fd = -1;
  std::mutex sending;
};

// Returns a free port of the loopback device.
Result<int> freePort();

struct Interface {
  std::string name, address; // "eth0", and its numerical address
};

// Returns the network interface with this name or address. The Error lists all interfaces.
Result<Interface> findInterface(const std::string &nameOrAddress);

} // namespace lmc
