#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &command,
                             const plan::AttentionGrad &op) {
  const int64_t queries = int64_t(op.heads()) * op.head_dim();
  const int64_t keys = int64_t(op.kv_heads()) * op.head_dim();
  const AttentionGradArgs args{at.address(op.q()),
                               at.address(op.k()),
                               at.address(op.v()),
                               at.address(op.out()),
                               at.address(op.lse()),
                               at.address(op.dout()),
                               at.address(op.dq()),
                               at.address(op.dk()),
                               at.address(op.dv()),
                               at.address(command.workspace()),
                               op.batch(),
                               op.seq(),
                               op.heads(),
                               op.kv_heads(),
                               op.head_dim(),
                               op.window(),
                               op.scale(),
                               at.pitch(op.q(), queries),
                               at.pitch(op.k(), keys),
                               at.pitch(op.v(), keys),
                               at.pitch(op.dq(), queries),
                               at.pitch(op.dk(), keys),
                               at.pitch(op.dv(), keys),
                               at.address<const int32_t>(op.starts()),
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
