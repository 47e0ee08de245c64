// Rank 0's side of the control connections (RendezvousProtocol.h). A thread serves each connection.
#pragma once

#include "runtime/comm/rendezvous/Rendezvous.h"

#include <list>

namespace lmc {

class RendezvousHub {
public:
  // Waits for ranks at `host`, a name or an address of this machine, and options.port.
  static Result<std::unique_ptr<RendezvousHub>> start(const RendezvousOptions &options,
                                                      const std::string &host);
  ~RendezvousHub();

  // Connects rank 0 to this hub, in the same process.
  Result<Socket> connectOwnRank();

  // Returns the numerical address of this hub.
  std::string address() const { return listener.ownAddress(); }

  // Returns each rank's progress at its latest sign of life.
  std::vector<Progress::State> states();

  // Returns 32 random bytes in hexadecimal.
  static std::string newNonce();

private:
  using Connection = std::shared_ptr<Socket>;
  struct Member {
    Connection connection; // null before the rank has joined and after it has left
    std::string host;      // "" before the rank has joined
    bool left = false;     // true if the rank has announced that it leaves
    Progress::State state; // the rank's progress at its latest sign of life
    // The time of the latest sign of life, and the time of the latest change of state.moves
    std::chrono::steady_clock::time_point heard, moved;
  };

  // A thread that serves a connection.
  struct Server {
    std::thread thread;
    bool ended = false; // true if the thread has ended and must be joined
  };

  RendezvousHub(const RendezvousOptions &options, Socket listener);
  // Starts a thread that serves the connection. If this fails, closes it and returns false.
  bool serve(Socket socket);
  void serve(const Connection &connection, Server &server);
  std::optional<int> admit(const Connection &connection);
  void follow(int rank, Socket &socket);
  void beat();
  std::string stalled() const;
  void fail(const std::string &text);
  void sendAll(const nlohmann::json &message);
  std::string missing() const;

  const RendezvousOptions options;
  const Deadline deadline;
  Socket listener;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Member> members; // indexed by rank
  std::set<Connection> connections;
  std::list<Connection> strangers; // not admitted yet; the oldest comes first
  std::map<std::string, nlohmann::json> store;
  std::map<std::string, std::vector<int>> waiting; // for each key, the ranks that wait for it
  std::string refused;                             // why the latest connection was refused
  std::string failure;                             // why the run cannot go on, or ""
  bool started = false, stopping = false;
  std::list<Server> servers;
  std::thread acceptor, beater;
};

} // namespace lmc
