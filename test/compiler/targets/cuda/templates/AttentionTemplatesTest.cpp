#include "compiler/targets/cuda/templates/AttentionTemplates.h"
#include "compiler/targets/cuda/CudaCode.h"
#include "test/Draws.h"
#include "test/compiler/targets/cuda/CudaFixture.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <tuple>

using lmc::DataType;
using namespace lmc::codegen;
using testing::HasSubstr;
using testing::Not;

namespace {

const char *const kArchs[] = {"sm_80", "sm_90a", "sm_100"};

AttentionShape llama1bAttention() {
  AttentionShape shape;
  shape.batch = 16;
  shape.seq = 2048;
  shape.heads = 32;
  shape.kvHeads = 8;
  shape.headDim = 64;
  shape.scale = 0.125;
  shape.qPitch = shape.kPitch = shape.vPitch = 48 * 64;
  return shape;
}

AttentionShape mistral7b() {
  AttentionShape shape;
  shape.batch = 1;
  shape.seq = 8192;
  shape.heads = 32;
  shape.kvHeads = 8;
  shape.headDim = 128;
  shape.window = 4096;
  shape.scale = 0.08838834764831845;
  shape.qPitch = shape.kPitch = shape.vPitch = 48 * 128;
  return shape;
}

std::string refusal(AttentionShape shape) {
  auto kernels = attentionGradKernels(shape, *findCudaArch("sm_90a"));
  return kernels ? "" : llvm::toString(kernels.takeError());
}

} // namespace

TEST(AttentionTemplates, TellTheMathsAndTheShape) {
  auto kernels = attentionKernels(llama1bAttention(), *findCudaArch("sm_90"), "attention_7");
  ASSERT_TRUE(bool(kernels)) << llvm::toString(kernels.takeError());
  ASSERT_EQ(kernels->size(), 1u);
  const CudaKernel &kernel = kernels->front();
  EXPECT_EQ(kernel.name, "attention_7");
  EXPECT_EQ(kernel.hero, "attention_forward");
  EXPECT_EQ(kernel.threads, 128u);
  EXPECT_EQ(kernel.source,
            R"(// attention_7: attention_forward
//   s[i, j] = 0.125f q[i].k[j] for j <= i
//   lse[i] = log sum_j exp(s[i, j])    out[i] = sum_j exp(s[i, j] - lse[i]) v[j]
// bf16 [16 * 2048, heads * 64], 32 query and 8 key heads; lse and delta f32 [16 * 2048, 32]
// 128 queries x 64 keys at a time by 4 warps, 4 tiles in flight
#include "lmc/attention_forward.cuh"

struct Shape {
  static constexpr int batch = 16, seq = 2048, heads = 32, kvHeads = 8, headDim = 64;
  static constexpr int window = 0;
  static constexpr bool documents = false, rope = false, largest = false;
  static constexpr int qPitch = 3072, kPitch = 3072, vPitch = 3072, outPitch = 2048;
  static constexpr float scale = 0.125f;
};
struct Tile {
  static constexpr int queries = 128, keys = 64, warps = 4;
  static constexpr int slots = 4, together = 188;
  static constexpr bool queryRegisters = true;
};

using Launch = lmc::AttentionForward<Shape, Tile>;
static_assert(Launch::blocks == 8192 && Launch::sharedBytes == 49152, "as launched");

extern "C" __global__ void __launch_bounds__(128, 2)
attention_7(const lmc::bf16 *q, const lmc::bf16 *k, const lmc::bf16 *v, lmc::bf16 *out, float *lse) {
  lmc::attentionForward<Shape, Tile>(q, k, v, nullptr, out, lse, nullptr);
}
)");
}

