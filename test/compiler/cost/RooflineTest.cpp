// The roofline against numbers worked out by hand.
#include "compiler/cost/Roofline.h"
#include "compiler/cost/Collectives.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace lmc;
using namespace lmc::cost;

namespace {

// Round numbers: 4 units of 1e12 FLOP/s, 1e12 bytes/s, no launch time.
DeviceSpec toy() {
  DeviceSpec spec;
  spec.memoryBytes = 1ull << 40;
  spec.memoryBandwidth = 2e12;
  spec.reachable = 0.5;
  spec.peak = {8e12, 8e12, 8e12};
  spec.vectorFlops = 1e12;
  for (GemmModel &model : spec.gemm)
    model = {4e12, 128, 128, 4, 0, 1};
  spec.attention = {{DataType::BF16, 64, 1e12, 0, 0.5e12, 0},
                    {DataType::BF16, 128, 2e12, 1024, 1e12, 1024}};
  spec.deviceLink = {1e-5, 1e-6, 100e9};
  spec.nodeLink = {1e-5, 1e-5, 10e9};
  return spec;
}

DeviceSpec load(const std::string &name) {
  auto spec = loadDeviceSpec(name);
  EXPECT_TRUE(spec);
  return *spec;
}

} // namespace

// 8 x 8 tiles on 4 units are 16 waves: as fast as the units are.
TEST(Roofline, AGemmOfWholeWavesRunsAtTheSustainedRate) {
  Estimate e = estimate(GemmWork{1024, 1024, 4096}, toy());
  EXPECT_DOUBLE_EQ(e.seconds, 2.0 * 1024 * 1024 * 4096 / 4e12);
  EXPECT_EQ(e.bound, Bound::MatrixUnits);
  EXPECT_DOUBLE_EQ(e.flops, 2.0 * 1024 * 1024 * 4096);
  EXPECT_DOUBLE_EQ(e.bytes, 2.0 * (1024 * 4096 * 2 + 1024 * 1024));
}

TEST(Roofline, FactorsOfEightBitsHaveARateOfTheirOwnAndHalfTheBytes) {
  DeviceSpec spec = toy();
  spec.gemmFp8 = spec.gemm[size_t(DataType::BF16)];
  spec.gemmFp8.sustained *= 2;
  GemmWork work{1024, 1024, 4096};
  work.eightBits = true;
  const Estimate e = estimate(work, spec), wide = estimate(GemmWork{1024, 1024, 4096}, spec);
  EXPECT_DOUBLE_EQ(e.seconds, wide.seconds / 2);
  EXPECT_DOUBLE_EQ(e.flops, wide.flops);
  EXPECT_DOUBLE_EQ(e.bytes, 1024 * 4096 * 2 + 2.0 * 1024 * 1024);
}

// Four products of one tile keep the units as busy as one of four tiles does.
TEST(Roofline, ABatchOfGemmsSharesTheUnits) {
  GemmWork batch{128, 128, 65536};
  batch.batch = 4;
  EXPECT_DOUBLE_EQ(estimate(batch, toy()).seconds,
                   estimate(GemmWork{4 * 128, 128, 65536}, toy()).seconds);
  EXPECT_DOUBLE_EQ(estimate(batch, toy()).flops,
                   4 * estimate(GemmWork{128, 128, 65536}, toy()).flops);
}

// Products of experts: on average half of the last tile of each is empty, and k is not split.
TEST(Roofline, ExpertsWithUnevenRowsHaveTilesThatAreNotFull) {
  DeviceSpec spec = toy();
  spec.gemm[size_t(DataType::BF16)].maxSplits = 16;
  GemmWork even{256, 128, 65536};
  even.batch = 8;
  even.experts = true;
  GemmWork uneven = even;
  uneven.uneven = true; // 8 x 2.5 tiles instead of 8 x 2, in waves of 4
  EXPECT_DOUBLE_EQ(estimate(uneven, spec).seconds, 1.25 * estimate(even, spec).seconds);
  EXPECT_DOUBLE_EQ(estimate(uneven, spec).flops, estimate(even, spec).flops);
  GemmWork few = uneven; // a tile is the least that an expert with rows has
  few.m = 10;
  even.m = 128;
  EXPECT_DOUBLE_EQ(estimate(few, spec).seconds, estimate(even, spec).seconds);
  GemmWork one{128, 128, 65536};
  GemmWork expert = one;
  expert.experts = true;
  EXPECT_GT(estimate(expert, spec).seconds, 2 * estimate(one, spec).seconds);
  GemmWork zeros = one;
  zeros.zeros = 3;
  EXPECT_DOUBLE_EQ(estimate(zeros, spec).bytes, estimate(one, spec).bytes + 3 * 2 * 128 * 128);
}

