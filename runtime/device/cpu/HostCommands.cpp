#include "runtime/device/cpu/HostCommands.h"
#include "ground/plan/FloatConvert.h"
#include "ground/plan/Operands.h"
#include "ground/plan/SliceGeometry.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

namespace lmc::cpu {

Storage storageOf(plan::DType dtype) {
  return dtype == plan::DType::BF16  ? Storage::BF16
         : dtype == plan::DType::F64 ? Storage::F64
                                     : Storage::F32;
}

void ScaledFactor::run() const {
  float numberOf[256];
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    numberOf[code] = format == plan::DType::F8E4M3 ? fromE4M3(bits) : fromE5M2(bits);
  }
  const int64_t length = block ? block : columns;
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t at = 0; at < columns; at += length) {
      const float scale = scales[row / blockRows * pitchRow + at / length * pitchBlock];
      const uint8_t *from = codes + row * pitch + at;
      uint16_t *to = numbers + row * columns + at;
      for (int64_t i = 0; i < length; ++i)
        to[i] = toBFloat16(numberOf[from[i]] * scale);
    }
}

void GemmCommand::run() const {
  for (const ScaledFactor &factor : scaled)
    factor.run();
  if (residual) {
    constexpr int64_t kBlock = 1 << 16;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < strideD; at += kBlock)
      std::memcpy(d + at, residual + at, size_t(std::min(kBlock, strideD - at)));
  }
  for (int64_t i = 0; i < batch; ++i)
    gemm->run(a + i * strideA, b + i * strideB, d + i * strideD, bias);
}

Result<GemmCommand> bindGemm(const plan::Gemm &op, int64_t workspace, HostMemory &memory,
                             GemmCache &gemms) {
  auto storage = [&](uint32_t slice) { return storageOf(memory.slice(slice).dtype()); };
  GemmShape shape;
  shape.m = int64_t(op.m());
  shape.n = int64_t(op.n());
  shape.k = int64_t(op.k());
  shape.transposeA = op.transpose_a();
  shape.transposeB = op.transpose_b();
  // A residual is copied to d first. The product is then added to d.
  const int64_t residual = plan::residualOf(op);
  shape.accumulate = op.c() >= 0;
  shape.hasBias = op.bias() >= 0;
  shape.input = storage(op.a());
  shape.output = storage(op.d());
  if (shape.hasBias)
    shape.bias = storage(uint32_t(op.bias()));
  const char *a = memory.address(op.a()), *b = memory.address(op.b());
  std::vector<ScaledFactor> scaled;
  if (op.scale_a() >= 0) {
    shape.input = Storage::BF16;
    auto *numbers = reinterpret_cast<uint16_t *>(memory.address(uint32_t(workspace)));
    // Adds a factor as it is stored, with scales for blocks of rows or of tiles.
    auto add = [&](const char *&factor, uint32_t slice, int32_t scale, int64_t rows,
                   int64_t columns, plan::Scaling scaling) {
      constexpr int64_t kBlock = 128;
      ScaledFactor &made = scaled.emplace_back(
          ScaledFactor{memory.slice(slice).dtype(), reinterpret_cast<const uint8_t *>(factor),
                       reinterpret_cast<const float *>(memory.address(uint32_t(scale))), numbers,
                       rows, columns});
      if (scaling != plan::Scaling::Tensor)
        made.block = kBlock;
      if (scaling == plan::Scaling::Rows) {
        made.pitchRow = 1;
        made.pitchBlock = rows;
      } else if (scaling == plan::Scaling::Tiles) {
        made.blockRows = kBlock;
        made.pitchRow = int64_t(memory.slice(uint32_t(scale)).bytes()) / 4 / (rows / kBlock);
        made.pitchBlock = 1;
      }
      factor = reinterpret_cast<const char *>(numbers);
      numbers += rows * columns;
    };
    const bool tensor = op.scaling() == plan::Scaling::Tensor;
    add(a, op.a(), op.scale_a(), shape.transposeA ? shape.k : shape.m,
        shape.transposeA ? shape.m : shape.k, tensor ? op.scaling() : plan::Scaling::Rows);
    add(b, op.b(), op.scale_b(), shape.transposeB ? shape.n : shape.k,
        shape.transposeB ? shape.k : shape.n, op.scaling());
  }
  LMC_LET(gemm, gemms.find(shape));
  return GemmCommand{*gemm,
                     a,
                     b,
                     shape.hasBias ? memory.address(uint32_t(op.bias())) : nullptr,
                     memory.address(op.d()),
                     residual >= 0 ? memory.address(uint32_t(residual)) : nullptr,
                     int64_t(op.batch()),
                     shape.m * shape.k * elementBytes(shape.input),
                     shape.k * shape.n * elementBytes(shape.input),
                     shape.m * shape.n * elementBytes(shape.output),
                     std::move(scaled)};
}