TEST(AttentionTemplates, GradientsTellTheirs) {
  AttentionShape shape = llama1bAttention();
  shape.rope = true;
  auto kernels = attentionGradKernels(shape, *findCudaArch("sm_90"), "grad_7");
  ASSERT_TRUE(bool(kernels)) << llvm::toString(kernels.takeError());
  ASSERT_EQ(kernels->size(), 2u);
  const CudaKernel &queries = kernels->front(), &keys = kernels->back();
  EXPECT_EQ(queries.hero, "attention_grad_queries");
  EXPECT_EQ(queries.threads, 128u);
  EXPECT_EQ(queries.source,
            R"(// grad_7_queries: attention_grad_queries
//   s[i, j] = 0.125f q[i].k[j] for j <= i
//   p[i, j] = exp(s[i, j] - lse[i])    ds[i, j] = p[i, j] (dout[i].v[j] - delta[i])
//   delta[i] = dout[i].out[i]    dq[i] = 0.125f sum_j ds[i, j] k[j], rotated back by cos and sin
// bf16 [16 * 2048, heads * 64], 32 query and 8 key heads; lse and delta f32 [16 * 2048, 32]
// 128 queries x 32 keys at a time by 4 warps, 2 tiles in flight
#include "lmc/attention_backward.cuh"

struct Shape {
  static constexpr int batch = 16, seq = 2048, heads = 32, kvHeads = 8, headDim = 64;
  static constexpr int window = 0;
  static constexpr bool documents = false, rope = true, largest = false;
  static constexpr int qPitch = 3072, kPitch = 3072, vPitch = 3072, outPitch = 2048;
  static constexpr int doutPitch = 2048, dqPitch = 2048, dkPitch = 512, dvPitch = 512;
  static constexpr float scale = 0.125f;
};
struct Tile {
  static constexpr int queries = 128, keys = 32, warps = 4;
  static constexpr int stages = 2, together = 188;
  static constexpr bool queryRegisters = false;
};

using Launch = lmc::AttentionGradQueries<Shape, Tile>;
static_assert(Launch::blocks == 8192 && Launch::sharedBytes == 50176, "as launched");

extern "C" __global__ void __launch_bounds__(128, 2)
grad_7_queries(const lmc::bf16 *q, const lmc::bf16 *k, const lmc::bf16 *v, const lmc::bf16 *out, const float *lse, const lmc::bf16 *dout, const float *cos, const float *sin, lmc::bf16 *dq, float *delta) {
  lmc::attentionGradQueries<Shape, Tile>(q, k, v, out, lse, dout, nullptr, cos, sin, dq, delta, nullptr);
}
)");
  EXPECT_EQ(keys.hero, "attention_grad_keys");
  EXPECT_EQ(keys.threads, 256u);
  EXPECT_EQ(keys.source,
            R"(// grad_7_keys: attention_grad_keys
//   s[i, j] = 0.125f q[i].k[j] for j <= i
//   p[i, j] = exp(s[i, j] - lse[i])    ds[i, j] = p[i, j] (dout[i].v[j] - delta[i])
//   dv[j] = sum_i p[i, j] dout[i]    dk[j] = 0.125f sum_i ds[i, j] q[i], rotated back by cos and sin, over the heads that share j
// bf16 [16 * 2048, heads * 64], 32 query and 8 key heads; lse and delta f32 [16 * 2048, 32]
// 64 queries x 128 keys at a time by 8 warps, 2 tiles in flight
#include "lmc/attention_backward.cuh"

struct Shape {
  static constexpr int batch = 16, seq = 2048, heads = 32, kvHeads = 8, headDim = 64;
  static constexpr int window = 0;
  static constexpr bool documents = false, rope = true, largest = false;
  static constexpr int qPitch = 3072, kPitch = 3072, vPitch = 3072, outPitch = 2048;
  static constexpr int doutPitch = 2048, dqPitch = 2048, dkPitch = 512, dvPitch = 512;
  static constexpr float scale = 0.125f;
};
struct Tile {
  static constexpr int queries = 64, keys = 128, warps = 8;
  static constexpr int stages = 2, together = 11;
};

using Launch = lmc::AttentionGradKeys<Shape, Tile>;
static_assert(Launch::blocks == 2048 && Launch::sharedBytes == 66560, "as launched");

extern "C" __global__ void __launch_bounds__(256, 1)
grad_7_keys(const lmc::bf16 *q, const lmc::bf16 *k, const lmc::bf16 *v, const float *lse, const lmc::bf16 *dout, const float *delta, const float *cos, const float *sin, lmc::bf16 *dk, lmc::bf16 *dv) {
  lmc::attentionGradKeys<Shape, Tile>(q, k, v, lse, dout, delta, nullptr, cos, sin, dk, dv, nullptr);
}
)");
}

