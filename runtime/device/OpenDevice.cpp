// Opens the device that the target of a plan names.
#include "runtime/device/Device.h"

#include <fmt/format.h>

#include <string_view>

namespace lmc {

#define LMC_DEVICE(Target, Name)                                                                   \
  Result<std::unique_ptr<Device>> Target##Device(const DeviceOptions &options);
#define LMC_NO_DEVICE(Target, Name)
#include "runtime/device/Devices.def"
#undef LMC_DEVICE
#undef LMC_NO_DEVICE

namespace {

struct Opener {
  std::string_view target; // the part of a plan's target before ':'
  const char *name;        // name of the device, for errors
  // Opens the device; null if this build lacks it.
  Result<std::unique_ptr<Device>> (*open)(const DeviceOptions &options);
};

constexpr Opener kOpeners[] = {
#define LMC_DEVICE(Target, Name) {#Target, Name, Target##Device},
#define LMC_NO_DEVICE(Target, Name) {#Target, Name, nullptr},
#include "runtime/device/Devices.def"
#undef LMC_DEVICE
#undef LMC_NO_DEVICE
};

} // namespace

Result<std::unique_ptr<Device>> openDevice(const PlanFile &plan, const DeviceOptions &options) {
  const std::string target = plan->target()->str();
  if (options.threads < 0)
    return userError("--threads={}: the number of threads must be positive", options.threads);
  for (const Opener &opener : kOpeners) {
    if (opener.target != std::string_view(target).substr(0, target.find(':')))
      continue;
    if (opener.open)
      return opener.open(options);
    return userError(
        "{}: the plan is for '{}', and this build has no {} device; compile it with --target={}",
        plan.path(), target, opener.name, kOpeners[0].target);
  }
  return userError("{}: the plan is for '{}', a device that this program does not know",
                   plan.path(), target);
}

} // namespace lmc
