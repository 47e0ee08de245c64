#include "runtime/train/StepBatches.h"

#include "test/runtime/train/TinyPlan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lmc {
namespace {

TEST(StepBatches, GoOnAtAnySampleWithAnyBatchSize) {
  test::TestFolder folder;
  test::TinyPlan::writeTokens(folder / "train.bin", 1000, 1);
  int documents = 0;
  DataOptions options;
  options.paths = {folder / "train.bin"};
  options.key = "data.train";
  options.sequenceLength = 8;
  options.vocabSize = test::TinyPlan::kVocab;
  options.seed = 3;
  options.documentMask = true;
  options.endOfDocument = 1;
  auto source = DataSource::open(options);
  ASSERT_OK(source);
  for (uint64_t size : {1, 4, 6})
    for (uint64_t first : {0, 4, 9, 12, 300}) {
      StepBatches batches(**source, size, first, 2);
      for (uint64_t k = 0; k < 3; ++k) {
        auto batch = batches.next();
        ASSERT_OK(batch);
        std::vector<int32_t> tokens(size * 8), targets(size * 8), starts(size * 8);
        ASSERT_OK((*source)->fill(first + k * size, size, tokens.data(), targets.data(),
                                  starts.data()));
        EXPECT_EQ(batch->tokens, tokens) << size << " from " << first;
        EXPECT_EQ(batch->targets, targets);
        EXPECT_EQ(batch->starts, starts);
        documents += int(std::count_if(starts.begin(), starts.end(), [](int x) { return x > 0; }));
        EXPECT_EQ(batch->validTargets, size * 8);
      }
    }
  EXPECT_GT(documents, 0) << "nothing was cut, so nothing is compared";
}

} // namespace
} // namespace lmc
