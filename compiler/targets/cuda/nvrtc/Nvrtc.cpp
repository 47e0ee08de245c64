#include "compiler/targets/cuda/nvrtc/Nvrtc.h"

#include "compiler/targets/cuda/DeviceLibrary.h"
#include "ground/support/Places.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <dlfcn.h>
#include <nvrtc.h>

using llvm::Expected;
using llvm::SmallVector;
using llvm::StringRef;

namespace lmc::codegen {

template <typename... Args> static llvm::Error error(const char *format, Args &&...args) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 llvm::formatv(format, std::forward<Args>(args)...).str());
}

//===-- The library -------------------------------------------------------------------------===//

// The functions of NVRTC that this file calls: X(member of Functions, name in the library).
#define LMC_NVRTC_FUNCTIONS(X)                                                                     \
  X(version, nvrtcVersion)                                                                         \
  X(errorString, nvrtcGetErrorString)                                                              \
  X(createProgram, nvrtcCreateProgram)                                                             \
  X(destroyProgram, nvrtcDestroyProgram)                                                           \
  X(compileProgram, nvrtcCompileProgram)                                                           \
  X(cubinSize, nvrtcGetCUBINSize)                                                                  \
  X(cubin, nvrtcGetCUBIN)                                                                          \
  X(logSize, nvrtcGetProgramLogSize)                                                               \
  X(log, nvrtcGetProgramLog)

struct Nvrtc::Functions {
#define LMC_DECLARE(name, symbol) decltype(&symbol) name;
  LMC_NVRTC_FUNCTIONS(LMC_DECLARE)
#undef LMC_DECLARE
};

Nvrtc::Nvrtc() : api(std::make_unique<Functions>()) {}

Nvrtc::~Nvrtc() {
  if (library)
    dlclose(library);
}

Expected<std::unique_ptr<Nvrtc>> Nvrtc::open(const std::string &path) {
  std::unique_ptr<Nvrtc> opened(new Nvrtc);
  opened->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened->library)
    return error("{0}", dlerror());
  const char *missing = nullptr;
  Functions &api = *opened->api;
#define LMC_FIND(name, symbol)                                                                     \
  if (!(api.name = reinterpret_cast<decltype(&symbol)>(dlsym(opened->library, #symbol))))          \
    missing = #symbol;
  LMC_NVRTC_FUNCTIONS(LMC_FIND)
#undef LMC_FIND
  if (missing)
    return error("{0}: it has no {1}, so it is no NVRTC", path, missing);
  int major = 0, minor = 0;
  if (nvrtcResult result = api.version(&major, &minor); result != NVRTC_SUCCESS)
    return error("{0}: {1}", path, api.errorString(result));
  opened->versionText = llvm::formatv("{0}.{1}", major, minor).str();
  return opened;
}

Expected<const Nvrtc *> Nvrtc::get() {
  static std::string complaint;
  static const std::unique_ptr<Nvrtc> opened = []() -> std::unique_ptr<Nvrtc> {
    std::vector<std::string> places = {fileOfPythonPackage("nvidia/cu13/lib/libnvrtc.so.13"),
                                       LMC_NVRTC_LIBRARY, "libnvrtc.so.13", "libnvrtc.so.12",
                                       "libnvrtc.so"};
    const char *chosen = std::getenv("LMC_NVRTC");
    if (chosen && *chosen)
      places = {chosen};
    for (const std::string &place : places) {
      if (place.empty())
        continue;
      if (auto library = open(place))
        return std::move(*library);
      else
        complaint += (complaint.empty() ? "" : "; ") + llvm::toString(library.takeError());
    }
    return nullptr;
  }();
  if (!opened)
    return error(
        "NVRTC, which compiles CUDA kernels, cannot be opened ({0}): './dev setup' "
        "or 'pip install lmc[nvrtc]' installs it, or set LMC_NVRTC to the path of a libnvrtc.so",
        complaint);
  return opened.get();
}

//===-- A compile ---------------------------------------------------------------------------===//

SmallVector<const char *> Nvrtc::options(const CudaKernel &kernel) {
  return {"-std=c++17", "-default-device", "-lineinfo", "--ptxas-options=-v",
          kernel.contract ? "--fmad=true" : "--fmad=false"};
}

// Returns the first line of the log that has the word "error", or else the first line.
static StringRef firstComplaint(StringRef log) {
  SmallVector<StringRef> lines;
  log.split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (StringRef line : lines)
    if (line.contains("error"))
      return line.trim();
  return lines.empty() ? "" : lines.front().trim();
}

// Writes the kernel's source, followed by the log as a comment, to a temporary file. Returns the
// file's path, or "" if no file can be written.
static std::string keepSource(const CudaKernel &kernel, StringRef log) {
  int descriptor = -1;
  llvm::SmallString<128> path;
  if (llvm::sys::fs::createTemporaryFile("lmc-" + kernel.name, "cu", descriptor, path))
    return "";
  llvm::raw_fd_ostream stream(descriptor, /*shouldClose=*/true);
  stream << kernel.source << "\n";
  for (StringRef rest = log; !rest.empty();) {
    auto [line, after] = rest.split('\n');
    stream << "// " << line << "\n";
    rest = after;
  }
  stream.close();
  if (!stream.has_error())
    return path.str().str();
  stream.clear_error();
  return "";
}

Expected<Cubin> Nvrtc::compile(const CudaKernel &kernel, StringRef arch) const {
  std::string log;
  auto refuse = [&](StringRef reason) {
    std::string kept = keepSource(kernel, log);
    return error("kernel '{0}' does not compile for {1}: {2}{3}{4}", kernel.name, arch, reason,
                 kept.empty() ? "" : "; its source is in ", kept);
  };

  SmallVector<const char *> texts, names;
  for (const DeviceHeader &header : deviceHeaders()) {
    texts.push_back(header.text.data());
    names.push_back(header.name.c_str());
  }
  nvrtcProgram program = nullptr;
  nvrtcResult result =
      api->createProgram(&program, kernel.source.c_str(), (kernel.name + ".cu").c_str(),
                         int(texts.size()), texts.data(), names.data());
  if (result != NVRTC_SUCCESS)
    return refuse(api->errorString(result));
  auto destroy = llvm::scope_exit([&] { api->destroyProgram(&program); });

  SmallVector<const char *> arguments = options(kernel);
  std::string architecture = ("--gpu-architecture=" + arch).str();
  arguments.push_back(architecture.c_str());
  result = api->compileProgram(program, int(arguments.size()), arguments.data());
  size_t size = 0;
  if (api->logSize(program, &size) == NVRTC_SUCCESS && size > 1) {
    log.resize(size);
    api->log(program, log.data());
    log.resize(size - 1); // drops the zero at the end
  }
  if (result != NVRTC_SUCCESS) {
    StringRef complaint = firstComplaint(log);
    return refuse(complaint.empty() ? StringRef(api->errorString(result)) : complaint);
  }

  if (auto refusal = findPtxasRefusal(log))
    return refuse(*refusal);
  Cubin cubin;
  if (api->cubinSize(program, &size) != NVRTC_SUCCESS || size == 0)
    return refuse("NVRTC made no code");
  cubin.image.resize(size);
  result = api->cubin(program, reinterpret_cast<char *>(cubin.image.data()));
  if (result != NVRTC_SUCCESS)
    return refuse(api->errorString(result));
  std::optional<KernelResources> resources = parsePtxasLog(log);
  if (!resources)
    return refuse("NVRTC did not say what it takes");
  cubin.resources = *resources;
  return cubin;
}

} // namespace lmc::codegen
