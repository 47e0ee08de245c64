#include "runtime/plan/HeldPart.h"

#include "runtime/plan/PlanFile.h"

#include <algorithm>

namespace lmc {

static uint64_t elements(const plan::Slice &slice) {
  return slice.bytes() / byteWidth(slice.dtype());
}

HeldPart heldPart(const plan::Plan &plan, const plan::Variable &variable, uint64_t position) {
  const uint64_t piece = elements(*plan.slices()->Get(variable.slice()));
  const plan::Shard *shard = variable.shard();
  if (!shard)
    return {0, piece, 0};
  uint64_t count = 1;
  for (uint64_t extent : *shard->shape())
    count *= extent;
  const uint64_t begin = position * piece;
  const uint64_t first = std::max(begin, shard->offset());
  const uint64_t end = std::min(begin + piece, shard->offset() + count);
  if (first >= end)
    return {};
  return {first - shard->offset(), end - first, first - begin};
}

HeldPart writtenPart(const plan::Plan &plan, const plan::Variable &variable, uint64_t rank) {
  const uint64_t shards = variable.shard() ? plan.shard_ranks() : 1;
  const uint64_t copies = plan.batch()->ranks() / shards, copy = rank / shards;
  const HeldPart held = heldPart(plan, variable, rank % shards);
  const uint64_t first = held.count * copy / copies, end = held.count * (copy + 1) / copies;
  return {held.first + first, end - first, held.at + first};
}

std::vector<uint64_t> shapeOf(const plan::Plan &plan, const plan::Variable &variable) {
  const auto *shape = variable.shard() ? variable.shard()->shape()
                                       : plan.slices()->Get(variable.slice())->shape();
  return shape ? std::vector<uint64_t>(shape->begin(), shape->end()) : std::vector<uint64_t>();
}

} // namespace lmc
