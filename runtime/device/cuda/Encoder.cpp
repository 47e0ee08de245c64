#include "runtime/device/cuda/Encoder.h"

#include "ground/plan/Operands.h"
#include "ground/plan/SliceGeometry.h"

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
  if (const int64_t residual = plan::residualOf(gemm); residual >= 0)
    at.residual = address(uint32_t(residual));
  if (gemm.scale_a() >= 0) {
    at.scaleA = address(uint32_t(gemm.scale_a()));
    at.scaleB = address(uint32_t(gemm.scale_b()));
  }
  if (command.workspace() >= 0)
    at.workspace = address(uint32_t(command.workspace()));
  return [at, shape = Products::shapeOf(plan, command, gemm),
          products = products](CUstream stream) { return products->run(shape, at, stream); };
}

Encoded Encoder::inOneOfTwoWays(const plan::Command &command) const {
  WayAddresses at;
  if (const plan::ExpertLinear *op = command.body_as_ExpertLinear()) {
    at.left = address(op->x());
    at.weight = address(op->weight());
    at.offsets = address(op->offsets());
    at.result = address(op->y());
  } else {
    const plan::Gemm &product = *plan::productOf(command);
    at.left = address(product.a());
    at.weight = address(product.b());
    if (const plan::LinearSwiglu *forward = command.body_as_LinearSwiglu()) {
      at.halves = address(product.d());
      at.result = address(forward->a());
    } else {
      at.halves = at.gradients = address(command.body_as_SwigluLinearGrad()->dgu());
      at.result = address(product.d());
    }
  }
  if (command.workspace() >= 0)
    at.workspace = address(uint32_t(command.workspace()));
  return [at, described = ProductWays::describe(plan, command, kernels),
          ways = ways](CUstream stream) { return ways->run(described, at, stream); };
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

Encoded Encoder::collective(const plan::Collective &op, bool waits, CUevent ended) const {
  const plan::Slice &x = *plan.slices()->Get(op.x()), &d = *plan.slices()->Get(op.d());
  const CollectiveCall call{op.kind(),       op.axis(), d.dtype(), address(op.x()),
                            address(op.d()), x.bytes(), d.bytes()};
  return [=, &driver = driver, collectives = collectives](CUstream stream) -> Result<void> {
    LMC_TRY(collectives->start(call, stream, ended));
    if (waits)
      LMC_CUDA(driver, cuStreamWaitEvent(stream, ended, 0), "wait for a collective");
    return {};
  };
}

Result<Encoded> Encoder::encode(const plan::Command &command) const {
  if (const plan::Gemm *gemm = command.body_as_Gemm())
    return product(command, *gemm);
  if (const plan::Copy *op = command.body_as_Copy())
    return copy(*op);
  if (plan::launchesOf(command).empty())
    return userError("a command of the plan has no kernels ({})",
                     command.source() ? command.source()->str() : "");
  if (plan::hasTwoWays(command))
    return inOneOfTwoWays(command);
  return launches(command);
}

Result<std::vector<Encoded>> Encoder::encode(const plan::Function &function,
                                             const std::vector<bool> &apart, bool oneByOne) const {
  std::vector<Encoded> all;
  // ends[i] is the event for which the Wait of collective i waits; null: that Wait does nothing.
  std::vector<std::shared_ptr<Event>> ends(function.commands()->size());
  for (const plan::Command *command : *function.commands()) {
    if (const plan::Collective *op = command->body_as_Collective()) {
      if (!collectives)
        return Error{"the plan is for several ranks; start it with --nproc, torchrun or srun"};
      auto ended = std::make_shared<Event>();
      LMC_TRY(makeEvent(driver, /*timed=*/false, *ended));
      const bool waits =
          !collectives->byHost() && (oneByOne || command->stream() == 0 || apart[all.size()]);
      ends[all.size()] = waits ? nullptr : ended;
      all.push_back([ended, start = collective(*op, waits, ended->get())](CUstream stream) {
        return start(stream);
      });
      continue;
    }
    if (const plan::Wait *wait = command->body_as_Wait()) {
      // The verifier of plans guarantees that the collective comes before its Wait.
      auto ended = collectives && !collectives->byHost() ? ends[wait->command()] : nullptr;
      all.push_back([ended, &driver = driver](CUstream stream) -> Result<void> {
        if (ended)
          LMC_CUDA(driver, cuStreamWaitEvent(stream, ended->get(), 0), "wait for a collective");
        return {};
      });
      continue;
    }
    LMC_LET(encoded, encode(*command));
    all.push_back(std::move(*encoded));
  }
  return all;
}

} // namespace lmc::cuda
