#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

template <> Result<Step> resolve(Resolver &at, const plan::Command &, const plan::Wait &op) {
  return Step([queue = &at.collectives, started = at.started, index = op.command(),
               progress = &at.world->progress()] {
    const Progress::Wait waiting(progress);
    orThrow(queue->wait((*started)[index]));
  });
}

} // namespace lmc::cpu
