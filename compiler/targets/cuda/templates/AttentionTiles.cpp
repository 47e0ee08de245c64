// Chooses the tile size of a flash attention kernel for a shape, by a cost model.
//
// A step multiplies one tile of queries with one tile of keys. It uses five units of an SM. The
// table gives the clock cycles for which each unit is busy. The tiles are [queries, headDim] and
// [keys, headDim], and `products` is the number of matrix products per step.
//   tensor cores   2 products queries keys headDim / (FLOPs per clock)
//   shared memory  512 bytes per ldmatrix and the two tiles that are copied, at 128 bytes per clock
//   L2 cache       the two tiles that are copied, at chip.cacheBytesPerClock for all SMs
//   exponentials   queries keys / 16
//   issue          instructions / 4
// With w warps on each of the SM's four schedulers, the busiest unit hides all but 1/w of the
// cycles of the other units:
//   step = most + (sum - most) / w
// `most` is the number of cycles of the busiest unit; `sum` adds up all units. `step` is then
// multiplied by a measured factor, chip.attentionShare. A thread block takes (number of its steps)
// x `step` x (number of blocks on its SM) cycles. Each block starts, in order, once an SM has room.
//
// Plain kernels (attention_plain.cuh): in a step, a warp computes the scores of its row with the 32
// rows of a tile. Two units overlap as above: shared memory serves one instruction of a warp (a
// load, a store or a shuffle) per cycle, and the SM issues four instructions per cycle. With
// columns = ceil(headDim / 32), a step has these instructions:
//   for each product of rows by rows    headDim loads of the tile, headDim loads of the warp's row
//                                       (a quarter of them if 4 words can be loaded at once), and
//                                       headDim multiply-adds
//   for each product of scores by rows  32 shuffles, 32 columns loads of the tile, and 32 columns
//                                       multiply-adds
//   for the copy of the next two tiles  8 columns stores
//   for all else                        about 60, which do not use shared memory
// The blocks are short and many, so the model assumes that all SMs are busy until the end.
//
// With warpgroups, matrix products and copies run at the same time as other instructions. A step
// therefore has only two units in the formula above, where w is the number of warpgroups on an SM:
//   products   takes the cycles of the busiest of tensor cores, L2 cache and shared memory. Shared
//              memory moves the two copied tiles and the operands that the products read (2048
//              bytes for 64 rows and 16 terms).
//   threads    takes the cycles of the exponentials plus those of issue
// Here no warp is reserved for copies. Without such a warp, FlashAttention-3 is slower by a factor
// of 661/570 on an H100 (Shah et al., arXiv:2407.08608, table 2). The model uses this factor, which
// was not measured here.
#include "compiler/targets/cuda/templates/AttentionTemplates.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <map>

namespace lmc::codegen {

namespace {
// The numbers of the cost model that depend on the kernel (Forward, GradQueries, GradKeys).
struct PartModel {
  int scoreProducts; // products of rows by rows in a step: each score is a sum over headDim
  int sumProducts;   // products of scores by rows in a step: sums of rows, weighted by scores
  // A thread's instructions per score, without mma and ldmatrix, as counted in sm_90a code.
  double instructions;

