// Opens the host driver anew for each test, on a small plan.
#pragma once

#include "test/ground/plan/PlanBuilder.h"

#include <cublasLt.h>
#include <cuda.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <unistd.h>
#include <vector>

extern "C" void lmcHostReset();

namespace lmc::hostdriver {

// The kernel computes d = 2 x for 64 elements.
inline const char *const kDouble = R"(
#include "lmc/vector_io.cuh"
using namespace lmc;
extern "C" __global__ void __launch_bounds__(32) twice(const float *x, float *d) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  storeOne(d + i, 2 * loadOne(x + i));
}
)";

// The kernel sets every element of a variable to the record's value.
inline const char *const kFill = R"(
#include "lmc/initialize.cuh"
using namespace lmc;
extern "C" __global__ void __launch_bounds__(32) fill(const InitializerRecord *how, float *out) {
  const InitializerRecord r = loadRecord(how);
  for (u64 i = blockIdx.x * 32 + threadIdx.x; i < r.elements; i += u64(gridDim.x) * 32)
    storeOne(out + i, float(r.value));
}
)";

// A variable in bf16 that is a copy of one in f32: the kernel of lmc's plans.
inline const char *const kConvert = R"(
#include "lmc/initialize.cuh"
extern "C" __global__ void __launch_bounds__(32, 1) convert(
    const lmc::InitializerRecord *how, const float *source, lmc::bf16 *out) {
  lmc::initializeCopy<float, lmc::bf16>(how, source, out);
}
)";

class HostDriver : public testing::Test {
protected:
  // Builds the plan. All slices but the workspace are f32. It launches y = 2 x and again = 2 y for
  // x, y and `again` of 64 elements; has a product d += a b^T of a [4, 6], b [5, 6] and d [4, 5]; and
  // copies columns 2 to 5 of e [4, 8] to columns 0 to 3 of f [4, 8].
  void SetUp() override {
    builder.plan.target = "cuda:sm_90a";
    workspace = builder.slice(plan::DType::I8, {1024}, 1); // at offset 0, for its alignment
    builder.plan.arenas[1]->alignment = 256;
    x = builder.slice(plan::DType::F32, {64});
    y = builder.slice(plan::DType::F32, {64}, 1);
    again = builder.slice(plan::DType::F32, {64});
    a = builder.slice(plan::DType::F32, {4, 6}, 1);
    b = builder.slice(plan::DType::F32, {5, 6}, 1);
    d = builder.slice(plan::DType::F32, {4, 5});
    e = builder.slice(plan::DType::F32, {4, 8});
    f = builder.slice(plan::DType::F32, {4, 8});
    addKernel("twice", kDouble, {2, 1, 1}, 40);
    addKernel("fill", kFill, {4, 1, 1}, 16);
    addLaunch(x, y);
    addLaunch(y, again);
    plan::GemmT gemm;
    gemm.a = a;
    gemm.b = b;
    gemm.d = d;
    gemm.c = int(d);
    gemm.m = 4;
    gemm.n = 5;
    gemm.k = 6;
    gemm.transpose_b = true;
    builder.command(gemm);
    builder.plan.functions[0]->commands.back()->workspace = int(workspace);
    plan::CopyT copy;
    copy.x = builder.columns(e, 2, 4);
    copy.d = builder.columns(f, 0, 4);
    builder.command(copy);
    auto how = std::make_unique<plan::InitializerT>();
    how->kind = plan::InitializerKind::Constant;
    how->scale = 1.5;
    how->kernel = 1;
    builder.variable("x", plan::VariableKind::Table, x).initializer = std::move(how);
    start({});
  }

  void TearDown() override {
    for (const auto &[name, value] : environment)
      unsetenv(name.c_str());
    std::remove(planPath().c_str());
    std::remove(reportPath().c_str());
  }

