#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

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
