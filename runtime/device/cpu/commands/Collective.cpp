#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

// Returns the collective as a function of its own.
static Result<CollectiveQueue::Work> workOf(Resolver &at, const plan::Collective &op) {
  Communicator &group = at.world->along(op.axis());
  const void *x = at.memory.address(op.x());
  void *d = at.memory.address(op.d());
  const plan::Slice &in = at.memory.slice(op.x()), &out = at.memory.slice(op.d());
  const plan::DType dtype = out.dtype();
  const uint64_t elements = out.bytes() / byteWidth(dtype);
  using Work = CollectiveQueue::Work;
  switch (op.kind()) {
  case plan::CollectiveKind::AllGather:
    return Work([&group, x, d, bytes = in.bytes()] { return group.allGather(x, d, bytes); });
  case plan::CollectiveKind::ReduceScatter:
    return Work(
        [&group, x, d, elements, dtype] { return group.reduceScatter(x, d, elements, dtype); });
  case plan::CollectiveKind::AllReduce:
    return Work([&group, d, elements, dtype] { return group.allReduce(d, elements, dtype); });
  }
  return Error{"a collective of an unknown kind"};
}

template <>
Result<Step> resolve(Resolver &at, const plan::Command &command, const plan::Collective &op) {
  if (!at.world)
    return Error{"the plan is for several ranks; start it with --nproc, torchrun or srun"};
  auto work = workOf(at, op);
  LMC_TRY(work);
  if (command.stream() == 0)
    return Step([queue = &at.collectives, work = *work, progress = &at.world->progress()] {
      {
        const Progress::Wait waiting(progress);
        orThrow(queue->waitForAll());
      }
      orThrow(work());
    });
  return Step([queue = &at.collectives, work = *work, started = at.started, index = at.command] {
    (*started)[index] = queue->add(work);
  });
}

} // namespace lmc::cpu
