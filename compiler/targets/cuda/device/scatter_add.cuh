// Computes the gradient of an embedding: d[ids[t], :] = (or +=) the sum of x[t, :], in ascending
// order of t. A sort of the tokens by id makes the sums deterministic without atomics.
//
// The operands are ids i32 [rows], x (bf16, f32 or f64) [rows, columns] and d (f64 if x is f64,
// else f32) [vocabulary, columns]. An id outside of the vocabulary adds nothing: its key is
// `vocabulary`, which sorts last. compiler/targets/cuda/templates/ScatterAddLayout.h describes the
// sort and the workspace. All kernels have blocks of 256 threads.
#pragma once

#include "lmc/vector_io.cuh"

namespace lmc {

constexpr int kScatterThreads = 256, kScatterWarps = kScatterThreads / 32;
constexpr u32 kAllLanes = 0xffffffffu;

// Returns a mask of the lanes whose `valid` is true and whose `digit` is this lane's digit.
template <int Bits> __device__ inline u32 lanesWithDigit(u32 digit, bool valid) {
  u32 lanes = __ballot_sync(kAllLanes, valid);
#pragma unroll
  for (int bit = 0; bit < Bits; ++bit) {
    bool set = (digit >> bit) & 1;
    u32 votes = __ballot_sync(kAllLanes, set);
    lanes &= set ? votes : ~votes;
  }
  return lanes;
}

// Sorts pairs (key, token) by key, by a stable radix sort from the lowest digit up. A block sorts
// `Tile` consecutive positions. Each of its 8 warps sorts an eighth of them, of which lane l takes
// the elements l, l + 32, l + 64 and so on.
template <int Rows, int Vocabulary, int Tile, int DigitBits> struct TokenSort {
  static constexpr int kItems = Tile / kScatterThreads, kDigits = 1 << DigitBits;
  static constexpr int kTiles = (Rows + Tile - 1) / Tile;
  static_assert(kDigits / 4 <= kScatterThreads, "a thread sums at most four digits");

  __device__ static int position(int item) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return blockIdx.x * Tile + (warp * kItems + item) * 32 + lane;
  }
  __device__ static u32 keyOfId(i32 id) { return u32(id) < u32(Vocabulary) ? u32(id) : Vocabulary; }

  // Returns the counters of this thread's warp: one row of the u32 [8, kDigits] in shared memory.
  __device__ static u32 *counters() {
    return reinterpret_cast<u32 *>(sharedMemory()) + threadIdx.x / 32 * kDigits;
  }
  static constexpr int kSharedBytes = kScatterWarps * kDigits * 4;

  // Returns how many earlier keys of the warp have `digit`. Counts this thread's key if `valid`.
  __device__ static u32 rank(u32 digit, bool valid) {
    u32 *counter = counters() + digit;
    u32 lanes = lanesWithDigit<DigitBits>(digit, valid), lane = threadIdx.x % 32;
    u32 before = *counter;
    __syncwarp();
    if (valid && lanes >> lane == 1) // the last lane with this digit
      *counter = before + __popc(lanes);
    __syncwarp();
    return before + __popc(lanes & ((1u << lane) - 1));
  }

  __device__ static void clearCounters() {
    u32 *all = reinterpret_cast<u32 *>(sharedMemory());
    for (int i = threadIdx.x; i < kScatterWarps * kDigits; i += kScatterThreads)
      all[i] = 0;
    __syncthreads();
  }

  // Returns the key at position `at`. In the first pass (Shift 0), it is keyOfId(keys[at] - least).
  template <int Shift> __device__ static u32 loadKey(const void *keys, int at, i32 least = 0) {
    if constexpr (Shift == 0)
      return keyOfId(loadOne(static_cast<const i32 *>(keys) + at) - least);
    else
      return loadOne(static_cast<const u32 *>(keys) + at);
  }

