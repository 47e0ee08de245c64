// Matrix products by Intel's MKL.
#include "ground/support/Places.h"
#include "runtime/device/cpu/gemm/Implementations.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

namespace lmc::cpu {
namespace {

// These constants and MklVersion are as in mkl_types.h, mkl_service.h and mkl_cblas.h.
constexpr int kThreadingGnu = 3, kInterfaceLp64 = 0, kReproducibleOnOneMachine = 2;
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;

struct MklVersion {
  int major, minor, update;
  const char *status, *build, *processor, *platform;
};

template <typename Function> Function *symbol(void *library, const char *name) {
  return reinterpret_cast<Function *>(dlsym(library, name));
}

std::vector<std::string> pathsOfMkl() {
  std::string environment;
  if (const char *set = std::getenv("LMC_VENV"); set && *set)
    environment = set;
  else if (const char *cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    environment = std::string(cache) + "/lmc/venv";
  else if (const char *home = std::getenv("HOME"); home && *home)
    environment = std::string(home) + "/.cache/lmc/venv";
  std::vector<std::string> paths;
  for (const char *name : {"libmkl_rt.so.3", "libmkl_rt.so.2"}) {
    // PyPI's package mkl installs to PREFIX/lib, which is two folders above site-packages.
    if (std::string path = fileOfPythonPackage(std::string("../../") + name); !path.empty())
      paths.push_back(path);
    if (!environment.empty())
      paths.push_back(environment + "/lib/" + name);
  }
  for (const char *name : {"libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so"})
    paths.push_back(name);
  return paths;
}

Result<const Mkl *> open() {
  const char *given = std::getenv("LMC_MKL");
  if (given && !*given)
    given = nullptr;
  if (given && std::string(given) == "none")
    return nullptr;
  void *library = nullptr;
  if (given) {
    library = dlopen(given, RTLD_NOW | RTLD_LOCAL);
  } else {
    for (const std::string &path : pathsOfMkl())
      if ((library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)))
        break;
    if (!library)
      return nullptr;
  }
  auto unusable = [&](const char *reason) {
    return userError(
        "LMC_MKL={}: {}; give the path of libmkl_rt.so, or LMC_MKL=none to go on without MKL",
        given, reason);
  };
  if (!library)
    return unusable(dlerror());
  static Mkl mkl;
  auto setThreading = symbol<int(int)>(library, "MKL_Set_Threading_Layer");
  auto setInterface = symbol<int(int)>(library, "MKL_Set_Interface_Layer");
  auto setReproducible = symbol<int(int)>(library, "MKL_CBWR_Set");
  auto setDynamic = symbol<void(int)>(library, "MKL_Set_Dynamic");
  auto getVersion = symbol<void(MklVersion *)>(library, "MKL_Get_Version");
  mkl.setThreads = symbol<int(int)>(library, "MKL_Set_Num_Threads_Local");
  mkl.sgemm = reinterpret_cast<decltype(mkl.sgemm)>(dlsym(library, "cblas_sgemm"));
  mkl.bf16Gemm = reinterpret_cast<decltype(mkl.bf16Gemm)>(dlsym(library, "cblas_gemm_bf16bf16f32"));
  if (!setThreading || !setInterface || !setReproducible || !setDynamic || !getVersion ||
      !mkl.setThreads || !mkl.sgemm) {
    if (given)
      return unusable("this library lacks functions of libmkl_rt.so");
    return nullptr;
  }
  // MKL must get these calls first. They select this program's OpenMP runtime and 32-bit sizes.
  setThreading(kThreadingGnu);
  setInterface(kInterfaceLp64);
  // After this call, results have equal bits in every run, for any alignment of the operands.
  setReproducible(kReproducibleOnOneMachine);
  setDynamic(0); // MKL uses exactly the number of threads that is set
  MklVersion version{};
  getVersion(&version);
  mkl.version = fmt::format("{}.{}.{} {} for {}", version.major, version.minor, version.update,
                            version.build, version.processor);
  return &mkl;
}

} // namespace

Result<const Mkl *> openMkl() {
  static const Result<const Mkl *> opened = open();
  return opened;
}

bool mklHas(const Mkl &mkl, const GemmShape &shape) {
  if (std::max({shape.m, shape.n, shape.k}) > std::numeric_limits<int>::max())
    return false;
  const bool bf16 = shape.input == Storage::BF16 && shape.output == Storage::F32 &&
                    (!shape.hasBias || shape.bias == Storage::F32);
  return isPlainF32(shape) || (bf16 && mkl.bf16Gemm);
}

Multiply mklProduct(const Mkl &mkl, int threads) {
  return [&mkl, threads](const GemmShape &shape, int64_t leadingA, int64_t leadingB, const void *a,
                         const void *b, void *d, int64_t leadingD) {
    mkl.setThreads(threads);
    auto product = [&](auto *gemm, const auto *aData, const auto *bData) {
      gemm(kRowMajor, shape.transposeA ? kTranspose : kNoTranspose,
           shape.transposeB ? kTranspose : kNoTranspose, int(shape.m), int(shape.n), int(shape.k),
           1.0f, aData, int(leadingA), bData, int(leadingB), shape.accumulate ? 1.0f : 0.0f,
           static_cast<float *>(d), int(leadingD));
    };
    if (shape.input == Storage::BF16)
      product(mkl.bf16Gemm, a, b);
    else
      product(mkl.sgemm, static_cast<const float *>(a), static_cast<const float *>(b));
  };
}

} // namespace lmc::cpu
