// Opens the device that a plan's target names.
#include "runtime/device/cpu/CpuDevice.h"

#include <fmt/format.h>

#include <string_view>

namespace lmc {

namespace {

struct Opener {
  std::string_view target;                              // the part of a plan's target before ':'
  const char *name;                                     // the device, for error messages
  Result<std::unique_ptr<Device>> (*open)(int threads); // null: this build lacks the device
};

Result<std::unique_ptr<Device>> openCpu(int threads) { return cpu::makeCpuDevice(threads); }

// The first entry must be a device that every build has.
constexpr Opener kOpeners[] = {
    {"cpu", "CPU", openCpu},
    {"cuda", "CUDA", nullptr},
};

} // namespace

Result<std::unique_ptr<Device>> openDevice(const PlanFile &plan, int threads) {
  const std::string target = plan->target()->str();
  if (threads < 0)
    return Error{fmt::format("--threads={}: the number of threads must be positive", threads)};
  for (const Opener &opener : kOpeners) {
    if (opener.target != std::string_view(target).substr(0, target.find(':')))
      continue;
    if (opener.open)
      return opener.open(threads);
    return Error{fmt::format("{}: the plan is for '{}', and this build has no {} device; compile "
                             "it with --target={}",
                             plan.path(), target, opener.name, kOpeners[0].target)};
  }
  return Error{fmt::format("{}: the plan is for '{}', a device that this program does not know",
                           plan.path(), target)};
}

} // namespace lmc