  // Opens the host driver in this environment, with a context, the arenas, a stream and the
  // modules.
  void start(const std::map<std::string, std::string> &more) {
    for (const auto &[name, value] : environment)
      unsetenv(name.c_str());
    environment = more;
    environment["LMC_HOST_PLAN"] = planPath();
    environment["LMC_HOST_REPORT"] = reportPath();
    for (const auto &[name, value] : environment)
      setenv(name.c_str(), value.c_str(), 1);
    std::ofstream(planPath(), std::ios::binary) << builder.bytes();
    lmcHostReset();
    failed = CUDA_SUCCESS;
    CUcontext context;
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, 0));
    check(cuCtxSetCurrent(context));
    for (int arena : {0, 1})
      check(cuMemAlloc(&arenas[arena], builder.plan.arenas[size_t(arena)]->bytes));
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    modules.resize(builder.plan.modules.size());
    for (size_t i = 0; i < modules.size(); ++i)
      check(cuModuleLoadData(&modules[i], builder.plan.modules[i]->image.data()));
    check(cuModuleGetFunction(&twice, modules[0], "twice"));
    check(cuModuleGetFunction(&fill, modules[1], "fill"));
  }

  // Ends the host driver, and returns its report.
  nlohmann::json report() {
    lmcHostReset();
    std::ifstream file(reportPath());
    return nlohmann::json::parse(file);
  }

  // Ends the host driver, and returns the broken rules of its report.
  std::string violations() { return report()["violations"].dump(); }

  void check(CUresult result) {
    if (failed == CUDA_SUCCESS)
      failed = result;
    ASSERT_EQ(result, CUDA_SUCCESS);
  }

  CUdeviceptr at(uint32_t slice) {
    const plan::SliceT &where = *builder.plan.slices[slice];
    return arenas[where.arena] + where.offset;
  }

  CUresult launchTwice(CUdeviceptr from, CUdeviceptr to, CUstream on, unsigned blocks = 2,
                       unsigned threads = 32, unsigned shared = 0) {
    void *parameters[] = {&from, &to};
    return cuLaunchKernel(twice, blocks, 1, 1, threads, 1, 1, shared, on, parameters, nullptr);
  }

  // Returns the plan's copy of columns of e to columns of f.
  CUDA_MEMCPY2D copyOfColumns() {
    CUDA_MEMCPY2D how = {};
    how.srcMemoryType = how.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    how.srcDevice = at(e) + 2 * 4;
    how.dstDevice = at(f);
    how.srcPitch = how.dstPitch = 8 * 4;
    how.WidthInBytes = 4 * 4;
    how.Height = 4;
    return how;
  }

  template <typename T = float> T *pinned(size_t count) {
    void *memory = nullptr;
    check(cuMemHostAlloc(&memory, count * sizeof(T), 0));
    return static_cast<T *>(memory);
  }

  template <typename T = float> void write(uint32_t slice, const std::vector<T> &values) {
    T *buffer = pinned<T>(values.size());
    std::copy(values.begin(), values.end(), buffer);
    check(cuMemcpyHtoDAsync(at(slice), buffer, values.size() * sizeof(T), stream));
    check(cuStreamSynchronize(stream));
    check(cuMemFreeHost(buffer));
  }

  template <typename T = float> std::vector<T> read(uint32_t slice) {
    std::vector<T> values(builder.plan.slices[slice]->bytes / sizeof(T));
    T *buffer = pinned<T>(values.size());
    check(cuMemcpyDtoHAsync(buffer, at(slice), values.size() * sizeof(T), stream));
    check(cuStreamSynchronize(stream));
    std::copy_n(buffer, values.size(), values.begin());
    check(cuMemFreeHost(buffer));
    return values;
  }

  static std::vector<float> counted(size_t count, float first = 0) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
  }

  static std::vector<float> doubled(std::vector<float> values) {
    for (float &value : values)
      value *= 2;
    return values;
  }

  // Ends the program as a correct one does.
  void release() {
    for (CUmodule module : modules)
      check(cuModuleUnload(module));
    check(cuStreamDestroy(stream));
    check(cuStreamDestroy(other));
    for (CUdeviceptr arena : arenas)
      check(cuMemFree(arena));
    check(cuDevicePrimaryCtxRelease(0));
  }

  test::PlanBuilder builder;
  uint32_t x, y, again, a, b, d, e, f, workspace;
  CUdeviceptr arenas[2] = {};
  CUstream stream = nullptr, other = nullptr;
  std::vector<CUmodule> modules;
  CUfunction twice = nullptr, fill = nullptr;
  CUresult failed = CUDA_SUCCESS; // the first check() that failed

  void addKernel(const std::string &entry, const char *source, std::vector<uint32_t> grid,
                 uint32_t registers) {
    auto module = std::make_unique<plan::ModuleT>();
    module->target = builder.plan.target;
    module->image.assign(entry.begin(), entry.end());
    auto kernel = std::make_unique<plan::KernelT>();
    kernel->name = kernel->entry = entry;
    kernel->module_ = uint32_t(builder.plan.modules.size());
    kernel->source = source;
    kernel->grid = std::move(grid);
    kernel->threads = 32;
    kernel->registers = registers;
    builder.plan.modules.push_back(std::move(module));
    builder.plan.kernels.push_back(std::move(kernel));
  }

private:
  std::string planPath() {
    return testing::TempDir() + "/host-driver-" + std::to_string(getpid()) + ".plan";
  }
  std::string reportPath() { return planPath() + ".json"; }

  void addLaunch(uint32_t from, uint32_t to) {
    plan::LaunchT launch;
    launch.args = {from, to};
    launch.inputs = 1;
    launch.items = launch.chunk = 64;
    builder.command(launch);
  }

  std::map<std::string, std::string> environment;
};

} // namespace lmc::hostdriver
