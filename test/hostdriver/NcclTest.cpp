// What the stand-in for NCCL computes, and the rules that it holds a program to.
#include "test/hostdriver/Fixture.h"

#include <nccl.h>

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

  ncclComm_t comm = nullptr;
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
  EXPECT_TRUE(contains(violations(), "is captured before its communicator has run anything"));
}

TEST_F(Nccl, AGraphMustNotOutliveItsCommunicator) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(sum(x, stream), ncclSuccess);
  check(cuStreamSynchronize(stream));
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(sum(x, stream), ncclSuccess);
  check(cuStreamEndCapture(stream, &graph));
  check(cuGraphInstantiate(&exec, graph, 0));
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
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
