#include "ground/plan/HeldPart.h"

#include "ground/plan/MomentBlock.h"
#include "ground/plan/PlanFile.h"

#include <algorithm>

namespace lmc {

static uint64_t elements(const plan::Slice &slice) {
  return slice.bytes() / byteWidth(slice.dtype());
}

// Returns the position of the tensor's element `element` if the padding between rows counts, too.
static uint64_t placeOf(uint64_t element, uint64_t columns, uint64_t pitch) {
  return pitch ? element / columns * pitch + element % columns : element;
}

// Returns how many of the first `places` positions hold elements, and not padding between rows.
static uint64_t elementsBefore(uint64_t places, uint64_t columns, uint64_t pitch) {
  return pitch ? places / pitch * columns + std::min(places % pitch, columns) : places;
}

HeldPart HeldPart::part(uint64_t from, uint64_t number) const {
  return {from, number, at + placeOf(from, columns, pitch) - placeOf(first, columns, pitch),
          columns, pitch};
}

HeldPart HeldPart::run() const {
  return part(first, pitch ? std::min(count, columns - first % columns) : count);
}

std::vector<HeldPart> HeldPart::runs() const {
  std::vector<HeldPart> all;
  for (HeldPart rest = *this; rest.count > 0;) {
    all.push_back(rest.run());
    rest = rest.part(rest.first + all.back().count, rest.count - all.back().count);
  }
  return all;
}

HeldPart HeldPart::withPadding() const {
  const uint64_t extent = count ? part(first + count - 1, 1).at + 1 - at : 0;
  return {first, extent, at};
}

HeldPart HeldPart::inBytes(uint64_t width) const {
  return {first * width, count * width, at * width, columns * width, pitch * width};
}

HeldPart heldPart(const plan::Plan &plan, const plan::Variable &variable, uint64_t position) {
  const uint64_t piece = elements(*plan.slices()->Get(variable.slice()));
  const plan::Shard *shard = variable.shard();
  if (!shard)
    return {0, piece, 0};
  uint64_t count = 1;
  for (uint64_t extent : *shard->shape())
    count *= extent;
  const uint64_t pitch = shard->pitch(), columns = pitch ? shard->shape()->Get(1) : 0;
  // The tensor lies in a vector that the ranks divide (Shard in plan.fbs). Returns how many
  // elements of the tensor lie before element `place` of this vector.
  auto before = [&](uint64_t place) {
    return place <= shard->offset()
               ? 0
               : std::min(count, elementsBefore(place - shard->offset(), columns, pitch));
  };
  // The index of the rank's piece among all pieces of the vector (Shard in plan.fbs).
  const uint64_t groups = std::max<uint64_t>(shard->groups(), 1);
  const uint64_t number = position % groups * (plan.shard_ranks() / groups) + position / groups;
  const uint64_t begin = number * piece;
  const uint64_t first = before(begin), end = before(begin + piece);
  if (first >= end)
    return {};
  return {first, end - first, shard->offset() + placeOf(first, columns, pitch) - begin, columns,
          pitch};
}

HeldPart writtenPart(const plan::Plan &plan, const plan::Variable &variable, uint64_t rank) {
  const uint64_t shards = variable.shard() ? plan.shard_ranks() : 1;
  const uint64_t copies = plan.batch()->ranks() / shards, copy = rank / shards;
  const HeldPart held = heldPart(plan, variable, rank % shards);
  const bool isScale = variable.kind() == plan::VariableKind::Moment1Scale ||
                       variable.kind() == plan::VariableKind::Moment2Scale;
  const uint64_t block = isScale ? 1 : uint64_t(kMomentBlock);
  const uint64_t blocks = (held.count + block - 1) / block;
  // Returns how many elements of `held` are written by the first `number` ranks that have `held`.
  auto before = [&](uint64_t number) {
    return std::min(held.count, blocks * number / copies * block);
  };
  const uint64_t first = before(copy), end = before(copy + 1);
  return held.part(held.first + first, end - first);
}

std::vector<uint64_t> shapeOf(const plan::Plan &plan, const plan::Variable &variable) {
  const auto *shape = variable.shard() ? variable.shard()->shape()
                                       : plan.slices()->Get(variable.slice())->shape();
  return shape ? std::vector<uint64_t>(shape->begin(), shape->end()) : std::vector<uint64_t>();
}

} // namespace lmc
