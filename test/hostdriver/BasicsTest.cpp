// A correct program gets what CUDA would compute, and is told nothing.
#include "test/hostdriver/Fixture.h"

#include "ground/plan/FloatConvert.h"
#include "test/compiler/targets/cuda/NvidiaOccupancy.h"

#include <dlfcn.h>

using namespace lmc;
using namespace lmc::hostdriver;

namespace {

// The names that runtime/device/cuda looks up.
const char *const kDriverNames[] = {
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetPCIBusId",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuCtxGetDevice",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpy2DAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadDataEx",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuFuncLoad",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuLaunchKernel",
    "cuStreamCreate",
    "cuCtxGetStreamPriorityRange",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventElapsedTime",
    "cuEventElapsedTime_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
    "cuGraphGetNodes",
};

const char *const kLibraryNames[] = {
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtGetVersion",
    "cublasLtGetStatusString",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatrixLayoutSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulAlgoCheck",
    "cublasLtMatmulAlgoConfigGetAttribute",
    "cublasLtMatmul",
};

class Basics : public HostDriver {};

} // namespace

TEST(Libraries, ExportWhatTheDeviceOpens) {
  void *library = dlopen(LMC_HOST_LIBRARIES "/libcublaslt-host.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  for (const char *name : kLibraryNames)
    EXPECT_TRUE(dlsym(library, name)) << name;
  void *driver = dlopen(LMC_HOST_LIBRARIES "/libcuda-host.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(driver) << dlerror();
  for (const char *name : kDriverNames)
    EXPECT_TRUE(dlsym(driver, name)) << name;
}

TEST_F(Basics, RunsKernelsInTheOrderOfTheirStream) {
  for (const char *seed : {"1", "2", "3"}) {
    start({{"LMC_HOST_SEED", seed}});
    write(x, counted(64));
    check(launchTwice(at(x), at(y), stream));
    check(launchTwice(at(y), at(again), stream));
    EXPECT_EQ(read(again), doubled(doubled(counted(64))));
    release();
    const auto all = report();
    EXPECT_EQ(all["violations"].size(), 0u) << all.dump(2);
    for (const auto &[kind, count] : all["leaks"].items())
      EXPECT_EQ(count, 0) << kind;
    EXPECT_GT(all["calls"], 10);
  }
}

TEST_F(Basics, MemoryStartsAsGarbage) {
  const std::vector<float> values = read(x);
  EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); }));
}

TEST_F(Basics, CopiesRowsAsThePlanSays) {
  write(e, counted(32));
  write(f, std::vector<float>(32, -1));
  const CUDA_MEMCPY2D how = copyOfColumns();
  check(cuMemcpy2DAsync(&how, stream));
  const std::vector<float> copied = read(f);
  for (int row = 0; row < 4; ++row)
    for (int column = 0; column < 8; ++column)
      EXPECT_EQ(copied[size_t(row * 8 + column)], column < 4 ? float(row * 8 + column + 2) : -1);
}

TEST_F(Basics, ComputesInitialValues) {
  struct {
    uint64_t first, elements, seed, stream;
    double value;
  } record = {0, 64, 1, 2, 1.5};
  auto *buffer = pinned<char>(sizeof(record));
  std::memcpy(buffer, &record, sizeof(record));
  CUdeviceptr scratch, out = at(x);
  check(cuMemAlloc(&scratch, sizeof(record)));
  check(cuMemcpyHtoDAsync(scratch, buffer, sizeof(record), stream));
  void *parameters[] = {&scratch, &out};
  check(cuLaunchKernel(fill, 4, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  EXPECT_EQ(read(x), std::vector<float>(64, 1.5));
}

// The kernel reads the whole variable, or the elements from the record's first one on.
TEST_F(Basics, CopiesAVariableInAnotherType) {
  addKernel("convert", kConvert, {4, 1, 1}, 16);
  const uint32_t copy = builder.slice(plan::DType::BF16, {64});
  auto how = std::make_unique<plan::InitializerT>();
  how->kind = plan::InitializerKind::CopyOf;
  how->source = "x";
  how->kernel = 2;
  builder.variable("x.compute", plan::VariableKind::Table, copy).initializer = std::move(how);
  start({});
  CUfunction convert;
  check(cuModuleGetFunction(&convert, modules[2], "convert"));
  std::vector<float> values = counted(64, 1000.25);
  write(x, values);
  write(copy, std::vector<uint16_t>(64, 0));
  struct Record {
    uint64_t first, elements, seed, stream;
    double value;
  };
  auto *record = pinned<Record>(1);
  CUdeviceptr scratch;
  check(cuMemAlloc(&scratch, sizeof(Record)));
  auto launch = [&](uint64_t first, uint64_t elements, CUdeviceptr from) {
    *record = {first, elements, 1, 2, 0};
    check(cuMemcpyHtoDAsync(scratch, record, sizeof(Record), stream));
    CUdeviceptr out = at(copy) + first * 2;
    void *parameters[] = {&scratch, &from, &out};
    const CUresult result =
        cuLaunchKernel(convert, 4, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
    return result == CUDA_SUCCESS ? cuStreamSynchronize(stream) : result;
  };
  ASSERT_EQ(launch(3, 50, at(x) + 3 * 4), CUDA_SUCCESS);
  std::vector<uint16_t> copied = read<uint16_t>(copy);
  for (size_t i = 0; i < 64; ++i)
    EXPECT_EQ(copied[i], i < 3 || i >= 53 ? 0 : toBFloat16(values[i])) << i;
  ASSERT_EQ(launch(0, 64, at(x)), CUDA_SUCCESS);
  copied = read<uint16_t>(copy);
  for (size_t i = 0; i < 64; ++i)
    EXPECT_EQ(copied[i], toBFloat16(values[i])) << i;
  EXPECT_NE(launch(0, 64, at(again)), CUDA_SUCCESS) << "another variable";
  EXPECT_NE(launch(3, 50, at(x)), CUDA_SUCCESS) << "other elements than the result's";
}

TEST_F(Basics, KnowsTheDevice) {
  int value = 0;
  check(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT_EQ(value, 132);
  check(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
  EXPECT_EQ(value, 232448);
  check(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, twice));
  EXPECT_EQ(value, 40);
  // 32 registers a thread: 65536 / (32 * 40 rounded up to 1280) = 51 warps, 48 in fours; 32 blocks
  // is the limit. With 60 KiB of shared memory 228 / 61 = 3.
  check(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, twice, 32, 0));
  EXPECT_EQ(value, 32);
  check(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, twice, 32, 60 << 10));
  EXPECT_EQ(value, 3);
}

TEST_F(Basics, OccupancyIsWhatNvidiasHeaderComputes) {
  for (unsigned more : {0u, 1u, 40u, 56u, 88u, 128u, 215u}) {
    start({{"LMC_HOST_EXTRA_REGISTERS", std::to_string(more)}});
    for (unsigned threads = 32; threads <= 1024; threads += 32)
      for (unsigned shared : {0u, 100u, 8192u, 50176u, 232448u}) {
        int blocks = -1;
        check(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, twice, int(threads), shared));
        EXPECT_EQ(blocks, test::nvidiaOccupancy({90, 2048, 233472, 232448}, threads, 40 + more,
                                                shared))
            << threads << " threads, " << 40 + more << " registers, " << shared << " bytes";
      }
  }
}
