// The control connection of a run of many ranks: every rank is connected with rank 0.
//
// Over it the ranks find each other at the start, exchange the addresses of their data connections,
// and learn when one of them dies or hangs. It has threads of its own, so that it works while the
// others compute.
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
  std::string secret;    // common to all ranks; "": no rank has to prove that it belongs to the run
  Milliseconds join{30000};   // for all ranks to come
  Milliseconds beat{1000};    // between signs of life
  Milliseconds silence{8000}; // time without a sign of life after which a rank counts as hung
  Milliseconds arrival{8000}; // time for the arrival of what a rank sent before it left
  StallLimits stall;          // limits for ranks that give signs of life but make no progress
  // Within this time after a failure is known, the rank must leave. Otherwise `onStuck` is called:
  // by default it prints the failure and ends the process with ExitCode::RankFailed.
  Milliseconds grace{5000};
  std::function<void(const Error &failure)> onStuck;
};

class RendezvousHub;

class Rendezvous {
public:
  // Returns when all ranks have joined. Otherwise every rank gets an Error with the reason: rank 0
  // is not at its address, a port is taken, some ranks have not come, or the secret, the number of
  // ranks or this rank's number is wrong.
  static Result<std::unique_ptr<Rendezvous>> join(const RendezvousOptions &options);

  // Leaves in order: the others go on as long as they do not need this rank. After a failure it
  // only closes the connection.
  ~Rendezvous();
  Rendezvous(const Rendezvous &) = delete;
  Rendezvous &operator=(const Rendezvous &) = delete;

  // Returns the name of the machine of each rank.
  const std::vector<std::string> &hosts() const { return names; }

  // Returns a numerical address of this machine that the other ranks can reach.
  const std::string &ownAddress() const { return address; }

  // Returns the progress that this rank's signs of life carry.
  Progress &progress() { return state; }

  // On rank 0, returns the progress of all ranks at their latest signs of life; on other ranks
  // nothing.
  std::vector<Progress::State> progressOfRanks() const;

  // Returns "rank 3 (host b)".
  std::string nameOf(int rank) const;

  // Access a store of bytes that all ranks share. A key is set once. get() waits until it is set.
  Result<void> set(const std::string &key, const std::vector<char> &value);
  Result<std::vector<char>> get(const std::string &key);

  // Calls `wake` on a thread of this object when waiting is of no use any more: without a rank when
  // the run cannot go on, and with a rank when this rank has left in order and its last messages
  // must have arrived (options.arrival).
  using Wake = std::function<void(std::optional<int> rank)>;
  void onLoss(Wake wake);

  // Returns why a rank is missing, if one is: it has failed, or has left in order.
  std::optional<Error> anyLoss() const;

  // Returns why `rank` does not answer. It must be called if a connection with the rank is lost,
  // after which the run cannot go on. It waits for the reason, at most for the time after which a
  // hung rank is found.
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
  std::unique_ptr<RendezvousHub> hub; // of rank 0
  Socket socket;
  std::string host, address;
  Progress state;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> names; // empty before the start
  std::map<std::string, std::vector<char>> values;
  std::map<int, Deadline> left; // by rank that left in order: when its last messages have arrived
  std::optional<Error> failed;
  Wake wake;
  bool needed = false; // true if this rank needed one that has left
  bool closing = false, readerDone = false;
  std::thread reader, beater;
};

} // namespace lmc