  int products() const { return scoreProducts + sumProducts; }
};

} // namespace

static PartModel modelOf(AttentionPart part) {
  constexpr PartModel models[] = {{1, 1, 7}, {2, 1, 6}, {2, 2, 9}}; // indexed by AttentionPart
  return models[size_t(part)];
}

llvm::ArrayRef<AttentionPart> partsOfAttention(bool backward) {
  static constexpr AttentionPart kParts[] = {AttentionPart::Forward, AttentionPart::GradQueries,
                                             AttentionPart::GradKeys};
  return backward ? llvm::ArrayRef(kParts).drop_front() : llvm::ArrayRef(kParts).take_front();
}

int productsOf(AttentionPart part) { return modelOf(part).products(); }

llvm::ArrayRef<AttentionTile> attentionTiles() {
  using enum AttentionPart;
  using enum AttentionLimits;
  static const AttentionTile tiles[] = {
#define LMC_ATTENTION_TILE(...) {__VA_ARGS__},
#include "compiler/targets/cuda/templates/AttentionTiles.def"
#undef LMC_ATTENTION_TILE
  };
  return tiles;
}

int tileHeadDim(int64_t headDim) {
  if (headDim % 8 != 0 || (headDim > 128 && headDim % 16 != 0))
    return 0;
  int smallest = 0;
  for (const AttentionTile &tile : attentionTiles())
    if (tile.headDim >= headDim && (smallest == 0 || tile.headDim < smallest))
      smallest = tile.headDim;
  return smallest;
}

// Returns true if two warps (or warpgroups) of a tile of GradKeys compute the same keys.
static bool isInPairs(const AttentionTile &tile) {
  return tile.part == AttentionPart::GradKeys && tile.headDim > 128;
}

int64_t sharedBytesOf(const AttentionTile &tile, const AttentionShape &shape) {
  const int64_t words = shape.window > 0 || shape.documents ? 3 : 2;
  const int64_t pairBytes = isInPairs(tile) ? 4 * tile.queries * tile.keys : 0;
  // A warpgroup's tile is stored in panels of 64 columns. It starts at a multiple of 1024 bytes.
  const int64_t rowBytes =
      tile.warpgroups ? 128 * int64_t(llvm::divideCeil(tile.headDim, 64)) : 2 * tile.headDim;
  const int64_t padding = tile.warpgroups ? 1024 : 0;
  const int64_t queryBytes = rowBytes * tile.queries, keyBytes = rowBytes * tile.keys;
  switch (tile.part) {
  case AttentionPart::Forward:
    return padding + queryBytes + tile.stages * keyBytes;
  case AttentionPart::GradQueries:
    // Warpgroups keep lse in registers, not in shared memory.
    return padding + 2 * queryBytes + 2 * tile.stages * keyBytes +
           (tile.warpgroups ? 1 : 2) * 4 * tile.queries;
  case AttentionPart::GradKeys:
    return padding + 2 * keyBytes + tile.stages * (2 * queryBytes + words * 4 * tile.queries) +
           pairBytes;
  }
  llvm_unreachable("a part of attention");
}

// Returns the number of steps of tile `t`. A step visits one tile of keys (GradKeys: of queries).
static int64_t stepsOf(const AttentionTile &tile, const AttentionShape &shape, int64_t t) {
  if (tile.part == AttentionPart::GradKeys) {
    int64_t first = t * tile.keys, last = std::min(first + tile.keys, shape.seq) - 1;
    int64_t end = shape.window ? std::min(shape.seq, last + shape.window) : shape.seq;
    return shape.heads / shape.kvHeads *
           (int64_t(llvm::divideCeil(end, tile.queries)) - first / tile.queries);
  }
  int64_t first = t * tile.queries, last = std::min(first + tile.queries, shape.seq) - 1;
  int64_t lowest = shape.window ? std::max<int64_t>(0, first - shape.window + 1) : 0;
  return last / tile.keys + 1 - lowest / tile.keys;
}

// Returns the cycles of a step that keeps unit i busy for busy[i] cycles; `warps` is per scheduler.
static double overlapped(llvm::ArrayRef<double> busy, double warps) {
  double sum = 0, most = 0;
  for (double clocks : busy) {
    sum += clocks;
    most = std::max(most, clocks);
  }
  return most + (sum - most) / std::max(1.0, warps);
}

// Returns an SM's clock cycles for one step of one block, when `resident` blocks share the SM.
static double clocksOfStep(const AttentionTile &tile, const CudaChip &chip, int64_t resident) {
  PartModel model = modelOf(tile.part);
  double scores = double(tile.queries) * tile.keys;
  double flops = 2 * model.products() * scores * tile.headDim;
  bool byKeys = tile.part == AttentionPart::GradKeys;
  int own = byKeys ? tile.keys : tile.queries, other = byKeys ? tile.queries : tile.keys;
  double copied = 2.0 * 2 * other * tile.headDim;
  if (tile.warpgroups) {
    const double scoreSlices = double(model.scoreProducts) * tile.headDim / 16;
    const double sumSlices = double(model.sumProducts) * other / 16;
    const double read = own / 64 *
                        (scoreSlices * ((tile.inRegisters ? 0 : 2048) + 32 * other) +
                         sumSlices * 32 * tile.headDim);
    const double byProducts = std::max({flops / chip.warpgroupFlops, (read + copied) / 128,
                                        copied * chip.sms / chip.cacheBytesPerClock});
    const double byThreads = scores / 16 + model.instructions * scores / 32 / 4;
    const double groups = double(resident) * own / 64;
    return 661.0 / 570 * overlapped({byProducts, byThreads}, groups);
  }
  // A warp's ldmatrix instructions load the rows of the visited tile for every product. For
  // products that give scores, they also load the warp's own rows, unless registers hold these.
  int ofRows = isInPairs(tile) ? 2 : 1; // warps that share rows and split the products evenly
  int slices = tile.headDim / 16, bands = own / (16 * tile.warps / ofRows);
  int ownLoads = tile.inRegisters ? 0 : tile.part == AttentionPart::Forward ? 1 : 2;
  double loads =
      tile.warps / ofRows * slices * (ownLoads * bands + model.products() * (other / 16));
  double instructions = flops / 4096 + loads + model.instructions * scores / 32;
  double busy[] = {flops / chip.tensorFlops, (512 * loads + copied) / 128,
                   copied * chip.sms / chip.cacheBytesPerClock, scores / 16, instructions / 4};
  return overlapped(busy, double(resident) * tile.warps / 4) * chip.attentionShare;
}

// Returns the time at which the last thread block ends. Blocks start in order: first `count` blocks
// that take lengths[0], then `count` blocks of lengths[1], ... At most `places` run at a time.
static double endOf(llvm::ArrayRef<double> lengths, int64_t count, int64_t places) {
  // Places become free at few different times, because blocks of one length that start together end
  // together.
  std::map<double, int64_t> free = {{0.0, places}}; // time -> places
  double end = 0;
  for (double length : lengths)
    for (int64_t left = count; left > 0;) {
      auto [start, taken] = *free.begin();
      free.erase(free.begin());
      if (taken > left)
        free.emplace(start, taken - left);
      taken = std::min(taken, left);
      free[start + length] += taken;
      end = std::max(end, start + length);
      left -= taken;
    }
  return end;
}

AttentionEstimate estimate(const AttentionTile &tile, const AttentionShape &shape,
                           const CudaArch &arch) {
  bool byKeys = tile.part == AttentionPart::GradKeys;
  int64_t tiles = llvm::divideCeil(shape.seq, byKeys ? tile.keys : tile.queries);
  int64_t pairs = shape.batch * (byKeys ? shape.kvHeads : shape.heads);
  AttentionEstimate result;
  result.blocksPerSm = residentBlocks(arch, 32 * unsigned(tile.warps), unsigned(tile.registers),
                                      unsigned(sharedBytesOf(tile, shape)));
  if (result.blocksPerSm == 0)
    return result;

  double step = clocksOfStep(tile, arch.chip, result.blocksPerSm);
  std::vector<double> lengths;
  for (int64_t t = 0; t < tiles; ++t) {
    int64_t own = stepsOf(tile, shape, byKeys ? t : tiles - 1 - t);
    lengths.push_back(double(own) * step * double(result.blocksPerSm));
  }
  result.clocks = endOf(lengths, pairs, arch.chip.sms * result.blocksPerSm);
  return result;
}

int64_t plainSharedBytes(const AttentionShape &shape) {
  return 4 * (2 * 32 * (shape.headDim + 1) + 2 * kPlainWarps * shape.headDim);
}

double plainClocks(AttentionPart part, const AttentionShape &shape, const CudaArch &arch) {
  const PartModel model = modelOf(part);
  const bool byKeys = part == AttentionPart::GradKeys;
  const double columns = double(llvm::divideCeil(shape.headDim, 32));
  const double rowWords = double(shape.headDim) * (shape.headDim % 4 == 0 ? 0.25 : 1);
  const double words =
      model.scoreProducts * double(shape.headDim) + model.sumProducts * 32 * columns;
  const double shared =
      words + model.scoreProducts * rowWords + model.sumProducts * 32 + 8 * columns;
  const double busy[] = {shared, (shared + words + 60) / 4};
  const unsigned resident =
      residentBlocks(arch, 32 * kPlainWarps, kPlainRegisters, unsigned(plainSharedBytes(shape)));
  const double warpStep = overlapped(busy, double(resident) * kPlainWarps / 4);

  // A plain kernel's block has as many steps as a tile of kPlainWarps rows with 32 visited rows.
  AttentionTile rows{};
  rows.part = part;
  rows.queries = byKeys ? 32 : kPlainWarps;
  rows.keys = byKeys ? kPlainWarps : 32;
  int64_t steps = 0;
  for (int64_t t = 0; t < int64_t(llvm::divideCeil(shape.seq, kPlainWarps)); ++t)
    steps += stepsOf(rows, shape, t);
  const double pairs = double(shape.batch * (byKeys ? shape.kvHeads : shape.heads));
  return double(steps) * pairs * kPlainWarps * warpStep / arch.chip.sms;
}

bool AttentionTile::isFor(const AttentionShape &shape, const CudaArch &arch) const {
  if (headDim != tileHeadDim(shape.headDim) || (warpgroups && !arch.hasWarpgroups()))
    return false;
  if (limits == AttentionLimits::None)
    return true;
  const bool whole = !shape.documents && shape.seq % queries == 0 && shape.seq % keys == 0 &&
                     shape.headDim == headDim;
  return whole &&
         (limits == AttentionLimits::Whole || shape.window == 0 || shape.window >= shape.seq);
}

bool hasTiles(const AttentionShape &shape) {
  if (shape.type != DataType::BF16 || tileHeadDim(shape.headDim) == 0)
    return false;
  // A pitch of 0 means rows without gaps: heads (or kvHeads) * headDim elements, a multiple of 8.
  const int64_t pitches[] = {shape.qPitch,    shape.kPitch,  shape.vPitch,  shape.outPitch,
                             shape.doutPitch, shape.dqPitch, shape.dkPitch, shape.dvPitch};
  return llvm::all_of(pitches, [](int64_t pitch) { return pitch % 8 == 0; });
}

const AttentionTile *chooseAttentionTile(AttentionPart part, const AttentionShape &shape,
                                         const CudaArch &arch) {
  if (!hasTiles(shape))
    return nullptr;
  const AttentionTile *best = nullptr;
  double fewest = 0;
  for (const AttentionTile &tile : attentionTiles()) {
    if (tile.part != part || !tile.isFor(shape, arch))
      continue;
    AttentionEstimate cost = estimate(tile, shape, arch);
    if (cost.blocksPerSm > 0 && (!best || cost.clocks < fewest)) {
      best = &tile;
      fewest = cost.clocks;
    }
  }
  return best;
}

} // namespace lmc::codegen
