// Runs the collectives of a plan on a GPU, by NCCL or by the host.
#pragma once

#include "runtime/comm/World.h"
#include "runtime/device/cuda/Gpu.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lmc::cuda {

// One collective of the plan with its addresses and sizes. For an AllReduce, x is not set.
struct CollectiveCall {
  plan::CollectiveKind kind = plan::CollectiveKind::AllGather;
  plan::Axis axis = plan::Axis::Shard;
  plan::DType dtype = plan::DType::F32;
  CUdeviceptr x = 0, d = 0;
  uint64_t xBytes = 0, dBytes = 0;
};

class Collectives {
public:
  virtual ~Collectives() = default;

  // Enqueues a collective after all earlier commands of `stream` and all earlier collectives. Then
  // records event `ended`. If byHost(), waits for the end of the collective and ignores `ended`.
  virtual Result<void> start(const CollectiveCall &call, CUstream stream, CUevent ended) = 0;

  // Returns true if the host takes part in collectives. No graph can then capture them.
  virtual bool byHost() const = 0;

  // If a collective has failed, or waits for a lost rank, calls abort() and returns an error.
  virtual Result<void> check() { return {}; }

  // Ends the running collectives without a result. No collective can be started afterwards.
  virtual void abort() {}
};

// Returns collectives that copy their operands to the host and compute the results there.
std::unique_ptr<Collectives> makeHostCollectives(const Driver &driver, World &world);

// Opens the library that LMC_NCCL names (by default libnccl.so.2). Makes a communicator for each of
// `axes`. All ranks must call this together. `gpu` must be current. abort(), in any thread, calls
// `dropGraphs`, which must destroy all graphs with collectives. Errors: the library is missing or
// too old, or the ranks cannot connect.
Result<std::unique_ptr<Collectives>> openNccl(const Driver &driver, const Gpu &gpu, World &world,
                                              const std::vector<plan::Axis> &axes,
                                              std::function<void()> dropGraphs);

// Opens the same library as openNccl(), and returns its version. Error: it is missing or too old.
Result<LibraryFile> findNccl();

} // namespace lmc::cuda
