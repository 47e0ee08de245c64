// Runs the functions of a plan command by command, to record what each command does.
#pragma once

#include "runtime/device/Device.h"

namespace lmc {

class FunctionObserver {
public:
  virtual ~FunctionObserver() = default;
  // Returns true if the caller must call run() instead of Device::submit().
  virtual bool isRecording() const = 0;
  // Runs function `index` of the plan on `device` and waits for it. The results are those of
  // Device::submit().
  virtual Result<void> run(Device &device, Executable &executable, uint32_t index) = 0;
};

} // namespace lmc
