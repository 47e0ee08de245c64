// An extracted kernel's program, compiled for the host: what it needs of the CUDA runtime is here,
// and a kernel is a host function `extern "C" void ENTRY(void **arguments)`, whose arguments point
// to pointers to the tensors. A program can also be built as a library, which a test opens.
#pragma once

#include "compiler/driver/Registration.h"
#include "compiler/extract/ExtractKernel.h"
#include "test/ground/plan/PlanBuilder.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <filesystem>
#include <sys/wait.h>

namespace lmc::test {

inline const char *kCudaOnTheHost = R"(
#include <cstdlib>
#include <cstring>
typedef int cudaError_t;
typedef int cudaEvent_t;
#include <utility>
#define __host__
#define __device__
#define __global__
struct dim3 {
  constexpr dim3(unsigned = 1, unsigned = 1, unsigned = 1) {}
  static constexpr unsigned x = 1;
};
constexpr dim3 gridDim, blockDim;
constexpr struct { unsigned x; } blockIdx{0}, threadIdx{0};
constexpr int cudaSuccess = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 8;
inline const char *cudaGetErrorString(int) { return ""; }
#include <memory>
#include <vector>
inline int cudaMalloc(void **p, size_t n) {
  static std::vector<std::unique_ptr<void, decltype(&std::free)>> all;
  *p = std::aligned_alloc(64, (n + 63) / 64 * 64);
  all.emplace_back(*p, &std::free);
  return 0;
}
inline int cudaMemcpy(void *to, const void *from, size_t n, int) {
  std::memcpy(to, from, n);
  return 0;
}
inline int cudaMemset(void *to, int value, size_t n) {
  std::memset(to, value, n);
  return 0;
}
inline int cudaDeviceSynchronize() { return 0; }
inline int cudaEventCreate(int *) { return 0; }
inline int cudaEventDestroy(int) { return 0; }
inline int cudaEventRecord(int) { return 0; }
inline int cudaEventSynchronize(int) { return 0; }
inline int cudaEventElapsedTime(float *time, int, int) { *time = 1; return 0; }
inline int cudaFuncSetAttribute(const void *, int, int) { return 0; }
inline int cudaLaunchKernel(const void *entry, dim3, dim3, void **arguments, size_t, void *) {
  reinterpret_cast<void (*)(void **)>(const_cast<void *>(entry))(arguments);
  return 0;
}
template <typename... A, size_t... I>
void callWith(void (*entry)(A...), void **arguments, std::index_sequence<I...>) {
  entry(*static_cast<A *>(arguments[I])...);
}
// A test may set this to a function that changes the values that the kernel drawValues of
// harness.cu drew, whose arguments it gets.
extern "C" {
void (*changeDrawn)(void **arguments) = nullptr;
}
// A kernel of the program itself, which one thread executes.
template <typename... A>
int cudaLaunchKernel(void (*entry)(A...), dim3, dim3, void **arguments, size_t, void *) {
  callWith(entry, arguments, std::index_sequence_for<A...>());
  if (changeDrawn)
    changeDrawn(arguments);
  return 0;
}
)";

// A plan for CUDA.
class CudaPlan : public PlanBuilder {
public:
  CudaPlan() { plan.target = "cuda:sm_90a"; }

  uint32_t kernel(const std::string &name, const std::string &source,
                  const std::string &region = "") {
    auto kernel = std::make_unique<plan::KernelT>();
    kernel->name = kernel->entry = name;
    kernel->source = source;
    kernel->region = region;
    kernel->grid = {1, 1, 1};
    kernel->threads = 32;
    plan.kernels.push_back(std::move(kernel));
    return uint32_t(plan.kernels.size() - 1);
  }

  llvm::Expected<std::string> extract(const std::string &name,
                                      llvm::ArrayRef<cost::KernelCost> costs = {}) const {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
    std::string data = bytes();
    return extractKernel(*plan::GetPlan(data.data()), name, costs, context);
  }
};

// A folder, and a program in it.
class HostProgram {
public:
  HostProgram() {
    llvm::SmallString<128> made;
    llvm::sys::fs::createUniqueDirectory("lmc-host-program", made);
    folder = made.str().str();
  }
  ~HostProgram() { std::filesystem::remove_all(folder); }

  // The exit code of the program; -1: it does not compile.
  int run(const std::string &text) { return build(text) ? start() : -1; }

  // True if the program compiles.
  bool build(const std::string &text, const std::string &options = "") {
    write("program.cpp", kCudaOnTheHost + text);
    const std::string program = folder + "/program";
    return std::system(
               ("c++ -std=c++20 -w " LMC_FAST_LINKER " " + options + " -o " + program + " " + program +
                ".cpp -ldl")
                   .c_str()) == 0;
  }

  // Compiles the text as a library and opens it; null: it does not compile.
  void *open(const std::string &text) {
    return build(text, "-O1 -shared -fPIC") ? dlopen((folder + "/program").c_str(), RTLD_NOW)
                                            : nullptr;
  }

  // The exit code of the program that was built.
  int start() {
    const std::string program = folder + "/program";
    return WEXITSTATUS(std::system((program + " > " + program + ".log").c_str()));
  }

  // What it printed.
  std::string log() const {
    auto file = llvm::MemoryBuffer::getFile(folder + "/program.log");
    return file ? (*file)->getBuffer().str() : "";
  }

  // The path of a new file.
  std::string write(const std::string &name, llvm::StringRef bytes) const {
    std::error_code error;
    llvm::raw_fd_ostream(folder + "/" + name, error) << bytes;
    return folder + "/" + name;
  }

private:
  std::string folder;
};

} // namespace lmc::test
