#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

template <> Result<Step> resolve(Resolver &, const plan::Command &, const plan::Collective &) {
  return Error{"the plan is for several ranks, and this lmc-run runs one; compile it with "
               "--nodes=1 --devices-per-node=1"};
}

} // namespace lmc::cpu
