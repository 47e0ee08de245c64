// The step's scalars in device memory: run.lr, run.loss and their like.
#pragma once

#include "runtime/device/Device.h"

#include <map>
#include <string>

namespace lmc {

class Scalars {
public:
  Scalars(const PlanFile &plan, Device &device) : plan(plan), device(device) {}

  // Writes `name` (f32 or f64) where its value changes.
  Result<void> set(const std::string &name, double value);
  // Waits for all submissions and reads `name`.
  Result<double> get(const std::string &name);

private:
  Result<int> sliceOf(const std::string &name) const;
  const PlanFile &plan;
  Device &device;
  std::map<std::string, double> written; // only the host writes these
};

} // namespace lmc
