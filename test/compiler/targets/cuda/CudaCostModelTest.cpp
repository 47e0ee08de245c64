// The price of attention is that of the kernels that the plan launches.
#include "compiler/targets/cuda/CudaCostModel.h"

#include "compiler/cost/PlanCost.h"
#include "compiler/driver/Compile.h"
#include "compiler/driver/Registration.h"
#include "compiler/targets/cuda/CudaProgram.h"
#include "compiler/targets/cuda/templates/AttentionTemplates.h"
#include "dialects/plan/Plan.h"
#include "test/ground/config/ShippedConfig.h"

#include "llvm/Support/FormatVariadic.h"

#include <gmock/gmock.h>

#include <filesystem>

using namespace lmc;
using namespace lmc::codegen;
using testing::HasSubstr;

namespace {

cost::DeviceSpec h100() { return *cost::loadDeviceSpec("h100-sxm"); }

CudaCostModel modelOf(const std::string &arch = "sm_90a") {
  return CudaCostModel(*findCudaArch(arch), h100());
}

cost::AttentionWork llama1b() { return {16, 2048, 32, 8, 64}; }

double rateOf(const cost::AttentionWork &work, const std::string &arch = "sm_90a") {
  cost::Estimate sum = sumOf(modelOf(arch).attentionKernels(work));
  return sum.flops / sum.seconds;
}

// Returns the variant that a kernel's text instantiates; null for a plain kernel.
const AttentionTile *tileOf(AttentionPart part, const CudaKernel &kernel, int64_t headDim) {
  for (const AttentionTile &tile : attentionTiles()) {
    std::string sizes = llvm::formatv("queries = {0}, keys = {1}, warps = {2};", tile.queries,
                                      tile.keys, tile.warps);
    std::string held = llvm::formatv("Registers = {0};", tile.inRegisters);
    llvm::StringRef text = kernel.source;
    const bool hasHeld = part != AttentionPart::GradKeys || tile.warpgroups;
    if (tile.part == part && tile.headDim == tileHeadDim(headDim) && text.contains(sizes) &&
        tile.warpgroups == text.contains("_groups.cuh") && (!hasHeld || text.contains(held)))
      return &tile;
  }
  return nullptr;
}

// What one launch costs: the larger of its clock cycles and its traffic, and the launch itself.
double secondsOf(AttentionPart part, const CudaKernel &kernel, const AttentionShape &shape,
                 const CudaArch &arch, const cost::DeviceSpec &spec) {
  const AttentionTile *tile = tileOf(part, kernel, shape.headDim);
  EXPECT_EQ(tile == nullptr, llvm::StringRef(kernel.source).contains("attention_plain.cuh"));
  double clocks = tile ? estimate(*tile, shape, arch).clocks : plainClocks(part, shape, arch);
  double bytes = double(kernel.bytes.read + kernel.bytes.written);
  return spec.launchSeconds + std::max(clocks / spec.clock, bytes / spec.bandwidthFor(bytes));
}

template <typename Op> AttentionShape shapeOf(const Op &op) {
  AttentionShape shape;
  shape.batch = op.batch();
  shape.seq = op.seq();
  shape.heads = op.heads();
  shape.kvHeads = op.kv_heads();
  shape.headDim = op.head_dim();
  shape.window = op.window();
  shape.documents = op.starts() >= 0;
  return shape;
}

// Compiles a job for one device and compares the price of each attention command with that of the
// kernels that the CUDA target instantiates for it. Returns the number of such commands.
unsigned comparePrices(const std::string &config, const std::string &arch,
                       std::vector<std::string> settings = {}) {
  SCOPED_TRACE(config + " for " + arch);
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  for (const std::string &always :
       {std::string("distributed.nodes=1"), std::string("distributed.devices_per_node=1"),
        std::string("memory.budget=\"400GiB\""), std::string("memory.recompute=block"),
        std::string("model.num_hidden_layers=2"), // all layers have the same attention
        "target.device=cuda:" + arch})
    settings.push_back(always);
  const Config job = shippedConfig(config, settings);
  CompileOptions options;
  options.withCode = false;
  auto compiled = compile(job, options, context);
  EXPECT_TRUE(succeeded(compiled));
  auto program = planCudaProgram(*compiled->module, *findCudaArch(arch));
  EXPECT_TRUE(succeeded(program));
  const cost::DeviceSpec spec = *cost::deviceSpecOf(job.target, "");
  const plan::Plan &plan = *plan::GetPlan(compiled->plan.data());
  const cost::PlanCost cost = planCost(plan, *costModelOf(job.target.device, spec));

  unsigned compared = 0, f = 0;
  for (auto function : compiled->module->getOps<plan_ir::FunctionOp>()) {
    unsigned c = 0;
    for (mlir::Operation &op : function.getBody().front()) {
      if (!mlir::isa<CommandOpInterface>(op))
        continue;
      const plan::Command &command = *plan.functions()->Get(f)->commands()->Get(c);
      const auto *forward = command.body_as_Attention();
      const auto *gradient = command.body_as_AttentionGrad();
      if (forward || gradient) {
        const AttentionShape shape = forward ? shapeOf(*forward) : shapeOf(*gradient);
        double expected = 0;
        for (auto [part, launch] :
             llvm::zip_equal(partsOfAttention(gradient), program->launches[&op]))
          expected += secondsOf(part, program->kernels[launch.kernel].cuda, shape,
                                *findCudaArch(arch), spec);
        EXPECT_NEAR(cost.functions[f].commands[c].seconds, expected, 1e-12);
        ++compared;
      }
      ++c;
    }
    EXPECT_EQ(c, plan.functions()->Get(f)->commands()->size());
    ++f;
  }
  return compared;
}

} // namespace

