#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

template <>
Result<Step> resolve(Resolver &at, const plan::Command &, const plan::Collective &op) {
  if (!at.world)
    return Error{"the plan is for several ranks; start it with --nproc, torchrun or srun"};
  Communicator &group = at.world->along(op.axis());
  const void *x = at.memory.address(op.x());
  void *d = at.memory.address(op.d());
  const plan::Slice &in = at.memory.slice(op.x()), &out = at.memory.slice(op.d());
  const plan::DType dtype = out.dtype();
  const uint64_t elements = out.bytes() / byteWidth(dtype);
  switch (op.kind()) {
  case plan::CollectiveKind::AllGather:
    return Step([&group, x, d, bytes = in.bytes()] { orThrow(group.allGather(x, d, bytes)); });
  case plan::CollectiveKind::ReduceScatter:
    return Step([&group, x, d, elements, dtype] {
      orThrow(group.reduceScatter(x, d, elements, dtype));
    });
  case plan::CollectiveKind::AllReduce:
    return Step([&group, d, elements, dtype] { orThrow(group.allReduce(d, elements, dtype)); });
  }
  return Error{"a collective of an unknown kind"};
}

} // namespace lmc::cpu