// 5 tiles on 4 units take as long as 8.
TEST(Roofline, APartlyFilledWaveTakesAWholeOne) {
  double five = estimate(GemmWork{5 * 128, 128, 65536}, toy()).seconds;
  double eight = estimate(GemmWork{8 * 128, 128, 65536}, toy()).seconds;
  EXPECT_DOUBLE_EQ(five, eight);
}

// One tile keeps one unit busy; with its depth in four parts it keeps all of them.
TEST(Roofline, SplittingTheDepthFillsTheUnits) {
  DeviceSpec spec = toy();
  double one = estimate(GemmWork{128, 128, 1 << 20}, spec).seconds;
  for (GemmModel &model : spec.gemm)
    model.maxSplits = 8;
  double split = estimate(GemmWork{128, 128, 1 << 20}, spec).seconds;
  double sums = 2.0 * 4 * 128 * 128 * 4 / 1e12;
  EXPECT_NEAR(split, one / 4 + sums, 1e-12);
}

TEST(Roofline, AnAccumulatingGemmReadsAndWritesItsResult) {
  DeviceSpec spec = toy();
  Estimate plain = estimate(GemmWork{1024, 1024, 4096, DataType::BF16, DataType::F32}, spec);
  Estimate adds = estimate(GemmWork{1024, 1024, 4096, DataType::BF16, DataType::F32, true}, spec);
  EXPECT_DOUBLE_EQ(adds.bytes - plain.bytes, 4.0 * 1024 * 1024);
  EXPECT_NEAR(adds.seconds - plain.seconds, 2 * 4.0 * 1024 * 1024 / 1e12, 1e-12);
}

// Logits, cross entropy (which reads logits and writes their gradient), dx and dweight of the head
// of models/configs/llama1b.toml on an H100, in microseconds a token. The figures were computed
// apart from this code. Most of what larger chunks save is the traffic of dweight.
TEST(Roofline, LargerChunksOfTheLossAreFaster) {
  DeviceSpec h100 = load("h100-sxm");
  constexpr int64_t kVocabulary = 131072, kHidden = 2048;
  for (auto [chunk, microseconds] :
       {std::pair<int64_t, double>{1024, 3.22}, {2048, 2.80}, {4096, 2.60}, {8192, 2.50}}) {
    const double bytes = 2.0 * double(chunk * kVocabulary);
    const double seconds =
        estimate(GemmWork{chunk, kVocabulary, kHidden}, h100).seconds +
        estimate(KernelWork{bytes, bytes, 0}, h100).seconds +
        estimate(GemmWork{chunk, kHidden, kVocabulary}, h100).seconds +
        estimate(GemmWork{kVocabulary, kHidden, chunk, DataType::BF16, DataType::F32, true}, h100)
            .seconds;
    const double each = seconds * 1e6 / double(chunk);
    std::printf("  chunks of %ld: %.2f us a token\n", long(chunk), each);
    EXPECT_NEAR(each, microseconds, 0.02) << chunk;
  }
}

TEST(Roofline, AThinGemmIsBoundByMemory) {
  Estimate e = estimate(GemmWork{128, 131072, 2}, toy());
  EXPECT_EQ(e.bound, Bound::MemoryBandwidth);
  EXPECT_DOUBLE_EQ(e.seconds, e.bytes / 1e12);
}

// Large products on an H100 reach 650 to 750 TFLOP/s, and none more than the best known.
TEST(Roofline, LargeGemmsOnAnH100) {
  DeviceSpec h100 = load("h100-sxm");
  for (auto [m, n, k] : {std::array<int64_t, 3>{16384, 2048, 2048},
                         {16384, 8192, 2048},
                         {16384, 2048, 8192},
                         {8192, 8192, 16384},
                         {8192, 14336, 4096},
                         {8192, 131072, 2048}}) {
    Estimate e = estimate(GemmWork{m, n, k}, h100);
    double rate = e.flops / e.seconds * 1e-12;
    std::printf("  %ld x %ld x %ld: %.0f TFLOP/s\n", long(m), long(n), long(k), rate);
    EXPECT_GT(rate, 640);
    EXPECT_LT(rate, 795);
    EXPECT_EQ(e.bound, Bound::MatrixUnits);
  }
}

TEST(Roofline, VisiblePairsOfAWindow) {
  EXPECT_EQ(visiblePairs(4, 0), 10);
  EXPECT_EQ(visiblePairs(4, 8), 10);
  EXPECT_EQ(visiblePairs(4, 2), 7); // 1 + 2 + 2 + 2
  EXPECT_EQ(visiblePairs(4, 1), 4);
}

