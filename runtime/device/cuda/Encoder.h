// Turns each command of a plan into a C++ function that enqueues the command on a stream.
#pragma once

#include "runtime/device/cuda/Collectives.h"
#include "runtime/device/cuda/Kernels.h"
#include "runtime/device/cuda/ProductWays.h"
#include "runtime/device/cuda/Products.h"

#include <functional>

namespace lmc::cuda {

// Enqueues one command on a stream, which may be capturing a graph.
using Encoded = std::function<Result<void>(CUstream)>;

// This struct must have the layout of lmc::InitializerRecord in
// compiler/targets/cuda/device/initialize.cuh. plan.fbs (Initializer) describes the members.
struct InitializerRecord {
  uint64_t first, elements, seed, stream;
  double value;
};

struct Encoder {
  const Driver &driver;
  const plan::Plan &plan;
  const Kernels &kernels;
  Products *products;       // null if the plan has no matrix products
  ProductWays *ways;        // null if `products` is null
  Collectives *collectives; // null if the plan has one rank
  const std::vector<CUdeviceptr> &arenas;

  // Returns one Encoded per command of a function; each refers to the members above. If command i
  // is a collective, later commands wait for its end if it is on stream 0, or if apart[i] or
  // oneByOne is true. Errors: a command needs other ranks, or a kernel that the plan does not have.
  Result<std::vector<Encoded>> encode(const plan::Function &function,
                                      const std::vector<bool> &apart, bool oneByOne) const;

private:
  CUdeviceptr address(uint32_t slice) const {
    const plan::Slice &at = *plan.slices()->Get(slice);
    return arenas[at.arena()] + at.offset();
  }
  Encoded launches(const plan::Command &command) const;
  Encoded product(const plan::Command &command, const plan::Gemm &gemm) const;
  Encoded inOneOfTwoWays(const plan::Command &command) const;
  Encoded copy(const plan::Copy &copy) const;
  Encoded collective(const plan::Collective &collective, bool waits, CUevent ended) const;
  Result<Encoded> encode(const plan::Command &command) const;
};

} // namespace lmc::cuda
