// Rank 0's side of the control connections (RendezvousProtocol.h). Each connection has a thread.
#pragma once

#include "runtime/comm/rendezvous/Rendezvous.h"

#include <list>

namespace lmc {

class RendezvousHub {
public:
  // Waits for ranks at `host` (a name or an address of this machine) and options.port.
  static Result<std::unique_ptr<RendezvousHub>> start(const RendezvousOptions &options,
                                                      const std::string &host);
  ~RendezvousHub();

  // Returns a connection with this hub for the rank of this process.
  Result<Socket> connectOwnRank();

  // The numerical address at which it waits.
  std::string address() const { return listener.ownAddress(); }

  // Returns what the latest sign of life of each rank said.
  std::vector<Progress::State> states();

  // Returns 32 random bytes in hexadecimal notation.
  static std::string newNonce();

private:
  using Connection = std::shared_ptr<Socket>;
  struct Member {
    Connection connection; // null before the rank has joined and after its connection has ended
    std::string host;      // "" before the rank has joined
    bool left = false;     // it has left in order
    Progress::State state; // as of its latest sign of life
    // When that came, and when state.moves became what it is.
    std::chrono::steady_clock::time_point heard, moved;
  };

  // A thread that serves a connection.
  struct Server {
    std::thread thread;
    bool ended = false; // the thread only has to be joined
  };

  RendezvousHub(const RendezvousOptions &options, Socket listener);
  // Returns false if it cannot serve the connection, which is closed then.
  bool serve(Socket socket);
  void serve(const Connection &connection, Server &server);
  std::optional<int> admit(const Connection &connection);
  void follow(int rank, Socket &socket);
  void beat();
  std::string stalled() const;
  void fail(const std::string &text);
  void tellAll(const nlohmann::json &message);
  std::string missing() const;

  const RendezvousOptions options;
  const Deadline deadline;
  Socket listener;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Member> members; // by rank
  std::set<Connection> connections;
  std::list<Connection> strangers; // those that have not been admitted, the oldest first
  std::map<std::string, nlohmann::json> store;
  std::map<std::string, std::vector<int>> waiting; // ranks that have asked for a key
  std::string refused;                             // who was refused last, and why
  std::string failure;                             // why the run cannot go on; "": it can
  bool started = false, stopping = false;
  std::list<Server> servers;
  std::thread acceptor, beater;
};

} // namespace lmc