  // Sets counts[tile, digit] to the number of keys in the tile whose digit at bit `Shift` is
  // `digit`. Grid: one block per tile, with kSharedBytes of shared memory.
  template <int Shift>
  __device__ static void count(const void *keys, u32 *counts, i32 least = 0) {
    clearCounters();
    u32 key[kItems];
#pragma unroll
    for (int item = 0; item < kItems; ++item)
      key[item] = position(item) < Rows ? loadKey<Shift>(keys, position(item), least) : 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item)
      rank(key[item] >> Shift & (kDigits - 1), position(item) < Rows);
    __syncthreads();
    if (threadIdx.x >= kDigits / 4)
      return;
    const u32 *mine = reinterpret_cast<const u32 *>(sharedMemory()) + 4 * threadIdx.x;
    Vec<u32, 4> sum = {};
    for (int warp = 0; warp < kScatterWarps; ++warp)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum.at[i] += mine[warp * kDigits + i];
    store(counts + i64(blockIdx.x) * kDigits + 4 * threadIdx.x, sum);
  }

  // Returns the sum of `value` over the block's earlier threads. `sums` is shared memory, u32 [8].
  __device__ static u32 sumBefore(u32 value, u32 *sums) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, inclusive = value;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      u32 other = __shfl_up_sync(kAllLanes, inclusive, distance);
      inclusive += int(lane) >= distance ? other : 0;
    }
    if (lane == 31)
      sums[warp] = inclusive;
    __syncthreads();
    u32 before = inclusive - value;
    for (u32 other = 0; other < warp; ++other)
      before += sums[other];
    return before;
  }

  // Replaces each warp's counter of a digit by the sorted position of its first key with the digit.
  __device__ static void findPlaces(const u32 *counts, u32 *sums) {
    Vec<u32, 4> total = {}, before = {};
    bool active = threadIdx.x < kDigits / 4;
    if (active) {
#pragma unroll 8
      for (int tile = 0; tile < kTiles; ++tile) {
        Vec<u32, 4> count = load<4>(counts + i64(tile) * kDigits + 4 * threadIdx.x);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          before.at[i] += tile < int(blockIdx.x) ? count.at[i] : 0;
          total.at[i] += count.at[i];
        }
      }
    }
    u32 smaller = sumBefore(total.at[0] + total.at[1] + total.at[2] + total.at[3], sums);
    if (active) {
      u32 *mine = reinterpret_cast<u32 *>(sharedMemory()) + 4 * threadIdx.x;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        u32 place = smaller + before.at[i];
        smaller += total.at[i];
        for (int warp = 0; warp < kScatterWarps; ++warp) {
          u32 count = mine[warp * kDigits + i];
          mine[warp * kDigits + i] = place;
          place += count;
        }
      }
    }
    __syncthreads();
  }

  // Moves the pairs of a tile to their positions in the order of the digit at bit `Shift`. In the
  // first pass, `keys` holds ids, and a pair's token is its position (`tokens` is not read). Grid:
  // one block per tile, with kSharedBytes + 32 bytes of shared memory.
  template <int Shift>
  __device__ static void move(const void *keys, const u32 *tokens, const u32 *counts,
                              u32 *sortedKeys, u32 *sortedTokens) {
    clearCounters();
    u32 key[kItems], token[kItems], ranks[kItems];
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      int at = position(item);
      key[item] = at < Rows ? loadKey<Shift>(keys, at) : 0;
      token[item] = at;
      if constexpr (Shift > 0)
        token[item] = at < Rows ? loadOne(tokens + at) : 0;
    }
#pragma unroll
    for (int item = 0; item < kItems; ++item)
      ranks[item] = rank(key[item] >> Shift & (kDigits - 1), position(item) < Rows);
    __syncthreads();
    findPlaces(counts, reinterpret_cast<u32 *>(sharedMemory() + kSharedBytes));
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      if (position(item) >= Rows)
        continue;
      u32 place = counters()[key[item] >> Shift & (kDigits - 1)] + ranks[item];
      storeOne(sortedKeys + place, key[item]);
      storeOne(sortedTokens + place, token[item]);
    }
  }
};

template <typename T> struct SumOf { using Type = float; };
template <> struct SumOf<double> { using Type = double; };
__device__ inline float widened(bf16 x) { return toFloat(x); }
__device__ inline float widened(float x) { return x; }
__device__ inline double widened(double x) { return x; }

// The largest power of two up to `Most` that divides `Columns`, so that vectors are aligned.
template <int Columns, int Most> struct VectorWidth {
  static constexpr int value = Most == 1 || Columns % Most == 0
                                   ? Most
                                   : VectorWidth<Columns, (Most > 1 ? Most / 2 : 1)>::value;
};
template <int Columns> struct VectorWidth<Columns, 1> { static constexpr int value = 1; };