TEST(CudaCostModel, AttentionOfEveryShippedConfigCostsWhatItsKernelsCost) {
  for (const auto &entry : std::filesystem::directory_iterator(LMC_SOURCE_DIR "/models/configs"))
    for (const char *arch : {"sm_80", "sm_90a"})
      EXPECT_GT(comparePrices(entry.path().filename(), arch), 0u);
}

TEST(CudaCostModel, AttentionWithADocumentMaskToo) {
  for (const char *dtype : {"f32", "bf16"})
    EXPECT_GT(comparePrices(
                  "test-mistral.toml", "sm_90a",
                  {"training.document_mask=true", std::string("training.compute_dtype=") + dtype}),
              0u);
}

// The tile model's own figures at 1.5 GHz, in TFLOP/s, with heads of 64, and with Mistral's heads of
// 128 and its window: by warpgroups, and by mma.sync.
TEST(CudaCostModel, AttentionOnAnH100) {
  cost::AttentionWork work = llama1b(), mistral{1, 8192, 32, 8, 128, 4096};
  EXPECT_NEAR(rateOf(work) * 1e-12, 309, 1);
  EXPECT_NEAR(rateOf(mistral) * 1e-12, 460, 1);
  EXPECT_NEAR(rateOf(work, "sm_90") * 1e-12, 239, 1);
  EXPECT_NEAR(rateOf(mistral, "sm_90") * 1e-12, 269, 1);
  work.backward = mistral.backward = true;
  EXPECT_NEAR(rateOf(work) * 1e-12, 295, 1);
  EXPECT_NEAR(rateOf(mistral) * 1e-12, 378, 1);
  EXPECT_NEAR(rateOf(work, "sm_90") * 1e-12, 163, 1);
  EXPECT_NEAR(rateOf(mistral, "sm_90") * 1e-12, 160, 1);
}

// The gradient's kernels each have a price; the second computes more.
TEST(CudaCostModel, EachKernelOfTheGradientHasItsPrice) {
  cost::AttentionWork work = llama1b();
  work.backward = true;
  std::vector<cost::Estimate> kernels = modelOf().attentionKernels(work);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_GT(kernels[1].seconds, 1.1 * kernels[0].seconds);
  EXPECT_DOUBLE_EQ(kernels[0].flops + kernels[1].flops, estimate(work, h100()).flops);
  EXPECT_DOUBLE_EQ(kernels[0].flops / 3, kernels[1].flops / 4);
}

