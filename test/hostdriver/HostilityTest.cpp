// Failures that are asked for, how devices look, and launches that the plan does not have.
#include "test/hostdriver/Fixture.h"

using namespace lmc;
using namespace lmc::hostdriver;

namespace {
class Hostile : public HostDriver {};
} // namespace

TEST_F(Hostile, TheNthCallFails) {
  const uint64_t calls = report()["calls"];
  ASSERT_GT(calls, 8u);
  int outOfMemory = 0;
  for (uint64_t n = 1; n <= calls; ++n) {
    setenv("LMC_HOST_FAIL_AT", std::to_string(n).c_str(), 1);
    lmcHostReset();
    CUcontext context;
    CUdeviceptr memory;
    int failures = 0;
    for (CUresult result :
         {cuInit(0), cuDevicePrimaryCtxRetain(&context, 0), cuCtxSetCurrent(context),
          cuMemAlloc(&memory, 64), cuMemFree(memory), cuStreamCreate(&stream, 0)}) {
      failures += result != CUDA_SUCCESS;
      outOfMemory += result == CUDA_ERROR_OUT_OF_MEMORY;
    }
    EXPECT_EQ(failures > 0, n <= 6) << n;
  }
  unsetenv("LMC_HOST_FAIL_AT");
  EXPECT_EQ(outOfMemory, 1);
}

