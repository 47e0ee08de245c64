// What the stand-in for NCCL computes, and the rules that it holds a program to.
#include "test/hostdriver/Fixture.h"

#include <nccl.h>

#include <sys/wait.h>
#include <thread>

using namespace lmc;
using namespace lmc::hostdriver;

namespace {

class Nccl : public HostDriver {
protected:
  // The plan gathers, and sums, x and y of 64 elements.
  void SetUp() override {
    HostDriver::SetUp();
    builder.plan.functions[0]->commands.clear();
    addCollective(plan::CollectiveKind::AllGather, x, again);
    addCollective(plan::CollectiveKind::AllReduce, x, x);
    addCollective(plan::CollectiveKind::AllReduce, y, y);
    start({});
    connect();
  }

  void addCollective(plan::CollectiveKind kind, uint32_t from, uint32_t to) {
    plan::CollectiveT collective;
    collective.kind = kind;
    collective.x = from;
    collective.d = to;
    builder.command(collective);
  }

  void connect() {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  }

  ncclResult_t sum(uint32_t slice, CUstream on, ncclDataType_t type = ncclFloat32) {
    auto *data = reinterpret_cast<void *>(at(slice));
    return ncclAllReduce(data, data, 64, type, ncclSum, comm, on);
  }

  ncclResult_t gather(uint32_t from, uint32_t to) {
    return ncclAllGather(reinterpret_cast<void *>(at(from)), reinterpret_cast<void *>(at(to)), 256,
                         ncclInt8, comm, stream);
  }

  // Runs a sum, and captures another one.
  CUgraphExec captureSum() {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(sum(x, stream), ncclSuccess);
    check(cuStreamSynchronize(stream));
    check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_EQ(sum(x, stream), ncclSuccess);
    check(cuStreamEndCapture(stream, &graph));
    check(cuGraphInstantiate(&exec, graph, 0));
    check(cuGraphDestroy(graph));
    return exec;
  }

  // Starts this program once more, for a test of its own that is rank 1, and connects to it.
  void connectWith(const char *test) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    second = ::fork();
    if (second == 0) {
      ::setenv("LMC_TEST_COMMUNICATOR", id.internal, 1);
      const std::string filter = std::string("--gtest_filter=Nccl.") + test;
      ::execl("/proc/self/exe", "host-driver-tests", filter.c_str(),
              "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
      ::_exit(127);
    }
    ASSERT_GT(second, 0);
    ASSERT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclSuccess);
  }

  void connectAsSecond() {
    const char *name = std::getenv("LMC_TEST_COMMUNICATOR");
    ASSERT_TRUE(name);
    ncclUniqueId id = {};
    std::strncpy(id.internal, name, sizeof(id.internal) - 1);
    ASSERT_EQ(ncclCommInitRank(&comm, 2, id, 1), ncclSuccess);
  }

  void awaitSecond() {
    int status = 0;
    ASSERT_EQ(::waitpid(second, &status, 0), second);
    EXPECT_EQ(status, 0);
  }

  ncclComm_t comm = nullptr;
  pid_t second = -1;
};

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_F(Nccl, GathersBehindWhatTheStreamHolds) {
  write(x, counted(64));
  EXPECT_EQ(ncclAllGather(reinterpret_cast<void *>(at(x)), reinterpret_cast<void *>(at(again)), 256,
                          ncclInt8, comm, stream),
            ncclSuccess);
  EXPECT_EQ(read(again), counted(64));
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  release();
  EXPECT_EQ(violations(), "[]");
}

TEST_F(Nccl, RefusesWhatThePlanDoesNotHave) {
  EXPECT_EQ(sum(again, stream), ncclInvalidUsage);
  EXPECT_TRUE(contains(violations(), "the plan has no AllReduce of 256 bytes at "));
}

TEST_F(Nccl, CollectivesThatNoOrderJoinsAreARace) {
  EXPECT_EQ(sum(x, stream), ncclSuccess);
  EXPECT_EQ(sum(y, other), ncclInvalidUsage) << "other ranks may run them in the other order";
  EXPECT_TRUE(contains(violations(), "race: nothing orders 'AllReduce"));
}

