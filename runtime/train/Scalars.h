// The scalars of a step in device memory: those that the host writes (settings, and values that
// depend on the step), and those that it reads, such as run.loss.
#pragma once

#include "runtime/device/Device.h"
#include "runtime/train/Settings.h"

#include <map>
#include <string>

namespace lmc {

class Scalars {
public:
  Scalars(const PlanFile &plan, Device &device) : plan(plan), device(device) {}

  // Writes `name` (f32 or f64) if its value changes.
  Result<void> set(const std::string &name, double value);
  // Writes every scalar that has a setting.
  Result<void> setSettings(const SettingTable &settings);
  // Writes every scalar that has this value of the step; there may be none.
  Result<void> setStepValue(plan::StepValue which, double value);
  // Waits for all submitted work and returns the value of `name`.
  Result<double> get(const std::string &name);

private:
  Result<int> sliceOf(const std::string &name) const;
  const PlanFile &plan;
  Device &device;
  std::map<std::string, double> written; // last values; only the host writes them
};

} // namespace lmc
