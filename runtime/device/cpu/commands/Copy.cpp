#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

template <> Result<Step> resolve(Resolver &at, const plan::Command &, const plan::Copy &op) {
  return Step([copy = bindCopy(op, at.memory), threads = at.threads] { copy.run(threads); });
}

} // namespace lmc::cpu
