// Programs that break one rule of contracts.md each, and the words with which the stand-in refuses
// them. Rules with more to them have files of their own.
#include "test/hostdriver/LtFixture.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <csignal>
#include <thread>

using namespace lmc;
using namespace lmc::hostdriver;

namespace {

class Contracts : public HostDriver {
protected:
  // Ends the host driver, which must have said `words` and nothing else.
  void expectOnly(const std::string &words) {
    const auto all = report()["violations"];
    ASSERT_EQ(all.size(), 1u) << all.dump(2);
    EXPECT_NE(all[0].get<std::string>().find(words), std::string::npos) << all.dump(2);
  }

  CUresult launchAs(std::array<unsigned, 3> blocks, std::array<unsigned, 3> threads,
                    unsigned shared = 0) {
    CUdeviceptr from = at(x), to = at(y);
    void *parameters[] = {&from, &to};
    return cuLaunchKernel(twice, blocks[0], blocks[1], blocks[2], threads[0], threads[1],
                          threads[2], shared, stream, parameters, nullptr);
  }
};

class LtContracts : public LtDriver {
protected:
  void expectOnly(const std::string &words) {
    const auto all = report()["violations"];
    ASSERT_EQ(all.size(), 1u) << all.dump(2);
    EXPECT_NE(all[0].get<std::string>().find(words), std::string::npos) << all.dump(2);
  }
};

} // namespace

TEST_F(Contracts, NothingWorksBeforeInit) {
  lmcHostReset();
  int count = 0;
  CUdevice device;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuDriverGetVersion(&count), CUDA_SUCCESS);
}

TEST_F(Contracts, InitHasNoFlags) {
  EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  expectOnly("cuInit has flags 0x1");
}

