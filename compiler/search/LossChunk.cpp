#include "compiler/search/LossChunk.h"

#include "dialects/lm/Lm.h"

#include "llvm/ADT/TypeSwitch.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

using namespace mlir;
using namespace lmc;
using nlohmann::json;

// Calls `visit` with every lm.linear_cross_entropy and every gradient of one.
template <typename Visit> static void forEachLoss(ModuleOp module, Visit &&visit) {
  module.walk([&](Operation *op) {
    llvm::TypeSwitch<Operation *>(op).Case<lm::LinearCrossEntropyOp, lm::LinearCrossEntropyGradOp>(
        visit);
  });
}

static int64_t tokensOf(Value x) { return cast<RankedTensorType>(x.getType()).getDimSize(0); }

LossChunk lmc::lossChunkOf(ModuleOp module) {
  LossChunk chunk;
  forEachLoss(module, [&](auto loss) {
    if (chunk.tokens > 0)
      return;
    chunk.tokens = std::min(int64_t(loss.getChunk()), tokensOf(loss.getX()));
    auto weight = cast<RankedTensorType>(loss.getWeight().getType());
    chunk.logitsBytes = uint64_t(chunk.tokens) * uint64_t(weight.getDimSize(0)) *
                        (weight.getElementTypeBitWidth() / 8);
  });
  return chunk;
}

std::vector<int64_t> lmc::lossChunkSizes(ModuleOp module) {
  constexpr uint64_t kMaxLogitsBytes = uint64_t(4) << 30;
  constexpr int64_t kMin = 256, kMaxChunks = 128;
  const LossChunk own = lossChunkOf(module);
  if (own.tokens == 0)
    return {};
  int64_t tokens = 0;
  forEachLoss(module, [&](auto loss) { tokens = std::max(tokens, tokensOf(loss.getX())); });
  const uint64_t bytesPerToken = own.logitsBytes / uint64_t(own.tokens);
  std::set<int64_t> sizes{own.tokens};
  auto add = [&](int64_t size) {
    if (uint64_t(size) * bytesPerToken <= kMaxLogitsBytes && size * kMaxChunks >= tokens)
      sizes.insert(size);
  };
  for (int64_t size = kMin; size < tokens; size *= 2)
    add(size);
  add(tokens);
  return {sizes.begin(), sizes.end()};
}

void lmc::setLossChunk(ModuleOp module, int64_t tokens) {
  forEachLoss(module, [&](auto loss) { loss.setChunk(std::min(tokens, tokensOf(loss.getX()))); });
}

json lmc::lossChunkNotes(const LossChunk &taken, ArrayRef<LossChunk> candidates,
                         int64_t tokensPerStep) {
  json notes = {{"tokens", taken.tokens}, {"logits_bytes", taken.logitsBytes}};
  notes["candidates"] = json::array();
  for (const LossChunk &candidate : candidates)
    notes["candidates"].push_back(
        {{"tokens", candidate.tokens},
         {"logits_bytes", candidate.logitsBytes},
         {"seconds_per_token", candidate.seconds / double(tokensPerStep)}});
  return notes;
}
