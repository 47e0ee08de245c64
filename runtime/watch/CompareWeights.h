// Finds weights that were damaged without an error: by faulty memory, or by a product that a device
// computed wrongly.
//
// Ranks that hold the same part of a parameter or of a compute copy must have the same bits,
// because each of them applies the same update. A compute copy that lies beside its master weights
// must have the bits of these, rounded to its dtype. So every weight that exists twice is checked,
// on several ranks or on one. Weights that exist once, as in f32 on a single rank, cannot.
//
// A rank reads its weights from the device once, and takes the XXH3 (64 bits) of each tensor.
#pragma once

#include "runtime/comm/World.h"
#include "runtime/step/BufferRing.h"

#include <memory>
#include <string>
#include <vector>

namespace lmc {

// A tensor of which not all copies are equal.
struct WeightDifference {
  std::string tensor;
  // The ranks whose bits differ from those of most ranks with the same part, in ascending order;
  // all ranks with this part if there is no majority. For a copy that differs from its rounded
  // master: the rank that holds both.
  std::vector<int> ranks;
  bool beside = false; // the copy differs from its master on the same rank
};

// Returns at least one difference as a clause: "2 tensors differ; model.norm.weight of rank 3 (host
// b) has not the bits of the other ranks".
std::string describe(const std::vector<WeightDifference> &differences, const World &world);

class WeightComparison {
public:
  // Returns null if the plan has no weight that exists twice. All arguments must outlive the
  // result. Error: the host has no memory for two buffers, of
  // kPieceBytes at most.
  static Result<std::unique_ptr<WeightComparison>> open(const PlanFile &plan, Device &device,
                                                        World &world);

  // Compares the weights after all work that was enqueued. All ranks call it together, and get the
  // same result: the tensors with differences, at most kMostDifferences of them. Error: a device or
  // a rank failed.
  Result<std::vector<WeightDifference>> compare();

  static constexpr uint64_t kPieceBytes = 32 << 20;
  static constexpr size_t kMostDifferences = 100;

private:
  WeightComparison(const PlanFile &plan, World &world, Device &device, BufferRing ring)
      : plan(plan), world(world), device(device), ring(std::move(ring)) {}
  // A variable whose bits are compared with those of other ranks, or with those of its master.
  struct Weight {
    const plan::Variable *variable = nullptr;
    const plan::Variable *master = nullptr; // the master on this rank of a compute copy; else null
    bool isReplicated = false;
  };
  static std::vector<Weight> weightsOf(const plan::Plan &plan);
  uint64_t position() const; // along the axis Shard
  Result<uint64_t> hashOf(const plan::Variable &variable);
  Result<bool> isRoundedMaster(const Weight &weight);
  Result<std::vector<uint64_t>> gather(const std::vector<uint64_t> &mine);
  // Adds the differences in `hashes`, which has the hashes of all ranks, one rank after the other.
  void addDifferences(const std::vector<uint64_t> &hashes, std::vector<WeightDifference> &to) const;

  const PlanFile &plan;
  World &world;
  Device &device;
  BufferRing ring;
  std::vector<Weight> weights;
};

} // namespace lmc
