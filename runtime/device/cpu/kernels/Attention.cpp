// The forward pass of attention, which never stores the matrix of scores (Dao et al.,
// FlashAttention, arXiv:2205.14135; the online softmax is by Milakov and Gimelshein,
// arXiv:1805.02867).
//
// A task is one block of kQueries queries of one head. It loops over blocks of keys. For each query
// q it keeps the largest score m, the sum l of exponentials and the unnormalised output O. A block
// of keys k_j and values v_j changes them to m', l' and O':
//   s_j = scale q.k_j          m' = max(m, max_j s_j)      c = exp(m - m')
//   l' = c l + sum_j exp(s_j - m')        O' = c O + sum_j exp(s_j - m') v_j
// Queries, scores and output are stored transposed, with queries in the lanes of a register. The
// maximum and the sum then need no operation across lanes, and the elements of K and V are
// broadcast directly from memory. Scores are divided by ln 2, so that each exponential is 2^x.
#include "runtime/device/cpu/kernels/Block.h"
#include "runtime/device/cpu/kernels/Functions.h"
#include "runtime/device/cpu/kernels/Micro.h"

namespace lmc::cpu::LMC_ISA {
namespace {

constexpr int64_t kQueries = 64;
constexpr int64_t kKeys = 64;
// This is lower than every score, but finite, so that m - m' is never infinity minus infinity.
constexpr double kLowestScore = -1e30;
constexpr double kLog2E = 1.4426950408889634074;
constexpr double kLn2 = 0.69314718055994530942;

// The scratch memory of one task. The comments give shapes. `lanes` is the number of lanes of two
// vector registers. A panel is `lanes` queries. `leading` is the length of a padded row.
template <typename R> struct ForwardScratch {
  R *queries;       // [panel][headDim][lanes]: q times scale / ln 2
  R *output;        // [panel][headDim][lanes], unnormalised
  R *keys, *values; // [kKeys][leading]
  R *scores;        // [kKeys][lanes], of one panel
  R *largest, *sum; // [kQueries]
  typename VectorOf<R>::Lane *firstKeys; // [kQueries]: the first key that each query sees
  R *finished;      // [lanes][leading]
  int64_t leading;

  ForwardScratch(void *memory, int64_t headDim) {
    Scratch scratch{static_cast<char *>(memory)};
    // A row has an odd number of cache lines, so that the rows start in many different cache sets.
    leading = roundUp(headDim, 2 * 64 / int64_t(sizeof(R))) + 64 / int64_t(sizeof(R));
    queries = scratch.take<R>(headDim * kQueries);
    output = scratch.take<R>(headDim * kQueries);
    keys = scratch.take<R>(kKeys * leading);
    values = scratch.take<R>(kKeys * leading);
    scores = scratch.take<R>(kKeys * kTileColumns<R>);
    largest = scratch.take<R>(kQueries);
    sum = scratch.take<R>(kQueries);
    firstKeys = scratch.take<typename VectorOf<R>::Lane>(kQueries);
    finished = scratch.take<R>(kTileColumns<R> * leading);
    bytes = scratch.at - static_cast<char *>(memory);
  }
  int64_t bytes;
};

} // namespace

static int64_t attentionTasks(const AttentionArgs &args) {
  return args.batch * args.heads * ((args.seq + kQueries - 1) / kQueries);
}

template <typename T> static size_t attentionScratch(const AttentionArgs &args) {
  return size_t(ForwardScratch<Arithmetic<T>>(nullptr, args.headDim).bytes);
}

template <typename T>
static void attentionRun(const AttentionArgs &args, int64_t task, void *memory) {
  using R = Arithmetic<T>;
  constexpr int kLanes = kTileColumns<R>;
  static_assert(kQueries % kLanes == 0);
  const int64_t seq = args.seq, headDim = args.headDim;
  const int64_t pairs = args.batch * args.heads;
  // The tasks with the last queries come first: these queries see the most keys and take longest.
  const int64_t block = (seq + kQueries - 1) / kQueries - 1 - task / pairs;
  const int64_t batch = task % pairs / args.heads, head = task % pairs % args.heads;
  const int64_t kvHead = head / (args.heads / args.kvHeads);
  const int64_t outLeading = args.heads * headDim;
  const T *q = static_cast<const T *>(args.q) + batch * seq * args.qPitch + head * headDim;
  const T *k = static_cast<const T *>(args.k) + batch * seq * args.kPitch + kvHead * headDim;
  const T *v = static_cast<const T *>(args.v) + batch * seq * args.vPitch + kvHead * headDim;
  T *out = static_cast<T *>(args.out) + batch * seq * outLeading + head * headDim;
  R *lse = static_cast<R *>(args.lse) + batch * seq * args.heads + head;

  ForwardScratch<R> scratch(memory, headDim);
  const int64_t first = block * kQueries;
  const int64_t count = lesser(kQueries, seq - first);
  const int64_t panels = (count + kLanes - 1) / kLanes;
  for (int64_t panel = 0; panel < panels; ++panel) {
    int64_t at = first + panel * kLanes;
    transposeBlock(q + at * args.qPitch, args.qPitch, lesser(kLanes, seq - at), headDim, kLanes,
                   R(args.scale * kLog2E), scratch.queries + panel * headDim * kLanes, kLanes);
    R *output = scratch.output + panel * headDim * kLanes;
    for (int64_t i = 0; i < headDim * kLanes; i += kWidth<R>)
      store(output + i, V<R>{});
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      scratch.largest[panel * kLanes + lane] = R(kLowestScore);
      scratch.sum[panel * kLanes + lane] = 0;
      // A lane after the sequence's end has no query. It takes the last query's first visible key.
      scratch.firstKeys[panel * kLanes + lane] = typename VectorOf<R>::Lane(
          firstVisibleKey(args, batch, lesser(at + lane, seq - 1)));
    }
  }

