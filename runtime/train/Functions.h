// The functions of a plan: recorded once, then run by name.
#pragma once

#include "runtime/device/Device.h"
#include "runtime/monitor/Profile.h"

#include <map>
#include <memory>
#include <string>

namespace lmc {

class Functions {
public:
  // Records every function of `plan`. With a `profile`, which must outlive this object, each run
  // waits for its end and adds its time to the profile.
  static Result<std::unique_ptr<Functions>> record(const PlanFile &plan, Device &device,
                                                   Profile *profile);

  bool has(const std::string &name) const { return executables.count(name) != 0; }

  // Submits one run. Fails if the plan has no such function.
  Result<void> run(const std::string &name);

private:
  Functions(Device &device, Profile *profile) : device(device), profile(profile) {}
  Device &device;
  Profile *profile;
  std::map<std::string, std::unique_ptr<Executable>> executables;
};

} // namespace lmc
