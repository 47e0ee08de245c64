// Memory that the ranks of a communicator share, as processes of one machine.
//
// Each rank shows the others one collective at a time: what it is, and its input. When all have
// shown it, each computes its own result. A rank shows the next one when all have theirs.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <memory>
#include <string>

namespace lmc::hostdriver {

// What all ranks of a communicator must agree on in a collective.
struct Shown {
  plan::CollectiveKind kind;
  plan::DType dtype; // of sums; I8 for AllGather
  uint64_t inputBytes;
  bool captured; // it is in a graph

  bool operator==(const Shown &) const = default;
  std::string text() const;
};

class RankMemory {
public:
  static constexpr int kMostRanks = 16;
  static constexpr uint64_t kMostBytes = uint64_t(256) << 20; // of a rank's input

  // Returns the memory of this name; null if that is impossible. `device` is the rank's device in
  // the machine; -1 if each rank stands for a machine of its own.
  static std::unique_ptr<RankMemory> open(const std::string &name, int rank, int ranks, int device);
  ~RankMemory();

  // Says that this rank has come, or that it has failed and never will.
  void join(bool failed);
  // Waits until all ranks have come. Returns "", or who is missing.
  std::string awaitAll();
  // Returns the rank that has the same device as this one; -1: none has.
  int findDuplicate() const;
  // Says that this rank ends the communicator.
  void leave();
  // Waits until all ranks with a device in this machine have said so, for at most `milliseconds`.
  // Returns one that has not; -1: all have.
  int awaitLeaving(uint64_t milliseconds) const;

  // Shows collective number `number`, from 1 on. Returns false if not all have finished the one
  // before.
  bool show(uint64_t number, const Shown &shown, const void *input);
  // Returns true if all ranks have shown it.
  bool allShow(uint64_t number) const;
  // Returns true if another rank has shown a collective that this one has not shown.
  bool someoneWaits() const;
  Shown shownBy(int rank) const;
  const void *inputOf(int rank) const;
  // Says that this rank needs the inputs of the collective no more.
  void finish(uint64_t number);

  const int rank, ranks;

private:
  struct Layout;
  RankMemory(Layout *layout, std::string name, int rank, int ranks)
      : rank(rank), ranks(ranks), layout(layout), name(std::move(name)) {}
  char *input(int rank) const;
  std::string findMissing() const;

  Layout *layout;
  std::string name;
};

} // namespace lmc::hostdriver