TEST_F(Contracts, UnknownErrorsHaveNoName) {
  const char *text = "kept";
  EXPECT_EQ(cuGetErrorName(CUresult(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  text = "kept";
  EXPECT_EQ(cuGetErrorString(CUresult(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

TEST_F(Contracts, DevicesAreCounted) {
  CUdevice device;
  EXPECT_EQ(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
}

TEST_F(Contracts, ANameFitsItsBuffer) {
  char name[8];
  std::memset(name, 'x', sizeof(name));
  check(cuDeviceGetName(name, 5, 0));
  EXPECT_EQ(std::string(name, 8), std::string("Host\0xxx", 8));
}

TEST_F(Contracts, AUuidIsNoText) {
  CUuuid uuid;
  check(cuDeviceGetUuid(&uuid, 0));
  EXPECT_NE(std::memchr(uuid.bytes, 0, sizeof(uuid.bytes)), nullptr);
  EXPECT_EQ(uuid.bytes[15], 1);
}

TEST_F(Contracts, AContextIsReleasedAsOftenAsItIsRetained) {
  check(cuDevicePrimaryCtxRelease(0));
  EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
  CUdeviceptr memory;
  EXPECT_EQ(cuMemAlloc(&memory, 64), CUDA_ERROR_INVALID_CONTEXT) << "it is gone";
  expectOnly("a primary context is released once too often");
}

TEST_F(Contracts, OnlyARetainedContextIsCurrent) {
  EXPECT_EQ(cuCtxSetCurrent(reinterpret_cast<CUcontext>(&failed)), CUDA_ERROR_INVALID_CONTEXT);
  expectOnly("a context is made current that is not retained");
}

// Of a megabyte the context, two modules, cuBLASLt's handle and a graph take 100,000 bytes each.
TEST_F(Contracts, LibrariesTakeMemoryOfTheDevice) {
  start({{"LMC_HOST_MEMORY", "1000000"}, {"LMC_HOST_TAKES", "100000"}});
  auto available = [&] {
    size_t bytes = 0, total = 0;
    check(cuMemGetInfo(&bytes, &total));
    EXPECT_EQ(total, 1000000u);
    return bytes;
  };
  const uint64_t arenasBytes = builder.plan.arenas[0]->bytes + builder.plan.arenas[1]->bytes;
  EXPECT_EQ(available(), 700000 - arenasBytes);
  cublasLtHandle_t handle = nullptr;
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(available(), 600000 - arenasBytes);
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  check(launchTwice(at(x), at(y), stream));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  check(cuStreamEndCapture(stream, &graph));
  check(cuGraphInstantiate(&exec, graph, 0));
  EXPECT_EQ(available(), 500000 - arenasBytes);
  CUdeviceptr large;
  check(cuMemAlloc(&large, available() - 50000));
  EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_OUT_OF_MEMORY);
  CUmodule module;
  EXPECT_EQ(cuModuleLoadData(&module, "twice"), CUDA_ERROR_OUT_OF_MEMORY);
  check(cuModuleUnload(modules[1]));
  check(cuModuleLoadData(&module, "twice"));
}

TEST_F(Contracts, AllocationsAreAlignedTo256BytesAndNoBetter) {
  for (size_t bytes : {1, 255, 256, 257, 4096, 5000}) {
    CUdeviceptr memory;
    check(cuMemAlloc(&memory, bytes));
    EXPECT_EQ(memory % 256, 0u);
    EXPECT_NE(memory % 512, 0u) << bytes << " bytes are aligned better than promised";
  }
}

TEST_F(Contracts, AnAllocationHasABytes) {
  CUdeviceptr memory;
  EXPECT_EQ(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
  expectOnly("an allocation of 0 bytes");
}

static sigjmp_buf afterFault;

TEST_F(Contracts, TheHostCannotReadDeviceMemory) {
  struct sigaction before[2], action = {};
  action.sa_handler = [](int) { siglongjmp(afterFault, 1); };
  sigaction(SIGSEGV, &action, &before[0]);
  sigaction(SIGBUS, &action, &before[1]);
  volatile float read = 0;
  const bool faulted = sigsetjmp(afterFault, 1);
  if (!faulted)
    read = *reinterpret_cast<volatile float *>(at(x));
  sigaction(SIGSEGV, &before[0], nullptr);
  sigaction(SIGBUS, &before[1], nullptr);
  EXPECT_TRUE(faulted) << read;
}

TEST_F(Contracts, PinnedMemoryStartsAsGarbage) {
  const float *buffer = pinned(64);
  EXPECT_TRUE(std::any_of(buffer, buffer + 64, [](float v) { return std::isnan(v); }));
}

// What waits for the device, or is not ordered by a stream, breaks a capture of its own thread.
TEST_F(Contracts, UnsafeCallsBreakACapture) {
  void *host = nullptr;
  CUmodule module;
  cublasLtHandle_t handle = nullptr, made = nullptr;
  ASSERT_EQ(cublasLtCreate(&made), CUBLAS_STATUS_SUCCESS);
  const std::pair<const char *, std::function<bool()>> calls[] = {
      {"cuMemHostAlloc", [&] { return cuMemHostAlloc(&host, 64, 0) == CUDA_SUCCESS; }},
      {"cuModuleLoadDataEx",
       [&] { return cuModuleLoadDataEx(&module, "twice", 0, nullptr, nullptr) == CUDA_SUCCESS; }},
      {"cublasLtCreate", [&] { return cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS; }},
      {"cublasLtDestroy", [&] { return cublasLtDestroy(made) == CUBLAS_STATUS_SUCCESS; }},
      {"cuStreamSynchronize", [&] { return cuStreamSynchronize(other) == CUDA_SUCCESS; }},
  };
  for (const auto &[name, call] : calls) {
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_FALSE(call()) << name;
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) << name;
    EXPECT_EQ(graph, nullptr);
  }
}

TEST_F(Contracts, AStreamIsCapturedOnce) {
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_ERROR_ILLEGAL_STATE);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Contracts, APitchHoldsARow) {
  CUDA_MEMCPY2D how = copyOfColumns();
  how.srcPitch = 15;
  EXPECT_EQ(cuMemcpy2DAsync(&how, stream), CUDA_ERROR_INVALID_VALUE);
  expectOnly("rows of 16 bytes lie 15 and 32 bytes apart");
}

TEST_F(Contracts, APitchHasALimit) {
  CUDA_MEMCPY2D how = copyOfColumns();
  how.Height = 1;
  how.srcPitch = size_t(1) << 31;
  EXPECT_EQ(cuMemcpy2DAsync(&how, stream), CUDA_ERROR_INVALID_VALUE);
  expectOnly("rows lie 2147483648 bytes apart");
}

TEST_F(Contracts, SharedMemoryAbove48KiBIsAskedFor) {
  builder.plan.kernels[0]->shared_bytes = 50000;
  start({});
  EXPECT_EQ(launchAs({2, 1, 1}, {32, 1, 1}, 50000), CUDA_ERROR_INVALID_VALUE);
  check(cuFuncSetAttribute(twice, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000));
  check(launchAs({2, 1, 1}, {32, 1, 1}, 50000));
  expectOnly("'twice' is launched with 50000 bytes of shared memory, and was allowed 49152");
}

TEST_F(Contracts, SharedMemoryHasALimit) {
  EXPECT_EQ(cuFuncSetAttribute(twice, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232449),
            CUDA_ERROR_INVALID_VALUE);
  check(cuFuncSetAttribute(twice, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448));
  expectOnly("is set to 232449");
}

TEST_F(Contracts, AGridHasLimits) {
  for (const auto &blocks : std::vector<std::array<unsigned, 3>>{
           {0, 1, 1}, {1, 65536, 1}, {1, 1, 65536}, {0x80000000, 1, 1}}) {
    start({});
    EXPECT_EQ(launchAs(blocks, {32, 1, 1}), CUDA_ERROR_INVALID_VALUE);
    expectOnly(", which no device has");
  }
}

TEST_F(Contracts, ABlockHasLimits) {
  for (const auto &threads :
       std::vector<std::array<unsigned, 3>>{{1025, 1, 1}, {1, 1, 65}, {0, 1, 1}}) {
    start({});
    EXPECT_EQ(launchAs({1, 1, 1}, threads), CUDA_ERROR_INVALID_VALUE);
    expectOnly(", which no device has");
  }
  start({});
  EXPECT_EQ(launchAs({2, 1, 1}, {64, 1, 1}), CUDA_ERROR_INVALID_VALUE);
  expectOnly("a block of 'twice' has 64 threads, and its code allows 32");
}

TEST_F(Contracts, RegistersOfABlockFit) {
  builder.plan.kernels[0]->threads = 1024;
  start({{"LMC_HOST_EXTRA_REGISTERS", "40"}}); // 80 x 1,024 are more than 65,536
  EXPECT_EQ(launchAs({2, 1, 1}, {1024, 1, 1}), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  expectOnly("a block of 'twice' does not fit on a multiprocessor");
}

TEST_F(Contracts, ALaunchHasOneKindOfParameters) {
  CUdeviceptr from = at(x), to = at(y);
  void *parameters[] = {&from, &to}, *extra[] = {CU_LAUNCH_PARAM_END};
  EXPECT_EQ(cuLaunchKernel(twice, 2, 1, 1, 32, 1, 1, 0, stream, parameters, extra),
            CUDA_ERROR_INVALID_VALUE);
  expectOnly("a launch has parameters in 'extra'");
}

TEST_F(Contracts, StreamsAndEventsHaveTheFlagsOfTheHeader) {
  CUstream made;
  CUevent event;
  EXPECT_EQ(cuStreamCreate(&made, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamCreateWithPriority(&made, 2, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuEventCreate(&event, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  check(cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC));
  EXPECT_EQ(cuStreamWaitEvent(stream, event, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(report()["violations"].size(), 5u);
}

TEST_F(Contracts, PrioritiesAreClamped) {
  int least = -1, greatest = 1;
  check(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_LT(greatest, 0);
  for (int priority : {greatest - 1, greatest, 0, 5}) {
    CUstream made = nullptr;
    int given = 1;
    check(cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, priority));
    check(cuStreamGetPriority(made, &given));
    EXPECT_EQ(given, std::clamp(priority, greatest, least));
    check(cuStreamDestroy(made));
  }
}

TEST_F(Contracts, AStreamIsDestroyedWithWhatItHolds) {
  write(x, counted(64));
  CUstream brief;
  check(cuStreamCreate(&brief, CU_STREAM_NON_BLOCKING));
  check(launchTwice(at(x), at(y), brief));
  check(cuStreamDestroy(brief));
  EXPECT_EQ(launchTwice(at(y), at(again), stream), CUDA_ERROR_NOT_PERMITTED)
      << "nobody knows when the first launch ends";
  expectOnly("race: nothing orders");
}

TEST_F(Contracts, AnEventIsDestroyedBeforeItIsReached) {
  write(x, counted(64));
  CUevent event;
  check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  check(launchTwice(at(x), at(y), stream));
  check(cuEventRecord(event, stream));
  check(cuStreamWaitEvent(other, event, 0));
  check(cuEventDestroy(event));
  check(launchTwice(at(y), at(again), other));
  check(cuStreamSynchronize(other));
  EXPECT_EQ(read(again), doubled(doubled(counted(64))));
}

TEST_F(Contracts, AnEventThatWasNeverRecordedIsComplete) {
  CUevent event;
  check(cuEventCreate(&event, 0));
  check(cuEventQuery(event));
  check(cuEventSynchronize(event));
  check(cuStreamWaitEvent(stream, event, 0));
}

TEST_F(Contracts, OnlyTimedEventsHaveATime) {
  CUevent timed, untimed;
  check(cuEventCreate(&timed, 0));
  check(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  float milliseconds = 0;
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, timed, timed), CUDA_ERROR_INVALID_HANDLE);
  check(cuEventRecord(timed, stream));
  check(cuEventRecord(untimed, stream));
  check(cuStreamSynchronize(stream));
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, timed, untimed), CUDA_ERROR_INVALID_HANDLE);
  check(cuEventElapsedTime(&milliseconds, timed, timed));
  const auto all = report()["violations"];
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NE(all[0].get<std::string>().find("was never recorded"), std::string::npos);
  EXPECT_NE(all[1].get<std::string>().find("has no timing"), std::string::npos);
}

TEST_F(Contracts, AskingForATimeIsNoWait) {
  CUevent begin, end;
  check(cuEventCreate(&begin, 0));
  check(cuEventCreate(&end, 0));
  check(cuEventRecord(begin, stream));
  check(launchTwice(at(x), at(y), stream));
  check(cuEventRecord(end, stream));
  float milliseconds = 0;
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, begin, end), CUDA_ERROR_NOT_READY);
  check(cuEventSynchronize(end));
  check(cuEventElapsedTime(&milliseconds, begin, end));
}

namespace {

class GraphContracts : public Contracts {
protected:
  CUgraphExec copyInAGraph(float *buffer, CUdeviceptr to) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    check(cuMemcpyHtoDAsync(to, buffer, 256, stream));
    check(cuStreamEndCapture(stream, &graph));
    check(cuGraphInstantiate(&exec, graph, 0));
    check(cuGraphDestroy(graph));
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_HANDLE);
    return exec;
  }
};

} // namespace

TEST_F(GraphContracts, AGraphSaysHowManyNodesItHas) {
  CUgraph graph = nullptr;
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  check(launchTwice(at(x), at(y), stream));
  check(launchTwice(at(y), at(again), stream));
  check(cuStreamEndCapture(stream, &graph));
  size_t count = 0;
  check(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 2u);
  CUgraphNode nodes[3] = {nullptr, nullptr, reinterpret_cast<CUgraphNode>(&count)};
  count = 3;
  check(cuGraphGetNodes(graph, nodes, &count));
  EXPECT_EQ(count, 2u);
  EXPECT_NE(nodes[1], nullptr);
  EXPECT_EQ(nodes[2], nullptr);
}

TEST_F(GraphContracts, AGraphHasTheFlagsOfTheHeader) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  check(launchTwice(at(x), at(y), stream));
  check(cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD),
            CUDA_ERROR_INVALID_VALUE)
      << "that flag is one of cuGraphInstantiateWithParams";
  check(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
  expectOnly("a graph has flags 0x2");
}

TEST_F(GraphContracts, AGraphIsUploadedOutsideOfACapture) {
  CUgraphExec exec = copyInAGraph(pinned(64), at(x));
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(cuGraphUpload(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

// A graph holds addresses, not memory: neither pinned memory nor memory of the device is kept.
TEST_F(GraphContracts, TheHostsMemoryLivesAsLongAsTheGraph) {
  float *buffer = pinned(64);
  CUgraphExec exec = copyInAGraph(buffer, at(x));
  check(cuMemFreeHost(buffer));
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  expectOnly("uses memory that was freed");
}

TEST_F(GraphContracts, MemoryAtTheSameAddressIsOtherMemory) {
  CUdeviceptr first = 0, second = 0;
  check(cuMemAlloc(&first, 4096));
  CUgraphExec exec = copyInAGraph(pinned(64), first);
  check(cuMemFree(first));
  for (int i = 0; i < 64 && second != first; ++i)
    check(cuMemAlloc(&second, 4096));
  if (second != first)
    GTEST_SKIP() << "the system did not give the address again";
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  expectOnly("uses memory that was freed");
}

TEST_F(GraphContracts, AGraphInFlightIsFreedWhenItEnds) {
  float *buffer = pinned(64);
  std::fill_n(buffer, 64, 7.0f);
  CUgraphExec exec = copyInAGraph(buffer, at(x));
  check(cuGraphLaunch(exec, stream));
  check(cuGraphExecDestroy(exec));
  EXPECT_EQ(read(x), std::vector<float>(64, 7));
  EXPECT_EQ(violations(), "[]");
}

TEST_F(LtContracts, EveryStatusHasAText) {
  for (int status = 0; status < 20; ++status)
    EXPECT_STRNE(cublasLtGetStatusString(cublasStatus_t(status)), "") << status;
}

TEST_F(LtContracts, TypesOfAProductFitTogether) {
  cublasLtMatmulDescDestroy(desc);
  cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_64F, CUDA_R_64F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                 sizeof(transposed));
  int found = 0;
  cublasLtMatmulHeuristicResult_t result;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, dLayout, dLayout,
                                           preference, 1, &result, &found),
            CUBLAS_STATUS_NOT_SUPPORTED);
  expectOnly("the types of a product do not fit together");
}

TEST_F(LtContracts, AnAttributeHasItsSize) {
  const uint64_t wide = CUBLAS_OP_T;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof(wide)),
            CUBLAS_STATUS_INVALID_VALUE);
  expectOnly("an attribute of 4 bytes is set from 8 bytes");
}

TEST_F(LtContracts, ALeadingDimensionHoldsAColumn) {
  const int64_t narrow = 5;
  cublasLtMatrixLayoutSetAttribute(aLayout, CUBLASLT_MATRIX_LAYOUT_LD, &narrow, sizeof(narrow));
  int found = 0;
  cublasLtMatmulHeuristicResult_t result;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, dLayout, dLayout,
                                           preference, 1, &result, &found),
            CUBLAS_STATUS_INVALID_VALUE);
  expectOnly("a matrix of 6 x 4 elements has leading dimension 5");
}