// Without tensor cores a score takes about 30 times as long.
TEST(CudaCostModel, AttentionWithoutTensorCoresIsPricedSo) {
  for (bool backward : {false, true}) {
    cost::AttentionWork fast = llama1b(), f32 = fast, large = fast, odd = fast, unaligned = fast;
    f32.dtype = DataType::F32;
    large.headDim = 248;
    odd.headDim = 60;
    unaligned.unalignedPitch = 3076;
    for (cost::AttentionWork work : {f32, large, odd, unaligned}) {
      fast.backward = work.backward = backward;
      std::vector<cost::Estimate> kernels = modelOf().attentionKernels(work);
      ASSERT_EQ(kernels.size(), partsOfAttention(backward).size());
      AttentionShape shape;
      shape.type = work.dtype;
      shape.batch = work.batch;
      shape.seq = work.seq;
      shape.heads = work.heads;
      shape.kvHeads = work.kvHeads;
      shape.headDim = work.headDim;
      for (auto [part, kernel] : llvm::zip(partsOfAttention(backward), kernels)) {
        EXPECT_EQ(kernel.bound, cost::Bound::VectorUnits);
        EXPECT_DOUBLE_EQ(kernel.seconds,
                         h100().launchSeconds +
                             plainClocks(part, shape, *findCudaArch("sm_90a")) / h100().clock);
      }
      EXPECT_GT(rateOf(fast) / rateOf(work), 15);
      EXPECT_LT(rateOf(fast) / rateOf(work), 60);
    }
  }
}

// Twice the tokens of whole tiles take four times the cycles.
TEST(CudaCostModel, PlainKernelsTakeTimeByTheirScores) {
  const CudaArch &arch = *findCudaArch("sm_90a");
  AttentionShape shape;
  shape.type = DataType::F32;
  shape.batch = 1;
  shape.heads = shape.kvHeads = 32;
  shape.headDim = 64;
  for (AttentionPart part :
       {AttentionPart::Forward, AttentionPart::GradQueries, AttentionPart::GradKeys}) {
    shape.window = 0;
    shape.seq = 4096;
    double once = plainClocks(part, shape, arch);
    shape.seq = 8192;
    EXPECT_NEAR(plainClocks(part, shape, arch) / once, 4, 0.05);
    shape.window = 64;
    EXPECT_LT(plainClocks(part, shape, arch), once / 10);
  }
}

// The same plan on a device without tensor cores of its own has that device's prices.
TEST(CudaCostModel, ADeviceThatIsNoGpuKeepsItsPrices) {
  CudaCostModel onCpu(*findCudaArch("sm_90a"), *cost::loadDeviceSpec("cpu"));
  EXPECT_TRUE(onCpu.attentionKernels(llama1b()).empty());
  EXPECT_EQ(sumOf(onCpu.kernels(llama1b())).seconds, estimate(llama1b(), onCpu.spec).seconds);
}

// A product that leaves the tensor cores is priced as one in f32, and warned of.
TEST(CudaCostModel, ProductsWithoutTensorCoresArePricedSo) {
  cost::GemmWork aligned{8192, 4096, 4096}, unaligned = aligned, f32 = aligned;
  unaligned.unalignedRow = 257;
  f32.input = f32.output = DataType::F32;
  const CudaCostModel model = modelOf();
  EXPECT_EQ(model.gemm(aligned).seconds, estimate(aligned, h100()).seconds);
  EXPECT_EQ(model.gemm(aligned).bound, cost::Bound::MatrixUnits);
  for (const cost::GemmWork &work : {unaligned, f32}) {
    EXPECT_EQ(model.gemm(work).bound, cost::Bound::VectorUnits);
    EXPECT_GT(model.gemm(work).seconds, 10 * model.gemm(aligned).seconds);
  }
  EXPECT_EQ(model.warning(aligned), "");
  EXPECT_EQ(
      model.warning(unaligned),
      "matrix products with rows of 257 bf16 elements run without the fast kernels for tensor "
      "cores, which need rows of whole multiples of 16 bytes; rows of 264, the next multiple "
      "of 8, use them");
  EXPECT_EQ(model.warning(f32), "matrix products in f32 run without tensor cores; "
                                "training.compute_dtype = \"bf16\" uses them");
}

