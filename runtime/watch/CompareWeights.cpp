#include "runtime/watch/CompareWeights.h"

#include "ground/plan/FloatConvert.h"
#include "ground/plan/HeldPart.h"
#include "runtime/device/Ranges.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

namespace lmc {

using plan::VariableKind;

std::string describe(const std::vector<WeightDifference> &differences, const World &world) {
  const size_t count = differences.size();
  const WeightDifference &first = differences.front();
  const std::string names = world.namesOf(first.ranks);
  return fmt::format(
      "{}{} tensor{} differ{}; {}", count == WeightComparison::kMostDifferences ? "at least " : "",
      count, count == 1 ? "" : "s", count == 1 ? "s" : "",
      first.beside ? fmt::format("{} of {} is not its rounded master", first.tensor, names)
                   : fmt::format("{} of {} {} not the bits of the other ranks", first.tensor, names,
                                 first.ranks.size() == 1 ? "has" : "have"));
}

// Returns the number n of parts into which ranks divide a tensor. Rank r has part number r mod n.
static uint64_t partsOf(const plan::Plan &plan, const plan::Variable &variable) {
  return std::max<uint64_t>(variable.shard()        ? plan.shard_ranks()
                            : variable.of_experts() ? plan.expert_ranks()
                                                    : 1,
                            1);
}

std::vector<WeightComparison::Weight> WeightComparison::weightsOf(const plan::Plan &plan) {
  const uint64_t ranks = plan.batch()->ranks();
  std::map<std::string, const plan::Variable *> masters;
  for (const plan::Variable *variable : *plan.variables())
    if (variable->kind() == VariableKind::Parameter)
      masters.emplace(variable->name()->str(), variable);
  std::vector<Weight> weights;
  for (const plan::Variable *variable : *plan.variables()) {
    const bool isCopy = variable->kind() == VariableKind::ComputeCopy;
    if (!isCopy && variable->kind() != VariableKind::Parameter)
      continue;
    Weight weight{.variable = variable};
    weight.isReplicated = ranks > partsOf(plan, *variable);
    if (isCopy && variable->parameter())
      if (const auto master = masters.find(variable->parameter()->str()); master != masters.end())
        weight.master = master->second;
    if (weight.isReplicated || weight.master)
      weights.push_back(weight);
  }
  return weights;
}

Result<std::unique_ptr<WeightComparison>> WeightComparison::open(const PlanFile &plan,
                                                                 Device &device, World &world) {
  std::vector<Weight> weights = weightsOf(*plan);
  if (weights.empty())
    return std::unique_ptr<WeightComparison>();
  uint64_t largest = 0; // maximum bytes of a tensor and its master together
  for (const Weight &weight : weights) {
    auto bytes = [&](const plan::Variable &variable) {
      return plan->slices()->Get(variable.slice())->bytes();
    };
    largest =
        std::max(largest, bytes(*weight.variable) + (weight.master ? bytes(*weight.master) : 0));
  }
  LMC_LET(ring, BufferRing::make(device, 2, std::min(kPieceBytes, largest)));
  std::unique_ptr<WeightComparison> made(
      new WeightComparison(plan, world, device, std::move(*ring)));
  made->weights = std::move(weights);
  return made;
}

uint64_t WeightComparison::position() const {
  return static_cast<uint64_t>(world.rank()) % std::max<uint64_t>(plan->shard_ranks(), 1);
}

namespace {

// Memory ranges of the device that are read together. `use` then works on their contents.
struct Piece {
  std::vector<ArenaRange> ranges;
  std::function<void(const std::vector<const char *> &)> use; // the data of each range
};

} // namespace

// Reads pieces from the device. Reads the next piece while `use` works on the present one.
static Result<void> readPieces(Device &device, BufferRing &ring, Progress &progress,
                               const std::vector<Piece> &pieces) {
  auto take = [&](const Piece &piece) -> Result<void> {
    LMC_LET(buffer, ring.take());
    std::vector<const char *> data;
    const char *at = (*buffer)->data();
    for (const ArenaRange &range : piece.ranges) {
      data.push_back(at);
      at += range.bytes;
    }
    piece.use(data);
    progress.move();
    return {};
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    LMC_LET(buffer, ring.next());
    uint64_t offset = 0;
    for (const ArenaRange &range : pieces[i].ranges) {
      LMC_TRY(device.download(range, **buffer, offset));
      offset += range.bytes;
    }
    LMC_TRY(ring.enqueued());
    if (i > 0)
      LMC_TRY(take(pieces[i - 1]));
  }
  return pieces.empty() ? Result<void>() : take(pieces.back());
}

static uint64_t widthOf(const plan::Plan &plan, const plan::Variable &variable) {
  return byteWidth(plan.slices()->Get(variable.slice())->dtype());
}

Result<uint64_t> WeightComparison::hashOf(const plan::Variable &variable) {
  const HeldPart all =
      heldPart(*plan, variable, position()).inBytes(widthOf(*plan, variable)).withPadding();
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t *)> state(XXH3_createState(),
                                                                               XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<Piece> pieces;
  for (uint64_t done = 0; done < all.count; done += kPieceBytes) {
    const uint64_t bytes = std::min(kPieceBytes, all.count - done);
    LMC_LET(range, rangeInSlice(&*plan, static_cast<int>(variable.slice()), bytes, all.at + done));
    pieces.push_back({{*range}, [&state, bytes](const std::vector<const char *> &data) {
                        XXH3_64bits_update(state.get(), data[0], bytes);
                      }});
  }
  LMC_TRY(readPieces(device, ring, world.progress(), pieces));
  return XXH3_64bits_digest(state.get());
}

// Returns true if each element of a compute copy equals the master's element, rounded. Any two NaNs
// count as equal.
static bool isRounded(plan::DType from, const char *master, plan::DType to, const char *copy,
                      uint64_t count) {
  const size_t width = byteWidth(to);
  std::vector<char> rounded(count * width);
  convertFloats(from, master, to, rounded.data(), count);
  if (std::memcmp(rounded.data(), copy, rounded.size()) == 0)
    return true;
  std::vector<double> a(count), b(count);
  convertFloats(to, rounded.data(), plan::DType::F64, a.data(), count);
  convertFloats(to, copy, plan::DType::F64, b.data(), count);
  for (uint64_t i = 0; i < count; ++i)
    if (std::memcmp(&rounded[i * width], copy + i * width, width) != 0 &&
        (a[i] == a[i] || b[i] == b[i]))
      return false;
  return true;
}

Result<bool> WeightComparison::isRoundedMaster(const Weight &weight) {
  const HeldPart master = heldPart(*plan, *weight.master, position());
  const HeldPart copy = heldPart(*plan, *weight.variable, position());
  if (master.first != copy.first || master.count != copy.count)
    return Error{"a compute copy and its master are divided in different ways", ExitCode::Failure};
  const uint64_t masterWidth = widthOf(*plan, *weight.master);
  const uint64_t copyWidth = widthOf(*plan, *weight.variable);
  const plan::DType from = plan->slices()->Get(weight.master->slice())->dtype();
  const plan::DType to = plan->slices()->Get(weight.variable->slice())->dtype();
  bool equal = true;
  std::vector<Piece> pieces;
  for (uint64_t done = 0; done < master.count;) {
    // The rows of a padded tensor are not adjacent, so a piece must not go beyond the end of a row.
    uint64_t count = std::min(master.count - done, kPieceBytes / (masterWidth + copyWidth));
    const uint64_t first = master.first + done;
    if (master.pitch > 0 || copy.pitch > 0)
      count = std::min({count, master.part(first, master.count - done).run().count,
                        copy.part(first, copy.count - done).run().count});
    const HeldPart a = master.part(first, count), b = copy.part(first, count);
    LMC_LET(ofMaster, rangeInSlice(&*plan, static_cast<int>(weight.master->slice()),
                                   count * masterWidth, a.at * masterWidth));
    LMC_LET(ofCopy, rangeInSlice(&*plan, static_cast<int>(weight.variable->slice()),
                                 count * copyWidth, b.at * copyWidth));
    pieces.push_back({{*ofMaster, *ofCopy}, [=, &equal](const std::vector<const char *> &data) {
                        equal = equal && isRounded(from, data[0], to, data[1], count);
                      }});
    done += count;
  }
  LMC_TRY(readPieces(device, ring, world.progress(), pieces));
  return equal;
}

Result<std::vector<uint64_t>> WeightComparison::gather(const std::vector<uint64_t> &mine) {
  std::vector<uint64_t> all(mine.size() * static_cast<size_t>(world.size()));
  LMC_TRY(world.all().allGather(mine.data(), all.data(), mine.size() * sizeof(uint64_t)));
  return all;
}

// Returns the ranks whose value is not the majority's; all ranks if there is no majority.
static std::vector<int> oddOnes(const std::vector<std::pair<int, uint64_t>> &group) {
  std::map<uint64_t, size_t> counts;
  for (const auto &[rank, value] : group)
    ++counts[value];
  if (counts.size() < 2)
    return {};
  const auto most = std::ranges::max_element(
      counts, {}, [](const std::pair<const uint64_t, size_t> &entry) { return entry.second; });
  const bool isMajority = 2 * most->second > group.size();
  std::vector<int> ranks;
  for (const auto &[rank, value] : group)
    if (!isMajority || value != most->first)
      ranks.push_back(rank);
  return ranks;
}

void WeightComparison::addDifferences(const std::vector<uint64_t> &hashes,
                                      std::vector<WeightDifference> &to) const {
  const size_t ranks = static_cast<size_t>(world.size());
  for (size_t w = 0; w < weights.size() && to.size() < kMostDifferences; ++w) {
    if (!weights[w].isReplicated)
      continue;
    const size_t parts = partsOf(*plan, *weights[w].variable);
    WeightDifference difference{.tensor = weights[w].variable->name()->str(), .ranks = {}};
    for (size_t part = 0; part < parts; ++part) {
      std::vector<std::pair<int, uint64_t>> group;
      for (size_t rank = part; rank < ranks; rank += parts)
        group.emplace_back(static_cast<int>(rank), hashes[rank * weights.size() + w]);
      std::ranges::copy(oddOnes(group), std::back_inserter(difference.ranks));
    }
    std::ranges::sort(difference.ranks);
    if (!difference.ranks.empty())
      to.push_back(std::move(difference));
  }
}

Result<std::vector<WeightDifference>> WeightComparison::compare() {
  std::vector<uint64_t> hashes(weights.size()), wrong(weights.size());
  for (size_t w = 0; w < weights.size(); ++w) {
    if (weights[w].isReplicated)
      LMC_SET(hashes[w], hashOf(*weights[w].variable));
    if (weights[w].master) {
      LMC_LET(rounded, isRoundedMaster(weights[w]));
      wrong[w] = *rounded ? 0 : 1;
    }
  }
  // There may be thousands of ranks, so they first compare summaries. A summary has the number of
  // wrong copies, and one hash over the hashes of all tensors with the same number of parts.
  std::map<uint64_t, std::vector<uint64_t>> byParts; // number of parts -> hashes
  for (size_t w = 0; w < weights.size(); ++w)
    byParts[partsOf(*plan, *weights[w].variable)].push_back(hashes[w]);
  std::vector<uint64_t> own{static_cast<uint64_t>(std::ranges::count(wrong, uint64_t(1)))};
  for (const auto &[parts, of] : byParts)
    own.push_back(XXH3_64bits(of.data(), of.size() * sizeof(uint64_t)));
  LMC_LET(summary, gather(own));
  const size_t ranks = static_cast<size_t>(world.size()), width = own.size();
  bool equal = true, sound = true;
  for (size_t rank = 0; rank < ranks; ++rank) {
    sound = sound && (*summary)[width * rank] == 0;
    size_t at = 0;
    for (const auto &[parts, of] : byParts) {
      ++at;
      equal = equal && (*summary)[width * rank + at] == (*summary)[width * (rank % parts) + at];
    }
  }
  std::vector<WeightDifference> differences;
  if (!equal) {
    LMC_LET(all, gather(hashes));
    addDifferences(*all, differences);
  }
  if (!sound) {
    LMC_LET(all, gather(wrong));
    for (size_t w = 0; w < weights.size() && differences.size() < kMostDifferences; ++w) {
      WeightDifference difference{
          .tensor = weights[w].variable->name()->str(), .ranks = {}, .beside = true};
      for (size_t rank = 0; rank < ranks; ++rank)
        if ((*all)[rank * weights.size() + w] > 0)
          difference.ranks.push_back(static_cast<int>(rank));
      if (!difference.ranks.empty())
        differences.push_back(std::move(difference));
    }
  }
  return differences;
}

} // namespace lmc