// Columns [column, column + 32 * Width) of a row of sums, in the registers of a warp. Lane l holds
// Width elements from column + Width * l on. If these take 32 bytes, lanes 2i and 2i + 1 exchange
// halves around each load and store, so that the warp always accesses whole 32-byte sectors.
template <typename Sum, int Width, int Columns> struct RowStretch {
  static constexpr bool kPaired = Width * sizeof(Sum) == 32;
  static constexpr int kHalf = Width / 2;

  // Exchanges halves within each pair of lanes: the first lane gets the first halves of both lanes'
  // elements, the second lane the second halves. A second exchange undoes the first.
  __device__ static Vec<Sum, Width> exchange(const Vec<Sum, Width> &mine) {
    bool odd = threadIdx.x & 1;
    Vec<Sum, Width> result;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      Sum sent = odd ? mine.at[i] : mine.at[kHalf + i];
      Sum received = __shfl_xor_sync(kAllLanes, sent, 1);
      result.at[i] = odd ? received : mine.at[i];
      result.at[kHalf + i] = odd ? mine.at[kHalf + i] : received;
    }
    return result;
  }

  // Returns the first column that this lane accesses when halves are exchanged. Both lanes of a
  // pair first access the elements of lane 2i, half each, and then those of lane 2i + 1.
  __device__ static int firstHalf(int column) {
    int lane = threadIdx.x % 32;
    return column + (lane & ~1) * Width + (lane & 1) * kHalf;
  }

  __device__ static Vec<Sum, Width> load(const Sum *row, int column) {
    Vec<Sum, Width> sums = {};
    if constexpr (kPaired) {
      int at = firstHalf(column);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (at + half * Width < Columns) {
          Vec<Sum, kHalf> part = lmc::load<kHalf>(row + at + half * Width);
#pragma unroll
          for (int i = 0; i < kHalf; ++i)
            sums.at[half * kHalf + i] = part.at[i];
        }
      return exchange(sums);
    } else {
      int at = column + int(threadIdx.x % 32) * Width;
      return at < Columns ? lmc::load<Width>(row + at) : sums;
    }
  }

  __device__ static void store(Sum *row, int column, const Vec<Sum, Width> &sums) {
    if constexpr (kPaired) {
      Vec<Sum, Width> exchanged = exchange(sums);
      int at = firstHalf(column);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Vec<Sum, kHalf> part;
#pragma unroll
        for (int i = 0; i < kHalf; ++i)
          part.at[i] = exchanged.at[half * kHalf + i];
        if (at + half * Width < Columns)
          lmc::store(row + at + half * Width, part);
      }
    } else {
      int at = column + int(threadIdx.x % 32) * Width;
      if (at < Columns)
        lmc::store(row + at, sums);
    }
  }
};

// Sums rows of x over sorted pairs. keys and tokens are u32 [Rows], partials [kRanges, Columns].
template <typename X, int Rows, int Columns, int Vocabulary, int Range, bool Accumulate>
struct RowSums {
  using Sum = typename SumOf<X>::Type;
  static constexpr int kRanges = (Rows + Range - 1) / Range;
  static_assert(Range == 64, "a lane holds two pairs");

  // The elements per vector in addRanges, where a warp sums one range in 32 * kWidth columns.
  static constexpr int kWidth = VectorWidth<Columns, 16 / int(sizeof(X))>::value;
  static constexpr int kStretches = (Columns + 32 * kWidth - 1) / (32 * kWidth);
  // The elements per vector in addPartials, where a warp sums one run in 32 * kSumWidth columns.
  static constexpr int kSumWidth = VectorWidth<Columns, 16 / int(sizeof(Sum))>::value;
  static constexpr int kSumStretches = (Columns + 32 * kSumWidth - 1) / (32 * kSumWidth);
  static constexpr int kInFlight = Accumulate ? 4 : 8; // number of rows that are loaded at a time

  __device__ static u32 keyAt(const u32 *keys, int position) {
    return position < Rows ? loadOne(keys + position) : u32(Vocabulary);
  }

