#include "runtime/device/cuda/Driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <mutex>

namespace lmc::cuda {

std::string Driver::text(CUresult result) const {
  const char *name = nullptr, *description = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &description);
  return fmt::format("{} ({})", description ? description : "unknown error",
                     name ? name : std::to_string(int(result)));
}

Result<void> Driver::check(CUresult result, std::string_view doing) const {
  if (result == CUDA_SUCCESS)
    return {};
  return machineError("cannot {}: {}", doing, text(result));
}

void *openLibrary(const char *variable, std::initializer_list<std::string> names,
                  std::string &problem) {
  auto open = [&](const std::string &name) {
    void *library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library && problem.empty())
      problem = ::dlerror();
    return library;
  };
  if (const char *chosen = std::getenv(variable); chosen && *chosen) {
    void *library = open(chosen);
    if (!library)
      problem = fmt::format("{}={}: {}", variable, chosen, problem);
    return library;
  }
  for (const std::string &name : names)
    if (void *library = name.empty() ? nullptr : open(name))
      return library;
  return nullptr;
}

std::string pathOfLibrary(const void *function) {
  Dl_info info{};
  return ::dladdr(function, &info) && info.dli_fname ? info.dli_fname : "";
}

#define LMC_NAME_OF(name) LMC_TEXT_OF(name)
#define LMC_TEXT_OF(name) #name

template <typename Function>
static bool find(void *library, const char *name, Function &function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

static Result<Driver> load() {
  std::string problem;
  void *library = openLibrary("LMC_CUDA_DRIVER", {"libcuda.so.1"}, problem);
  if (!library)
    return machineError("the plan is for a GPU, and this machine has no CUDA driver ({}); install "
                        "NVIDIA's driver, or compile with --target=cpu",
                        problem);
  Driver driver;
  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDriverGetVersion) getVersion = nullptr;
  if (!find(library, "cuInit", init) || !find(library, "cuDriverGetVersion", getVersion))
    return machineError("the CUDA driver library has no cuInit: it is not libcuda");
  if (const CUresult asked = getVersion(&driver.version); asked != CUDA_SUCCESS)
    return machineError("the CUDA driver does not say its version (error {}{})", int(asked),
                        asked == CUDA_ERROR_STUB_LIBRARY
                            ? ": this is the toolkit's stub of libcuda, not the driver's library"
                            : "");
  const std::string tooOld =
      fmt::format("the CUDA driver supports CUDA {}.{}, and lmc-run needs {}.{} or newer: update "
                  "NVIDIA's driver",
                  driver.version / 1000, driver.version % 1000 / 10, CUDA_VERSION / 1000,
                  CUDA_VERSION % 1000 / 10);
  // A driver runs programs that were built with any minor release of its CUDA major release.
  if (driver.version / 1000 < CUDA_VERSION / 1000)
    return Error{tooOld, ExitCode::Failure};
#define LMC_DRIVER_FUNCTION(name)                                                                  \
  if (!find(library, LMC_NAME_OF(name), driver.name))                                              \
    return machineError("{} (it has no {})", tooOld, LMC_NAME_OF(name));
#include "runtime/device/cuda/DriverFunctions.def"
#undef LMC_DRIVER_FUNCTION
  const CUresult started = init(0);
  const char *visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (started == CUDA_ERROR_NO_DEVICE)
    return machineError("the plan is for a GPU, and the CUDA driver finds none{}",
                        visible ? fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible) : "");
  LMC_TRY(driver.check(started, "start the CUDA driver"));
  return driver;
}

Result<const Driver *> openDriver() {
  static std::mutex mutex;
  static Driver driver;
  std::lock_guard lock(mutex);
  if (!driver.version) {
    LMC_LET(loaded, load());
    driver = *loaded;
  }
  return &driver;
}

Result<void> makeEvent(const Driver &driver, bool timed, Event &event) {
  CUevent made = nullptr;
  LMC_CUDA(driver,
           cuEventCreate(&made, CU_EVENT_BLOCKING_SYNC | (timed ? 0 : CU_EVENT_DISABLE_TIMING)),
           "create an event");
  event = Event(driver, made);
  return {};
}

Result<void> allocatePinned(const Driver &driver, uint64_t bytes, std::string_view doing,
                            PinnedMemory &memory) {
  void *made = nullptr;
  LMC_CUDA(driver, cuMemHostAlloc(&made, std::max<uint64_t>(bytes, 1), 0), doing);
  memory = PinnedMemory(driver, made);
  return {};
}

} // namespace lmc::cuda
