#include "compiler/targets/cuda/templates/ScatterAddTemplates.h"

#include <gtest/gtest.h>

using namespace lmc;
using namespace lmc::codegen;

// Two passes of the sort, a run in several ranges, and rows of zeros: every kernel that there is.
TEST(ScatterAddTemplates, TellTheMathsAndTheShape) {
  const char *const texts[] = {
      R"(// Stable sort of the ids of 300 tokens, vocabulary 2000, pass 1 of 2: bits 0 to 5 of the key.
// counts[tile, digit] = how many keys of a tile of 256 positions have the digit: u32 [2, 64].
#include "lmc/scatter_add.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) token_sort_300_2000_count0(const lmc::i32 *ids, lmc::u8 *workspace) {
  lmc::TokenSort<300, 2000, 256, 6>::count<0>(ids, reinterpret_cast<lmc::u32 *>(workspace + 4864));
}
)",
      R"(// Stable sort of the ids of 300 tokens, vocabulary 2000, pass 1 of 2: bits 0 to 5 of the key.
// Each (key, token) goes behind those of smaller digits, and those of its digit before it.
#include "lmc/scatter_add.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) token_sort_300_2000_move0(const lmc::i32 *ids, lmc::u8 *workspace) {
  lmc::TokenSort<300, 2000, 256, 6>::move<0>(ids, nullptr, reinterpret_cast<lmc::u32 *>(workspace + 4864),
      reinterpret_cast<lmc::u32 *>(workspace + 0),
      reinterpret_cast<lmc::u32 *>(workspace + 1216));
}
)",
      R"(// Stable sort of the ids of 300 tokens, vocabulary 2000, pass 2 of 2: bits 6 to 11 of the key.
// counts[tile, digit] = how many keys of a tile of 256 positions have the digit: u32 [2, 64].
#include "lmc/scatter_add.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) token_sort_300_2000_count1(lmc::u8 *workspace) {
  lmc::TokenSort<300, 2000, 256, 6>::count<6>(reinterpret_cast<lmc::u32 *>(workspace + 0), reinterpret_cast<lmc::u32 *>(workspace + 4864));
}
)",
      R"(// Stable sort of the ids of 300 tokens, vocabulary 2000, pass 2 of 2: bits 6 to 11 of the key.
// Each (key, token) goes behind those of smaller digits, and those of its digit before it.
#include "lmc/scatter_add.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) token_sort_300_2000_move1(lmc::u8 *workspace) {
  lmc::TokenSort<300, 2000, 256, 6>::move<6>(reinterpret_cast<lmc::u32 *>(workspace + 0), reinterpret_cast<lmc::u32 *>(workspace + 1216), reinterpret_cast<lmc::u32 *>(workspace + 4864),
      reinterpret_cast<lmc::u32 *>(workspace + 2432),
      reinterpret_cast<lmc::u32 *>(workspace + 3648));
}
)",
      R"(// d[ids[t], :] = sum of x[t, :], t ascending; x bf16 [300, 40], d f32 [2000, 40].
// Over sorted tokens, 64 at a time: sums of their runs of equal ids. The end of a run that began before
// goes to partials [5, 40].
#include "lmc/scatter_add.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) scatter_add_300x40_2000_bf16_ranges(const lmc::bf16 *x, lmc::u8 *workspace, float *d) {
  lmc::RowSums<lmc::bf16, 300, 40, 2000, 64, false>::addRanges(x, reinterpret_cast<lmc::u32 *>(workspace + 2432), reinterpret_cast<lmc::u32 *>(workspace + 3648),
      reinterpret_cast<float *>(workspace + 5376), d);
}
)",
      R"(// d[ids[t], :] = sum of x[t, :], t ascending; x bf16 [300, 40], d f32 [2000, 40].
// To the rows of runs that lie in several ranges of 64 tokens: their partial sums, in order.
#include "lmc/scatter_add.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) scatter_add_300x40_2000_bf16_partials(lmc::u8 *workspace, float *d) {
  lmc::RowSums<lmc::bf16, 300, 40, 2000, 64, false>::addPartials(reinterpret_cast<lmc::u32 *>(workspace + 2432), reinterpret_cast<float *>(workspace + 5376), d);
}
)",
      R"(// d[ids[t], :] = sum of x[t, :], t ascending; x bf16 [300, 40], d f32 [2000, 40].
// Zeros to the rows of d whose id no token has.
#include "lmc/scatter_add.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) scatter_add_300x40_2000_bf16_zeros(lmc::u8 *workspace, float *d) {
  lmc::RowSums<lmc::bf16, 300, 40, 2000, 64, false>::zeroOthers(reinterpret_cast<lmc::u32 *>(workspace + 2432), d);
}
)",
  };
  ScatterAddShape shape;
  shape.rows = 300;
  shape.columns = 40;
  shape.vocabulary = 2000;
  std::vector<ScatterAddLaunch> launches = scatterAddKernels(shape);
  ASSERT_EQ(launches.size(), std::size(texts));
  for (size_t i = 0; i < launches.size(); ++i) {
    EXPECT_EQ(launches[i].kernel.source, texts[i]);
    EXPECT_EQ(launches[i].kernel.hero, "scatter_add");
  }
}

// The rest of d stays as it is.
TEST(ScatterAddTemplates, AccumulationWritesNoZeros) {
  ScatterAddShape shape;
  shape.rows = 10;
  shape.columns = 8;
  shape.vocabulary = 20;
  shape.accumulate = true;
  std::vector<ScatterAddLaunch> launches = scatterAddKernels(shape);
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(launches.back().kernel.name, "scatter_add_10x8_20_bf16_acc_ranges");
  EXPECT_EQ(launches.back().kernel.source.rfind("// d[ids[t], :] += x[t, :], t ascending;", 0), 0u);
}