// On sm_90a, by warpgroups; on other architectures, by the kernels of the tests above.
TEST(AttentionTemplates, TellTheirWarpgroups) {
  AttentionShape shape = llama1bAttention();
  const CudaArch &arch = *findCudaArch("sm_90a");
  auto forward = attentionKernels(shape, arch, "attention");
  auto grad = attentionGradKernels(shape, arch, "grad");
  ASSERT_TRUE(forward && grad);
  for (const CudaKernel *kernel : {&forward->front(), &grad->front(), &grad->back()}) {
    const bool isForward = kernel == &forward->front(), byKeys = kernel == &grad->back();
    const char *part = isForward ? "Forward" : byKeys ? "GradKeys" : "GradQueries";
    EXPECT_THAT(kernel->source,
                HasSubstr(isForward ? "#include \"lmc/attention_forward_groups.cuh\"\n"
                                    : "#include \"lmc/attention_backward_groups.cuh\"\n"));
    EXPECT_THAT(kernel->source,
                HasSubstr(std::string("lmc::Attention") + part + "Groups<Shape, Tile>;"));
    EXPECT_THAT(kernel->source,
                HasSubstr(std::string("  lmc::attention") + part + "Groups<Shape, Tile>("));
    EXPECT_THAT(kernel->source,
                HasSubstr(byKeys ? "bool keyRegisters = " : "bool queryRegisters = "));
    EXPECT_THAT(kernel->source, HasSubstr(" warpgroups, "));
    EXPECT_EQ(kernel->threads % 128, 0u);
  }
}

TEST(AttentionTemplates, TellTheMask) {
  AttentionShape shape = mistral7b();
  shape.documents = true;
  auto kernels = attentionKernels(shape, *findCudaArch("sm_90a"));
  ASSERT_TRUE(bool(kernels)) << llvm::toString(kernels.takeError());
  const std::string &source = kernels->front().source;
  EXPECT_THAT(source, HasSubstr("for j <= i, i - j < 4096, j >= starts[i]\n"));
  EXPECT_THAT(source, HasSubstr("(const lmc::bf16 *q, const lmc::bf16 *k, const lmc::bf16 *v, "
                                "const lmc::i32 *starts, lmc::bf16 *out, float *lse) {\n"));
}

TEST(AttentionTemplates, GradientsAreTwoKernelsThatPassDeltaOn) {
  AttentionShape shape = mistral7b();
  auto kernels = attentionGradKernels(shape, *findCudaArch("sm_90a"), "grad");
  ASSERT_TRUE(bool(kernels)) << llvm::toString(kernels.takeError());
  ASSERT_EQ(kernels->size(), 2u);
  EXPECT_THAT((*kernels)[0].source,
              HasSubstr("grad_queries(const lmc::bf16 *q, const lmc::bf16 *k, const lmc::bf16 *v, "
                        "const lmc::bf16 *out, const float *lse, const lmc::bf16 *dout, "
                        "lmc::bf16 *dq, float *delta) {\n"));
  EXPECT_THAT((*kernels)[1].source,
              HasSubstr("grad_keys(const lmc::bf16 *q, const lmc::bf16 *k, const lmc::bf16 *v, "
                        "const float *lse, const lmc::bf16 *dout, const float *delta, "
                        "lmc::bf16 *dk, lmc::bf16 *dv) {\n"));
  EXPECT_THAT((*kernels)[0].source, HasSubstr("i - j < 4096"));
  EXPECT_THAT((*kernels)[0].source, Not(HasSubstr("cos,")));
  shape.rope = true;
  kernels = attentionGradKernels(shape, *findCudaArch("sm_90a"), "grad");
  ASSERT_TRUE(bool(kernels));
  for (const CudaKernel &kernel : *kernels)
    EXPECT_THAT(kernel.source, HasSubstr("const float *cos, const float *sin, lmc::bf16 *d"));
}

