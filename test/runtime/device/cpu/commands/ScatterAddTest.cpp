#include "runtime/device/cpu/commands/ScatterAdd.h"
#include "test/runtime/device/cpu/Values.h"

#include <gtest/gtest.h>

using namespace lmc::cpu;
using lmc::cpu::test::Values;

TEST(ScatterAdd, AddsRowsInOrderWhateverTheThreads) {
  std::mt19937_64 random(1);
  const int64_t rows = 300, columns = 100, vocabulary = 40;
  std::vector<int32_t> ids(rows);
  for (int32_t &id : ids)
    id = int32_t(random() % vocabulary);
  ids[3] = -1;
  ids[4] = vocabulary; // no row: adds nothing
  for (Storage storage : {Storage::F32, Storage::BF16, Storage::F64})
    for (bool accumulate : {false, true}) {
      const Storage sums = storage == Storage::F64 ? Storage::F64 : Storage::F32;
      Values x = Values::random(storage, rows * columns, random);
      Values before = Values::random(sums, vocabulary * columns, random);
      std::vector<double> expected(size_t(vocabulary * columns));
      for (int64_t i = 0; i < vocabulary * columns && accumulate; ++i)
        expected[size_t(i)] = before[i];
      for (int64_t t = 0; t < rows; ++t)
        if (ids[size_t(t)] >= 0 && ids[size_t(t)] < vocabulary)
          for (int64_t c = 0; c < columns; ++c)
            expected[size_t(ids[size_t(t)] * columns + c)] += x[t * columns + c];
      std::vector<char> first;
      for (int threads : {1, 2, 6, 20}) {
        Values d = before;
        scatterAdd(
            {ids.data(), x.data(), d.data(), storage, sums, rows, columns, vocabulary, accumulate},
            threads);
        EXPECT_LE(lmc::cpu::test::error(d, expected), 1e-6);
        if (first.empty())
          first = d.bytes;
        EXPECT_EQ(d.bytes, first) << threads << " threads";
      }
    }
}
