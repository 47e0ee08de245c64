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
  std::string address; // of rank 0: a name or an address
  int port = 0;
  std::string interface; // name or address of a network interface of this machine; "": any
  std::string secret;    // what all ranks know; "": nobody has to prove that he belongs to the run
  Milliseconds join{30000};   // for all ranks to come
  Milliseconds beat{1000};    // between signs of life
  Milliseconds silence{8000}; // without a sign of life, after which a rank counts as hung
  Milliseconds arrival{8000}; // after a rank has left in order, for what it had sent to arrive
  StallLimits stall;          // after which a rank that gives signs of life counts as hung, too
  // Within this time after a failure is known, the rank must leave. Otherwise `onStuck` is called:
  // by default it prints the failure and ends the process with ExitCode::RankFailed.
  Milliseconds grace{5000};
  std::function<void(const Error &failure)> onStuck;
};

class RendezvousHub;

class Rendezvous {
public:
  // Returns when all ranks have joined. Otherwise the Error says on every rank what is wrong: that
  // rank 0 is not where it is said to be, that a port is taken, who has not come, that the secret,
  // the number of ranks or this rank's number is wrong.
  static Result<std::unique_ptr<Rendezvous>> join(const RendezvousOptions &options);

  // Leaves in order: the others go on as long as they do not need this rank. After a failure it
  // only closes the connection.
  ~Rendezvous();
  Rendezvous(const Rendezvous &) = delete;
  Rendezvous &operator=(const Rendezvous &) = delete;

  // The name of the machine of each rank.
  const std::vector<std::string> &hosts() const { return names; }

  // The numerical address of this machine that the other ranks can reach.
  const std::string &ownAddress() const { return address; }

  // What is sent with this rank's signs of life.
  Progress &progress() { return state; }

  // On rank 0, returns the progress of all ranks as of their latest signs of life; on others
  // nothing.
  std::vector<Progress::State> progressOfRanks() const;

  // Returns "rank 3 (host b)".
  std::string nameOf(int rank) const;

  // A store of bytes that all ranks share. A key is set once. get() waits until it is set.
  Result<void> set(const std::string &key, const std::vector<char> &value);
  Result<std::vector<char>> get(const std::string &key);

  // Calls `wake` on a thread of this object when waiting has no sense any more: with nothing as
  // soon as it is known that the run cannot go on, and with a rank when that rank has left in order
  // and the time has passed in which what it sent before must have arrived (options.arrival).
  using Wake = std::function<void(std::optional<int> rank)>;
  void onLoss(Wake wake);

  // Returns why not all ranks are there, if that is so: one has failed, or has left in order.
  std::optional<Error> anyLoss() const;

  // Returns why `rank` does not answer, to be called if a connection with it is lost: the run
  // cannot go on then. Waits until the reason is known, at most for the time after which a hung
  // rank is known.
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
  std::map<int, Deadline> left; // ranks that have left in order, and until when they may be heard
  std::optional<Error> failed;
  Wake wake;
  bool needed = false; // this rank needed one that has left
  bool closing = false, readerDone = false;
  std::thread reader, beater;
};

} // namespace lmc