TEST(AttentionTemplates, RefuseWhatHasNoKernel) {
  AttentionShape shape = llama1bAttention();
  EXPECT_EQ(refusal(shape), "");
  shape.type = DataType::F64;
  EXPECT_EQ(refusal(shape), "attention on CUDA: f64 has no kernel there; compute in f32 or bf16, "
                            "or on the CPU");
  shape = llama1bAttention();
  shape.headDim = 63;
  EXPECT_EQ(refusal(shape), "attention on CUDA: heads of 63; even sizes up to 256 have a kernel");
  shape.headDim = 258;
  EXPECT_EQ(refusal(shape), "attention on CUDA: heads of 258; even sizes up to 256 have a kernel");
  shape = llama1bAttention();
  shape.kvHeads = 5;
  EXPECT_EQ(refusal(shape), "attention on CUDA: 32 query heads do not divide among 5 key heads");
  shape = llama1bAttention();
  shape.scale = 0;
  EXPECT_THAT(refusal(shape), HasSubstr("a scale of"));
  shape = llama1bAttention();
  shape.batch = 1 << 20;
  EXPECT_THAT(refusal(shape), HasSubstr("more than 2^31 rows"));
}

TEST(AttentionTemplates, TensorCoresTakeWhatTheyCan) {
  const CudaArch &arch = *findCudaArch("sm_90a");
  auto chosen = [&](const AttentionShape &shape) {
    return chooseAttentionTile(AttentionPart::Forward, shape, arch);
  };
  EXPECT_NE(chosen(llama1bAttention()), nullptr);
  EXPECT_NE(chosen(mistral7b()), nullptr);
  AttentionShape shape = llama1bAttention();
  shape.type = DataType::F32;
  EXPECT_EQ(chosen(shape), nullptr);
  shape = llama1bAttention();
  for (int64_t headDim : {60, 132, 252}) { // no multiple of 8
    shape.headDim = headDim;
    EXPECT_EQ(chosen(shape), nullptr) << headDim;
  }
  shape = llama1bAttention();
  shape.kPitch = 3076; // not a multiple of 16 bytes
  EXPECT_EQ(chosen(shape), nullptr);
}

// Heads with fewer columns than a tile: the next larger tile, which is cheaper than plain kernels.
TEST(AttentionTemplates, TilesTakeHeadsOfFewerColumns) {
  EXPECT_EQ(tileHeadDim(64), 64);
  EXPECT_EQ(tileHeadDim(8), 64);
  EXPECT_EQ(tileHeadDim(72), 96);
  EXPECT_EQ(tileHeadDim(104), 128);
  EXPECT_EQ(tileHeadDim(144), 192);
  EXPECT_EQ(tileHeadDim(136), 0);
  EXPECT_EQ(tileHeadDim(208), kLargestTileHeadDim);
  EXPECT_EQ(tileHeadDim(264), 0);
  EXPECT_EQ(tileHeadDim(100), 0);
  for (const char *name : kArchs)
    for (int64_t headDim = 8; headDim <= kLargestTileHeadDim; headDim += headDim < 128 ? 8 : 16)
      for (AttentionPart part :
           {AttentionPart::Forward, AttentionPart::GradQueries, AttentionPart::GradKeys}) {
        const CudaArch &arch = *findCudaArch(name);
        AttentionShape shape = llama1bAttention();
        shape.headDim = headDim;
        const AttentionTile *tile = chooseAttentionTile(part, shape, arch);
        ASSERT_NE(tile, nullptr) << headDim;
        EXPECT_EQ(tile->headDim, tileHeadDim(headDim));
        EXPECT_LT(estimate(*tile, shape, arch).clocks, plainClocks(part, shape, arch) / 2)
            << headDim;
      }
}