// Returns the command for `op`. The caller sets the distances between rows and between matrices.
template <typename Op>
static Result<ExpertCommand> expertCommand(const Op &op, uint32_t a, uint32_t b, uint32_t d,
                                           GemmGroupShape group, HostMemory &memory,
                                           GemmCache &gemms) {
  group.shape.input = storageOf(memory.slice(a).dtype());
  group.shape.output = storageOf(memory.slice(d).dtype());
  LMC_LET(product, gemms.find(group));
  ExpertCommand command{};
  command.gemms = *product;
  command.offsets = reinterpret_cast<const int32_t *>(memory.address(op.offsets()));
  command.a = memory.address(a);
  command.b = memory.address(b);
  command.d = memory.address(d);
  command.parts.resize(size_t(group.parts));
  return command;
}

Result<ExpertCommand> bindExperts(const plan::ExpertLinear &op, HostMemory &memory,
                                  GemmCache &gemms) {
  const auto experts = int64_t(op.experts()), inner = int64_t(op.inner());
  const auto columns = int64_t(op.columns());
  GemmGroupShape group{{int64_t(op.rows()), columns, inner}, experts, GemmGroupShape::Split::M};
  group.shape.transposeB = !op.transposed();
  LMC_LET(command, expertCommand(op, op.x(), op.weight(), op.y(), group, memory, gemms));
  const auto width = int64_t(byteWidth(memory.slice(op.x()).dtype()));
  command->rowA = inner * width;
  command->rowD = columns * width;
  command->expertB = inner * columns * width;
  command->otherSize = inner;
  return command;
}

Result<ExpertCommand> bindExperts(const plan::ExpertLinearGrad &op, HostMemory &memory,
                                  GemmCache &gemms) {
  const auto experts = int64_t(op.experts()), inner = int64_t(op.inner());
  const auto columns = int64_t(op.columns());
  GemmGroupShape group{{columns, inner, int64_t(op.rows())}, experts, GemmGroupShape::Split::K};
  group.shape.transposeA = true;
  group.shape.accumulate = op.accumulate();
  LMC_LET(command, expertCommand(op, op.dy(), op.x(), op.d(), group, memory, gemms));
  const auto width = int64_t(byteWidth(memory.slice(op.x()).dtype()));
  command->rowA = columns * width;
  command->rowB = inner * width;
  command->expertD = inner * columns * int64_t(byteWidth(memory.slice(op.d()).dtype()));
  command->rowsAreDepth = true;
  command->otherSize = columns;
  return command;
}