TEST_F(LtContracts, BatchesAreEquallyLarge) {
  const int32_t two = 2;
  cublasLtMatrixLayoutSetAttribute(aLayout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &two, sizeof(two));
  int found = 0;
  cublasLtMatmulHeuristicResult_t result;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, dLayout, dLayout,
                                           preference, 1, &result, &found),
            CUBLAS_STATUS_INVALID_VALUE);
  expectOnly("a product of batches of 1 and 2");
}

// The manual allows two ways to say so; the seed decides which.
TEST_F(LtContracts, AHeuristicMayFindNothing) {
  for (const auto &[seed, expected] :
       {std::pair("1", CUBLAS_STATUS_NOT_SUPPORTED), std::pair("2", CUBLAS_STATUS_SUCCESS)}) {
    start({{"LMC_HOST_SEED", seed}, {"LMC_HOST_NO_ALGORITHM", "1"}});
    open();
    int found = -1;
    cublasLtMatmulHeuristicResult_t result;
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, dLayout, dLayout,
                                             preference, 1, &result, &found),
              expected);
    EXPECT_EQ(found, 0);
  }
}

TEST_F(LtContracts, AProposalMayHaveFailed) {
  start({{"LMC_HOST_BAD_ALGORITHM", "state"}});
  open();
  const auto proposals = algorithms();
  EXPECT_NE(proposals[0].state, CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(proposals[1].state, CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(multiply(proposals[0].algo, usual()), CUBLAS_STATUS_SUCCESS);
  expectOnly("a proposal of the heuristic runs whose state is a failure");
}

TEST_F(LtContracts, AProposalMayNotRun) {
  start({{"LMC_HOST_BAD_ALGORITHM", "run"}});
  open();
  const auto proposals = algorithms();
  EXPECT_EQ(proposals[0].state, CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(proposals[0].algo, usual()), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply(proposals[1].algo, usual()), CUBLAS_STATUS_SUCCESS);
}

TEST_F(LtContracts, AProposalMayComputeWrongSums) {
  start({{"LMC_HOST_BAD_ALGORITHM", "sum"}});
  open();
  const auto proposals = algorithms();
  std::vector<std::vector<float>> results;
  for (size_t i : {0, 1}) {
    writeOperands();
    ASSERT_EQ(multiply(proposals[i].algo, usual()), CUBLAS_STATUS_SUCCESS);
    results.push_back(read(d));
  }
  EXPECT_NEAR(results[0][0], results[1][0], 1e-3);
  EXPECT_NEAR(results[0][19], results[1][19] + 0.5, 1e-3);
}

TEST_F(LtContracts, AHeuristicIsAskedForSomething) {
  int found = 0;
  cublasLtMatmulHeuristicResult_t result;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, dLayout, dLayout,
                                           preference, 0, &result, &found),
            CUBLAS_STATUS_INVALID_VALUE);
  expectOnly("the heuristic is asked for 0 algorithms");
}

