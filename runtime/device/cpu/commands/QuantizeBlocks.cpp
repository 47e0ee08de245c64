// Casts to 8-bit floats with a scale for each block of 128 elements, on the CPU.
#include "ground/plan/FloatConvert.h"
#include "runtime/device/cpu/Resolver.h"
#include "runtime/device/cpu/commands/Rows.h"

#include <cmath>
#include <vector>

namespace lmc::cpu {
namespace {

constexpr int64_t kBlock = 128;

// A matrix of bf16 or f32.
struct Source {
  plan::DType dtype;
  const char *data;
  int64_t columns;
  bool isRounded = false; // to bf16

  // Sets `values` to `count` elements of a row, from `column` on.
  void read(int64_t row, int64_t column, float *values, int64_t count) const {
    const auto width = int64_t(byteWidth(dtype));
    convertFloats(dtype, data + (row * columns + column) * width, plan::DType::F32, values,
                  uint64_t(count));
    for (int64_t i = 0; isRounded && i < count; ++i)
      values[i] = fromBFloat16(toBFloat16(values[i]));
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

// Codes in blocks, and their scales.
struct Coded {
  plan::DType format;
  char *codes;
  float *scales;
};

Coded codedAt(Resolver &at, int64_t codes, int64_t scales) {
  return {at.memory.slice(uint32_t(codes)).dtype(), at.address(codes), at.address<float>(scales)};
}

Source sourceAt(Resolver &at, int64_t x, int64_t columns, bool isRounded = false) {
  return {at.memory.slice(uint32_t(x)).dtype(), at.address(x), columns, isRounded};
}

void castRows(int threads, const Source &x, int64_t rows, const Coded &to) {
  forRows(threads, rows, [&](int64_t row) {
    for (int64_t block = 0; block < x.columns / kBlock; ++block) {
      float values[kBlock];
      x.read(row, block * kBlock, values, kBlock);
      const float scale = eightBitScale(largestOf(values), to.format);
      encode(to.format, scale, values, to.codes + row * x.columns + block * kBlock);
      to.scales[block * rows + row] = scale;
    }
  });
}

void castColumns(int threads, const Source &x, int64_t blocks, const Coded &to) {
  // A task has some columns of a block of rows, which it reads row after row.
  constexpr int64_t kColumns = 16;
  const int64_t parts = (x.columns + kColumns - 1) / kColumns;
  inParallel(threads, blocks * parts, [&](int64_t task) {
    const int64_t block = task / parts, first = task % parts * kColumns;
    const int64_t count = std::min(kColumns, x.columns - first);
    float values[kColumns][kBlock], row[kColumns];
    for (int64_t i = 0; i < kBlock; ++i) {
      x.read(block * kBlock + i, first, row, count);
      for (int64_t j = 0; j < count; ++j)
        values[j][i] = row[j];
    }
    for (int64_t j = 0; j < count; ++j) {
      const float scale = eightBitScale(largestOf(values[j]), to.format);
      encode(to.format, scale, values[j], to.codes + ((first + j) * blocks + block) * kBlock);
      to.scales[block * x.columns + first + j] = scale;
    }
  });
}

// Casts the tiles of x, or of its transpose: `down` rows of `across` tiles, with `pitch` scales in
// a row.
void castTiles(int threads, const Source &x, bool transposed, int64_t down, int64_t across,
               int64_t pitch, const Coded &to) {
  inParallel(threads, down * pitch, [&](int64_t tile) {
    const int64_t row = tile / pitch * kBlock, column = tile % pitch * kBlock;
    to.scales[tile] = 1;
    if (tile % pitch >= across)
      return;
    float values[kBlock], largest = 0;
    char coded[kBlock][kBlock];
    auto read = [&](int64_t i) {
      transposed ? x.read(column + i, row, values, kBlock)
                 : x.read(row + i, column, values, kBlock);
    };
    for (int64_t i = 0; i < kBlock; ++i) {
      read(i);
      largest = largestOf(values, largest);
    }
    to.scales[tile] = eightBitScale(largest, to.format);
    for (int64_t i = 0; i < kBlock; ++i) {
      read(i);
      encode(to.format, to.scales[tile], values, coded[i]);
    }
    for (int64_t i = 0; i < kBlock; ++i)
      for (int64_t j = 0; j < kBlock; ++j)
        to.codes[(row + i) * across * kBlock + column + j] = transposed ? coded[j][i] : coded[i][j];
  });
}

// What a kernel computes and casts without storing it: `columns` values of a row at a time, rounded
// to the dtype of its inputs.
struct Computed {
  Source gu; // [rows, 2 * width]
  Source dy; // [rows, width] of SwiGLU's gradient; no data for SwiGLU itself
  int64_t width;

  // Returns the matrix of results.
  std::vector<char> matrix(int threads, int64_t rows, int64_t columns) const {
    const auto bytes = int64_t(byteWidth(gu.dtype));
    std::vector<char> made(size_t(rows * columns * bytes));
    forRows(threads, rows, [&](int64_t row) {
      const auto count = size_t(width);
      std::vector<float> both(2 * count), gradient(count);
      gu.read(row, 0, both.data(), 2 * width);
      if (dy.data)
        dy.read(row, 0, gradient.data(), width);
      for (int64_t i = 0; i < width; ++i) {
        float &gate = both[size_t(i)], &up = both[size_t(width + i)];
        const float g = gate, u = up, s = 1 / (1 + std::exp(-g)), d = gradient[size_t(i)];
        gate = dy.data ? d * u * (s * (1 + g * (1 - s))) : g * s * u;
        up = d * (g * s);
      }
      convertFloats(plan::DType::F32, both.data(), gu.dtype, made.data() + row * columns * bytes,
                    uint64_t(columns));
    });
    return made;
  }
};

// Binds a cast of `rows` rows of `columns` values: along rows, along columns or both, where there
// are codes for them.
BoundCommand bindComputed(Resolver &at, const Computed &from, int64_t rows, int64_t columns,
                          const Coded &toRows, const Coded &toColumns) {
  return [=, threads = at.threads] {
    const std::vector<char> made = from.matrix(threads, rows, columns);
    const Source x{from.gu.dtype, made.data(), columns};
    if (toRows.codes)
      castRows(threads, x, rows, toRows);
    if (toColumns.codes)
      castColumns(threads, x, rows / kBlock, toColumns);
  };
}

BoundCommand bindSwiglu(Resolver &at, int64_t gu, int64_t rows, int64_t width, const Coded &toRows,
                        const Coded &toColumns) {
  return bindComputed(at, {sourceAt(at, gu, 2 * width), {}, width}, rows, width, toRows, toColumns);
}

// Returns x weight reciprocal of each row, rounded to the dtype of x.
std::vector<char> normOf(int threads, const Source &x, int64_t rows, const float *weight,
                         const float *reciprocals) {
  const int64_t columns = x.columns, bytes = columns * int64_t(byteWidth(x.dtype));
  std::vector<char> made(size_t(rows * bytes));
  forRows(threads, rows, [&](int64_t row) {
    std::vector<float> values(static_cast<size_t>(columns));
    x.read(row, 0, values.data(), columns);
    for (int64_t i = 0; i < columns; ++i)
      values[size_t(i)] = values[size_t(i)] * reciprocals[row] * weight[i];
    convertFloats(plan::DType::F32, values.data(), x.dtype, made.data() + row * bytes,
                  uint64_t(columns));
  });
  return made;
}

// Sets reciprocals[row] to 1 / sqrt(mean(x^2) + eps) of the row.
void findReciprocals(int threads, const Source &x, int64_t rows, double eps, float *reciprocals) {
  forRows(threads, rows, [&](int64_t row) {
    std::vector<float> values(static_cast<size_t>(x.columns));
    x.read(row, 0, values.data(), x.columns);
    double squares = 0;
    for (float value : values)
      squares += double(value) * value;
    reciprocals[row] = float(1 / std::sqrt(squares / double(x.columns) + eps));
  });
}

} // namespace

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::QuantizeRows &op) {
  return BoundCommand(
      [threads = at.threads, rows = int64_t(op.rows()),
       x = sourceAt(at, op.x(), int64_t(op.blocks()) * kBlock),
       to = codedAt(at, op.codes(), op.scales())] { castRows(threads, x, rows, to); });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::QuantizeColumns &op) {
  return BoundCommand(
      [threads = at.threads, blocks = int64_t(op.blocks()),
       x = sourceAt(at, op.x(), int64_t(op.columns())),
       to = codedAt(at, op.codes(), op.scales())] { castColumns(threads, x, blocks, to); });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::QuantizeRowsColumns &op) {
  return BoundCommand([threads = at.threads, down = int64_t(op.down()),
                       x = sourceAt(at, op.x(), int64_t(op.across()) * kBlock),
                       rows = codedAt(at, op.codes(), op.scales()),
                       columns = codedAt(at, op.transposed(), op.transposed_scales())] {
    castRows(threads, x, down * kBlock, rows);
    castColumns(threads, x, down, columns);
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::SwigluQuantize &op) {
  return bindSwiglu(at, op.gu(), int64_t(op.down()) * kBlock, int64_t(op.across()) * kBlock,
                    codedAt(at, op.codes(), op.scales()),
                    codedAt(at, op.transposed(), op.transposed_scales()));
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::SwigluQuantizeRows &op) {
  return bindSwiglu(at, op.gu(), int64_t(op.rows()), int64_t(op.blocks()) * kBlock,
                    codedAt(at, op.codes(), op.scales()), {});
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::SwigluQuantizeColumns &op) {
  return bindSwiglu(at, op.gu(), int64_t(op.down()) * kBlock, int64_t(op.across()) * kBlock, {},
                    codedAt(at, op.codes(), op.scales()));
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::SwigluGradQuantize &op) {
  const auto width = int64_t(op.across()) * kBlock;
  return bindComputed(at, {sourceAt(at, op.gu(), 2 * width), sourceAt(at, op.dy(), width), width},
                      int64_t(op.down()) * kBlock, 2 * width, codedAt(at, op.codes(), op.scales()),
                      codedAt(at, op.transposed(), op.transposed_scales()));
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::NormQuantizeRows &op) {
  return BoundCommand([threads = at.threads, rows = int64_t(op.rows()), eps = op.eps(),
                       x = sourceAt(at, op.x(), int64_t(op.blocks()) * kBlock),
                       weight = at.address<const float>(op.weight()),
                       reciprocals = at.address<float>(op.reciprocals()),
                       to = codedAt(at, op.codes(), op.scales())] {
    findReciprocals(threads, x, rows, eps, reciprocals);
    const std::vector<char> y = normOf(threads, x, rows, weight, reciprocals);
    castRows(threads, {x.dtype, y.data(), x.columns}, rows, to);
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::NormQuantizeColumns &op) {
  return BoundCommand([threads = at.threads, down = int64_t(op.down()),
                       x = sourceAt(at, op.x(), int64_t(op.across()) * kBlock),
                       weight = at.address<const float>(op.weight()),
                       reciprocals = at.address<const float>(op.reciprocals()),
                       to = codedAt(at, op.codes(), op.scales())] {
    const std::vector<char> y = normOf(threads, x, down * kBlock, weight, reciprocals);
    castColumns(threads, {x.dtype, y.data(), x.columns}, down, to);
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::QuantizeTiles &op) {
  return BoundCommand([threads = at.threads, down = int64_t(op.down()),
                       across = int64_t(op.across()), pitch = int64_t(op.pitch()),
                       x = sourceAt(at, op.x(), int64_t(op.across()) * kBlock, op.rounded()),
                       to = codedAt(at, op.codes(), op.scales())] {
    castTiles(threads, x, /*transposed=*/false, down, across, pitch, to);
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::QuantizeTilesBoth &op) {
  return BoundCommand([threads = at.threads, down = int64_t(op.down()),
                       across = int64_t(op.across()), pitch = int64_t(op.pitch()),
                       turnedPitch = int64_t(op.transposed_pitch()),
                       x = sourceAt(at, op.x(), int64_t(op.across()) * kBlock, op.rounded()),
                       to = codedAt(at, op.codes(), op.scales()),
                       turned = codedAt(at, op.transposed(), op.transposed_scales())] {
    castTiles(threads, x, /*transposed=*/false, down, across, pitch, to);
    castTiles(threads, x, /*transposed=*/true, across, down, turnedPitch, turned);
  });
}

} // namespace lmc::cpu
