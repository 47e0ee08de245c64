// The control connection of a rank with rank 0.
//
// Over these connections the ranks find each other at the start, and learn when one of them dies or
// hangs. A control connection has threads of its own, so that it works while other threads compute.
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
  std::string interface;      // name or address of a local network interface; "": any
  std::string secret;         // equal on all ranks; "": ranks need not prove that they know it
  Milliseconds join{30000};   // the maximum time until all ranks have joined
  Milliseconds beat{1000};    // the time between signs of life
  Milliseconds silence{8000}; // a rank without a sign of life for this time counts as hung
  Milliseconds arrival{8000}; // all messages of a rank that has left arrive within this time
  StallLimits stall;          // limits for ranks that give signs of life but make no progress
  // If a run has failed, and this object still exists after the time `grace`, it calls `onStuck`.
  // By default, `onStuck` prints the failure and ends the process with ExitCode::RankFailed.
  Milliseconds grace{5000};
  std::function<void(const Error &failure)> onStuck;
};

class RendezvousHub;

class Rendezvous {
public:
  // Returns when all ranks have joined. Errors: rank 0 is not at its address; a port is taken; not
  // all ranks join in time; a rank has another secret, another `size` or an invalid number.
  static Result<std::unique_ptr<Rendezvous>> join(const RendezvousOptions &options);

  // Tells the other ranks that this rank leaves the run, unless the run has failed.
  ~Rendezvous();
  Rendezvous(const Rendezvous &) = delete;
  Rendezvous &operator=(const Rendezvous &) = delete;

  // Returns the name of each rank's machine.
  const std::vector<std::string> &hosts() const { return names; }

  // Returns a numerical address of this machine that the other ranks can reach.
  const std::string &ownAddress() const { return address; }

  // Returns the progress of this rank. Each sign of life takes it to rank 0.
  Progress &progress() { return state; }

  // On rank 0, returns the progress of all ranks at their latest signs of life.
  std::vector<Progress::State> progressOfRanks() const;

  // Returns "rank 3 (host b)".
  std::string nameOf(int rank) const;

  // Access a store that all ranks share, which maps keys to bytes. A key may be set only once.
  // get() waits until the key is set.
  Result<void> set(const std::string &key, const std::vector<char> &value);
  Result<std::vector<char>> get(const std::string &key);

  // Sets the function `wake`, which a thread of this object calls. wake(nullopt) must end all
  // waits, because the run cannot go on. wake(rank) must end all waits for a rank that has left. It
  // is called when the time options.arrival has passed after the rank left.
  using Wake = std::function<void(std::optional<int> rank)>;
  void onLoss(Wake wake);

  // If a rank has failed or has left the run, returns an Error about that rank.
  std::optional<Error> anyLoss() const;

  // Must be called if a data connection with `rank` is lost. Returns the reason for which the run
  // cannot go on. Waits for this reason at most as long as it takes to find a hung rank.
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
  // Maps each rank that has left the run to the time until which its last messages may arrive.
  std::map<int, Deadline> left;
  std::optional<Error> failed;
  Wake wake;
  bool needed = false; // true if lossOf() has reported a lost rank
  bool closing = false, readerDone = false;
  std::thread reader, beater;
};

} // namespace lmc
