// Two commands that conflict need an order that is certain, whatever order they happen to run in.
#include "test/Draws.h"
#include "test/hostdriver/Fixture.h"

using namespace lmc;
using namespace lmc::hostdriver;

namespace {
class Clocks : public HostDriver {
protected:
  void SetUp() override {
    HostDriver::SetUp();
    write(x, counted(64));
  }
};
} // namespace

TEST_F(Clocks, AMissingEventIsARaceInDrawnOrders) {
  for (int64_t seed = 1, last = test::drawCount(5); seed <= last; ++seed) {
    start({{"LMC_HOST_SEED", std::to_string(seed)}});
    write(x, counted(64));
    check(launchTwice(at(x), at(y), stream));
    EXPECT_EQ(launchTwice(at(y), at(again), other), CUDA_ERROR_NOT_PERMITTED);
    EXPECT_NE(violations().find("race: nothing orders 'launch of twice ()', which writes 256 bytes "
                                "at"),
              std::string::npos);
  }
}

TEST_F(Clocks, AnEventOrdersStreamsInDrawnOrders) {
  for (int64_t seed = 1, last = test::drawCount(5); seed <= last; ++seed) {
    start({{"LMC_HOST_SEED", std::to_string(seed)}});
    write(x, counted(64));
    CUevent event;
    check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    check(launchTwice(at(x), at(y), stream));
    check(cuEventRecord(event, stream));
    check(cuStreamWaitEvent(other, event, 0));
    check(launchTwice(at(y), at(again), other));
    check(cuStreamSynchronize(other));
    EXPECT_EQ(read(again), doubled(doubled(counted(64))));
    check(cuEventDestroy(event));
  }
}

// An event stands for the commands before its record, not for those before the wait.
TEST_F(Clocks, AnEventOrdersOnlyWhatCameBeforeIt) {
  CUevent event;
  check(cuEventCreate(&event, 0));
  check(cuEventRecord(event, stream));
  check(launchTwice(at(x), at(y), stream));
  check(cuStreamWaitEvent(other, event, 0));
  EXPECT_EQ(launchTwice(at(y), at(again), other), CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(Clocks, AWaitOfTheHostOrdersStreams) {
  check(launchTwice(at(x), at(y), stream));
  check(cuStreamSynchronize(stream));
  check(launchTwice(at(y), at(again), other));
  check(cuStreamSynchronize(other));
  EXPECT_EQ(read(again), doubled(doubled(counted(64))));
}

TEST_F(Clocks, ReadersNeedNoOrder) {
  float *one = pinned(64), *two = pinned(64);
  check(cuMemcpyDtoHAsync(one, at(x), 256, stream));
  check(cuMemcpyDtoHAsync(two, at(x), 256, other));
  check(cuStreamSynchronize(stream));
  check(cuStreamSynchronize(other));
  EXPECT_EQ(one[63], 63);
  EXPECT_EQ(two[63], 63);
  EXPECT_EQ(launchTwice(at(x), at(y), stream), CUDA_SUCCESS);
}

TEST_F(Clocks, AWriteAfterAReadNeedsAnOrder) {
  float *buffer = pinned(64);
  std::fill_n(buffer, 64, 7.0f);
  check(launchTwice(at(x), at(y), stream));
  EXPECT_EQ(cuMemcpyHtoDAsync(at(x), buffer, 256, other), CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(Clocks, PinnedMemoryNeedsAnOrderToo) {
  float *buffer = pinned(64);
  check(cuMemcpyDtoHAsync(buffer, at(x), 256, stream));
  EXPECT_EQ(cuMemcpyHtoDAsync(at(e), buffer, 128, other), CUDA_ERROR_NOT_PERMITTED);
}

// Commands may share rows of a matrix if they share no byte.
TEST_F(Clocks, CountBytesAndNotRows) {
  write(e, counted(32));
  const CUDA_MEMCPY2D how = copyOfColumns();
  check(cuMemcpy2DAsync(&how, stream));
  float *buffer = pinned(32);
  CUDA_MEMCPY2D rest = how; // columns 4 to 7 of f
  rest.srcMemoryType = CU_MEMORYTYPE_HOST;
  rest.srcHost = buffer;
  rest.srcDevice = 0;
  rest.dstXInBytes = 4 * 4;
  check(cuMemcpy2DAsync(&rest, other));
  rest.dstXInBytes = 3 * 4;
  EXPECT_EQ(cuMemcpy2DAsync(&rest, other), CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(Clocks, NothingIsFreedThatACommandMayStillUse) {
  float *buffer = pinned(64);
  std::fill_n(buffer, 64, 1.0f);
  CUdeviceptr scratch;
  check(cuMemAlloc(&scratch, 256));
  check(cuMemcpyHtoDAsync(scratch, buffer, 256, stream));
  EXPECT_EQ(cuMemFreeHost(buffer), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cuMemFree(scratch), CUDA_ERROR_NOT_PERMITTED);
  check(launchTwice(at(x), at(y), stream));
  EXPECT_EQ(cuModuleUnload(modules[0]), CUDA_ERROR_NOT_PERMITTED);
  check(cuStreamSynchronize(stream));
  check(cuMemFreeHost(buffer));
  check(cuMemFree(scratch));
  release();
}

// A query that says yes is as good as a wait; one that says no orders nothing.
TEST_F(Clocks, QueriesOrderWhatTheyFoundComplete) {
  check(launchTwice(at(x), at(y), stream));
  int asked = 1;
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
    ASSERT_LT(++asked, 1000);
  check(launchTwice(at(y), at(again), other));
}

TEST_F(Clocks, QueriesSometimesSayNo) {
  int refused = 0;
  for (int i = 0; i < 50; ++i) {
    check(launchTwice(at(x), at(y), stream));
    CUevent event;
    check(cuEventCreate(&event, 0));
    check(cuEventRecord(event, stream));
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
      ++refused;
    check(cuEventDestroy(event));
  }
  EXPECT_GT(refused, 5);
}
