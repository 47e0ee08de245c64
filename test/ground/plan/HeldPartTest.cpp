#include "ground/plan/HeldPart.h"

#include "ground/plan/MomentBlock.h"
#include "test/ground/plan/PlanBuilder.h"

#include <gtest/gtest.h>

namespace lmc {
namespace {

using test::PlanBuilder;

// A matrix of `blocks` moment blocks with the scales of its moments, in vectors that `shards` ranks
// divide; `ranks` of them hold the whole.
struct DividedMatrix {
  PlanBuilder builder;
  std::unique_ptr<PlanFile> file;

  DividedMatrix(uint64_t blocks, uint64_t vectorBlocks, uint64_t offset, uint64_t shards,
                uint64_t ranks) {
    builder.plan.shard_ranks = shards;
    builder.plan.batch->ranks = ranks;
    builder.plan.batch->global_batch_size = 6 * ranks;
    builder.plan.nodes = 1;
    builder.plan.devices_per_node = ranks;
    auto add = [&](const std::string &name, plan::VariableKind kind, uint64_t block) {
      const uint32_t slice = builder.slice(plan::DType::F32, {vectorBlocks / shards * block});
      plan::VariableT &variable = builder.variable(name, kind, slice);
      variable.shard = std::make_unique<plan::ShardT>();
      variable.shard->offset = offset * block;
      variable.shard->shape = {blocks, block};
      if (kind != plan::VariableKind::Parameter)
        variable.parameter = "w";
    };
    add("w", plan::VariableKind::Parameter, kMomentBlock);
    add("w.moment1_scale", plan::VariableKind::Moment1Scale, 1);
    add("w.moment2_scale", plan::VariableKind::Moment2Scale, 1);
    auto opened = builder.open();
    EXPECT_TRUE(opened) << opened.error().message;
    if (opened)
      file = std::move(*opened);
  }
};

TEST(HeldPart, WrittenPartsCoverATensorOnceAndAnElementGoesWithItsScale) {
  for (uint64_t shards : {1, 2, 3})
    for (uint64_t copies : {1, 2, 3, 5})
      for (uint64_t blocks : {1, 2, 7, 12}) {
        SCOPED_TRACE(::testing::Message()
                     << shards << " x " << copies << " ranks, " << blocks << " blocks");
        const DividedMatrix matrix(blocks, 18, 3, shards, shards * copies);
        ASSERT_TRUE(matrix.file);
        const plan::Plan &plan = **matrix.file;
        std::vector<int> written(blocks * kMomentBlock);
        for (uint64_t rank = 0; rank < shards * copies; ++rank) {
          const HeldPart part = writtenPart(plan, *plan.variables()->Get(0), rank);
          for (uint64_t i = 0; i < part.count; ++i)
            ++written[part.first + i];
          for (unsigned scale : {1, 2}) {
            const HeldPart scales = writtenPart(plan, *plan.variables()->Get(scale), rank);
            EXPECT_EQ(scales.count * kMomentBlock, part.count);
            EXPECT_EQ(scales.first * kMomentBlock, part.first);
          }
        }
        EXPECT_EQ(written, std::vector<int>(blocks * kMomentBlock, 1));
      }
}

TEST(HeldPart, WrittenPartsOfATensorWithoutWholeBlocksCoverItOnce) {
  PlanBuilder builder;
  builder.plan.batch->ranks = 3;
  builder.plan.batch->global_batch_size = 18;
  builder.plan.nodes = 1;
  builder.plan.devices_per_node = 3;
  builder.plan.shard_ranks = 1;
  for (uint64_t count : {1, 255, 257, 1000})
    builder.variable(std::to_string(count), plan::VariableKind::Parameter,
                     builder.slice(plan::DType::F32, {count}));
  auto file = builder.open();
  ASSERT_TRUE(file) << file.error().message;
  for (const plan::Variable *variable : *(**file)->variables()) {
    uint64_t next = 0;
    for (uint64_t rank = 0; rank < 3; ++rank) {
      const HeldPart part = writtenPart(***file, *variable, rank);
      EXPECT_EQ(part.first, next);
      next += part.count;
    }
    EXPECT_EQ(std::to_string(next), variable->name()->str());
  }
}

} // namespace
} // namespace lmc
