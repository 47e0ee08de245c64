// The CUDA driver, which is opened only when a plan needs it.
#pragma once

#include "ground/support/Result.h"

#include <cuda.h>

#include <string>
#include <string_view>

namespace lmc::cuda {

struct Driver {
#define LMC_DRIVER_FUNCTION(name) decltype(&::name) name = nullptr;
#include "runtime/device/cuda/DriverFunctions.def"
#undef LMC_DRIVER_FUNCTION
  int version = 0; // the newest CUDA that the driver supports: 13000 is CUDA 13.0

  // Returns an error if `result` is a failure. If `doing` is "load kernel 'f'", the error says
  // "cannot load kernel 'f': out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
  Result<void> check(CUresult result, std::string_view doing) const;
  std::string text(CUresult result) const;
};

// Opens and initialises the library that LMC_CUDA_DRIVER names, else libcuda.so.1, at the first
// call. Errors: there is no driver, or it is too old, or it finds no GPU.
Result<const Driver *> openDriver();

// Opens the library that the environment variable `variable` names. If it is not set, opens the
// first of `names` that can be opened; skips "". Returns null and sets `problem` if none can be
// opened.
void *openLibrary(const char *variable, std::initializer_list<std::string> names,
                  std::string &problem);

struct LibraryFile {
  std::string version; // "2.28.3"
  std::string path;    // "" if not known
};

// Returns the path of the library that contains `function`, or "" if it is not known.
std::string pathOfLibrary(const void *function);

// Owns a handle, which the driver's function `Destroy` destroys.
template <typename Handle, auto Destroy> class Owned {
public:
  Owned() = default;
  Owned(const Driver &driver, Handle handle) : driver(&driver), handle(handle) {}
  Owned(Owned &&other) noexcept
      : driver(other.driver), handle(std::exchange(other.handle, Handle())) {}
  Owned &operator=(Owned &&other) noexcept {
    std::swap(driver, other.driver);
    std::swap(handle, other.handle);
    return *this;
  }
  ~Owned() {
    // An error is ignored: after a failure of the device, the end of the process frees the handle.
    if (handle)
      (void)(driver->*Destroy)(handle);
  }
  Handle get() const { return handle; }

private:
  const Driver *driver = nullptr;
  Handle handle = Handle();
};

using Stream = Owned<CUstream, &Driver::cuStreamDestroy>;
using Event = Owned<CUevent, &Driver::cuEventDestroy>;
using Module = Owned<CUmodule, &Driver::cuModuleUnload>;
using DeviceMemory = Owned<CUdeviceptr, &Driver::cuMemFree>;
using PinnedMemory = Owned<void *, &Driver::cuMemFreeHost>;
using Graph = Owned<CUgraph, &Driver::cuGraphDestroy>;
using GraphExec = Owned<CUgraphExec, &Driver::cuGraphExecDestroy>;

// Sets `event` to a new event, which records times if `timed`.
Result<void> makeEvent(const Driver &driver, bool timed, Event &event);

// Sets `memory` to max(bytes, 1) new bytes of pinned memory. `doing` is as in check().
Result<void> allocatePinned(const Driver &driver, uint64_t bytes, std::string_view doing,
                            PinnedMemory &memory);

} // namespace lmc::cuda

// Evaluates a call of the driver. If it fails, returns an error with the call's purpose `doing`.
#define LMC_CUDA(driver, call, doing) LMC_TRY((driver).check((driver).call, doing))
