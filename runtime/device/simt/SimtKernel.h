// A CUDA kernel's source, compiled for the host and run by the executor.
//
// The text is the very one that NVRTC gets; runtime/device/simt/shim takes the place of CUDA and of
// compiler/targets/cuda/device/platform.cuh, all other device headers are used as they are. Objects are kept
// in the build tree, named by a hash of all that went into them.
#pragma once

#include "runtime/support/Result.h"
#include "runtime/device/simt/Executor.h"

#include <span>

namespace lmc::simt {

// As codegen::CudaKernel has it.
struct Source {
  std::string name, text;
  std::array<uint32_t, 3> grid = {1, 1, 1};
  uint32_t threads = 32, sharedBytes = 0;
};

struct Kernel {
  std::string name;
  int parameters = 0;
  Launch launch;
};

// Compiles what is not in the cache, as many at a time as there are processors. Errors: the
// compiler's messages.
std::vector<Result<Kernel>> compile(std::span<const Source> sources);
Result<Kernel> compile(const Source &source);

struct RunResult {
  std::string failure; // "" or "NAME: what is wrong"
  std::vector<Traffic> traffic;
  bool atomics = false;
};

// Runs once. Arguments with Access::Write start as garbage, unless they lie over others.
RunResult run(const Kernel &kernel, const std::vector<Argument> &arguments, const Order &order,
              bool count = false);

// Runs twice, from the same arguments but in different orders, and compares all results bit for
// bit. Where they differ, the failure says what the result depends on, and so what is wrong.
// The results of the first run stay in the arguments.
RunResult runTwice(const Kernel &kernel, const std::vector<Argument> &arguments, uint64_t seed = 1,
                   bool count = false);

} // namespace lmc::simt
