#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

// Returns the operands that attention and its gradient have in common.
template <typename Op> static AttentionArgs attentionArgs(Resolver &at, const Op &op) {
  const int64_t keys = int64_t(op.kv_heads()) * op.head_dim();
  return {at.address(op.q()),
          at.address(op.k()),
          at.address(op.v()),
          at.address(op.out()),
          at.address(op.lse()),
          op.batch(),
          op.seq(),
          op.heads(),
          op.kv_heads(),
          op.head_dim(),
          op.window(),
          op.scale(),
          at.pitch(op.q(), int64_t(op.heads()) * op.head_dim()),
          at.pitch(op.k(), keys),
          at.pitch(op.v(), keys),
          at.address<const int32_t>(op.starts())};
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::Attention &op) {
  const AttentionArgs args = attentionArgs(at, op);
  const AttentionKernels &kernels = kernelSet().attention[int(at.storage(op.q()))];
  at.needScratch(kernels.scratchBytes(args));
  return BoundCommand([&at, &kernels, args] {
    at.forTasks(kernels.tasks(args),
                [&](int64_t task, void *scratch) { kernels.run(args, task, scratch); });
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &command,
                             const plan::AttentionGrad &op) {
  const int64_t keys = int64_t(op.kv_heads()) * op.head_dim();
  const AttentionGradArgs args{attentionArgs(at, op),
                               at.address(op.dout()),
                               at.address(op.dq()),
                               at.address(op.dk()),
                               at.address(op.dv()),
                               at.address(command.workspace()),
                               at.pitch(op.dq(), int64_t(op.heads()) * op.head_dim()),
                               at.pitch(op.dk(), keys),
                               at.pitch(op.dv(), keys),
                               at.address<const float>(op.cos()),
                               at.address<const float>(op.sin())};
  const AttentionKernels &kernels = kernelSet().attention[int(at.storage(op.q()))];
  at.needScratch(kernels.gradScratchBytes(args));
  return BoundCommand([&at, &kernels, args] {
    at.forTasks(kernels.gradTasks(args),
                [&](int64_t task, void *scratch) { kernels.gradRun(args, task, scratch); });
  });
}

} // namespace lmc::cpu
