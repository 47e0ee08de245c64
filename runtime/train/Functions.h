// Records the functions of a plan once, and runs them by name.
#pragma once

#include "runtime/device/Device.h"
#include "runtime/monitor/Profile.h"

#include <map>
#include <memory>
#include <string>

namespace lmc {

class Functions {
public:
  // Records every function of `plan`. With a `profile`, which must outlive this object, run() waits
  // until the function is complete and adds the time to the profile.
  static Result<std::unique_ptr<Functions>> record(const PlanFile &plan, Device &device,
                                                   Profile *profile);

  bool has(const std::string &name) const { return executables.count(name) != 0; }

  // Submits one run of the function `name`. Error: the plan has no such function.
  Result<void> run(const std::string &name);

private:
  Functions(Device &device, Profile *profile) : device(device), profile(profile) {}
  Device &device;
  Profile *profile;
  std::map<std::string, std::unique_ptr<Executable>> executables;
};

} // namespace lmc
