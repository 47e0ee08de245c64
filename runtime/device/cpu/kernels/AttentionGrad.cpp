// Computes the gradients of attention. The probabilities P are recomputed block by block from the
// saved log-sum-exp (FlashAttention-2, arXiv:2307.08691, algorithm 2). With P_ij = exp(scale
// q_i.k_j - lse_i) and D_i = sum_d dout_id out_id:
//   dV = P^T dout            dP = dout V^T         dS = P * (dP - D)
//   dQ = scale dS K          dK = scale dS^T Q
// If the arguments have tables of the rotary embedding, dQ and dK are rotated back at the end,
// before they are rounded.
//
// A task is one key/value head of one sequence, with all query heads that share it. It finishes dK
// and dV of a block of keys before the next block begins, and sums dQ over blocks of keys in memory
// (in f32 for bf16). No two tasks add to one sum, so every run gives the same bits.
#include "runtime/device/cpu/kernels/Block.h"
#include "runtime/device/cpu/kernels/Functions.h"
#include "runtime/device/cpu/kernels/Micro.h"

namespace lmc::cpu::LMC_ISA {
namespace {

constexpr int64_t kQueries = 64;
constexpr int64_t kKeys = 64;
constexpr double kLog2E = 1.4426950408889634074;

// The scratch memory of one task, with shapes. The top of this file defines P, dP, dS and D.
template <typename R> struct BackwardScratch {
  // A row has an odd number of cache lines, so that the rows start in many different cache sets.
  static constexpr int64_t kLine = 64 / int64_t(sizeof(R));
  static constexpr int64_t kKeyLeading = kKeys + kLine;
  int64_t leading;         // elements from one row to the next
  R *keys;                 // [kKeys][leading]
  R *keysAcross;           // [headDim][kKeyLeading]: k times scale / ln 2
  R *valuesAcross;         // [headDim][kKeyLeading]
  R *keyGrad, *valueGrad;  // [kKeys][leading]
  R *queries, *outputGrad; // [kQueries][leading]
  R *weights, *scoreGrad;  // [kQueries][kKeyLeading]: `weights` is P; `scoreGrad` is dP, then dS
  R *queryGrad;            // [kQueries][leading]
  R *lse, *correction;     // [query heads][seq]: `lse` has lse / ln 2, `correction` has D
  int32_t *firstKeys;      // [seq]: the first key that each query sees
  int32_t *queryEnds;      // [seq]: 1 + the last query that sees each key
  int64_t bytes;

  BackwardScratch(void *memory, const AttentionGradArgs &args) {
    Scratch scratch{static_cast<char *>(memory)};
    leading = roundUp(args.headDim, 2 * kLine) + kLine;
    keys = scratch.take<R>(kKeys * leading);
    keysAcross = scratch.take<R>(args.headDim * kKeyLeading);
    valuesAcross = scratch.take<R>(args.headDim * kKeyLeading);
    keyGrad = scratch.take<R>(kKeys * leading);
    valueGrad = scratch.take<R>(kKeys * leading);
    queries = scratch.take<R>(kQueries * leading);
    outputGrad = scratch.take<R>(kQueries * leading);
    weights = scratch.take<R>(kQueries * kKeyLeading);
    scoreGrad = scratch.take<R>(kQueries * kKeyLeading);
    queryGrad = scratch.take<R>(kQueries * leading);
    int64_t rows = args.heads / args.kvHeads * args.seq;
    lse = scratch.take<R>(rows);
    correction = scratch.take<R>(rows);
    firstKeys = scratch.take<int32_t>(args.seq);
    queryEnds = scratch.take<int32_t>(args.seq);
    bytes = scratch.at - static_cast<char *>(memory);
  }
};

// Computes lse / ln 2 and D for every query of one head in one sequence.
template <typename T, typename R>
void prepareRows(const AttentionGradArgs &args, const T *out, const T *dout, const R *lse, R *lseTo,
                 R *correctionTo) {
  const int64_t leading = args.heads * args.headDim;
  for (int64_t i = 0; i < args.seq; ++i) {
    lseTo[i] = R(double(lse[i * args.heads]) * kLog2E);
    const T *o = out + i * leading, *g = dout + i * leading;
    V<R> sums{};
    int64_t d = 0;
    for (; d + kWidth<R> <= args.headDim; d += kWidth<R>)
      sums += load(o + d) * load(g + d);
    R sum = 0;
    for (int lane = 0; lane < kWidth<R>; ++lane)
      sum += sums[lane];
    for (; d < args.headDim; ++d)
      sum += toReal(o[d]) * toReal(g[d]);
    correctionTo[i] = sum;
  }
}

// For sequence `batch`, computes the first key that each query sees, and 1 + the last query that
// sees each key. Both lists ascend.
void findVisible(const AttentionGradArgs &args, int64_t batch, int32_t *firstKeys,
                 int32_t *queryEnds) {
  int32_t largest = 0;
  for (int64_t i = 0; i < args.seq; ++i) {
    largest = int32_t(greater(largest, firstVisibleKey(args, batch, i)));
    firstKeys[i] = largest;
  }
  int64_t query = 0;
  for (int64_t key = 0; key < args.seq; ++key) {
    while (query < args.seq && firstKeys[query] <= key)
      ++query;
    queryEnds[key] = int32_t(query);
  }
}

// Applies the inverse of the rotary embedding to `rows` rows of `heads` heads, `leading` elements
// apart. The first row is the token at position `first` of its sequence.
template <typename R>
void rotateBack(const AttentionGradArgs &args, R *x, int64_t leading, int64_t rows, int64_t heads,
                int64_t first) {
  const int64_t half = args.headDim / 2;
  for (int64_t row = 0; row < rows; ++row) {
    const float *cosines = args.cos + (first + row) * half;
    const float *sines = args.sin + (first + row) * half;
    for (int64_t head = 0; head < heads; ++head) {
      R *low = x + row * leading + head * args.headDim, *high = low + half;
      for (int64_t i = 0; i < half; ++i) {
        const R a = low[i], b = high[i];
        low[i] = a * R(cosines[i]) + b * R(sines[i]);
        high[i] = b * R(cosines[i]) - a * R(sines[i]);
      }
    }
  }
}

} // namespace

static int64_t attentionGradTasks(const AttentionGradArgs &args) { return args.batch * args.kvHeads; }

template <typename T> static size_t attentionGradScratch(const AttentionGradArgs &args) {
  return size_t(BackwardScratch<Arithmetic<T>>(nullptr, args).bytes);
}

template <typename T>
static void attentionGradRun(const AttentionGradArgs &args, int64_t task, void *memory) {
  using R = Arithmetic<T>;
  using Lane = typename VectorOf<R>::Lane;
  constexpr bool kSeparateSum = sizeof(T) < sizeof(R);
  const int64_t seq = args.seq, headDim = args.headDim;
  const int64_t group = args.heads / args.kvHeads;
  const int64_t batch = task / args.kvHeads, kvHead = task % args.kvHeads;
  const int64_t outLeading = args.heads * headDim;
  const int64_t sumLeading = kSeparateSum ? outLeading : args.dqPitch;
  // These return the index of the first element of this task's heads in a tensor with `pitch`.
  auto queryStart = [&](int64_t pitch) {
    return batch * seq * pitch + kvHead * group * headDim;
  };
  auto keyStart = [&](int64_t pitch) { return batch * seq * pitch + kvHead * headDim; };
  const T *q = static_cast<const T *>(args.q) + queryStart(args.qPitch);
  const T *k = static_cast<const T *>(args.k) + keyStart(args.kPitch);
  const T *v = static_cast<const T *>(args.v) + keyStart(args.vPitch);
  const T *out = static_cast<const T *>(args.out) + queryStart(outLeading);
  const T *dout = static_cast<const T *>(args.dout) + queryStart(outLeading);
  const R *lse = static_cast<const R *>(args.lse) + batch * seq * args.heads + kvHead * group;
  T *dq = static_cast<T *>(args.dq) + queryStart(args.dqPitch);
  T *dk = static_cast<T *>(args.dk) + keyStart(args.dkPitch);
  T *dv = static_cast<T *>(args.dv) + keyStart(args.dvPitch);
  R *dqSum = static_cast<R *>(kSeparateSum ? args.workspace : args.dq) + queryStart(sumLeading);
  const R scale = R(args.scale);

  BackwardScratch<R> scratch(memory, args);
  const int64_t leading = scratch.leading;
  constexpr int64_t kKeyLeading = BackwardScratch<R>::kKeyLeading;
  const int64_t padded = roundUp(headDim, kWidth<R>);
  findVisible(args, batch, scratch.firstKeys, scratch.queryEnds);

  for (int64_t member = 0; member < group; ++member)
    prepareRows<T, R>(args, out + member * headDim, dout + member * headDim, lse + member,
                      scratch.lse + member * seq, scratch.correction + member * seq);
  for (int64_t i = 0; i < seq; ++i)
    memset(static_cast<void *>(dqSum + i * sumLeading), 0, size_t(group * headDim) * sizeof(R));

  for (int64_t key = 0; key < seq; key += kKeys) {
    const int64_t keys = lesser(kKeys, seq - key);
    const int64_t paddedKeys = roundUp(keys, kWidth<R>);
    copyBlock(k + key * args.kPitch, args.kPitch, keys, headDim, padded, scratch.keys, leading);
    transposeBlock(k + key * args.kPitch, args.kPitch, keys, headDim, paddedKeys,
                   R(args.scale * kLog2E), scratch.keysAcross, kKeyLeading);
    transposeBlock(v + key * args.vPitch, args.vPitch, keys, headDim, paddedKeys, R(1),
                   scratch.valuesAcross, kKeyLeading);
    memset(static_cast<void *>(scratch.keyGrad), 0, size_t(keys * leading) * sizeof(R));
    memset(static_cast<void *>(scratch.valueGrad), 0, size_t(keys * leading) * sizeof(R));

    // Queries that see none of the block's keys are skipped.
    const int64_t lastQuery = scratch.queryEnds[key + keys - 1];
    for (int64_t member = 0; member < group; ++member)
      for (int64_t query = key; query < lastQuery; query += kQueries) {
        const int64_t queries = lesser(kQueries, lastQuery - query);
        copyBlock(q + query * args.qPitch + member * headDim, args.qPitch, queries, headDim, padded,
                  scratch.queries, leading);
        copyBlock(dout + query * outLeading + member * headDim, outLeading, queries, headDim,
                  padded, scratch.outputGrad, leading);
        // Queries and keys are counted from the start of their blocks. Query r sees the keys from
        // firstColumn(r) to r + `ahead`. P, dP and dS have a row per query and a column per key.
        const int64_t ahead = query - key;
        auto firstColumn = [&](int64_t row) {
          return greater(0, scratch.firstKeys[query + row] - key);
        };
        const bool masked = ahead < keys - 1 || firstColumn(queries - 1) > 0 || keys != paddedKeys;

        // A register tile of P and dP is left out if none of its queries sees one of its keys.
        auto seen = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
          bool causal = column <= row + rows - 1 + ahead;
          return DepthRange{0, headDim, causal && column + columns > firstColumn(row)};
        };
        multiplyTiles<Layout::RowMajor>(queries, paddedKeys, scratch.queries, leading,
                                        scratch.keysAcross, kKeyLeading, scratch.weights,
                                        kKeyLeading, false, seen);
        multiplyTiles<Layout::RowMajor>(queries, paddedKeys, scratch.outputGrad, leading,
                                        scratch.valuesAcross, kKeyLeading, scratch.scoreGrad,
                                        kKeyLeading, false, seen);
        for (int64_t row = 0; row < queries; ++row) {
          const V<R> rowLse = splat(scratch.lse[member * seq + query + row]);
          const V<R> rowCorrection = splat(scratch.correction[member * seq + query + row]);
          R *weights = scratch.weights + row * kKeyLeading;
          R *scoreGrad = scratch.scoreGrad + row * kKeyLeading;
          if (!masked) {
            for (int64_t column = 0; column < paddedKeys; column += kWidth<R>) {
              V<R> weight = exp2<R>(load(weights + column) - rowLse);
              store(weights + column, weight);
              store(scoreGrad + column, weight * (load(scoreGrad + column) - rowCorrection));
            }
            continue;
          }
          // The query of this row sees columns (keys) [from, to). All other columns become zero.
          const int64_t from = firstColumn(row);
          const int64_t to = lesser(keys, row + ahead + 1);
          for (int64_t column = 0; column < paddedKeys; column += kWidth<R>) {
            if (column >= to || column + kWidth<R> <= from) {
              store(weights + column, V<R>{});
              store(scoreGrad + column, V<R>{});
              continue;
            }
            VInt<R> at = iota<R>() + Lane(column);
            VInt<R> visible = (at >= Lane(from)) & (at < Lane(to));
            V<R> weight = exp2<R>(load(weights + column) - rowLse);
            V<R> gradient = weight * (load(scoreGrad + column) - rowCorrection);
            store(weights + column, visible ? weight : V<R>{});
            store(scoreGrad + column, visible ? gradient : V<R>{});
          }
        }

        // dV += P^T dout and dK += dS^T Q. Each row is a key, and the sums run over queries.
        auto queriesOf = [&](int64_t row, int64_t rows, int64_t, int64_t) {
          int64_t to = lesser(queries, scratch.queryEnds[key + row + rows - 1] - query);
          return DepthRange{greater(0, row - ahead), to};
        };
        multiplyTiles<Layout::ColumnMajor>(keys, padded, scratch.weights, kKeyLeading,
                                           scratch.outputGrad, leading, scratch.valueGrad, leading,
                                           true, queriesOf);
        multiplyTiles<Layout::ColumnMajor>(keys, padded, scratch.scoreGrad, kKeyLeading,
                                           scratch.queries, leading, scratch.keyGrad, leading, true,
                                           queriesOf);
        // dQ = dS K. Each row is a query, and the sums run over keys.
        auto keysOf = [&](int64_t row, int64_t rows, int64_t, int64_t) {
          return DepthRange{firstColumn(row), lesser(keys, row + rows + ahead)};
        };
        multiplyTiles<Layout::RowMajor>(queries, padded, scratch.scoreGrad, kKeyLeading,
                                        scratch.keys, leading, scratch.queryGrad, leading, false,
                                        keysOf);
        for (int64_t row = 0; row < queries; ++row) {
          const R *part = scratch.queryGrad + row * leading;
          R *sum = dqSum + (query + row) * sumLeading + member * headDim;
          int64_t d = 0;
          for (; d + kWidth<R> <= headDim; d += kWidth<R>)
            store(sum + d, load(sum + d) + load(part + d) * scale);
          for (; d < headDim; ++d)
            sum[d] += part[d] * scale;
        }
      }
    if (args.cos)
      rotateBack(args, scratch.keyGrad, leading, keys, 1, key);
    storeBlock(scratch.keyGrad, leading, keys, headDim, scale, dk + key * args.dkPitch,
               args.dkPitch);
    storeBlock(scratch.valueGrad, leading, keys, headDim, R(1), dv + key * args.dvPitch,
               args.dvPitch);
  }
  if (args.cos)
    rotateBack(args, dqSum, sumLeading, seq, group, 0);
  if constexpr (kSeparateSum)
    storeBlock(dqSum, sumLeading, seq, group * headDim, R(1), dq, args.dqPitch);
}

template <typename T> void addAttentionBackward(AttentionKernels &kernels) {
  kernels.gradTasks = attentionGradTasks;
  kernels.gradScratchBytes = attentionGradScratch<T>;
  kernels.gradRun = attentionGradRun<T>;
}
template void addAttentionBackward<float>(AttentionKernels &);
template void addAttentionBackward<Bf16>(AttentionKernels &);
template void addAttentionBackward<double>(AttentionKernels &);

} // namespace lmc::cpu::LMC_ISA