// A command that faults shows at the next wait, and then everywhere.
TEST_F(Hostile, TheNthCommandFaults) {
  start({{"LMC_HOST_FAULT_AT", "2"}});
  write(x, counted(64));
  check(launchTwice(at(x), at(y), stream));
  check(launchTwice(at(y), at(again), stream));
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(launchTwice(at(x), at(y), stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuMemFree(arenas[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto all = report();
  EXPECT_EQ(all["violations"].size(), 0u) << all.dump(2);
  EXPECT_EQ(all["leaks"]["device_memory"], 1) << "the error did not keep the memory";
}

TEST_F(Hostile, KernelsCanBeLeftOut) {
  start({{"LMC_HOST_NO_KERNELS", "1"}});
  write(x, counted(64));
  check(launchTwice(at(x), at(y), stream));
  EXPECT_EQ(read(y), std::vector<float>(64, 0));
}

TEST_F(Hostile, LaunchesMustBeThoseOfThePlan) {
  EXPECT_EQ(launchTwice(at(x), at(again), stream), CUDA_ERROR_NOT_PERMITTED) << "other operands";
  EXPECT_EQ(launchTwice(at(x), at(y) + 4, stream), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(launchTwice(at(x), at(y), stream, 3), CUDA_ERROR_NOT_PERMITTED) << "another grid";
  EXPECT_EQ(launchTwice(at(x), at(y), stream, 2, 16), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(launchTwice(at(x), at(y), stream, 2, 32, 128), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(launchTwice(at(x), at(y), stream, 2, 32, 50000), CUDA_ERROR_INVALID_VALUE)
      << "the function has not asked for so much shared memory";
  check(launchTwice(at(x), at(y), stream));
  // In another allocation of the same size.
  CUdeviceptr copy;
  check(cuMemAlloc(&copy, builder.plan.arenas[0]->bytes));
  EXPECT_EQ(launchTwice(copy + (at(x) - arenas[0]), at(y), stream), CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(Hostile, CopiesOnTheDeviceMustBeThoseOfThePlan) {
  check(launchTwice(at(x), at(y), stream)); // shows which allocations the arenas are
  EXPECT_EQ(cuMemcpyDtoDAsync(at(f), at(e), 128, stream), CUDA_ERROR_NOT_PERMITTED);
  CUDA_MEMCPY2D how = copyOfColumns();
  how.dstPitch = 7 * 4;
  EXPECT_EQ(cuMemcpy2DAsync(&how, stream), CUDA_ERROR_NOT_PERMITTED) << "a wrong pitch";
  how.dstPitch = 8 * 4;
  check(cuMemcpy2DAsync(&how, stream));
}

TEST_F(Hostile, RecordsOfInitialValuesAreChecked) {
  struct {
    uint64_t first, elements, seed, stream;
    double value;
  } record = {0, 64, 1, 2, 2.5}; // the plan says 1.5
  auto *buffer = pinned<char>(sizeof(record));
  std::memcpy(buffer, &record, sizeof(record));
  CUdeviceptr scratch, out = at(x);
  check(cuMemAlloc(&scratch, sizeof(record)));
  check(cuMemcpyHtoDAsync(scratch, buffer, sizeof(record), stream));
  void *parameters[] = {&scratch, &out};
  check(cuLaunchKernel(fill, 4, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_NE(violations().find("the record of 'x' has the value 2.5"), std::string::npos);
}

// The executor's checks reach the program as a fault: here a kernel reads past the end of x.
TEST_F(Hostile, AKernelThatBreaksARuleFaults) {
  std::string text = kDouble;
  text.replace(text.find("loadOne(x + i)"), 14, "loadOne(x + i + 1)");
  builder.plan.kernels[0]->source = text;
  start({});
  write(x, counted(64));
  check(launchTwice(at(x), at(y), stream));
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_NE(violations().find("out of bounds"), std::string::npos);
}

TEST_F(Hostile, OnlyModulesOfThePlanLoad) {
  CUmodule module;
  const char image[] = "something else";
  EXPECT_EQ(cuModuleLoadData(&module, image), CUDA_ERROR_INVALID_IMAGE);
  CUfunction function;
  EXPECT_EQ(cuModuleGetFunction(&function, modules[0], "fill"), CUDA_ERROR_NOT_FOUND);
}

TEST_F(Hostile, SaysThatItHasNoPlan) {
  unsetenv("LMC_HOST_PLAN");
  lmcHostReset();
  CUcontext context;
  check(cuInit(0));
  check(cuDevicePrimaryCtxRetain(&context, 0));
  check(cuCtxSetCurrent(context));
  EXPECT_EQ(cuModuleLoadData(&modules[0], "twice"), CUDA_ERROR_FILE_NOT_FOUND);
  EXPECT_NE(violations().find("no argument of this process is a plan"), std::string::npos);
}

TEST_F(Hostile, AnotherArchitectureDoesNotLoad) {
  setenv("LMC_HOST_ARCH", "80", 1);
  lmcHostReset();
  CUcontext context;
  check(cuInit(0));
  check(cuDevicePrimaryCtxRetain(&context, 0));
  check(cuCtxSetCurrent(context));
  EXPECT_EQ(cuModuleLoadData(&modules[0], "twice"), CUDA_ERROR_NO_BINARY_FOR_GPU);
  unsetenv("LMC_HOST_ARCH");
}

TEST_F(Hostile, RegistersCanBeWrong) {
  start({{"LMC_HOST_EXTRA_REGISTERS", "3"}});
  int registers = 0;
  check(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, twice));
  EXPECT_EQ(registers, 43);
}

TEST_F(Hostile, VisibleDevicesArePickedAsTheDriverDoes) {
  auto count = [](const char *visible) {
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    setenv("LMC_HOST_DEVICES", "4", 1);
    lmcHostReset();
    int devices = 0;
    const CUresult result = cuInit(0);
    if (result != CUDA_SUCCESS)
      return result == CUDA_ERROR_NO_DEVICE ? 0 : -1;
    EXPECT_EQ(cuDeviceGetCount(&devices), CUDA_SUCCESS);
    return devices;
  };
  EXPECT_EQ(count("0,1,2,3"), 4);
  EXPECT_EQ(count("2"), 1);
  char id[32];
  EXPECT_EQ(cuDeviceGetPCIBusId(id, sizeof(id), 0), CUDA_SUCCESS);
  EXPECT_STREQ(id, "0000:03:00.0");
  EXPECT_EQ(count("1,9,2"), 1) << "a number that no device has ends the list";
  EXPECT_EQ(count(""), 0);
  EXPECT_EQ(count("GPU-686f7374"), 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("LMC_HOST_DEVICES");
}