// Products of experts are lmc's own: by mma.sync, whose peak on an H100 is 62% of the data sheet's,
// but on sm_90a. On an A100 mma.sync has the whole peak.
TEST(CudaCostModel, ProductsOfExpertsHaveTheRateOfTheirInstructions) {
  cost::GemmWork work;
  work.batch = 64;
  work.m = work.n = work.k = 2048;
  work.experts = true;
  auto rate = [&](const std::string &arch, const std::string &spec) {
    const cost::Estimate estimate =
        CudaCostModel(*findCudaArch(arch), *cost::loadDeviceSpec(spec)).gemm(work);
    return estimate.flops / estimate.seconds;
  };
  EXPECT_GT(rate("sm_90a", "h100-sxm"), 650e12);
  EXPECT_LT(rate("sm_90", "h100-sxm"), 0.62 * 989e12);
  EXPECT_LT(rate("sm_80", "h100-sxm"), 0.62 * 989e12) << "the chip has the peak, not the code";
  EXPECT_GT(rate("sm_80", "a100-80gb"), 0.62 * 312e12);
}

// What was measured of 131072 rows of 2048 with 64 experts on an H100, in TFLOP/s: within 5%.
TEST(CudaCostModel, ProductsOfExpertsAreThoseThatWereMeasured) {
  const CudaCostModel model(*findCudaArch("sm_90a"), *cost::loadDeviceSpec("h100-sxm"));
  auto rate = [&](int64_t m, int64_t n, int64_t k, bool isGradient) {
    cost::GemmWork work{m, n, k, DataType::BF16, isGradient ? DataType::F32 : DataType::BF16};
    work.batch = 64;
    work.experts = true;
    work.uneven = !isGradient;
    const cost::Estimate estimate = model.gemm(work);
    return estimate.flops / estimate.seconds * 1e-12;
  };
  EXPECT_NEAR(rate(2048, 2048, 2048, false), 680, 0.05 * 680) << "gate and up, forward";
  EXPECT_NEAR(rate(2048, 2048, 1024, false), 617, 0.05 * 617) << "down, forward";
  EXPECT_NEAR(rate(2048, 1024, 2048, false), 667, 0.05 * 667) << "down, gradient of x";
  EXPECT_NEAR(rate(2048, 2048, 2048, true), 651, 0.05 * 651) << "gate and up, gradient";
  EXPECT_NEAR(rate(2048, 1024, 2048, true), 631, 0.05 * 631) << "down, gradient";
}