TEST(AttentionTemplates, TellTheColumnsOfATile) {
  AttentionShape shape = llama1bAttention();
  shape.headDim = 80;
  shape.qPitch = shape.kPitch = shape.vPitch = 48 * 80;
  auto kernels = attentionKernels(shape, *findCudaArch("sm_90"), "attention");
  ASSERT_TRUE(bool(kernels)) << llvm::toString(kernels.takeError());
  const CudaKernel &kernel = kernels->front();
  EXPECT_THAT(kernel.source, HasSubstr("// Tiles have 96 columns; those from 80 on are zeros\n"));
  EXPECT_THAT(kernel.source, HasSubstr("kvHeads = 8, headDim = 80;\n"));
  EXPECT_THAT(kernel.source, HasSubstr("lmc::AttentionForward<Shape, Tile, 96>;\n"));
  EXPECT_THAT(kernel.source, HasSubstr("lmc::attentionForward<Shape, Tile, 96>(q, k, v, "));
  EXPECT_EQ(kernel.bytes.read, 2u * 16 * 2048 * 80 * 48); // the columns of heads, not of tiles
}

TEST(AttentionTemplates, SomeTilesAreForFullTilesWithoutDocumentsAlone) {
  for (const char *name : kArchs)
    for (AttentionPart part :
         {AttentionPart::Forward, AttentionPart::GradQueries, AttentionPart::GradKeys})
      for (int64_t headDim : {64, 96, 128}) {
        AttentionShape shape = mistral7b();
        shape.headDim = headDim;
        shape.qPitch = shape.kPitch = shape.vPitch = 0;
        for (auto [seq, less, documents] :
             {std::tuple(8191, 0, false), std::tuple(8192, 0, true), std::tuple(8192, 8, false)}) {
          shape.seq = seq;
          shape.window = 0;
          shape.headDim = headDim - less;
          shape.documents = documents;
          const AttentionTile *tile = chooseAttentionTile(part, shape, *findCudaArch(name));
          ASSERT_NE(tile, nullptr);
          EXPECT_EQ(tile->limits, AttentionLimits::None);
        }
      }
}

TEST(AttentionTemplates, EstimatesGrowWithBlocksAndVisibleScores) {
  const CudaArch &arch = *findCudaArch("sm_90a");
  AttentionTile tile{AttentionPart::Forward, 64,   128, 64, 4, 4, true, 2, 224,
                     AttentionLimits::None,  false};
  AttentionShape shape = llama1bAttention();
  AttentionEstimate cost = estimate(tile, shape, arch);
  EXPECT_EQ(cost.blocksPerSm, 2); // 224 registers of 128 threads; 48 KiB would do for 4
  shape.window = 128;
  EXPECT_LT(estimate(tile, shape, arch).clocks, cost.clocks / 4);
  shape = llama1bAttention();
  shape.batch = 32;
  EXPECT_NEAR(estimate(tile, shape, arch).clocks / cost.clocks, 2, 0.1);
}

class AttentionTiles : public ::testing::TestWithParam<const char *> {};