  const int64_t firstKey = scratch.firstKeys[0] / kKeys * kKeys;
  for (int64_t key = firstKey; key < first + count; key += kKeys) {
    const int64_t keys = lesser(kKeys, seq - key);
    copyBlock(k + key * args.kPitch, args.kPitch, keys, headDim, headDim, scratch.keys,
              scratch.leading);
    copyBlock(v + key * args.vPitch, args.vPitch, keys, headDim, headDim, scratch.values,
              scratch.leading);
    for (int64_t panel = 0; panel < panels; ++panel) {
      // The panel has queries `low` to `high`. They see only keys [from, to) of the block of keys.
      const int64_t low = first + panel * kLanes;
      const int64_t high = lesser(low + kLanes, seq) - 1;
      const int64_t to = lesser(keys, high + 1 - key);
      const auto *firstKeys = scratch.firstKeys + panel * kLanes;
      const int64_t from = greater(0, firstKeys[0] - key);
      if (from >= to)
        continue;
      R *scores = scratch.scores;
      multiplyTiles<Layout::RowMajor>(to - from, kLanes, scratch.keys + from * scratch.leading,
                                      scratch.leading, scratch.queries + panel * headDim * kLanes,
                                      kLanes, scores, kLanes, false,
                                      [&](int64_t, int64_t, int64_t, int64_t) {
                                        return DepthRange{0, headDim};
                                      });

      if (key + to - 1 > low || firstKeys[high - low] > key + from)
        for (int64_t j = 0; j < to - from; ++j)
          for (int half = 0; half < 2; ++half) {
            using Lane = typename VectorOf<R>::Lane;
            const VInt<R> query = iota<R>() + Lane(low + half * kWidth<R>);
            VInt<R> seenFrom;
            memcpy(&seenFrom, firstKeys + half * kWidth<R>, sizeof(seenFrom));
            const Lane at = Lane(key + from + j);
            VInt<R> visible = (query >= at) & (seenFrom <= at);
            R *row = scores + j * kLanes + half * kWidth<R>;
            store(row, visible ? load(row) : splat(R(-__builtin_inf())));
          }

      R *output = scratch.output + panel * headDim * kLanes;
      V<R> rescale[2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        R *column = scores + half * kWidth<R>;
        R *largest = scratch.largest + panel * kLanes + half * kWidth<R>;
        R *sum = scratch.sum + panel * kLanes + half * kWidth<R>;
        V<R> before = load(largest), most = before;
        for (int64_t j = 0; j < to - from; ++j)
          most = maximum<R>(most, load(column + j * kLanes));
        V<R> total{};
        for (int64_t j = 0; j < to - from; ++j) {
          V<R> weight = exp2<R>(load(column + j * kLanes) - most);
          store(column + j * kLanes, weight);
          total += weight;
        }
        rescale[half] = exp2<R>(before - most);
        store(largest, most);
        store(sum, load(sum) * rescale[half] + total);
      }
      for (int64_t d = 0; d < headDim; ++d)
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          R *at = output + d * kLanes + half * kWidth<R>;
          store(at, load(at) * rescale[half]);
        }
      multiplyTiles<Layout::ColumnMajor>(headDim, kLanes, scratch.values + from * scratch.leading,
                                         scratch.leading, scores, kLanes, output, kLanes, true,
                                         [&](int64_t, int64_t, int64_t, int64_t) {
                                           return DepthRange{0, to - from};
                                         });
    }
  }

  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t low = first + panel * kLanes;
    const int64_t lanes = lesser(kLanes, seq - low);
    R *output = scratch.output + panel * headDim * kLanes;
    V<R> inverse[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half)
      inverse[half] = R(1) / load(scratch.sum + panel * kLanes + half * kWidth<R>);
    for (int64_t d = 0; d < headDim; ++d)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        R *at = output + d * kLanes + half * kWidth<R>;
        store(at, load(at) * inverse[half]);
      }
    transposeBlock(output, kLanes, headDim, kLanes, headDim, R(1), scratch.finished,
                   scratch.leading);
    storeBlock(scratch.finished, scratch.leading, lanes, headDim, R(1), out + low * outLeading,
               outLeading);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      int64_t i = panel * kLanes + lane;
      lse[(low + lane) * args.heads] =
          R(double(scratch.largest[i]) * kLn2 + __builtin_log(double(scratch.sum[i])));
    }
  }
}

template <typename T> void addAttention(AttentionKernels &kernels) {
  kernels.tasks = attentionTasks;
  kernels.scratchBytes = attentionScratch<T>;
  kernels.run = attentionRun<T>;
}
template void addAttention<float>(AttentionKernels &);
template void addAttention<Bf16>(AttentionKernels &);
template void addAttention<double>(AttentionKernels &);

template <typename R> void exp2All(const R *x, R *e, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth<R>) {
    R block[kWidth<R>] = {};
    int64_t count = lesser(kWidth<R>, n - i);
    memcpy(block, x + i, size_t(count) * sizeof(R));
    store(block, exp2<R>(load(block)));
    memcpy(e + i, block, size_t(count) * sizeof(R));
  }
}
template void exp2All(const float *, float *, int64_t);
template void exp2All(const double *, double *, int64_t);

} // namespace lmc::cpu::LMC_ISA
