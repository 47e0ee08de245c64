// Capture and graphs: CUDA's rules.
#include "test/Draws.h"
#include "test/hostdriver/LtFixture.h"

#include <thread>

using namespace lmc;
using namespace lmc::hostdriver;

namespace {

class Graphs : public LtDriver {
protected:
  void SetUp() override {
    LtDriver::SetUp();
    write(x, counted(64));
    check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    check(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
  }

  void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    check(cuStreamBeginCapture(stream, mode));
  }

  CUgraphExec instantiate() {
    CUgraph graph = nullptr;
    check(cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = nullptr;
    check(cuGraphInstantiateWithFlags(&exec, graph, 0));
    check(cuGraphDestroy(graph));
    check(cuGraphUpload(exec, stream));
    return exec;
  }

  // Ends a capture that has broken a rule.
  CUresult end() {
    CUgraph graph = nullptr;
    const CUresult result = cuStreamEndCapture(stream, &graph);
    EXPECT_EQ(graph, nullptr);
    return result;
  }

  CUevent event = nullptr, joined = nullptr;
};

} // namespace

TEST_F(Graphs, RunWhatWasCapturedEachTime) {
  begin();
  check(launchTwice(at(x), at(y), stream));
  check(launchTwice(at(y), at(again), stream));
  CUgraphExec exec = instantiate();
  for (float first : {0.0f, 100.0f}) {
    write(x, counted(64, first));
    check(cuGraphLaunch(exec, stream));
    EXPECT_EQ(read(again), doubled(doubled(counted(64, first))));
  }
  check(cuGraphExecDestroy(exec));
  close();
  check(cuEventDestroy(event));
  check(cuEventDestroy(joined));
  release();
  const auto all = report();
  EXPECT_EQ(all["violations"].size(), 0u) << all.dump(2);
  for (const auto &[kind, count] : all["leaks"].items())
    EXPECT_EQ(count, 0) << kind;
}

TEST_F(Graphs, NothingRunsWhileItIsCaptured) {
  const std::vector<float> before = read(again);
  begin();
  check(launchTwice(at(y), at(again), stream));
  CUgraphExec exec = instantiate();
  const std::vector<float> after = read(again);
  EXPECT_EQ(std::memcmp(before.data(), after.data(), 256), 0);
  check(cuGraphExecDestroy(exec));
}

// Parameters are those of the capture; what pinned memory holds is read when the graph runs.
TEST_F(Graphs, CopyParametersAndNotMemory) {
  writeOperands();
  const cublasLtMatmulAlgo_t algo = algorithms()[0].algo;
  ASSERT_EQ(multiply(algo, usual()), CUBLAS_STATUS_SUCCESS);
  const std::vector<float> once = read(d);
  float *buffer = pinned(64);
  begin();
  CUdeviceptr from = at(x), to = at(y);
  void *parameters[] = {&from, &to};
  check(cuMemcpyHtoDAsync(at(x), buffer, 256, stream));
  check(cuLaunchKernel(twice, 2, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  from = to = 0;
  ASSERT_EQ(multiply(algo, usual()), CUBLAS_STATUS_SUCCESS);
  CUgraphExec exec = instantiate();
  std::fill_n(buffer, 64, 3.0f);
  writeOperands();
  check(cuGraphLaunch(exec, stream));
  EXPECT_EQ(read(y), std::vector<float>(64, 6));
  EXPECT_EQ(read(d), once);
  check(cuGraphExecDestroy(exec));
}

// A number that a step passes in a call is stale in the next run of the graph; a number in memory
// is not.
TEST_F(Graphs, ANumberInACallIsStaleInTheNextRun) {
  float *rate = pinned(1);
  unsigned char number = 1;
  begin();
  check(cuMemsetD8Async(at(x), number, 4, stream));
  check(cuMemcpyHtoDAsync(at(x) + 4, rate, 4, stream));
  CUgraphExec exec = instantiate();
  number = 2;
  *rate = 2;
  check(cuGraphLaunch(exec, stream));
  const std::vector<float> values = read(x);
  uint32_t stale;
  std::memcpy(&stale, &values[0], 4);
  EXPECT_EQ(stale, 0x01010101u);
  EXPECT_EQ(values[1], 2);
}

TEST_F(Graphs, NodesWithoutAnOrderRunInAnyAndMayNotConflict) {
  begin();
  check(cuEventRecord(event, stream));
  check(cuStreamWaitEvent(other, event, 0));
  check(launchTwice(at(x), at(y), stream));
  check(launchTwice(at(y), at(again), other));
  check(cuEventRecord(joined, other));
  check(cuStreamWaitEvent(stream, joined, 0));
  CUgraphExec exec = instantiate();
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_NE(violations().find("race"), std::string::npos);
}

TEST_F(Graphs, EventsOrderNodesInDrawnOrders) {
  for (int64_t seed = 1, last = test::drawCount(4); seed <= last; ++seed) {
    start({{"LMC_HOST_SEED", std::to_string(seed)}});
    check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    check(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    write(x, counted(64));
    begin();
    check(launchTwice(at(x), at(y), stream));
    check(cuEventRecord(event, stream));
    check(cuStreamWaitEvent(other, event, 0));
    check(launchTwice(at(y), at(again), other));
    check(cuEventRecord(joined, other));
    check(cuStreamWaitEvent(stream, joined, 0));
    CUgraphExec exec = instantiate();
    check(cuGraphLaunch(exec, stream));
    EXPECT_EQ(read(again), doubled(doubled(counted(64))));
  }
}

TEST_F(Graphs, TheSameGraphNeverRunsTwiceAtOnce) {
  begin();
  check(launchTwice(at(x), at(y), stream));
  CUgraphExec exec = instantiate();
  check(cuGraphLaunch(exec, stream));
  check(cuGraphLaunch(exec, other)); // the driver puts it behind the launch before
  check(cuGraphExecDestroy(exec));   // it is freed when it ends
  check(cuStreamSynchronize(other));
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Graphs, OutliveNeitherTheirModulesNorTheirMemory) {
  begin();
  check(launchTwice(at(x), at(y), stream));
  CUgraphExec exec = instantiate();
  EXPECT_EQ(cuModuleUnload(modules[0]), CUDA_ERROR_NOT_PERMITTED);
  check(cuMemFree(arenas[1]));
  EXPECT_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(violations().find("uses memory that was freed"), std::string::npos);
}

// With a null workspace cuBLASLt would allocate one, which the graph would own.
TEST_F(Graphs, ProductsWithoutAWorkspaceAreRefused) {
  writeOperands();
  begin();
  Call call = usual();
  call.workspace = 0;
  EXPECT_NE(multiply(splitting(), call), CUBLAS_STATUS_SUCCESS);
}

TEST_F(Graphs, TheLegacyStreamIsNotCaptured) {
  EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_F(Graphs, AStreamThatIsCapturedCannotBeWaitedFor) {
  for (auto call : {cuStreamSynchronize, cuStreamQuery}) {
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(call(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUstreamCaptureStatus status;
    check(cuStreamIsCapturing(stream, &status));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(launchTwice(at(x), at(y), stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    check(cuStreamSynchronize(stream));
  }
}

TEST_F(Graphs, AllocationsBreakACaptureUnlessItIsRelaxed) {
  CUdeviceptr memory;
  for (auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
    begin(mode);
    EXPECT_EQ(cuMemAlloc(&memory, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  check(cuMemAlloc(&memory, 64));
  check(cuGraphExecDestroy(instantiate()));
}

// What a thread that loads data does while another one captures.
TEST_F(Graphs, OtherThreadsBreakOnlyAGlobalCapture) {
  auto allocate = [](bool exchange) {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      CUcontext context;
      cuDevicePrimaryCtxRetain(&context, 0);
      cuCtxSetCurrent(context);
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
      if (exchange)
        cuThreadExchangeStreamCaptureMode(&mode);
      CUdeviceptr memory;
      result = cuMemAlloc(&memory, 64);
    }).join();
    return result;
  };
  begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(allocate(false), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(allocate(true), CUDA_SUCCESS);
  check(cuGraphExecDestroy(instantiate()));
  begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(allocate(false), CUDA_SUCCESS);
  check(cuGraphExecDestroy(instantiate()));
}

TEST_F(Graphs, AThreadNeedsTheContext) {
  CUresult result = CUDA_SUCCESS;
  CUdeviceptr memory;
  std::thread([&] { result = cuMemAlloc(&memory, 64); }).join();
  EXPECT_EQ(result, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Graphs, AForkedStreamMustJoin) {
  begin();
  check(cuEventRecord(event, stream));
  check(cuStreamWaitEvent(other, event, 0));
  check(launchTwice(at(x), at(y), other));
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  check(launchTwice(at(x), at(y), other));
  check(cuStreamSynchronize(other));
}

TEST_F(Graphs, ACaptureEndsWhereItBegan) {
  begin();
  check(cuEventRecord(event, stream));
  check(cuStreamWaitEvent(other, event, 0));
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin();
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    CUcontext context;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    result = cuStreamEndCapture(stream, &graph);
  }).join();
  EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(), CUDA_ERROR_ILLEGAL_STATE) << "nothing is captured";
}

TEST_F(Graphs, EventsOfACaptureMeanNothingOutsideOfIt) {
  begin();
  check(cuEventRecord(event, stream));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin();
  check(cuEventRecord(event, stream));
  check(cuGraphExecDestroy(instantiate()));
  EXPECT_EQ(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(cuStreamWaitEvent(other, event, 0), CUDA_ERROR_CAPTURED_EVENT);
  check(cuEventRecord(event, stream));
  check(cuEventSynchronize(event));
  begin();
  EXPECT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
      << "work from before the capture";
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Graphs, CapturesDoNotMerge) {
  begin();
  check(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  check(cuEventRecord(event, other));
  EXPECT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
