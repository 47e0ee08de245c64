// The prices of orthogonalizing matrices against numbers worked out by hand.
#include "compiler/cost/Muon.h"

#include <gtest/gtest.h>

using namespace lmc;
using namespace lmc::cost;

namespace {

// 4e12 FLOP/s in matrix products, 1e12 bytes/s of memory, no launch time.
CostModel toy(double linkBandwidth = 100e9) {
  DeviceSpec spec;
  spec.memoryBytes = 1ull << 40;
  spec.memoryBandwidth = 2e12;
  spec.reachable = 0.5;
  spec.peak = {8e12, 8e12, 8e12};
  spec.vectorFlops = 1e12;
  for (GemmModel &model : spec.gemm)
    model = {4e12, 128, 128, 4, 0, 1};
  spec.deviceLink = {0, 0, linkBandwidth};
  return CostModel(spec);
}

constexpr Group kEight{8, 1};

TEST(MuonCost, AStepIsThreeProductsAndTwoKernels) {
  const MuonWork work{1024, 4096, 1, 5, DataType::BF16};
  const double n = 1024, m = 4096;
  const double products = (2 * n * n * m + 2 * n * n * n + 2 * n * m * n) / 4e12;
  const double kernels = (n * n + n * m) * (2 + 4 + 2) / 1e12; // read bf16 and f32, write bf16
  const double normalized = 3 * n * m * 2 / 1e12;
  EXPECT_NEAR(orthogonalizeSeconds(work, toy()), normalized + 5 * (products + kernels), 1e-12);
}

// 4 units, and a product of 128 x 128 has one tile: four products take the time of one.
TEST(MuonCost, AStackFillsTheUnits) {
  CostModel model = toy();
  const double one = orthogonalizeSeconds({128, 128}, model);
  EXPECT_LT(orthogonalizeSeconds({128, 128, 4}, model), 1.5 * one);
  EXPECT_GT(stackedSeconds({128, 128, 4}, model), orthogonalizeSeconds({128, 128, 4}, model));
  EXPECT_LT(stackedSeconds({128, 128, 4}, model), 4 * one);
}

TEST(MuonCost, ATallMatrixCostsWhatItsTransposeDoes) {
  EXPECT_EQ(orthogonalizeSeconds({4096, 1024}, toy()), orthogonalizeSeconds({1024, 4096}, toy()));
}

TEST(MuonCost, OwnersDivideTheMatricesRoundedUp) {
  const CostModel model = toy(1e30);
  const double one = orthogonalizeSeconds({1024, 1024}, model), bytes = 1024 * 1024 * 2;
  const double two = orthogonalizeSeconds({1024, 1024, 2}, model);
  auto copies = [&](double own) { return 2 * 9 * own * bytes / 1e12; };
  EXPECT_NEAR(ownersSeconds({1024, 1024, 8}, kEight, model), one + copies(1), 1e-12);
  EXPECT_NEAR(ownersSeconds({1024, 1024, 9}, kEight, model), two + copies(2), 1e-12);
}

TEST(MuonCost, LinksDecideWhetherOwnersArePaid) {
  const MuonWork work{1024, 1024, 8};
  for (double bandwidth : {1e6, 1e12}) {
    const CostModel model = toy(bandwidth);
    EXPECT_EQ(ownersSeconds(work, kEight, model) < orthogonalizeSeconds(work, model),
              bandwidth == 1e12);
  }
}

} // namespace
