// Runs the collectives of a plan on a GPU, by NCCL or by the host.
#pragma once

#include "runtime/comm/World.h"
#include "runtime/device/cuda/Gpu.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lmc::cuda {

// One collective of the plan with its addresses. An AllReduce has only d.
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

  // Runs a collective behind all commands of `stream` and all earlier collectives. `ended` is
  // recorded behind it. If byHost(), it has ended when the call returns, and `ended` is not used.
  virtual Result<void> start(const CollectiveCall &call, CUstream stream, CUevent ended) = 0;

  // Returns true if the host takes part in each collective, so that no graph can capture one.
  virtual bool byHost() const = 0;

  // Returns an error if a collective has failed, or cannot end because a rank is gone. All
  // collectives that ran have then ended without a result, and none can be started.
  virtual Result<void> check() { return {}; }

  // Ends the running collectives without a result. None can be started afterwards.
  virtual void abort() {}
};

// Collectives that copy their operands to host memory and let `world` compute the result. Every
// command waits for them.
std::unique_ptr<Collectives> makeHostCollectives(const Driver &driver, World &world);

// Opens the library that LMC_NCCL names, else libnccl.so.2, and makes a communicator for each of
// `axes`. All ranks call it together. `gpu` must be current. An abort calls `dropGraphs`, from any
// thread: it destroys all graphs with collectives, for which NCCL waits. Errors: there is no such
// library, or it is too old, or the ranks cannot connect.
Result<std::unique_ptr<Collectives>> openNccl(const Driver &driver, const Gpu &gpu, World &world,
                                              const std::vector<plan::Axis> &axes,
                                              std::function<void()> dropGraphs);

// Opens the same library only to find its version. Errors: as of openNccl().
Result<LibraryFile> findNccl();

} // namespace lmc::cuda
