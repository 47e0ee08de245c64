#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

// Returns a function that runs the collective.
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
Result<BoundCommand> resolve(Resolver &at, const plan::Command &command,
                             const plan::Collective &op) {
  if (!at.world)
    return Error{"the plan is for several ranks; start it with --nproc, torchrun or srun"};
  auto work = workOf(at, op);
  LMC_TRY(work);
  if (command.stream() == 0)
    return BoundCommand([&at, work = *work, progress = &at.world->progress()] {
      {
        const Progress::Wait waiting(progress);
        orThrow(at.waitForQueues());
      }
      orThrow(work());
    });
  CollectiveQueue *source = nullptr; // queue of collective op.after(), which must end before `op`
  if (op.after() >= 0)
    source = &at.queueOf(at.function->commands()->Get(uint32_t(op.after()))->stream());
  return BoundCommand([queue = &at.queueOf(command.stream()), work = *work, started = at.started,
                       index = at.command, source, after = op.after()] {
    const uint64_t before = source ? (*started)[size_t(after)].number : 0;
    (*started)[index].number = queue->add([=]() -> Result<void> {
      StartedCollective &run = (*started)[index];
      if (source)
        LMC_TRY(source->wait(before));
      run.begin = std::chrono::steady_clock::now();
      LMC_TRY(work());
      run.end = std::chrono::steady_clock::now();
      return {};
    });
  });
}

} // namespace lmc::cpu
