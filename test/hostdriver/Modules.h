// Modules, their functions, and kernel launches.
//
// The module of a plan is known by its bytes; its kernels are executed from their source text by
// the SIMT executor (test/simt).
#pragma once

#include "test/hostdriver/Registry.h"
#include "test/hostdriver/Streams.h"

#include "test/simt/SimtKernel.h"

#include <array>

struct CUfunc_st {
  CUmodule module;
  uint32_t kernel; // of the plan
  int dynamicShared = 48 << 10, carveout = -1;
  bool loaded = false; // its code: by cuFuncLoad, or by its first launch
};

struct CUmod_st {
  int number; // of the plan
  std::vector<std::unique_ptr<CUfunc_st>> functions;
};

namespace lmc::hostdriver {

struct Grid {
  std::array<uint32_t, 3> blocks, threads;
  uint32_t sharedBytes;
};

class Modules {
public:
  CUmodule load(const void *image);
  void unload(CUmodule module);
  CUfunction function(CUmodule module, const char *entry);
  // Fails with CUDA_ERROR_INVALID_HANDLE if the function belongs to no loaded module.
  CUfunc_st &check(CUfunction function);

  int attribute(const CUfunc_st &function, CUfunction_attribute which) const;
  void setAttribute(CUfunc_st &function, CUfunction_attribute which, int value);
  // Returns how many thread blocks fit on a multiprocessor at the same time.
  int blocksPerMultiprocessor(const CUfunc_st &function, int threads, size_t dynamicShared) const;

  // Returns the command of a launch. Fails unless the plan has the launch.
  WorkPtr launch(CUfunc_st &function, const Grid &grid, void **parameters);
  size_t size() const { return modules.size(); }

private:
  void checkLimits(const CUfunc_st &function, const Grid &grid) const;
  void execute(uint32_t kernel, const Grid &grid, const std::vector<simt::Argument> &arguments);

  Registry<CUmod_st> modules;
  std::vector<simt::Kernel> kernels; // of the plan, once one has run
  uint64_t launched = 0;
};

} // namespace lmc::hostdriver
