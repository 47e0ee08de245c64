// Casts to 8-bit floats with a scale for each block of 128 elements, on the CPU.
#include "ground/plan/FloatConvert.h"
#include "runtime/device/cpu/Resolver.h"
#include "runtime/device/cpu/commands/Rows.h"

#include <cmath>

namespace lmc::cpu {
namespace {

constexpr int64_t kBlock = 128;

// A matrix of bf16 or f32.
struct Source {
  plan::DType dtype;
  const char *data;
  int64_t columns;

  // Sets `values` to kBlock elements of a row, from `column` on.
  void read(int64_t row, int64_t column, float *values) const {
    const auto width = int64_t(byteWidth(dtype));
    convertFloats(dtype, data + (row * columns + column) * width, plan::DType::F32, values, kBlock);
  }
};

// Returns the larger number; NaN if one of both is NaN.
float larger(float a, float b) { return a >= b || a != a ? a : b; }

float largestOf(const float *values, float largest = 0) {
  for (int64_t i = 0; i < kBlock; ++i)
    largest = larger(std::abs(values[i]), largest);
  return largest;
}

// Rounds kBlock values, divided by the scale, to codes.
void encode(plan::DType format, float scale, float *values, char *codes) {
  for (int64_t i = 0; i < kBlock; ++i)
    values[i] /= scale;
  convertFloats(plan::DType::F32, values, format, codes, kBlock);
}

} // namespace

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::QuantizeRows &op) {
  const auto rows = int64_t(op.rows()), blocks = int64_t(op.blocks());
  const Source x{at.memory.slice(op.x()).dtype(), at.address(op.x()), blocks * kBlock};
  const plan::DType format = at.memory.slice(op.codes()).dtype();
  return BoundCommand([=, threads = at.threads, codes = at.address(op.codes()),
                       scales = at.address<float>(op.scales())] {
    forRows(threads, rows, [=](int64_t row) {
      for (int64_t block = 0; block < blocks; ++block) {
        float values[kBlock];
        x.read(row, block * kBlock, values);
        const float scale = eightBitScale(largestOf(values), format);
        encode(format, scale, values, codes + row * x.columns + block * kBlock);
        scales[block * rows + row] = scale;
      }
    });
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::QuantizeColumns &op) {
  const auto columns = int64_t(op.columns()), blocks = int64_t(op.blocks());
  const auto width = int64_t(byteWidth(at.memory.slice(op.x()).dtype()));
  const plan::DType from = at.memory.slice(op.x()).dtype(),
                    format = at.memory.slice(op.codes()).dtype();
  return BoundCommand([=, threads = at.threads, x = at.address(op.x()),
                       codes = at.address(op.codes()), scales = at.address<float>(op.scales())] {
    // A task has some columns of a block of rows, which it reads row after row.
    constexpr int64_t kColumns = 16;
    const int64_t parts = (columns + kColumns - 1) / kColumns;
    inParallel(threads, blocks * parts, [=](int64_t task) {
      const int64_t block = task / parts, first = task % parts * kColumns;
      const int64_t count = std::min(kColumns, columns - first);
      float values[kColumns][kBlock], row[kColumns];
      for (int64_t i = 0; i < kBlock; ++i) {
        convertFloats(from, x + ((block * kBlock + i) * columns + first) * width, plan::DType::F32,
                      row, uint64_t(count));
        for (int64_t j = 0; j < count; ++j)
          values[j][i] = row[j];
      }
      for (int64_t j = 0; j < count; ++j) {
        const float scale = eightBitScale(largestOf(values[j]), format);
        encode(format, scale, values[j], codes + ((first + j) * blocks + block) * kBlock);
        scales[block * columns + first + j] = scale;
      }
    });
  });
}

// Binds a cast of tiles. With `transposed`, tile [i, j] of the result is the transpose of tile [j,
// i].
template <typename Op> static BoundCommand castTiles(Resolver &at, const Op &op, bool transposed) {
  const auto pitch = int64_t(op.pitch());
  const auto down = int64_t(transposed ? op.across() : op.down()),
             across = int64_t(transposed ? op.down() : op.across()); // of the result
  const Source x{at.memory.slice(op.x()).dtype(), at.address(op.x()),
                 int64_t(op.across()) * kBlock};
  const plan::DType format = at.memory.slice(op.codes()).dtype();
  return [=, threads = at.threads, codes = at.address(op.codes()),
          scales = at.address<float>(op.scales())] {
    inParallel(threads, down * pitch, [=](int64_t tile) {
      const int64_t row = tile / pitch * kBlock, column = tile % pitch * kBlock;
      scales[tile] = 1;
      if (tile % pitch >= across)
        return;
      float values[kBlock], largest = 0;
      char coded[kBlock][kBlock];
      auto read = [&](int64_t i) {
        transposed ? x.read(column + i, row, values) : x.read(row + i, column, values);
      };
      for (int64_t i = 0; i < kBlock; ++i) {
        read(i);
        largest = largestOf(values, largest);
      }
      scales[tile] = eightBitScale(largest, format);
      for (int64_t i = 0; i < kBlock; ++i) {
        read(i);
        encode(format, scales[tile], values, coded[i]);
      }
      for (int64_t i = 0; i < kBlock; ++i)
        for (int64_t j = 0; j < kBlock; ++j)
          codes[(row + i) * across * kBlock + column + j] = transposed ? coded[j][i] : coded[i][j];
    });
  };
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::QuantizeTiles &op) {
  return castTiles(at, op, /*transposed=*/false);
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::QuantizeTilesTransposed &op) {
  return castTiles(at, op, /*transposed=*/true);
}

} // namespace lmc::cpu
