// Finds weights that were damaged without an error, for example by faulty memory.
//
// Ranks that hold the same part of a parameter or of a compute copy apply the same updates to it,
// so they must have equal bits. A compute copy must also be equal to its rank's master weights,
// rounded to the copy's dtype. A weight that exists only once is not checked.
//
// A rank reads its weights from the device once, and hashes each tensor (XXH3, 64 bits).
#pragma once

#include "runtime/comm/World.h"
#include "runtime/step/BufferRing.h"

#include <memory>
#include <string>
#include <vector>

namespace lmc {

struct WeightDifference {
  std::string tensor;
  // The ranks whose bits differ from the majority's, ascending; all ranks if there is no majority.
  // If `beside` is true: the ranks on which the copy differs from its master.
  std::vector<int> ranks;
  bool beside = false; // true if a copy differs from its master on the same rank
};

// Returns a clause about the differences, of which there is at least one: "2 tensors differ;
// model.norm.weight of rank 3 (host b) has not the bits of the other ranks".
std::string describe(const std::vector<WeightDifference> &differences, const World &world);

class WeightComparison {
public:
  // Returns null if every weight exists only once. The arguments must outlive the result.
  static Result<std::unique_ptr<WeightComparison>> open(const PlanFile &plan, Device &device,
                                                        World &world);

  // Compares the weights after all enqueued work. All ranks call it together, and get the same
  // result: at most kMostDifferences tensors with differences.
  Result<std::vector<WeightDifference>> compare();

  static constexpr uint64_t kPieceBytes = 32 << 20;
  static constexpr size_t kMostDifferences = 100;

private:
  WeightComparison(const PlanFile &plan, World &world, Device &device, BufferRing ring)
      : plan(plan), world(world), device(device), ring(std::move(ring)) {}
  // A variable that is compared with the same variable on other ranks, or with its master.
  struct Weight {
    const plan::Variable *variable = nullptr;
    const plan::Variable *master = nullptr; // set for a compute copy whose master is on this rank
    bool isReplicated = false;
  };
  static std::vector<Weight> weightsOf(const plan::Plan &plan);
  uint64_t position() const; // position of this rank along the mesh axis Shard
  Result<uint64_t> hashOf(const plan::Variable &variable);
  Result<bool> isRoundedMaster(const Weight &weight);
  Result<std::vector<uint64_t>> gather(const std::vector<uint64_t> &mine);
  // Appends the differences to `to`. `hashes` has the hashes of rank 0, then of rank 1, and so on.
  void addDifferences(const std::vector<uint64_t> &hashes, std::vector<WeightDifference> &to) const;

  const PlanFile &plan;
  World &world;
  Device &device;
  BufferRing ring;
  std::vector<Weight> weights;
};

} // namespace lmc
