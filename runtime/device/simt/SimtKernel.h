// A CUDA kernel's source, compiled for the host and run by the executor.
//
// The text is exactly the one that NVRTC compiles. runtime/device/simt/shim replaces CUDA and
// compiler/targets/cuda/device/platform.cuh; all other device headers are used unchanged. Objects
// are stored in the build tree, named by a hash of everything that they depend on.
#pragma once

#include "runtime/support/Result.h"
#include "runtime/device/simt/Executor.h"

#include <span>

namespace lmc::simt {

// The same fields as codegen::CudaKernel.
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

// Compiles the sources that are not in the cache, as many at a time as there are processors.
// Errors: the compiler's messages.
std::vector<Result<Kernel>> compile(std::span<const Source> sources);
Result<Kernel> compile(const Source &source);

struct RunResult {
  std::string failure; // "" or "NAME: what is wrong"
  std::vector<Traffic> traffic;
  bool atomics = false;
};

// Runs the kernel once. Arguments with Access::Write start as garbage, unless they overlap others.
RunResult run(const Kernel &kernel, const std::vector<Argument> &arguments, const Order &order,
              bool count = false);

// Runs the kernel twice from the same arguments, in different orders, and compares all results bit
// by bit. If they differ, the failure names what the result depends on, and thereby the mistake.
// The results of the first run remain in the arguments.
RunResult runTwice(const Kernel &kernel, const std::vector<Argument> &arguments, uint64_t seed = 1,
                   bool count = false);

} // namespace lmc::simt
