// The registered targets: which devices they take, and what is said of others.
#include "compiler/kernels/Target.h"
#include "compiler/targets/Targets.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

using namespace lmc;
using namespace lmc::codegen;

namespace {
class Targets : public testing::Test {
protected:
  void SetUp() override { registerTargets(); }
};
} // namespace

TEST_F(Targets, AreListedOnceHoweverOftenTheyAreRegistered) {
  size_t count = targets().size();
  registerTargets();
  EXPECT_EQ(targets().size(), count);
  for (const Target *target : targets())
    EXPECT_EQ(findTarget(target->name()), target);
}

TEST_F(Targets, AreFoundByDeviceAndByThePlansTarget) {
  EXPECT_EQ(findTarget("cpu:x86-64-v3"), findTarget("cpu"));
  EXPECT_EQ(findTarget("cuda:sm_90a"), findTarget("cuda"));
  EXPECT_NE(findTarget("cuda"), findTarget("cpu"));
  EXPECT_EQ(findTarget("gpu"), nullptr);
}

TEST_F(Targets, RefuseWhatIsNoDeviceOfTheirs) {
  for (const char *device : {"cpu", "cuda:sm_80", "cuda:sm_90a", "cuda:sm_100", "cuda:sm_75"})
    EXPECT_TRUE(bool(checkDeviceName(device))) << device;
  for (const char *device : {"", "gpu", "cpu:znver3", "cuda", "cuda:90", "cuda:sm_9", "cuda:sm_90b",
                             "cuda:sm_1000", "xcuda:sm_90"})
    EXPECT_EQ(checkDeviceName(device).error().message,
              "it must be cpu or cuda:sm_XY, such as cuda:sm_90a")
        << device;
}

// A device may be written well, and still be one without code.
TEST_F(Targets, SayWhichDevicesHaveCode) {
  TargetConfig job;
  job.device = "cuda:sm_75";
  std::string error = llvm::toString(findTarget(job.device)->checkDevice(job));
  EXPECT_EQ(error.find("no code can be generated for 'cuda:sm_75'; lmc knows sm_80, "), 0u) << error;
  job.device = "cuda:sm_80";
  EXPECT_FALSE(bool(findTarget(job.device)->checkDevice(job)));
  job.device = "cpu";
  job.cpu = "pentium-9";
  error = llvm::toString(findTarget(job.device)->checkDevice(job));
  EXPECT_EQ(error.find("cannot generate code for pentium-9: unknown CPU"), 0u) << error;
}