  // Adds up each run of equal keys that begins in range r, as far as the end of the range, and
  // stores the sum to d. With Accumulate, the sum starts from the value in d. If a run of an
  // earlier range continues in range r, its sum over range r goes to row r of `partials`.
  __device__ static void addRanges(const X *x, const u32 *keys, const u32 *tokens, Sum *partials,
                                   Sum *d) {
    using Stretch = RowStretch<Sum, kWidth, Columns>;
    int lane = threadIdx.x % 32, item = blockIdx.x * kScatterWarps + threadIdx.x / 32;
    int range = item / kStretches, column = item % kStretches * 32 * kWidth;
    if (range >= kRanges)
      return;
    int begin = range * Range, mine = column + lane * kWidth;
    u32 laneKeys[2], laneTokens[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int at = begin + half * 32 + lane;
      laneKeys[half] = keyAt(keys, at);
      laneTokens[half] = at < Rows ? loadOne(tokens + at) : 0;
    }

    u32 run = range > 0 ? loadOne(keys + begin - 1) : u32(Vocabulary);
    Sum *target = nullptr; // the row to which the sum of the current run is stored
    if (run < Vocabulary && __shfl_sync(kAllLanes, laneKeys[0], 0) == run)
      target = partials + i64(range) * Columns;
    Vec<Sum, kWidth> sums = {};
    for (int group = 0; group < Range; group += kInFlight) {
      u32 key[kInFlight];
      Vec<X, kWidth> row[kInFlight];
      Vec<Sum, kWidth> old[Accumulate ? kInFlight : 1];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        int from = (group + i) % 32;
        key[i] = __shfl_sync(kAllLanes, group < 32 ? laneKeys[0] : laneKeys[1], from);
        u32 token = __shfl_sync(kAllLanes, group < 32 ? laneTokens[0] : laneTokens[1], from);
        if (key[i] < Vocabulary && mine < Columns)
          row[i] = load<kWidth>(x + i64(token) * Columns + mine);
        if constexpr (Accumulate)
          if (key[i] < Vocabulary && key[i] != (i ? key[i - 1] : run))
            old[i] = Stretch::load(d + i64(key[i]) * Columns, column);
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (key[i] >= Vocabulary)
          break;
        if (key[i] != run) {
          if (target)
            Stretch::store(target, column, sums);
          run = key[i];
          target = d + i64(run) * Columns;
          if constexpr (Accumulate)
            sums = old[i];
          else
            sums = {};
        }
        if (mine < Columns)
#pragma unroll
          for (int j = 0; j < kWidth; ++j)
            sums.at[j] += widened(row[i].at[j]);
      }
      if (key[kInFlight - 1] >= Vocabulary)
        break;
    }
    if (target)
      Stretch::store(target, column, sums);
  }

  // Adds the partial sums of each run that lies in several ranges to the run's row of d, in
  // ascending order of the ranges. The warp of the run's second range does this work.
  __device__ static void addPartials(const u32 *keys, const Sum *partials, Sum *d) {
    using Stretch = RowStretch<Sum, kSumWidth, Columns>;
    int lane = threadIdx.x % 32, item = blockIdx.x * kScatterWarps + threadIdx.x / 32;
    int first = 1 + item / kSumStretches, column = item % kSumStretches * 32 * kSumWidth;
    if (first >= kRanges)
      return;
    u32 run = loadOne(keys + first * Range);
    if (run >= Vocabulary || loadOne(keys + first * Range - 1) != run ||
        (first > 1 && loadOne(keys + (first - 1) * Range - 1) == run))
      return;
    Sum *target = d + i64(run) * Columns;
    Vec<Sum, kSumWidth> sums = Stretch::load(target, column);
    for (int begin = first;; begin += 32) {
      // Keys ascend, so the ranges whose first key is the run's key are consecutive.
      bool inside = begin + lane < kRanges && loadOne(keys + (begin + lane) * Range) == run;
      int count = __popc(__ballot_sync(kAllLanes, inside));
      constexpr int kGroup = 8;
      for (int group = 0; group < count; group += kGroup) {
        Vec<Sum, kSumWidth> part[kGroup];
#pragma unroll
        for (int i = 0; i < kGroup; ++i)
          if (group + i < count)
            part[i] = Stretch::load(partials + i64(begin + group + i) * Columns, column);
#pragma unroll
        for (int i = 0; i < kGroup; ++i)
          if (group + i < count)
#pragma unroll
            for (int j = 0; j < kSumWidth; ++j)
              sums.at[j] += part[i].at[j];
      }
      if (count < 32)
        break;
    }
    Stretch::store(target, column, sums);
  }

  // Returns true if `key` is one of the sorted keys.
  __device__ static bool occurs(const u32 *keys, u32 key) {
    int low = 0, high = Rows; // first position with a key >= `key` is in [low, high]
    while (low < high) {
      int middle = (low + high) / 2;
      if (loadOne(keys + middle) < key)
        low = middle + 1;
      else
        high = middle;
    }
    return low < Rows && loadOne(keys + low) == key;
  }

  static constexpr int kZeroRows = 8; // number of rows that a warp checks

  // Sets to zero the rows of d whose id does not occur. Each warp checks kZeroRows rows.
  __device__ static void zeroOthers(const u32 *keys, Sum *d) {
    using Stretch = RowStretch<Sum, kSumWidth, Columns>;
    int lane = threadIdx.x % 32, warp = blockIdx.x * kScatterWarps + threadIdx.x / 32;
    i64 first = i64(warp) * kZeroRows;
    bool absent = lane < kZeroRows && first + lane < Vocabulary && !occurs(keys, u32(first + lane));
    u32 rows = __ballot_sync(kAllLanes, absent);
    for (int row = 0; row < kZeroRows; ++row)
      if (rows >> row & 1)
        for (int stretch = 0; stretch < kSumStretches; ++stretch)
          Stretch::store(d + (first + row) * Columns, stretch * 32 * kSumWidth, {});
  }
};

} // namespace lmc
