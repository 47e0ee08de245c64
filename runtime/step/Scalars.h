// The scalars of a plan in device memory. At the start of an optimizer step, the host writes the
// settings and the values of the step. After the step, it reads results such as run.loss, and the
// vectors with sums of routers (names::kRouterSums).
#pragma once

#include "runtime/settings/Settings.h"
#include "runtime/step/BufferRing.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lmc {

// Values of scalars, by name.
using ScalarValues = std::map<std::string, double, std::less<>>;

// Values of vectors, by name.
using VectorValues = std::map<std::string, std::vector<double>, std::less<>>;

// Returns the value of the scalar `name`. Error: the plan has no such scalar.
Result<double> valueOf(const ScalarValues &values, const char *name);

class Scalars {
public:
  // Error: a scalar that the host reads or writes is neither f32 nor f64.
  static Result<std::unique_ptr<Scalars>> open(const PlanFile &plan, Device &device);

  // Set values for the next upload(). setSettings() sets all scalars that have a setting.
  // setStepValue() sets scalars whose Variable.step_value is `which`, and multiplies a parameter
  // group's learning rate by lr_mult, in f64. Error of set(): the host does not write the scalar.
  Result<void> set(std::string_view name, double value);
  Result<void> setSettings(const SettingTable &settings);
  void setStepValue(plan::StepValue which, double value);
  // Enqueues the copy of all scalars that the host writes.
  Result<void> upload();

  // Enqueues a copy of the scalars that the device writes, with their values after all enqueued
  // work. At most kPending requests may wait for take().
  Result<void> request();
  // Waits for the oldest request that was not taken yet, and returns its scalars.
  Result<ScalarValues> take();
  // Returns the vectors that the last take() has read.
  const VectorValues &vectors() const { return takenVectors; }
  // Returns true if take() would return at once.
  Result<bool> isReady() { return results.isReady(); }
  bool canRequest() const { return !results.isFull(); }
  bool hasRequests() const { return results.hasPending(); }

  static constexpr int kPending = 4;

private:
  // A scalar or vector, and its offset in bytes in a host buffer.
  struct Place {
    std::string name;
    uint64_t offset = 0;
    bool wide = false; // f64, else f32
    std::string setting;
    plan::StepValue stepValue = plan::StepValue::None;
    std::string group; // the parameter group whose learning rate this scalar is; "": none
    double factor = 1; // setStepValue() multiplies the value by this lr_mult of the group
    uint64_t elements = 1;
    bool isVector = false;
  };
  // Values that are copied together. `ranges` lie one after the other in the host buffer.
  struct Block {
    std::vector<Place> places;
    std::vector<ArenaRange> ranges;
    uint64_t bytes = 0;
  };

  Scalars(Device &device, BufferRing uploads, BufferRing results)
      : device(device), uploads(std::move(uploads)), results(std::move(results)) {}
  static Result<Block> blockOf(const PlanFile &plan, bool written);
  void set(const Place &place, double value);

  Device &device;
  BufferRing uploads, results;
  Block written, read;      // what the host writes, and what it reads
  std::vector<char> values; // the bytes of `written`
  VectorValues takenVectors;
};

} // namespace lmc