// 4 b h d pairs forward, 2.5 times that backward; half the rate at the half length.
TEST(Roofline, AttentionByHeadDimension) {
  DeviceSpec spec = toy();
  AttentionWork work{2, 1024, 16, 4, 128};
  double flops = 4.0 * 2 * 16 * 128 * (1024.0 * 1025 / 2);
  Estimate forward = estimate(work, spec);
  EXPECT_DOUBLE_EQ(forward.flops, flops);
  EXPECT_DOUBLE_EQ(forward.seconds, flops / 1e12);
  work.backward = true;
  EXPECT_DOUBLE_EQ(estimate(work, spec).seconds, 2.5 * flops / 0.5e12);
  work.headDim = 64; // an entry of its own, without a half length
  EXPECT_DOUBLE_EQ(estimate(work, spec).seconds, 2.5 * flops / 2 / 0.5e12);
  work.headDim = 256; // the nearest known is 128
  EXPECT_DOUBLE_EQ(estimate(work, spec).seconds, 2.5 * flops * 2 / 0.5e12);
}

// The measured points that the H200's and the H100's curves were drawn through.
TEST(Roofline, AttentionOnHopperGoesThroughTheMeasuredPoints) {
  DeviceSpec h200 = load("h200");
  for (auto [seq, forward, backward] :
       {std::array<double, 3>{2048, 484e12, 370e12}, {8192, 644e12, 541e12}}) {
    AttentionWork work{8, int64_t(seq), 64, 8, 128};
    Estimate f = estimate(work, h200);
    EXPECT_NEAR(f.flops / (f.seconds - h200.launchSeconds) / forward, 1, 0.005);
    work.backward = true;
    Estimate b = estimate(work, h200);
    EXPECT_NEAR(b.flops / (b.seconds - h200.launchSeconds) / backward, 1, 0.005);
  }
}

TEST(Roofline, WhatBoundsAKernel) {
  DeviceSpec spec = toy();
  EXPECT_EQ(estimate(KernelWork{1e9, 1e9, 1e6}, spec).bound, Bound::MemoryBandwidth);
  EXPECT_DOUBLE_EQ(estimate(KernelWork{1e9, 1e9, 1e6}, spec).seconds, 2e-3);
  EXPECT_EQ(estimate(KernelWork{1e6, 1e6, 1e9}, spec).bound, Bound::VectorUnits);
  spec.launchSeconds = 1e-5;
  EXPECT_EQ(estimate(KernelWork{1e3, 1e3, 1e3}, spec).bound, Bound::Launch);
  EXPECT_NEAR(estimate(KernelWork{1e9, 1e9, 1e6}, spec).seconds, 2e-3 + 1e-5, 1e-12);
}

TEST(Roofline, SmallTrafficRunsFromTheCache) {
  DeviceSpec spec = toy();
  spec.cacheBytes = 1000;
  spec.cacheBandwidth = 1e13;
  EXPECT_DOUBLE_EQ(estimate(KernelWork{500, 500, 0}, spec).seconds, 1e-10);
  EXPECT_DOUBLE_EQ(estimate(KernelWork{501, 500, 0}, spec).seconds, 1001e-12);
}

TEST(Roofline, ScatterReadsAndAddsRows) {
  Estimate adds = estimate(ScatterWork{100, 64, 1000, 2, 4, true}, toy());
  EXPECT_DOUBLE_EQ(adds.bytes, 100 * 64 * (2 + 4 + 4));
  Estimate stores = estimate(ScatterWork{100, 64, 1000, 2, 4, false}, toy());
  EXPECT_DOUBLE_EQ(stores.bytes, 100 * 64 * (2 + 4 + 4) + 1000 * 64 * 4);
}

// A ring of 8: 7 hops, 7/8 of the bytes over each link.
TEST(Collectives, OneNode) {
  DeviceSpec spec = toy();
  Group eight{8, 1};
  double expected = 1e-5 + 7e-6 + 7.0 / 8 * 1e9 / 100e9;
  EXPECT_DOUBLE_EQ(allGatherSeconds(1e9, eight, spec), expected);
  EXPECT_DOUBLE_EQ(allReduceSeconds(1e9, eight, spec), 2 * expected - 1e-5);
  EXPECT_EQ(allGatherSeconds(1e9, {1, 1}, spec), 0);
  EXPECT_EQ(allReduceSeconds(1e9, {1, 1}, spec), 0);
}

