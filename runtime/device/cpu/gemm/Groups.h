// Divides the products of a group among threads, and computes products by a library.
#pragma once

#include "runtime/device/cpu/gemm/Implementations.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace lmc::cpu {

// A block of matrix d of a product. It has `rows` x `columns` elements and starts at (row, column).
struct GemmBlock {
  const GemmPart *part;
  int64_t row, rows, column, columns;
};

// The maximum size of a block. The first row of each block is a multiple of `rowUnit`.
struct BlockSizes {
  int64_t rows, columns, rowUnit;
};

// Divides all products into blocks with nearly equal numbers of rows. If the products are large
// enough, there are at least kBlocksPerThread blocks per thread.
class GemmBlocks {
public:
  GemmBlocks(const GemmGroupShape &group, int threads, const BlockSizes &sizes)
      : columns(group.shape.n), threads(threads), sizes(sizes) {}

  const std::vector<GemmBlock> &divide(const std::vector<GemmPart> &parts) {
    BlockSizes size = sizes;
    while (count(parts, size) < kBlocksPerThread * threads && size.columns > kFewestColumns)
      size.columns /= 2;
    while (count(parts, size) < kBlocksPerThread * threads && size.rows > kFewestRows)
      size.rows /= 2;
    blocks.clear();
    for (const GemmPart &part : parts) {
      const int64_t rows = blockRows(part.m, size);
      for (int64_t column = 0; column < columns; column += size.columns)
        for (int64_t row = 0; row < part.m; row += rows)
          blocks.push_back({&part, row, std::min(rows, part.m - row), column,
                            std::min(size.columns, columns - column)});
    }
    return blocks;
  }

private:
  static constexpr int64_t kBlocksPerThread = 8, kFewestColumns = 128, kFewestRows = 48;

  int64_t blockRows(int64_t m, const BlockSizes &size) const {
    const int64_t pieces = std::max<int64_t>(1, (m + size.rows - 1) / size.rows);
    return ((m + pieces - 1) / pieces + sizes.rowUnit - 1) / sizes.rowUnit * sizes.rowUnit;
  }
  int64_t count(const std::vector<GemmPart> &parts, const BlockSizes &size) const {
    int64_t sum = 0;
    for (const GemmPart &part : parts)
      if (part.m > 0)
        sum += (part.m + blockRows(part.m, size) - 1) / blockRows(part.m, size);
    return sum * ((columns + size.columns - 1) / size.columns);
  }

  int64_t columns;
  int threads;
  BlockSizes sizes;
  std::vector<GemmBlock> blocks;
};

// Calls block(GemmBlock, next) for all blocks of products with k > 0, on all threads. `next` is the
// block that the thread will probably compute next, or null. Sets blocks of products with k = 0 to
// zero, unless the shape accumulates.
template <typename Block>
void forBlocks(const GemmShape &shape, const std::vector<GemmBlock> &blocks, int threads,
               Block block) {
  const auto count = int64_t(blocks.size()), width = elementBytes(shape.output);
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (count > 1)
  for (int64_t i = 0; i < count; ++i) {
    const GemmBlock &each = blocks[size_t(i)];
    if (each.part->k > 0) {
      block(each, i + threads < count ? &blocks[size_t(i + threads)] : nullptr);
      continue;
    }
    for (int64_t row = each.row; !shape.accumulate && row < each.row + each.rows; ++row)
      std::memset(static_cast<char *>(each.part->d) + (row * shape.n + each.column) * width, 0,
                  size_t(each.columns * width));
  }
}

// A product that a library computes. If the shape has a bias, run() adds the bias (f32) to it.
class LibraryGemm final : public Gemm {
public:
  LibraryGemm(const GemmShape &shape, const char *name, Multiply multiply)
      : shape(shape), name(name), multiply(std::move(multiply)) {}

  void run(const void *a, const void *b, void *d, const void *bias) override {
    multiply(shape, shape.leadingA(), shape.leadingB(), a, b, d, shape.n);
    if (!shape.hasBias)
      return;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < shape.m; ++row)
      for (int64_t column = 0; column < shape.n; ++column)
        static_cast<float *>(d)[row * shape.n + column] += static_cast<const float *>(bias)[column];
  }

  std::string implementation() const override { return name; }

private:
  GemmShape shape;
  std::string name;
  Multiply multiply;
};

// A group of products that a library computes. One call of multiply() computes one block.
class LibraryGroup final : public GemmGroup {
public:
  LibraryGroup(const GemmGroupShape &group, int threads, const char *name, Multiply multiply)
      : shape(group.shape), threads(threads), name(name),
        blocks(group, threads, {kRows, kColumns, 16}), multiply(std::move(multiply)) {}

  void run(const std::vector<GemmPart> &parts) override {
    forBlocks(shape, blocks.divide(parts), threads, [&](const GemmBlock &block, const GemmBlock *) {
      GemmShape own = shape;
      own.m = block.rows;
      own.n = block.columns;
      own.k = block.part->k;
      const int64_t leadingA = shape.transposeA ? block.part->m : own.k;
      const int64_t leadingB = shape.transposeB ? own.k : shape.n;
      auto at = [](auto *base, int64_t elements, Storage storage) {
        return reinterpret_cast<const char *>(base) + elements * elementBytes(storage);
      };
      multiply(
          own, leadingA, leadingB,
          at(block.part->a, shape.transposeA ? block.row : block.row * leadingA, shape.input),
          at(block.part->b, shape.transposeB ? block.column * leadingB : block.column, shape.input),
          static_cast<char *>(block.part->d) +
              (block.row * shape.n + block.column) * elementBytes(shape.output),
          shape.n);
    });
  }

  std::string implementation() const override { return name; }

private:
  static constexpr int64_t kRows = 768, kColumns = 1024;

  GemmShape shape;
  int threads;
  std::string name;
  GemmBlocks blocks;
  Multiply multiply;
};

} // namespace lmc::cpu