// A product with SwiGLU has the price of cuBLASLt's product and the kernel behind it, until the
// device spec says that the own kernel reaches 0.95 of cuBLASLt's rate for this shape.
static constexpr int64_t kRows = 32768, kInner = 2048, kColumns = 8192;
TEST(CudaCostModel, ProductsWithSwigluAreTheOwnOnesOnceMeasured) {
  auto workOf = [&](bool backward) {
    cost::SwigluWork work;
    work.product = {kRows, backward ? kColumns : 2 * kColumns, kInner, DataType::BF16,
                    DataType::BF16};
    const double a = 2.0 * kRows * kColumns;
    work.rows = backward ? cost::KernelWork{3 * a, 3 * a, 0} : cost::KernelWork{2 * a, a, 0};
    work.wholeBytes = 2.0 * (kRows + 2 * kColumns) * kInner + (backward ? 5 : 3) * a;
    work.backward = backward;
    return work;
  };
  auto kernels = [&](double forward, double backward, const char *arch = "sm_90a",
                     int64_t rows = kRows, int64_t columns = kColumns) {
    cost::DeviceSpec spec = *cost::loadDeviceSpec("h100-sxm");
    EXPECT_TRUE(spec.swiglu.empty()) << "was it measured?";
    spec.swiglu = {{rows, kInner, columns, forward, backward}};
    const CudaCostModel model(*findCudaArch(arch), spec);
    return std::pair(model.kernels(workOf(false)), model.kernels(workOf(true)));
  };
  const auto [forward, backward] = kernels(0, 0);
  ASSERT_EQ(forward.size(), 2u);
  ASSERT_EQ(backward.size(), 2u);
  EXPECT_EQ(forward[1].bound, cost::Bound::MemoryBandwidth);
  EXPECT_EQ(kernels(0.94, 0.96).first.size(), 2u);
  const std::vector<cost::Estimate> own = kernels(0.94, 0.96).second;
  ASSERT_EQ(own.size(), 1u);
  EXPECT_NEAR(own[0].seconds, backward[0].seconds / 0.96, 1e-6);
  EXPECT_LT(own[0].seconds, cost::sumOf(backward).seconds);
  EXPECT_EQ(kernels(0.97, 0).first.size(), 1u);
  EXPECT_EQ(kernels(0.97, 0.97, "sm_90").first.size(), 2u) << "the code has no own kernel";
  EXPECT_EQ(kernels(0.97, 0.97, "sm_90a", 2 * kRows).first.size(), 2u);
  EXPECT_EQ(kernels(0.97, 0.97, "sm_90a", kRows, kInner).first.size(), 2u);
  EXPECT_EQ(kernels(0.97, 0.97, "sm_90a", kRows / 2).first.size(), 1u);
  // Of two measurements the one of the most rows holds.
  cost::DeviceSpec spec = *cost::loadDeviceSpec("h100-sxm");
  spec.swiglu = {{kRows, kInner, kColumns, 0.9, 0}, {kRows / 8, kInner, kColumns, 0.97, 0.97}};
  const CudaCostModel model(*findCudaArch("sm_90a"), spec);
  EXPECT_EQ(model.kernels(workOf(false)).size(), 2u);
  EXPECT_EQ(model.kernels(workOf(true)).size(), 1u);
}

TEST(CudaCostModel, WarningsOfAttentionNameTheCauseAndTheWayOut) {
  const CudaCostModel model = modelOf();
  cost::AttentionWork work = llama1b();
  EXPECT_EQ(model.warning(work), "");
  for (int64_t padded : {8, 80, 112}) {
    work.headDim = padded;
    EXPECT_EQ(model.warning(work), "");
  }
  for (int64_t headDim : {60, 136}) {
    work.headDim = headDim;
    EXPECT_EQ(model.warning(work),
              llvm::formatv("attention with head_dim {0} has no kernel for tensor cores, and takes "
                            "about 30 times as long; multiples of 8 up to 128, and of 16 up to 256, "
                            "have one",
                            headDim)
                  .str());
  }
  work = llama1b();
  work.unalignedPitch = 3076;
  EXPECT_THAT(model.warning(work), HasSubstr("rows that start 3076 elements apart"));
  work.dtype = DataType::F32;
  EXPECT_THAT(model.warning(work), HasSubstr("attention in f32 has no kernel for tensor cores"));
  // A device that has no tensor cores gets none.
  EXPECT_EQ(cost::CostModel(*cost::loadDeviceSpec("cpu")).warning(work), "");
}

// Heads in larger tiles cost as much as heads that fill them, or more: some variants are only for
// heads that fill them.
TEST(CudaCostModel, HeadsInLargerTilesCostWhatTheTilesCost) {
  cost::AttentionWork padded = llama1b(), full = padded;
  padded.headDim = 80;
  full.headDim = 96;
  for (bool backward : {false, true}) {
    padded.backward = full.backward = backward;
    double seconds = sumOf(modelOf().attentionKernels(padded)).seconds;
    double ofFull = sumOf(modelOf().attentionKernels(full)).seconds;
    EXPECT_GE(seconds, ofFull);
    EXPECT_LT(seconds, 1.3 * ofFull);
  }
}
