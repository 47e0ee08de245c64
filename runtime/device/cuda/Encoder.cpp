#include "runtime/device/cuda/Encoder.h"

#include "runtime/plan/Operands.h"
#include "runtime/plan/SliceGeometry.h"

#include <fmt/format.h>

namespace lmc::cuda {

Encoded Encoder::launches(const plan::Command &command) const {
  struct Bound {
    const Kernel *kernel;
    std::vector<CUdeviceptr> arguments;
  };
  std::vector<Bound> bound;
  for (const plan::Launch *launch : plan::launchesOf(command)) {
    bound.push_back({&kernels.all()[launch->kernel()], {}});
    for (uint32_t slice : *launch->args())
      bound.back().arguments.push_back(address(slice));
  }
  return [bound, &driver = driver](CUstream stream) -> Result<void> {
    for (const Bound &launch : bound)
      LMC_TRY(Kernels::launch(driver, *launch.kernel, launch.arguments, stream));
    return {};
  };
}

Encoded Encoder::product(const plan::Command &command, const plan::Gemm &gemm) const {
  ProductAddresses at{address(gemm.a()), address(gemm.b()), address(gemm.d())};
  if (gemm.bias() >= 0)
    at.bias = address(uint32_t(gemm.bias()));
  if (command.workspace() >= 0)
    at.workspace = address(uint32_t(command.workspace()));
  return [at, shape = Products::shapeOf(plan, command, gemm), products = products](
             CUstream stream) { return products->run(shape, at, stream); };
}

Encoded Encoder::copy(const plan::Copy &op) const {
  const CopyRuns runs = copyRuns(*plan.slices()->Get(op.d()), *plan.slices()->Get(op.x()));
  const CUdeviceptr d = address(op.d()), x = address(op.x());
  return [=, &driver = driver](CUstream stream) -> Result<void> {
    if (runs.rows == 1) {
      LMC_CUDA(driver, cuMemcpyDtoDAsync(d, x, runs.bytes, stream), "copy");
      return {};
    }
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = x;
    rows.srcPitch = runs.xPitch;
    rows.dstDevice = d;
    rows.dstPitch = runs.dPitch;
    rows.WidthInBytes = runs.bytes;
    rows.Height = runs.rows;
    LMC_CUDA(driver, cuMemcpy2DAsync(&rows, stream), "copy rows");
    return {};
  };
}

Result<Encoded> Encoder::encode(const plan::Command &command) const {
  if (command.stream() != 0)
    return Error{fmt::format("a command of the plan is on stream {}, and this lmc-run has stream 0 only",
                             command.stream())};
  if (const plan::Gemm *gemm = command.body_as_Gemm())
    return product(command, *gemm);
  if (const plan::Copy *op = command.body_as_Copy())
    return copy(*op);
  if (plan::launchesOf(command).empty())
    return Error{fmt::format("a command of the plan has no kernels ({})",
                             command.source() ? command.source()->str() : "")};
  return launches(command);
}

} // namespace lmc::cuda
