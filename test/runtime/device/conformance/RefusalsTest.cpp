// Plans that a device refuses to load, and devices that are not there.
#include "test/runtime/device/conformance/Conformance.h"

#include <cstdlib>

using namespace lmc;
using namespace lmc::test;

TEST_P(Conformance, RefusesPlansThatItCannotRun) {
  for (const BadPlan &bad : GetParam().badPlans()) {
    b = PlanBuilder();
    b.plan.target = GetParam().target;
    bad.build(b);
    ASSERT_NO_FATAL_FAILURE(open());
    auto loaded = device->load(*plan);
    ASSERT_FALSE(loaded) << bad.message;
    EXPECT_NE(loaded.error().message.find(bad.message), std::string::npos)
        << loaded.error().message;
  }
}

TEST_P(Conformance, SaysWhatDoesNotFit) {
  b.plan.arenas[1]->bytes = 1ull << 50;
  ASSERT_NO_FATAL_FAILURE(open());
  auto loaded = device->load(*plan);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ExitCode::DoesNotFit);
  EXPECT_NE(loaded.error().message.find("workspace 1048576.00 GiB"), std::string::npos)
      << loaded.error().message;
}

TEST(OpenDevice, SaysWhatIsMissingForAGpu) {
  PlanBuilder b;
  b.plan.target = "cuda:sm_90a";
  auto plan = b.open();
  ASSERT_TRUE(plan);
  ::setenv("LMC_CUDA_DRIVER", "/no/libcuda.so.1", 1);
  auto device = openDevice(**plan, {.threads = 1});
  ::unsetenv("LMC_CUDA_DRIVER");
  ASSERT_FALSE(device);
  EXPECT_NE(device.error().message.find("--target=cpu"), std::string::npos)
      << device.error().message;
}
