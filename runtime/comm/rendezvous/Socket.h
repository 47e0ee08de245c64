// TCP connections that carry messages. A message is a JSON object. It is sent as the number of its
// bytes (4 bytes, little-endian), followed by the object as CBOR (RFC 8949).
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

  // Listens at an address of this machine. `host` is an address, or a name; of a name, the first
  // address is taken that is not of the loopback device.
  static Result<Socket> listenAt(const std::string &host, int port);

  // Connects to `host`; if nothing answers there yet, tries again until `deadline`. `from` is the
  // address of this machine to use, or "". The Error's message is only the reason why the last try
  // failed.
  static Result<Socket> connectTo(const std::string &host, int port, const std::string &from,
                                  Deadline deadline);

  // Returns two sockets that are connected with each other.
  static Result<std::pair<Socket, Socket>> connectedPair();

  // Waits for a connection. After shutdown(), returns a socket that is not open.
  Socket accept() const;

  bool isOpen() const { return fd >= 0; }

  // Sets the maximum times that receive() waits for input, and that send() waits for output.
  void setTimeout(Milliseconds timeout);

  // Sends a message. Several threads may call it at the same time. Returns false if the connection
  // is closed.
  bool send(const nlohmann::json &message);

  enum class Received { Message, Closed, Silent };
  // Waits for a message. Returns Closed also for bytes that are not a message of at most
  // `maximumBytes`.
  Received receive(nlohmann::json &message, size_t maximumBytes);

  // Ends the stream of messages to the other side. Messages that were sent still arrive.
  void finishSending();
  // Ends the streams in both directions. Threads that wait in receive() or accept() return.
  void shutdown();

  // Return the numerical address and the port of this end.
  std::string ownAddress() const;
  int ownPort() const;

private:
  Received read(void *data, size_t bytes);

  int fd = -1;
  std::mutex sending;
};

// Returns a port of the loopback device at which no process listens now.
Result<int> freePort();

struct Interface {
  std::string name, address; // "eth0", and its numerical address
};

// Returns the network interface of this machine that has the given name or address. If there is
// none, the Error lists the interfaces.
Result<Interface> findInterface(const std::string &nameOrAddress);

} // namespace lmc
