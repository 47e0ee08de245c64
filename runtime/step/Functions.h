// Records the functions of a plan once, and runs them by name.
#pragma once

#include "runtime/device/FunctionObserver.h"
#include "runtime/monitor/Profile.h"

#include <map>
#include <memory>
#include <string>

namespace lmc {

class Functions {
public:
  // Records every function of `plan`. With `profile`, run() waits for the function and adds its
  // time. With `observer`, the observer runs the functions while observer->isRecording(). Both may
  // be null, and must outlive this object.
  static Result<std::unique_ptr<Functions>> record(const PlanFile &plan, Device &device,
                                                   Profile *profile, FunctionObserver *observer);

  bool has(const std::string &name) const { return functions.count(name) != 0; }

  // Submits one run of the function `name`. Error: the plan has no such function.
  Result<void> run(const std::string &name);

private:
  struct Function {
    uint32_t index = 0; // index in the plan
    std::unique_ptr<Executable> executable;
  };

  Functions(Device &device, Profile *profile, FunctionObserver *observer)
      : device(device), profile(profile), observer(observer) {}
  Result<void> submit(const Function &function);

  Device &device;
  Profile *profile;
  FunctionObserver *observer;
  std::map<std::string, Function> functions;
};

} // namespace lmc
