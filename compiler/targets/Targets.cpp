#include "compiler/targets/Targets.h"

#include "compiler/kernels/Target.h"

namespace lmc::codegen {

#define LMC_TARGET(Name) const Target &Name##Target();
#include "compiler/targets/Targets.def"
#undef LMC_TARGET

void registerTargets() {
#define LMC_TARGET(Name) registerTarget(Name##Target());
#include "compiler/targets/Targets.def"
#undef LMC_TARGET
}

} // namespace lmc::codegen
