#include "runtime/device/cpu/CpuModule.h"
#include "runtime/device/cpu/CpuMachine.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lmc::cpu {

Result<std::unique_ptr<CpuModule>> CpuModule::load(const plan::Module &module) {
  const std::string target = module.target()->str();
  if (target.rfind("cpu", 0) != 0)
    return userError("a module of the plan is for '{}', not for a CPU; compile for --target=cpu",
                     target);
  if (module.features())
    for (const auto *feature : *module.features())
      if (!hasFeature(feature->string_view()))
        return userError(
            "the plan was compiled for '{}' and needs the CPU feature '{}', which this machine "
            "({}) lacks; compile it again here with --set target.cpu=native",
            target, feature->str(), processorName());

  int file = memfd_create("lmc-module", MFD_CLOEXEC);
  if (file < 0)
    return machineError("cannot create memory for a module of the plan: {}", std::strerror(errno));
  const uint8_t *image = module.image()->data();
  size_t left = module.image()->size();
  while (left > 0) {
    ssize_t written = write(file, image, left);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0) {
      int reason = errno;
      close(file);
      return machineError("cannot store a module of the plan in memory: {}", std::strerror(reason));
    }
    image += written;
    left -= size_t(written);
  }
  // dlopen() treats files with equal paths as one library. The file descriptor stays open while the
  // module is loaded, so that no other module gets the same descriptor and path.
  void *handle = dlopen(fmt::format("/proc/self/fd/{}", file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *reason = dlerror();
    close(file);
    return userError("a module of the plan for '{}' does not load ({}); compile the plan again",
                     target, reason ? reason : "unknown reason");
  }
  return std::unique_ptr<CpuModule>(new CpuModule(handle, file));
}

CpuModule::~CpuModule() {
  dlclose(handle);
  close(file);
}

Result<KernelEntry> CpuModule::find(const std::string &entry) const {
  void *symbol = dlsym(handle, entry.c_str());
  if (!symbol)
    return userError("a module of the plan has no kernel '{}'; compile the plan again", entry);
  return reinterpret_cast<KernelEntry>(symbol);
}

} // namespace lmc::cpu
