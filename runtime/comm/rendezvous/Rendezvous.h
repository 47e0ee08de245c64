// The control connection of a rank with rank 0, in a run of several ranks.
//
// Over these connections the ranks find each other at the start, exchange the addresses of their
// data connections, and learn when one of them dies or hangs. The control connection has threads of
// its own, so that it works while other threads compute.
#pragma once

#include "ground/support/Result.h"
#include "runtime/comm/Stall.h"
#include "runtime/comm/rendezvous/Socket.h"

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace lmc {

struct RendezvousOptions {
  int rank = 0, size = 1;
  std::string address; // name or address of rank 0's host
  int port = 0;
  std::string interface; // name or address of a local network interface; "": any
  std::string secret;    // equal on all ranks; "": no rank has to prove that it belongs to the run
  Milliseconds join{30000};   // the maximum time until all ranks have joined
  Milliseconds beat{1000};    // the time between signs of life
  Milliseconds silence{8000}; // a rank without a sign of life for this time counts as hung
  Milliseconds arrival{8000}; // messages of a rank that has left arrive within this time
  StallLimits stall;          // limits for ranks that give signs of life but make no progress
  // Within this time after a failure is known, the Rendezvous must be destroyed. Otherwise
  // `onStuck` is called; by default, the failure is printed and the process ends with
  // ExitCode::RankFailed.
  Milliseconds grace{5000};
  std::function<void(const Error &failure)> onStuck;
};

class RendezvousHub;

class Rendezvous {
public:
  // Returns when all ranks have joined. Errors: rank 0 is not at its address, a port is taken, some
  // ranks have not joined in time, or a rank's secret, number or number of ranks is wrong.
  static Result<std::unique_ptr<Rendezvous>> join(const RendezvousOptions &options);

  // Leaves in order: the other ranks continue as long as they do not need this one. After a
  // failure, only closes the connection.
  ~Rendezvous();
  Rendezvous(const Rendezvous &) = delete;
  Rendezvous &operator=(const Rendezvous &) = delete;

  // Returns the name of the machine of each rank.
  const std::vector<std::string> &hosts() const { return names; }

  // Returns a numerical address of this machine that the other ranks can reach.
  const std::string &ownAddress() const { return address; }

  // Returns the record of this rank's progress. Signs of life take it to rank 0.
  Progress &progress() { return state; }

  // On rank 0, returns all ranks' progress at their latest signs of life; on other ranks, nothing.
  std::vector<Progress::State> progressOfRanks() const;

  // Returns "rank 3 (host b)".
  std::string nameOf(int rank) const;

  // Access a store of bytes that all ranks share. A key may be set once. get() waits until the key
  // is set.
  Result<void> set(const std::string &key, const std::vector<char> &value);
  Result<std::vector<char>> get(const std::string &key);

  // Sets the function that ends waits. A thread of this object calls wake(nullopt) when the run
  // cannot go on, so that all waits must end. It calls wake(rank) when waits for `rank` must end:
  // `rank` has left in order, and the time options.arrival for its last messages is over.
  using Wake = std::function<void(std::optional<int> rank)>;
  void onLoss(Wake wake);

  // If a rank is missing, returns the reason: it has failed, or it has left in order.
  std::optional<Error> anyLoss() const;

  // Must be called if a data connection with `rank` is lost, after which the run cannot go on.
  // Waits until the reason is known, but not longer than it takes to find a hung rank, and returns
  // it.
  Error lossOf(int rank);

private:
  explicit Rendezvous(const RendezvousOptions &options);
  Result<void> connect();
  Result<void> greet();
  Result<void> awaitStart();
  void read();
  void beat();
  void fail(const std::string &text);
  Error endOf(int rank) const;

  const RendezvousOptions options;
  std::unique_ptr<RendezvousHub> hub; // only on rank 0
  Socket socket;
  std::string host, address;
  Progress state;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> names; // hosts of the ranks; empty until all have joined
  std::map<std::string, std::vector<char>> values;
  // For each rank that has left in order: the time by which its last messages have arrived.
  std::map<int, Deadline> left;
  std::optional<Error> failed;
  Wake wake;
  bool needed = false; // true if this rank needed one that is missing
  bool closing = false, readerDone = false;
  std::thread reader, beater;
};

} // namespace lmc
