#include "runtime/train/Functions.h"

#include <fmt/format.h>

#include <chrono>

namespace lmc {

Result<std::unique_ptr<Functions>> Functions::record(const PlanFile &plan, Device &device,
                                                     Profile *profile) {
  std::unique_ptr<Functions> functions(new Functions(device, profile));
  for (flatbuffers::uoffset_t i = 0; i < plan->functions()->size(); ++i) {
    auto executable = device.record(static_cast<int>(i));
    if (!executable)
      return executable.error();
    functions->executables[plan->functions()->Get(i)->name()->str()] = std::move(*executable);
  }
  return functions;
}

Result<void> Functions::run(const std::string &name) {
  auto found = executables.find(name);
  if (found == executables.end())
    return Error{fmt::format("the plan has no function '{}'", name)};
  if (!profile)
    return device.submit(*found->second);
  auto start = std::chrono::steady_clock::now();
  LMC_TRY(device.submit(*found->second));
  LMC_TRY(device.synchronize());
  profile->add(name,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return {};
}

} // namespace lmc