Result<ExpertCommand> bindExperts(const plan::ExpertScaledLinear &op, int64_t workspace,
                                  HostMemory &memory, GemmCache &gemms) {
  constexpr int64_t kBlock = 128;
  const auto experts = int64_t(op.experts()), rows = int64_t(op.rows());
  const auto depth = int64_t(op.depth()), across = int64_t(op.across());
  const int64_t inner = depth * kBlock, columns = across * kBlock;
  GemmGroupShape group{{rows, columns, inner}, experts, GemmGroupShape::Split::M};
  group.shape.transposeB = !op.transposed();
  group.shape.input = Storage::BF16;
  group.shape.output = storageOf(memory.slice(op.y()).dtype());
  LMC_LET(product, gemms.find(group));
  ExpertCommand command{};
  const int64_t ofWeight = experts * columns * inner;
  uint16_t *numbers = nullptr;
  if (workspace >= 0) {
    numbers = reinterpret_cast<uint16_t *>(memory.address(uint32_t(workspace)));
  } else {
    command.numbers = std::make_shared<std::vector<uint16_t>>(size_t(rows * inner + ofWeight));
    numbers = command.numbers->data();
  }
  auto codes = [&](uint32_t slice) {
    return reinterpret_cast<const uint8_t *>(memory.address(slice));
  };
  auto scales = [&](uint32_t slice) {
    return reinterpret_cast<const float *>(memory.address(slice));
  };
  const plan::DType format = memory.slice(op.x()).dtype();
  command.scaled.push_back({format, codes(op.x()), scales(op.x_scales()), numbers, rows, inner,
                            kBlock, 1, /*pitchRow=*/1, /*pitchBlock=*/rows});
  uint16_t *weight = numbers + rows * inner;
  // The matrices as they are stored: [columns, inner], or with `transposed` [inner, columns].
  const int64_t down = op.transposed() ? depth : across, wide = op.transposed() ? across : depth;
  const int64_t tilesApart = op.beside() ? experts * wide : wide;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t first = op.beside() ? e * wide : e * down * wide; // of its tiles' scales
    const int64_t firstCode = op.beside() ? e * inner : e * inner * columns;
    command.scaled.push_back({format, codes(op.weight()) + firstCode,
                              scales(op.weight_scales()) + first, weight + e * inner * columns,
                              down * kBlock, wide * kBlock, kBlock, kBlock, tilesApart, 1,
                              tilesApart * kBlock});
  }
  command.gemms = *product;
  command.offsets = reinterpret_cast<const int32_t *>(memory.address(op.offsets()));
  command.a = reinterpret_cast<const char *>(numbers);
  command.b = reinterpret_cast<const char *>(weight);
  command.d = memory.address(op.y());
  command.parts.resize(size_t(experts));
  command.rowA = inner * 2;
  command.rowD = columns * int64_t(byteWidth(memory.slice(op.y()).dtype()));
  command.expertB = inner * columns * 2;
  command.otherSize = inner;
  return command;
}

void ExpertCommand::run() {
  for (const ScaledFactor &factor : scaled)
    factor.run();
  for (size_t e = 0; e < parts.size(); ++e) {
    const int64_t first = offsets[e], rows = offsets[e + 1] - first;
    parts[e] = {a + first * rowA, b + first * rowB + int64_t(e) * expertB,
                d + first * rowD + int64_t(e) * expertD, rowsAreDepth ? otherSize : rows,
                rowsAreDepth ? rows : otherSize};
  }
  gemms->run(parts);
}

CopyCommand bindCopy(const plan::Copy &op, HostMemory &memory) {
  const CopyRuns runs = copyRuns(memory.slice(op.d()), memory.slice(op.x()));
  return {memory.address(op.d()), memory.address(op.x()), int64_t(runs.bytes),
          int64_t(runs.rows),     int64_t(runs.dPitch),   int64_t(runs.xPitch)};
}

// One thread copies this number of bytes, or fewer: a parallel region would take longer to start.
static constexpr int64_t kParallelBytes = 1 << 16;

static void copy(void *d, const void *x, int64_t bytes, int threads) {
  if (bytes <= kParallelBytes) {
    std::memmove(d, x, size_t(bytes));
    return;
  }
  constexpr int64_t kPiece = kParallelBytes;
  const int64_t pieces = (bytes + kPiece - 1) / kPiece;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t piece = 0; piece < pieces; ++piece) {
    int64_t from = piece * kPiece;
    std::memcpy(static_cast<char *>(d) + from, static_cast<const char *>(x) + from,
                size_t(std::min(kPiece, bytes - from)));
  }
}

void CopyCommand::run(int threads) const {
  if (rows == 1)
    return copy(d, x, bytes, threads);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(d + row * dPitch, x + row * xPitch, size_t(bytes));
}

} // namespace lmc::cpu
