#include "compiler/targets/cuda/CudaCostModel.h"

#include "compiler/targets/cuda/templates/AttentionTemplates.h"
#include "compiler/targets/cuda/templates/ExpertGemmTemplates.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

namespace lmc::codegen {

static const CudaArch &archOr(llvm::StringRef name, const CudaArch &fallback) {
  const CudaArch *arch = findCudaArch(name);
  return arch ? *arch : fallback;
}

// Returns the spec with the tile sizes of the kernels for experts. Without wgmma, these kernels use
// mma.sync. Their rate has not been measured, so the spec gets at most the peak rate of mma.sync.
static cost::DeviceSpec withExpertTiles(cost::DeviceSpec spec, const CudaArch &arch,
                                        const CudaChip &chip) {
  for (size_t type = 0; type < std::size(spec.gemm); ++type)
    spec.gemm[type].tileRows = spec.gemm[type].tileColumns =
        DataType(type) == DataType::BF16 ? ExpertGemmShape::kTile : ExpertGemmShape::kPlainTile;
  cost::GemmModel &tiled = spec.gemm[size_t(DataType::BF16)];
  if (arch.hasWarpgroups())
    tiled.tileColumns = ExpertGemmShape::kGroupColumns;
  else if (spec.clock > 0)
    tiled.sustained = std::min(tiled.sustained, chip.tensorFlops * chip.sms * spec.clock);
  return spec;
}

CudaCostModel::CudaCostModel(const CudaArch &arch, cost::DeviceSpec spec)
    : CostModel(std::move(spec)), arch(arch), device(archOr(this->spec.arch, arch)),
      expertSpec(withExpertTiles(this->spec, arch, device.chip)) {}

// Returns the shape, without the largest values: they are a few hundredths of what is written.
static AttentionShape shapeOf(const cost::AttentionWork &work) {
  return {.type = work.dtype,
          .batch = work.batch,
          .seq = work.seq,
          .heads = work.heads,
          .kvHeads = work.kvHeads,
          .headDim = work.headDim,
          .window = work.window,
          .documents = work.documents,
          .rope = work.rope,
          .qPitch = work.unalignedPitch};
}

// cuBLASLt uses tensor cores for bf16 only if all rows start at multiples of 16 bytes (cuBLAS
// documentation, "Tensor Core Usage"). It does not use them for f32.
static bool usesTensorCores(const cost::GemmWork &work) {
  return work.input == DataType::F64 || (work.input == DataType::BF16 && work.unalignedRow == 0);
}

// Unaligned bf16 is predicted like f32. With odd row lengths, cuBLAS was 26 to 280 times slower on
// an A100 (PyTorch issues 106469, 146817), and 1.4 times slower on an RTX 4090 (issue 181718).
cost::Estimate CudaCostModel::gemm(const cost::GemmWork &work) const {
  auto priced = [&](const cost::GemmWork &work) {
    if (!work.experts)
      return CostModel::gemm(work);
    cost::Estimate estimate = cost::estimate(work, expertSpec);
    // A product of experts with an f32 result is the gradient of the experts' matrices.
    if (arch.hasWarpgroups() && work.input == DataType::BF16 &&
        estimate.bound == cost::Bound::MatrixUnits)
      estimate.seconds /= work.output == DataType::F32 ? device.chip.expertGradShare
                                                       : device.chip.expertShare;
    // Tiles of 8-bit floats have 128 x 128 elements. In bf16 such tiles reached 540 TFLOP/s, and
    // those of 128 x 256 elements 680 (bench/results/gpu-2026-11-26-h100.md). Not measured in 8
    // bits.
    if (work.eightBits && estimate.bound == cost::Bound::MatrixUnits)
      estimate.seconds *= 680.0 / 540;
    return estimate;
  };
  if (spec.clock == 0)
    return CostModel::gemm(work);
  if (usesTensorCores(work))
    return priced(work);
  cost::GemmWork slow = work;
  slow.input = DataType::F32;
  cost::Estimate estimate = priced(slow);
  if (estimate.bound == cost::Bound::MatrixUnits)
    estimate.bound = cost::Bound::VectorUnits;
  return estimate;
}

// Returns the measured FLOP/s of lmc's SwiGLU kernel / those of cuBLASLt's product; 0: unmeasured.
static double measuredShare(const cost::SwigluWork &work, const cost::DeviceSpec &spec) {
  const int64_t columns = work.backward ? work.product.n : work.product.n / 2;
  int64_t rows = 0; // rows of the measurement that gave `share`: the largest number <= product.m
  double share = 0;
  for (const cost::SwigluRate &rate : spec.swiglu) {
    const double measured = work.backward ? rate.backward : rate.forward;
    if (measured == 0 || rate.inner != work.product.k || rate.columns != columns ||
        rate.rows > work.product.m || rate.rows < rows)
      continue;
    rows = rate.rows;
    share = measured;
  }
  return share;
}

// Predicts the faster of two ways, as lmc-run chooses it: lmc's kernel (only if it was measured to
// reach 95% of the library's rate), or the library's product with a kernel after it.
std::vector<cost::Estimate> CudaCostModel::swiglu(const cost::SwigluWork &work) const {
  constexpr double kLeastShare = 0.95;
  std::vector<cost::Estimate> apart = CostModel::swiglu(work);
  const double share = measuredShare(work, spec);
  if (!arch.hasWarpgroups() || share < kLeastShare)
    return apart;
  const cost::Estimate whole = wholeSwiglu(work, share);
  if (whole.seconds >= cost::sumOf(apart).seconds)
    return apart;
  return {whole};
}

static std::string warningFor(const cost::GemmWork &work) {
  if (usesTensorCores(work))
    return "";
  if (work.input == DataType::F32)
    return "matrix products in f32 run without tensor cores; training.compute_dtype = \"bf16\" "
           "uses them";
  return llvm::formatv(
             "matrix products with rows of {0} bf16 elements run without the fast kernels for "
             "tensor cores, which need rows of whole multiples of 16 bytes; rows of {1}, the next "
             "multiple of 8, use them",
             work.unalignedRow, llvm::alignTo(uint64_t(work.unalignedRow), 8))
      .str();
}

static std::string warningFor(const cost::AttentionWork &work) {
  if (hasTiles(shapeOf(work)))
    return "";
  if (work.dtype != DataType::BF16)
    return "attention in f32 has no kernel for tensor cores; training.compute_dtype = \"bf16\" has "
           "one";
  if (tileHeadDim(work.headDim) == 0)
    return llvm::formatv("attention with head_dim {0} has no kernel for tensor cores, and takes about "
                         "30 times as long; multiples of 8 up to 128, and of 16 up to {1}, have one",
                         work.headDim, kLargestTileHeadDim)
        .str();
  return llvm::formatv("attention on rows that start {0} elements apart has no kernel for tensor "
                       "cores; multiples of 8 elements have one",
                       work.unalignedPitch)
      .str();
}

template <typename Other> static std::string warningFor(const Other &) { return ""; }

std::string CudaCostModel::warning(const cost::Work &work) const {
  return std::visit([](const auto &each) { return warningFor(each); }, work);
}

std::vector<cost::Estimate> CudaCostModel::attentionKernels(const cost::AttentionWork &work) const {
  if (spec.clock == 0)
    return {};
  std::lock_guard guard(knownMutex);
  auto [entry, isNew] = known.try_emplace(work);
  if (!isNew)
    return entry->second;
  const AttentionShape shape = shapeOf(work);
  // The gradient needs the FLOPs of 5 matrix products (`flops`). Its two kernels compute 7, because
  // both compute two of the 5. `flops` is divided among kernels in proportion to their products.
  const double flops = cost::estimate(work, spec).flops;
  llvm::ArrayRef<AttentionPart> parts = partsOfAttention(work.backward);
  double products = 0;
  for (AttentionPart part : parts)
    products += productsOf(part);
  for (AttentionPart part : parts) {
    const AttentionTile *tile = chooseAttentionTile(part, shape, arch);
    const double clocks =
        tile ? estimate(*tile, shape, device).clocks : plainClocks(part, shape, device);
    const GlobalBytes bytes = bytesOf(part, shape);
    entry->second.push_back(cost::roofline(
        clocks / spec.clock, tile ? cost::Bound::MatrixUnits : cost::Bound::VectorUnits,
        flops * productsOf(part) / products, double(bytes.read + bytes.written), spec));
  }
  return entry->second;
}

} // namespace lmc::codegen
