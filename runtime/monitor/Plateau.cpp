#include "runtime/monitor/Plateau.h"

#include <cmath>
#include <span>

namespace lmc {

static constexpr size_t kMostBlocks = 32, kLeastBlocks = 16;
static constexpr size_t kWindows = 8; // a window is an eighth of the blocks
// Numbers of standard errors. A plateau needs more to end than to begin, so noise does not end it.
static constexpr double kCertain = 3, kCertainEnd = 5;

using Block = PlateauState::Block;

// Returns `blocks` merged into one block (Chan et al. 1979, formula 1.5).
static Block together(std::span<const Block> blocks) {
  Block all;
  for (const Block &block : blocks) {
    const auto n = static_cast<double>(all.count), m = static_cast<double>(block.count);
    const double difference = block.mean - all.mean;
    all.count += block.count;
    all.mean += difference * m / (n + m);
    all.squares += block.squares + difference * difference * n * m / (n + m);
  }
  return all;
}

// Returns the squared standard error of the block's mean.
static double errorOf(const Block &block) {
  const auto n = static_cast<double>(block.count);
  return block.squares / (n - 1) / n;
}

std::optional<Plateau> observePlateau(PlateauState &state, double loss, double fall) {
  std::vector<Block> &blocks = state.blocks;
  if (blocks.empty() || blocks.back().count == state.length)
    blocks.emplace_back();
  const Block one{1, loss, 0};
  const Block parts[] = {blocks.back(), one};
  blocks.back() = blocks.back().count == 0 ? one : together(parts);
  if (blocks.back().count < state.length)
    return std::nullopt;

  std::optional<Plateau> plateau;
  if (blocks.size() >= kLeastBlocks) {
    const size_t window = blocks.size() / kWindows;
    const std::span all(blocks);
    const Block latest = together(all.last(window));
    const Block before = together(all.last(2 * window).first(window));
    const double error = std::sqrt(errorOf(before) + errorOf(latest));
    const double fallen = before.mean - latest.mean;
    if (fallen > kCertainEnd * error && fallen >= fall * latest.mean)
      state.reported = false;
    else if (!state.reported && fallen + kCertain * error < fall * latest.mean) {
      state.reported = true;
      plateau = {before.mean, latest.mean, latest.count};
    }
  }
  if (blocks.size() == kMostBlocks) {
    for (size_t i = 0; i < kMostBlocks / 2; ++i)
      blocks[i] = together(std::span(blocks).subspan(2 * i, 2));
    blocks.resize(kMostBlocks / 2);
    state.length *= 2;
  }
  return plateau;
}

} // namespace lmc
