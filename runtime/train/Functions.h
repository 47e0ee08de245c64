// Records the functions of a plan once, and runs them by name.
#pragma once

#include "runtime/device/Device.h"
#include "runtime/monitor/Profile.h"
#include "runtime/train/StepTrace.h"

#include <map>
#include <memory>
#include <string>

namespace lmc {

class Functions {
public:
  // Records every function of `plan`. With a `profile`, which must outlive this object, run() waits
  // until the function is complete and adds the time to the profile. With a `trace`, which must
  // outlive this object, it adds the function to the trace while that is recording.
  static Result<std::unique_ptr<Functions>> record(const PlanFile &plan, Device &device,
                                                   Profile *profile, StepTrace *trace);

  bool has(const std::string &name) const { return functions.count(name) != 0; }

  // Submits one run of the function `name`. Error: the plan has no such function.
  Result<void> run(const std::string &name);

private:
  struct Function {
    uint32_t index = 0; // in the plan
    std::unique_ptr<Executable> executable;
  };

  Functions(Device &device, Profile *profile, StepTrace *trace)
      : device(device), profile(profile), trace(trace) {}
  Result<void> submit(const Function &function);

  Device &device;
  Profile *profile;
  StepTrace *trace;
  std::map<std::string, Function> functions;
};

} // namespace lmc
