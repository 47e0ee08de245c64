// Records what each command of a function does.
#pragma once

#include "runtime/device/Device.h"

namespace lmc {

class FunctionObserver {
public:
  virtual ~FunctionObserver() = default;
  // Returns true if the caller must call run() instead of Device::submit().
  virtual bool isRecording() const = 0;
  // Runs function `index` on `device` and waits for it. The results are those of submit().
  virtual Result<void> run(Device &device, Executable &executable, uint32_t index) = 0;
};

} // namespace lmc