TEST_F(Nccl, IsCapturedAfterAFirstRun) {
  CUgraph graph = nullptr;
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(sum(x, stream), ncclInvalidUsage);
  check(cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(sum(x, stream), ncclSuccess);
  check(cuStreamSynchronize(stream));
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(sum(x, stream), ncclSuccess);
  check(cuStreamEndCapture(stream, &graph));
  EXPECT_TRUE(contains(violations(), "is captured before its communicator has run one of its kind "
                                     "and size: it connects"));
}

// From 2.22 on, NCCL connects each algorithm when it is first used.
TEST_F(Nccl, ConnectsForEachKindAndSize) {
  EXPECT_EQ(sum(x, stream), ncclSuccess);
  check(cuStreamSynchronize(stream));
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(sum(y, stream), ncclSuccess) << "the same kind and size";
  EXPECT_EQ(gather(x, again), ncclInvalidUsage);
  EXPECT_TRUE(
      contains(violations(), "AllGather () is captured before its communicator has run one"));
}

TEST_F(Nccl, AGraphMustNotOutliveItsCommunicator) {
  captureSum();
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
}

TEST_F(Nccl, AnAbortWaitsForEverForAGraph) {
  start({{"LMC_HOST_PATIENCE", "20"}});
  connect();
  captureSum();
  EXPECT_EQ(ncclCommAbort(comm), ncclInvalidUsage);
  EXPECT_TRUE(contains(violations(), "an abort waits for ever for the graph of 'AllReduce ()'"));
}

// The graph may run: it is stopped, and then freed.
TEST_F(Nccl, AnAbortEndsWhenItsGraphsAreDestroyed) {
  CUgraphExec exec = captureSum();
  check(cuGraphLaunch(exec, stream));
  std::thread abort([&] {
    CUcontext context;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  });
  check(cuGraphExecDestroy(exec));
  abort.join();
  check(cuStreamSynchronize(stream));
  EXPECT_EQ(violations(), "[]");
}

// An abort frees memory, which waits for what the device runs. Ranks 0 and 1 of the second
// communicator are two threads of this program.
TEST_F(Nccl, AnAbortWaitsForCollectivesOfOtherCommunicators) {
  start({{"LMC_HOST_PATIENCE", "20"}});
  connect();
  ncclUniqueId id;
  ncclComm_t pair[2] = {};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::thread rank([&] {
    CUcontext context;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    EXPECT_EQ(ncclCommInitRank(&pair[1], 2, id, 1), ncclSuccess);
  });
  ASSERT_EQ(ncclCommInitRank(&pair[0], 2, id, 0), ncclSuccess);
  rank.join();
  auto *data = reinterpret_cast<void *>(at(x));
  EXPECT_EQ(ncclAllReduce(data, data, 64, ncclFloat32, ncclSum, pair[0], stream), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(comm), ncclInvalidUsage) << "rank 1 of the pair never comes";
  EXPECT_EQ(ncclCommAbort(pair[0]), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(pair[1]), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_TRUE(contains(violations(), "an abort waits for ever for 'AllReduce ()' of another "
                                     "communicator, which is not aborted"));
}

// A rank that waits for its device does not take part in the next collective.
TEST_F(Nccl, NothingWaitsForTheDeviceWhileACollectiveRuns) {
  CUdeviceptr memory = 0;
  cublasLtHandle_t handle = nullptr;
  float *buffer = pinned(64);
  check(cuMemAlloc(&memory, 256));
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(sum(x, stream), ncclSuccess);
  EXPECT_EQ(cuMemFree(memory), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cuMemFreeHost(buffer), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cuModuleUnload(modules[1]), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_NE(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
  check(cuStreamSynchronize(stream));
  check(cuMemFree(memory));
  check(cuMemFreeHost(buffer));
  check(cuModuleUnload(modules[1]));
  EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
  const auto all = report()["violations"];
  ASSERT_EQ(all.size(), 4u) << all.dump(2);
  for (const auto &each : all)
    EXPECT_TRUE(contains(each.get<std::string>(), "may run: the call may wait for the device"));
}

// The priority of a stream is copied into the nodes that it captures, and a graph does not use it
// unless it is told to.
TEST_F(Nccl, APriorityInAGraphIsAskedFor) {
  for (const unsigned long long flag : {0, int(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)}) {
    start({});
    connect();
    CUstream first = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    check(cuStreamCreateWithPriority(&first, CU_STREAM_NON_BLOCKING, -1));
    EXPECT_EQ(sum(x, first), ncclSuccess);
    check(cuStreamSynchronize(first));
    check(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_EQ(sum(x, first), ncclSuccess);
    check(cuStreamEndCapture(first, &graph));
    check(cuGraphInstantiate(&exec, graph, flag));
    check(cuGraphLaunch(exec, first));
    EXPECT_EQ(report()["patient_collectives"], flag ? 0 : 1);
  }
}

TEST_F(Nccl, AnOverlapIsInPlaceOrAFault) {
  auto *from = reinterpret_cast<void *>(at(x)), *to = reinterpret_cast<void *>(at(x) + 128);
  EXPECT_EQ(ncclAllGather(from, to, 256, ncclInt8, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(ncclReduceScatter(from, to, 64, ncclFloat32, ncclSum, comm, stream),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(from, to, 64, ncclFloat32, ncclSum, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(sum(x, stream), ncclSuccess) << "in place";
  const auto all = report()["violations"];
  ASSERT_EQ(all.size(), 3u) << all.dump(2);
  for (const auto &each : all)
    EXPECT_TRUE(contains(each.get<std::string>(), "overlaps the result, and is not in place"));
}

// The count is of one rank's piece, and in elements.
TEST_F(Nccl, CountsAreOfOneRank) {
  addCollective(plan::CollectiveKind::ReduceScatter, x, again);
  start({});
  connect();
  auto *from = reinterpret_cast<void *>(at(x)), *to = reinterpret_cast<void *>(at(again));
  EXPECT_EQ(ncclReduceScatter(from, to, 64, ncclFloat32, ncclSum, comm, stream), ncclSuccess);
  EXPECT_EQ(ncclReduceScatter(from, to, 32, ncclFloat32, ncclSum, comm, stream), ncclInvalidUsage);
  EXPECT_TRUE(contains(violations(), "the plan has no ReduceScatter of 128 bytes"));
}

TEST_F(Nccl, ANameIsUsedOnce) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage);
  EXPECT_TRUE(contains(violations(), "rank 0 uses the name of a communicator a second time"));
}

TEST_F(Nccl, ARankHasANumberBelowTheNumberOfRanks) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 1), ncclInvalidArgument);
  EXPECT_TRUE(contains(violations(), "there is no rank 1 of 1 ranks"));
}

TEST_F(Nccl, AThreadNeedsTheContext) {
  ncclResult_t result = ncclSuccess;
  std::thread([&] {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    result = ncclCommInitRank(&comm, 1, id, 0);
  }).join();
  EXPECT_EQ(result, ncclUnhandledCudaError);
}

TEST_F(Nccl, IsNotConnectedInACapture) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_NE(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Nccl, EveryResultHasAText) {
  for (int result = 0; result < 12; ++result)
    EXPECT_STRNE(ncclGetErrorString(ncclResult_t(result)), "") << result;
}

TEST_F(Nccl, MayBeAnotherReleaseThanTheHeaders) {
  start({{"LMC_HOST_NCCL_VERSION", "21803"}});
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 21803);
}

// The first launch of a kernel may load its code, and wait for all that runs before.
TEST_F(Nccl, CodeIsLoadedBeforeACollectiveRuns) {
  plan::LaunchT launch;
  launch.args = {x, y};
  launch.inputs = 1;
  launch.items = launch.chunk = 64;
  builder.command(launch);
  for (const bool loaded : {true, false}) {
    start({});
    connect();
    EXPECT_EQ(sum(x, stream), ncclSuccess);
    if (loaded)
      check(cuFuncLoad(twice));
    EXPECT_EQ(launchTwice(at(x), at(y), stream), loaded ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED);
  }
  EXPECT_TRUE(contains(violations(),
                       "the code of 'twice' is loaded by its launch while a collective runs"));
}

// Rank 1 of the next test: this program once more, under a name that no other run of it takes.
TEST_F(Nccl, DISABLED_SecondRank) {
  connectAsSecond();
  auto *data = reinterpret_cast<void *>(at(x));
  EXPECT_EQ(ncclAllReduce(data, data, 128, ncclFloat16, ncclSum, comm, stream), ncclSuccess);
  EXPECT_NE(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_TRUE(contains(violations(),
                       "rank 1 of the communicator runs AllReduce of 256 bytes of F16, "
                       "and rank 0 runs AllReduce of 256 bytes of F32"));
}

TEST_F(Nccl, RanksRunTheSameCollectives) {
  connectWith("DISABLED_SecondRank");
  EXPECT_EQ(sum(x, stream), ncclSuccess);
  EXPECT_NE(cuStreamSynchronize(stream), CUDA_SUCCESS);
  awaitSecond();
  EXPECT_TRUE(contains(violations(),
                       "rank 0 of the communicator runs AllReduce of 256 bytes of F32, "
                       "and rank 1 runs AllReduce of 256 bytes of F16"));
}

// Rank 1 of the next test runs its collectives without a graph.
TEST_F(Nccl, DISABLED_SecondRankThatCapturesNothing) {
  connectAsSecond();
  for (const bool captured : {false, true}) {
    EXPECT_EQ(sum(x, stream), ncclSuccess);
    EXPECT_EQ(cuStreamSynchronize(stream) != CUDA_SUCCESS, captured);
  }
}

TEST_F(Nccl, AllRanksCaptureOrNone) {
  connectWith("DISABLED_SecondRankThatCapturesNothing");
  check(cuGraphLaunch(captureSum(), stream));
  EXPECT_NE(cuStreamSynchronize(stream), CUDA_SUCCESS);
  awaitSecond();
  EXPECT_TRUE(contains(violations(),
                       "rank 0 of the communicator runs AllReduce of 256 bytes of F32 in a graph, "
                       "and rank 1 runs AllReduce of 256 bytes of F32"));
}

// Rank 1 of the next test has the second device of the machine. It destroys its first communicator,
// and ends without a word to the second one.
TEST_F(Nccl, DISABLED_SecondRankThatLeaves) {
  start({{"LMC_HOST_DEVICES", "2"}});
  CUcontext context;
  check(cuDevicePrimaryCtxRetain(&context, 1));
  connectAsSecond();
  if (!std::getenv("LMC_TEST_STAYS")) {
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
}

TEST_F(Nccl, IsDestroyedByAllRanksOfAMachine) {
  for (const bool stays : {false, true}) {
    start({{"LMC_HOST_DEVICES", "2"}});
    if (stays)
      ::setenv("LMC_TEST_STAYS", "1", 1);
    connectWith("DISABLED_SecondRankThatLeaves");
    ::unsetenv("LMC_TEST_STAYS");
    if (stays)
      awaitSecond();
    EXPECT_EQ(ncclCommDestroy(comm), stays ? ncclInvalidUsage : ncclSuccess);
    if (!stays)
      awaitSecond();
  }
  EXPECT_TRUE(contains(violations(), "rank 0 waits for ever for rank 1 of this machine, which does "
                                     "not destroy the communicator"));
}

TEST_F(Nccl, IsDestroyedWhenItsCollectivesHaveEnded) {
  EXPECT_EQ(sum(x, stream), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
}

TEST_F(Nccl, RefusesACommunicatorThatIsGone) {
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(sum(x, stream), ncclInvalidArgument);
  EXPECT_TRUE(contains(violations(), "a communicator is used that was never made, or is gone"));
}

TEST_F(Nccl, CountsCommunicatorsThatAreLeft) {
  EXPECT_EQ(report()["leaks"]["nccl_communicators"], 1);
}