TEST_F(LtContracts, AProductNamesItsAlgorithm) {
  const float one = 1;
  auto *product = reinterpret_cast<void *>(at(d));
  EXPECT_NE(cublasLtMatmul(handle, desc, &one, reinterpret_cast<void *>(at(b)), bLayout,
                           reinterpret_cast<void *>(at(a)), aLayout, &one, product, dLayout,
                           product, dLayout, nullptr, nullptr, 0, stream),
            CUBLAS_STATUS_SUCCESS);
  expectOnly("a product without an algorithm");
}

TEST_F(LtContracts, AWorkspaceIsAligned) {
  Call call = usual();
  call.workspace += 128;
  call.workspaceBytes -= 128;
  EXPECT_EQ(multiply(splitting(), call), CUBLAS_STATUS_INVALID_VALUE);
  expectOnly("the workspace is not aligned to 256 bytes");
}

// Whatever beta is: the heuristic does not know it.
TEST_F(LtContracts, CHasTheShapeOfD) {
  cublasLtMatrixLayout_t cLayout = nullptr;
  auto ask = [&] {
    int found = 0;
    cublasLtMatmulHeuristicResult_t result;
    return cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, cLayout, dLayout,
                                          preference, 1, &result, &found);
  };
  EXPECT_EQ(ask(), CUBLAS_STATUS_SUCCESS) << "without one, it is d's";
  cublasLtMatrixLayoutCreate(&cLayout, type, 5, 4, 7);
  EXPECT_EQ(ask(), CUBLAS_STATUS_SUCCESS) << "the leading dimension may differ";
  for (const auto &[of, rows, columns] :
       {std::tuple(CUDA_R_16BF, 5, 4), std::tuple(CUDA_R_32F, 4, 5)}) {
    cublasLtMatrixLayoutDestroy(cLayout);
    cublasLtMatrixLayoutCreate(&cLayout, of, uint64_t(rows), uint64_t(columns), 7);
    EXPECT_EQ(ask(), CUBLAS_STATUS_INVALID_VALUE);
  }
  const auto all = report()["violations"];
  ASSERT_EQ(all.size(), 2u) << all.dump(2);
  for (const auto &each : all)
    EXPECT_NE(each.get<std::string>().find("c of a product has 1 matrices of"), std::string::npos);
}

TEST_F(LtContracts, CIsDOrApartFromIt) {
  const float one = 1, zero = 0;
  const cublasLtMatmulAlgo_t algorithm = algorithms()[0].algo;
  auto run = [&](float beta, CUdeviceptr c) {
    return cublasLtMatmul(handle, desc, &one, reinterpret_cast<void *>(at(b)), bLayout,
                          reinterpret_cast<void *>(at(a)), aLayout, beta ? &one : &zero,
                          reinterpret_cast<void *>(c), dLayout, reinterpret_cast<void *>(at(d)),
                          dLayout, &algorithm, reinterpret_cast<void *>(at(workspace)), 1024,
                          stream);
  };
  EXPECT_NE(run(0, at(d) + 64), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(run(1, at(d) + 64), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(run(1, 0), CUBLAS_STATUS_SUCCESS);
  const auto all = report()["violations"];
  ASSERT_EQ(all.size(), 3u) << all.dump(2);
  for (int i : {0, 1})
    EXPECT_NE(all[size_t(i)].get<std::string>().find("c of a product overlaps d, and is not d"),
              std::string::npos);
  EXPECT_NE(all[2].get<std::string>().find("a product with beta 1 that has no c"),
            std::string::npos);
}
