// Opens the device that the target of a plan names.
#include "runtime/device/cpu/CpuDevice.h"

#include <fmt/format.h>

namespace lmc {

Result<std::unique_ptr<Device>> openDevice(const PlanFile &plan, int threads) {
  const std::string target = plan->target()->str();
  if (threads < 0)
    return Error{fmt::format("--threads={}: the number of threads must be positive", threads)};
  if (target == "cpu" || target.rfind("cpu:", 0) == 0)
    return cpu::makeCpuDevice(threads);
  if (target.rfind("cuda", 0) == 0)
    return Error{fmt::format("{}: the plan is for '{}', and this build has no CUDA device; compile "
                             "it with --target=cpu",
                             plan.path(), target)};
  return Error{fmt::format("{}: the plan is for '{}', a device that this program does not know",
                           plan.path(), target)};
}

} // namespace lmc
