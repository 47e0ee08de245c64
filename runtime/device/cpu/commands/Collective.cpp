#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &command,
                             const plan::Collective &op) {
  if (!at.world)
    return Error{"the plan is for several ranks; start it with --nproc, torchrun or srun"};
  const plan::Slice &in = at.memory.slice(op.x()), &out = at.memory.slice(op.d());
  auto work = [&group = at.world->along(op.axis()), kind = op.kind(), x = at.address(op.x()),
               d = at.address(op.d()), bytes = in.bytes(),
               elements = out.bytes() / byteWidth(out.dtype()),
               dtype = out.dtype()] { return group.run(kind, x, bytes, d, elements, dtype); };
  if (command.stream() == 0)
    return BoundCommand([&at, work, progress = &at.world->progress()] {
      {
        const Progress::Wait waiting(progress);
        orThrow(at.waitForQueues());
      }
      orThrow(work());
    });
  // If op.after() >= 0, command op.after() is a collective of queue `source` that must end first.
  CollectiveQueue *source = nullptr;
  if (op.after() >= 0)
    source = &at.queueOf(at.function->commands()->Get(uint32_t(op.after()))->stream());
  return BoundCommand([queue = &at.queueOf(command.stream()), work, started = at.started,
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

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::Wait &op) {
  const uint16_t stream = at.function->commands()->Get(op.command())->stream();
  return BoundCommand([queue = &at.queueOf(stream), started = at.started, index = op.command(),
                       progress = &at.world->progress()] {
    const Progress::Wait waiting(progress);
    orThrow(queue->wait((*started)[index].number));
  });
}

} // namespace lmc::cpu
