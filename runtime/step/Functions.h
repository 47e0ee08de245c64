// Records the functions of a plan once, and runs them by name.
#pragma once

#include "runtime/device/FunctionObserver.h"

#include <map>
#include <memory>
#include <string>

namespace lmc {

// The time that a run spends in each function of the plan.
class Profile {
public:
  // Adds one run of `function` that took `seconds`.
  void add(const std::string &function, double seconds);

  // Writes {"functions": [{"name", "calls", "seconds", "mean_seconds", "min_seconds"}]}, the
  // function with the largest total first.
  Result<void> write(const std::string &path) const;

private:
  struct Entry {
    uint64_t calls = 0;
    double seconds = 0;
    double least = 0;
  };
  std::map<std::string, Entry> entries;
};

class Functions {
public:
  // Records every function of `plan`. If `profile` is set, run() waits for the function and adds
  // its time to the profile. While observer->isRecording(), the observer runs the functions.
  // `profile` and `observer` may be null, and must outlive this object.
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
