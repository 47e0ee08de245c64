// Memory: bounds, kinds, lifetimes, and pinned buffers that are used too early.
#include "test/Draws.h"
#include "test/hostdriver/Fixture.h"

using namespace lmc;
using namespace lmc::hostdriver;

namespace {
class MemoryRules : public HostDriver {};
} // namespace

TEST_F(MemoryRules, CopiesNeedPinnedMemory) {
  std::vector<float> pageable(64);
  EXPECT_EQ(cuMemcpyHtoDAsync(at(x), pageable.data(), 256, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoHAsync(pageable.data(), at(x), 256, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(violations().find("is not in live pinned memory"), std::string::npos);
}

TEST_F(MemoryRules, CopiesStayInTheirAllocation) {
  float *buffer = pinned(64);
  EXPECT_EQ(cuMemcpyHtoDAsync(at(x), buffer + 1, 256, stream), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr scratch;
  check(cuMemAlloc(&scratch, 255));
  EXPECT_EQ(cuMemcpyHtoDAsync(scratch, buffer, 256, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8Async(scratch + 250, 0, 6, stream), CUDA_ERROR_INVALID_VALUE);
  check(cuMemFree(scratch));
  EXPECT_EQ(cuMemsetD8Async(scratch, 0, 1, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(scratch), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(at(d)), CUDA_ERROR_INVALID_VALUE) << "not the start of an allocation";
}

// The fault that a ring of pinned buffers without a wait has: the next batch is written into a
// buffer whose copy has not run. It shows for every seed.
TEST_F(MemoryRules, EarlyReuseOfAPinnedBufferShowsInDrawnOrders) {
  for (int64_t seed = 1, last = test::drawCount(4); seed <= last; ++seed) {
    start({{"LMC_HOST_SEED", std::to_string(seed)}});
    float *buffer = pinned(64);
    std::fill_n(buffer, 64, 1.0f);
    check(cuMemcpyHtoDAsync(at(x), buffer, 256, stream));
    std::fill_n(buffer, 64, 2.0f);
    EXPECT_NE(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_NE(violations().find("the host wrote into the pinned memory of 'copy of 256 bytes from "
                                "pinned memory to"),
              std::string::npos);
  }
}

TEST_F(MemoryRules, ReuseAfterAWaitIsFine) {
  float *buffer = pinned(64);
  for (float value : {1.0f, 2.0f}) {
    std::fill_n(buffer, 64, value);
    check(cuMemcpyHtoDAsync(at(x), buffer, 256, stream));
    check(cuStreamSynchronize(stream));
  }
  EXPECT_EQ(read(x)[5], 2);
}

// What the host reads before the copy to it is complete is garbage.
TEST_F(MemoryRules, EarlyReadsOfAPinnedBufferGetGarbage) {
  write(x, counted(64));
  float *buffer = pinned(64);
  std::fill_n(buffer, 64, 5.0f);
  check(cuMemcpyDtoHAsync(buffer, at(x), 256, stream));
  EXPECT_TRUE(std::any_of(buffer, buffer + 64, [](float value) { return std::isnan(value); }));
  check(cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<float>(buffer, buffer + 64), counted(64));
}

TEST_F(MemoryRules, TheLegacyStreamIsRefused) {
  EXPECT_NE(cuMemsetD8Async(at(x), 0, 4, nullptr), CUDA_SUCCESS);
  EXPECT_NE(launchTwice(at(x), at(y), nullptr), CUDA_SUCCESS);
  EXPECT_NE(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
}

TEST_F(MemoryRules, TheDeviceIsAsLargeAsAskedFor) {
  start({{"LMC_HOST_MEMORY", "1000000"}, {"LMC_HOST_FREE", "600000"}});
  size_t available = 0, total = 0;
  check(cuMemGetInfo(&available, &total));
  EXPECT_EQ(total, 1000000u);
  EXPECT_LT(available, 600000u);
  CUdeviceptr large;
  EXPECT_EQ(cuMemAlloc(&large, available + 1), CUDA_ERROR_OUT_OF_MEMORY);
  check(cuMemAlloc(&large, available));
  EXPECT_EQ(report()["leaks"]["device_memory"], 3);
}
