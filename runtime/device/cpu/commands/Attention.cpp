#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::Attention &op) {
  const int64_t queries = int64_t(op.heads()) * op.head_dim();
  const int64_t keys = int64_t(op.kv_heads()) * op.head_dim();
  const AttentionArgs args{at.address(op.q()),
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
                           at.pitch(op.q(), queries),
                           at.pitch(op.k(), keys),
                           at.pitch(op.v(), keys),
                           at.address<const int32_t>(op.starts())};
  const AttentionKernels &kernels = kernelSet().attention[int(at.storage(op.q()))];
  at.needScratch(kernels.scratchBytes(args));
  return BoundCommand([&at, &kernels, args] {
    at.forTasks(kernels.tasks(args),
                [&](int64_t task, void *scratch) { kernels.run(args, task, scratch); });
  });
}

} // namespace lmc::cpu