// One ring through 2 nodes of 8: 15 hops, of which one is between nodes. The 8 adapters of a node
// (80e9 bytes/s) are slower than the links inside (100e9).
TEST(Collectives, RingThroughNodes) {
  DeviceSpec spec = toy();
  const double pass = 14 * 1e-6 + 1e-5 + 15.0 / 16 * 1e9 / 80e9;
  EXPECT_DOUBLE_EQ(allGatherSeconds(1e9, {8, 2}, spec), 1e-5 + pass);
  EXPECT_DOUBLE_EQ(allReduceSeconds(1e9, {8, 2}, spec), 1e-5 + 2 * pass);
  EXPECT_DOUBLE_EQ(allGatherSeconds(1e9, {1, 2}, spec), 1e-5 + 1e-5 + 0.5 * 1e9 / 10e9);
}

// A group takes as many processors as the link of its that takes the most.
TEST(Collectives, ProcessorsAreThoseOfTheLinks) {
  DeviceSpec spec = toy();
  EXPECT_EQ(processorsOf({8, 2}, spec), 0);
  spec.deviceLink.processors = 0.15;
  spec.nodeLink.processors = 0.02;
  EXPECT_EQ(processorsOf({8, 1}, spec), 0.15);
  EXPECT_EQ(processorsOf({8, 2}, spec), 0.15);
  EXPECT_EQ(processorsOf({1, 2}, spec), 0.02);
  EXPECT_EQ(processorsOf({1, 1}, spec), 0);
}

// A device's share goes across nodes.
TEST(Collectives, InStages) {
  DeviceSpec spec = toy();
  spec.nodeLink.stages = true;
  const double inside = 1e-5 + 7e-6 + 7.0 / 8 * 1e9 / 100e9;
  const double across = 1e-5 + 1e-5 + 0.5 * (1e9 / 8) / 10e9;
  EXPECT_DOUBLE_EQ(allGatherSeconds(1e9, {8, 2}, spec), inside + across);
  EXPECT_DOUBLE_EQ(allReduceSeconds(1e9, {8, 2}, spec), 2 * inside + 2 * across - 1e-5);
  EXPECT_DOUBLE_EQ(allGatherSeconds(1e9, {1, 2}, spec), 1e-5 + 1e-5 + 0.5 * 1e9 / 10e9);
}

// A small all-reduce over many nodes takes a tree: 2 x 7 hops inside, 2 x log2(64) between nodes.
TEST(Collectives, AnAllGatherIsALine) {
  const DeviceSpec spec = toy();
  DeviceSpec staged = spec;
  staged.nodeLink.stages = true;
  for (const DeviceSpec &each : {spec, staged})
    for (Group group : {Group{8, 1}, Group{1, 2}, Group{8, 2}}) {
      const double n = double(group.devicesPerNode * group.nodes);
      const AllGatherLine line = allGatherLine(group, each);
      for (double bytes : {0.0, 1e6, 3e9})
        EXPECT_NEAR(allGatherSeconds(bytes, group, each),
                    line.latency + (n - 1) / n * bytes / line.bandwidth, 1e-12 + bytes * 1e-21);
    }
}

TEST(Collectives, TreeOfNodes) {
  DeviceSpec spec = toy();
  EXPECT_NEAR(allReduceSeconds(0, {8, 64}, spec), 1e-5 + 2 * (7 * 1e-6 + 6 * 1e-5), 1e-12);
  EXPECT_GT(allGatherSeconds(0, {8, 64}, spec), 63 * 1e-5);
}

// NVIDIA names 46 to 48 GB/s for an adapter of 400 Gbit/s (nccl-tests, issue 290). On 16 nodes of 8
// H100, an all-gather then moves its bytes at 8 times that: the busbw of nccl-tests.
TEST(Collectives, BusBandwidthOfSixteenNodesOfH100) {
  DeviceSpec h100 = load("h100-sxm");
  const double bytes = 16e9, busbw = bytes * 127 / 128 / allGatherSeconds(bytes, {8, 16}, h100);
  EXPECT_NEAR(busbw / 1e9, 355, 15);
}

// llama1b on 8 H100: all-gather of its bf16 weights 6.0 ms, reduce-scatter of f32 gradients 12.
TEST(Collectives, Llama1bOnANodeOfH100) {
  DeviceSpec h100 = load("h100-sxm");
  EXPECT_NEAR(allGatherSeconds(1241581568.0 * 2, {8, 1}, h100) * 1e3, 6.0, 0.1);
  EXPECT_NEAR(allGatherSeconds(1241581568.0 * 4, {8, 1}, h100) * 1e3, 12.0, 0.2);
}
