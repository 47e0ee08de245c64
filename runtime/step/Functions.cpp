#include "runtime/step/Functions.h"

#include <fmt/format.h>

#include <chrono>

namespace lmc {

Result<std::unique_ptr<Functions>> Functions::record(const PlanFile &plan, Device &device,
                                                     Profile *profile, FunctionObserver *observer) {
  std::unique_ptr<Functions> recorded(new Functions(device, profile, observer));
  for (uint32_t i = 0; i < plan->functions()->size(); ++i) {
    LMC_LET(executable, device.record(static_cast<int>(i)));
    recorded->functions[plan->functions()->Get(i)->name()->str()] = {i, std::move(*executable)};
  }
  return recorded;
}

Result<void> Functions::submit(const Function &function) {
  if (observer && observer->isRecording())
    return observer->run(device, *function.executable, function.index);
  return device.submit(*function.executable);
}

Result<void> Functions::run(const std::string &name) {
  auto found = functions.find(name);
  if (found == functions.end())
    return Error{fmt::format("the plan has no function '{}'", name)};
  if (!profile)
    return submit(found->second);
  auto start = std::chrono::steady_clock::now();
  LMC_TRY(submit(found->second));
  LMC_TRY(device.synchronize());
  profile->add(name,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return {};
}

} // namespace lmc
