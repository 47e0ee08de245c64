// Turns commands of a plan into calls of the driver and of cuBLASLt that enqueue them on a stream.
// Addresses are looked up once.
#pragma once

#include "runtime/device/cuda/Kernels.h"
#include "runtime/device/cuda/Products.h"

#include <functional>

namespace lmc::cuda {

// Enqueues one command on a stream, which may be capturing.
using Encoded = std::function<Result<void>(CUstream)>;

// The layout of lmc::InitializerRecord in compiler/targets/cuda/device/initialize.cuh; plan.fbs
// (Initializer) describes it.
struct InitializerRecord {
  uint64_t first, elements, seed, stream;
  double value;
};

struct Encoder {
  const Driver &driver;
  const plan::Plan &plan;
  const Kernels &kernels;
  Products *products; // null in a plan without matrix products
  const std::vector<CUdeviceptr> &arenas;

  // The result refers to `driver`, `kernels` and `products`. Error: the command needs a stream or a
  // kernel that the plan does not have.
  Result<Encoded> encode(const plan::Command &command) const;

private:
  CUdeviceptr address(uint32_t slice) const {
    const plan::Slice &at = *plan.slices()->Get(slice);
    return arenas[at.arena()] + at.offset();
  }
  Encoded launches(const plan::Command &command) const;
  Encoded product(const plan::Command &command, const plan::Gemm &gemm) const;
  Encoded copy(const plan::Copy &copy) const;
};

} // namespace lmc::cuda