// Each variant, in drawn ones of eight shapes: alone and with a window, documents and a last tile
// in part if it is for that, with as many columns as heads have and with more, on every
// architecture. There are no spills, and the registers are those that the table says. With 8
// columns less than a tile, pairs that the rotation mixes are in different lanes.
TEST_P(AttentionTiles, TakeTheRegistersOfTheTableAndDoNotSpillInDrawnShapes) {
  LMC_REQUIRE_NVRTC();
  constexpr std::tuple<int64_t, int64_t, bool, int64_t> kShapes[] = {
      {8192, 0, true, 0},  {2047, 0, false, 0},   {8192, 4096, true, 0}, {2047, 100, true, 0},
      {8192, 0, true, 16}, {8192, 4096, true, 8}, {2047, 100, true, 8},  {2047, 0, true, 16}};
  KernelCache cache(KernelCache::defaultDirectory());
  const char *name = GetParam();
  const CudaArch &arch = *findCudaArch(name);
  std::vector<CudaKernel> kernels;
  std::vector<const AttentionTile *> tileOf;
  std::mt19937_64 random(1);
  const auto draws =
      size_t(std::min<int64_t>(lmc::test::drawCount(std::size(kShapes) / 2), std::size(kShapes)));
  for (const AttentionTile &tile : attentionTiles()) {
    std::vector<AttentionShape> shapes;
    for (auto [seq, window, rope, less] : kShapes) {
      AttentionShape shape = mistral7b();
      shape.headDim = tile.headDim - less;
      shape.rope = rope && tile.part != AttentionPart::Forward;
      shape.largest = rope;
      shape.seq = seq;
      shape.window = window;
      shape.documents = seq != 8192;
      if (shape.headDim > 128 && less == 8)
        shape.headDim -= 8;
      shape.qPitch = shape.kPitch = shape.vPitch = 48 * shape.headDim;
      if (tile.isFor(shape, arch))
        shapes.push_back(shape);
    }
    std::shuffle(shapes.begin(), shapes.end(), random);
    shapes.resize(std::min(shapes.size(), draws));
    for (const AttentionShape &shape : shapes) {
      kernels.push_back(attentionKernel(tile.part, &tile, shape, arch, "attention"));
      tileOf.push_back(&tile);
    }
  }
  auto code = compileCuda(kernels, name, cache);
  ASSERT_TRUE(bool(code)) << llvm::toString(code.takeError());
  for (auto [compiled, tile] : llvm::zip(*code, tileOf)) {
    const KernelResources &resources = compiled.cubin.resources;
    EXPECT_EQ(resources.spillBytes, 0u) << name << "\n" << compiled.kernel.source;
    EXPECT_LE(int(resources.registers), tile->registers) << name << "\n" << compiled.kernel.source;
    EXPECT_EQ(resources.sharedBytes, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, AttentionTiles, ::testing::ValuesIn(kArchs),
                         [](const auto &arch) { return std::string(arch.param); });

TEST(AttentionTemplates, PlainKernelsTakeTheRegistersOfTheirCostModel) {
  LMC_REQUIRE_NVRTC();
  KernelCache cache(KernelCache::defaultDirectory());
  for (const char *name : kArchs) {
    std::vector<CudaKernel> kernels;
    for (int64_t headDim : {80, 256})
      for (AttentionPart part :
           {AttentionPart::Forward, AttentionPart::GradQueries, AttentionPart::GradKeys}) {
        AttentionShape shape = mistral7b();
        shape.type = DataType::F32;
        shape.headDim = headDim;
        shape.rope = part != AttentionPart::Forward;
        shape.qPitch = shape.kPitch = shape.vPitch = 0;
        kernels.push_back(attentionKernel(part, nullptr, shape, *findCudaArch(name), "attention"));
      }
    auto code = compileCuda(kernels, name, cache);
    ASSERT_TRUE(bool(code)) << llvm::toString(code.takeError());
    for (const CudaCode &compiled : *code)
      EXPECT_LE(int(compiled.cubin.resources.registers), kPlainRegisters) << name << "\n"
                                                                          << compiled.kernel.source;
  }
}
