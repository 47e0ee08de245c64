// Compiles the source of CUDA kernels for the host, and runs it with the executor (Executor.h).
//
// The text of a kernel is exactly the text that NVRTC compiles. The headers in
// test/simt/shim replace CUDA and compiler/targets/cuda/device/platform.cuh; all other
// device headers are used unchanged. Objects are stored in the build tree, each under the hash of
// everything that it depends on.
#pragma once

#include "ground/support/Result.h"
#include "test/simt/Executor.h"

#include <span>

namespace lmc::simt {

// A kernel to compile, with its launch. The fields are those of codegen::CudaKernel.
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

// Compiles the kernels that are not in the build tree yet, up to eight in one file, on all
// processors. Errors: the compiler's messages.
std::vector<Result<Kernel>> compile(std::span<const Source> sources);
Result<Kernel> compile(const Source &source);

struct RunResult {
  std::string failure; // "" or "NAME: what is wrong"
  std::vector<Traffic> traffic;
  bool atomics = false;
};

// Runs the kernel once. Arguments with Access::Write are filled with garbage before the run, unless
// they overlap other arguments. If `count` is true, the result includes all traffic.
RunResult run(const Kernel &kernel, const std::vector<Argument> &arguments, const Order &order,
              bool count = false);

// Runs the kernel twice from the same arguments, in two different orders, and compares all results
// bit by bit. If the results differ, the failure says what they depend on, which points to the
// mistake. The results of the first run remain in the arguments.
RunResult runTwice(const Kernel &kernel, const std::vector<Argument> &arguments, uint64_t seed = 1,
                   bool count = false);

} // namespace lmc::simt
