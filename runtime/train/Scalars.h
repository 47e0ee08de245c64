// The scalars of a plan in device memory. The host writes some before a function runs (settings,
// values of the step) and reads others afterwards, such as run.loss.
#pragma once

#include "runtime/device/Device.h"
#include "runtime/train/Settings.h"

#include <map>
#include <string>

namespace lmc {

class Scalars {
public:
  Scalars(const PlanFile &plan, Device &device) : plan(plan), device(device) {}

  // Writes `value` to the scalar `name` (f32 or f64), unless the last call wrote the same value.
  Result<void> set(const std::string &name, double value);
  // Writes the value of its setting to every scalar that has a setting.
  Result<void> setSettings(const SettingTable &settings);
  // Writes `value` to every scalar whose Variable.step_value is `which`; there may be none.
  Result<void> setStepValue(plan::StepValue which, double value);
  // Waits for all submitted runs and returns the value of the scalar `name`.
  Result<double> get(const std::string &name);

private:
  Result<int> sliceOf(const std::string &name) const;
  const PlanFile &plan;
  Device &device;
  std::map<std::string, double> written; // last value per name; the device writes none of them
};

} // namespace lmc
