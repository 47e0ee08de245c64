// TCP connections that carry messages. A message is a JSON value; it travels as CBOR (RFC 8949)
// after its number of bytes, 4 bytes in little-endian order.
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
  ~Socket(); // closes

  // Waits for connections at an address of this machine. `host` is a name or an address; a name's
  // first address that is not of the loopback device is taken.
  static Result<Socket> listenAt(const std::string &host, int port);

  // Connects to `host`, and tries again until `deadline` if nothing answers there yet. `from` is
  // the address of this machine to use, or "". The Error's message is only the reason of the last
  // try.
  static Result<Socket> connectTo(const std::string &host, int port, const std::string &from,
                                  Deadline deadline);

  // Returns two sockets that are connected with each other.
  static Result<std::pair<Socket, Socket>> connectedPair();

  // Waits for a connection. Returns a socket that is not open after shutdown().
  Socket accept() const;

  bool isOpen() const { return fd >= 0; }

  // Sets the time after which receive() gives up without input, and send() without output.
  void setTimeout(Milliseconds timeout);

  // Several threads may call it at the same time. Returns false if the connection is closed.
  bool send(const nlohmann::json &message);

  enum class Received { Message, Closed, Silent };
  // Waits for a message. Bytes that are no message of at most `maximumBytes`, or no JSON object,
  // count as Closed.
  Received receive(nlohmann::json &message, size_t maximumBytes);

  // Ends the stream of messages to the other side. What was sent still arrives.
  void finishSending();
  // Ends both streams: wakes the threads that wait in receive() or accept().
  void shutdown();

  // Return the numerical address and the port of this end.
  std::string ownAddress() const;
  int ownPort() const;

private:
  Received read(void *data, size_t bytes);

  int fd = -1;
  std::mutex sending;
};

// Returns a port of the loopback device at which no process waits now.
Result<int> freePort();

struct Interface {
  std::string name, address; // "eth0", and its numerical address
};

// Returns the network interface of this machine that has the given name or address. If there is
// none, the Error lists the interfaces.
Result<Interface> findInterface(const std::string &nameOrAddress);

} // namespace lmc
