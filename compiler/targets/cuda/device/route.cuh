// The router of a mixture of experts, and its gradient. It takes the softmax or sigmoid of logits
// and each token's `chosen` largest results. A warp has one token, a lane every 32nd expert.
//
// A `Shape` describes the problem by constants:
//   int tokens, experts, chosen;
//   bool normalize;   the weights of a token add up to 1
//   bool sigmoid;     p is the sigmoid of each logit, and not the softmax of the row
//   bool bias;        an argument `bias` is added to p, but only to choose experts
//   double scale;     factor of the weights
//   bool mass;        only for the gradient: there is an argument `dmass`
//
// Among experts with equal probabilities, the one with the lower number comes first. A NaN comes
// before all other values. Sums over tokens do not depend on the order of blocks.
#pragma once

#include "lmc/expert_rows.cuh"

namespace lmc {

namespace experts {

constexpr int kTokensPerWarp = 8, kTokensPerBlock = kTokensPerWarp * kWarps;

// The lower limit of the sum of a token's chosen sigmoids, as in DeepSeek-V3's code; softmax: 0.
template <typename Shape> __device__ constexpr double leastSum() {
  return Shape::sigmoid ? 1e-20 : 0;
}

template <typename Real> __device__ inline Real warpSum(Real x) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2)
    x += __shfl_xor_sync(kFullWarp, x, other);
  return x;
}

// The probabilities of a token: p[i] is that of expert lane + 32 i, and 0 beyond the last expert.
template <typename Shape, typename Real> struct Probabilities {
  static constexpr int kOwn = (Shape::experts + 31) / 32;
  Real p[kOwn];

  __device__ static int expertOf(int i) { return int(threadIdx.x) % 32 + 32 * i; }

  template <typename T> __device__ void load(const T *logits, int token) {
    const T *row = logits + i64(token) * Shape::experts;
    if constexpr (Shape::sigmoid) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        p[i] = expertOf(i) < Shape::experts
                   ? 1 / (1 + exponential(-Real(toReal(loadOne(row + expertOf(i))))))
                   : Real(0);
      return;
    }
    Real top = -Real(attention::infinity()), sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      p[i] = expertOf(i) < Shape::experts ? Real(toReal(loadOne(row + expertOf(i))))
                                          : -Real(attention::infinity());
      top = p[i] > top ? p[i] : top;
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) {
      const Real theirs = __shfl_xor_sync(kFullWarp, top, other);
      top = theirs > top ? theirs : top;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      p[i] = expertOf(i) < Shape::experts ? exponential(p[i] - top) : Real(0);
      sum += p[i];
    }
    sum = warpSum(sum);
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      p[i] = p[i] / sum;
  }

  // Returns the probability of an expert. All lanes must pass the same expert.
  __device__ Real at(int expert) const {
    Real value = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      value = i == expert / 32 ? p[i] : value;
    return __shfl_sync(kFullWarp, value, expert % 32);
  }

  __device__ static bool isBefore(Real a, int expert, Real b, int other) {
    const bool aIsNumber = a == a, bIsNumber = b == b;
    if (aIsNumber && bIsNumber)
      return a > b || (a == b && expert < other);
    return aIsNumber == bIsNumber ? expert < other : bIsNumber;
  }

  // Returns the expert with the highest `score` that is not yet in `taken`, and adds it to `taken`.
  __device__ static int takeFirst(const Real (&score)[kOwn], u32 &taken) {
    Real best = -Real(attention::infinity());
    int expert = 0x7fffffff;
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (expertOf(i) < Shape::experts && !(taken >> i & 1) &&
          isBefore(score[i], expertOf(i), best, expert)) {
        best = score[i];
        expert = expertOf(i);
      }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) {
      const Real theirs = __shfl_xor_sync(kFullWarp, best, other);
      const int index = __shfl_xor_sync(kFullWarp, expert, other);
      if (isBefore(theirs, index, best, expert)) {
        best = theirs;
        expert = index;
      }
    }
    if (expert % 32 == int(threadIdx.x) % 32)
      taken |= 1u << expert / 32;
    return expert;
  }
};

} // namespace experts

// Sets the weights and experts of the tokens. Also stores, per block and expert, the sum of p and
// the number of choices: parts [blocks, 2, experts]. Grid: ceilDiv(tokens, kTokensPerBlock), with
// shared memory for 8 * 2 * experts Reals.
template <typename Shape, typename T>
__device__ inline void route(const T *logits, const typename experts::RealOf<T>::Type *bias,
                             typename experts::RealOf<T>::Type *weights, i32 *chosen,
                             typename experts::RealOf<T>::Type *parts) {
  using namespace experts;
  using Real = typename RealOf<T>::Type;
  using Row = Probabilities<Shape, Real>;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  Real mass[Row::kOwn] = {}, counts[Row::kOwn] = {};
  for (int each = 0; each < kTokensPerWarp; ++each) {
    const int token = (int(blockIdx.x) * kWarps + warp) * kTokensPerWarp + each;
    if (token >= Shape::tokens)
      break;
    Row row;
    row.load(logits, token);
    Real score[Row::kOwn];
#pragma unroll
    for (int i = 0; i < Row::kOwn; ++i) {
      score[i] = row.p[i];
      if constexpr (Shape::bias)
        if (Row::expertOf(i) < Shape::experts)
          score[i] += loadOne(bias + Row::expertOf(i));
    }
    u32 taken = 0;
    Real sum = Real(leastSum<Shape>()), own = 0; // `own`: the weight of choice `lane` (lane < 32)
    const i64 first = i64(token) * Shape::chosen;
    for (int j = 0; j < Shape::chosen; ++j) {
      const int expert = Row::takeFirst(score, taken);
      const Real weight = row.at(expert);
      sum += weight;
      if (lane == 0)
        storeOne(chosen + first + j, i32(expert));
      if constexpr (Shape::normalize) {
        own = lane == j ? weight : own;
      } else {
        if (lane == 0)
          storeOne(weights + first + j, Real(Shape::scale) * weight);
      }
    }
    if constexpr (Shape::normalize) {
      static_assert(Shape::chosen <= 32, "a lane keeps one weight");
      if (lane < Shape::chosen)
        storeOne(weights + first + lane, Real(Shape::scale) * (own / sum));
    }
    Real whole = 1;
    if constexpr (Shape::sigmoid) {
      whole = 0;
#pragma unroll
      for (int i = 0; i < Row::kOwn; ++i)
        whole += row.p[i];
      whole = warpSum(whole) + Real(leastSum<Shape>());
    }
#pragma unroll
    for (int i = 0; i < Row::kOwn; ++i) {
      mass[i] += row.p[i] / whole;
      counts[i] += Real(taken >> i & 1);
    }
  }
  Real *shared = reinterpret_cast<Real *>(sharedMemory());
#pragma unroll
  for (int i = 0; i < Row::kOwn; ++i)
    if (Row::expertOf(i) < Shape::experts) {
      shared[(warp * 2 + 0) * Shape::experts + Row::expertOf(i)] = mass[i];
      shared[(warp * 2 + 1) * Shape::experts + Row::expertOf(i)] = counts[i];
    }
  __syncthreads();
  for (int at = int(threadIdx.x); at < 2 * Shape::experts; at += kThreads) {
    Real sum = 0;
    for (int other = 0; other < kWarps; ++other)
      sum += shared[other * 2 * Shape::experts + at];
    storeOne(parts + i64(blockIdx.x) * 2 * Shape::experts + at, sum);
  }
}

// Sets counts and mass [experts] to sums of `parts` over blocks. Grid: ceilDiv(experts, kThreads).
template <typename Shape, typename Real>
__device__ inline void routeSums(const Real *parts, Real *counts, Real *mass) {
  using namespace experts;
  const int expert = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (expert >= Shape::experts)
    return;
  Real sums[2] = {};
#pragma unroll 4
  for (int block = 0; block < ceilDiv(Shape::tokens, kTokensPerBlock); ++block)
#pragma unroll
    for (int kind = 0; kind < 2; ++kind)
      sums[kind] += loadOne(parts + (i64(block) * 2 + kind) * Shape::experts + expert);
  storeOne(mass + expert, sums[0]);
  storeOne(counts + expert, sums[1]);
}

// Computes dlogits from dweights and, with Shape::mass, dmass. Grid: ceilDiv(tokens, 8).
template <typename Shape, typename T>
__device__ inline void routeGrad(const T *logits, const i32 *chosen,
                                 const typename experts::RealOf<T>::Type *dweights,
                                 const typename experts::RealOf<T>::Type *dmass, T *dlogits) {
  using namespace experts;
  using Real = typename RealOf<T>::Type;
  using Row = Probabilities<Shape, Real>;
  const int token = warpRow();
  if (token >= Shape::tokens)
    return;
  Row row;
  row.load(logits, token);
  Real dp[Row::kOwn];
#pragma unroll
  for (int i = 0; i < Row::kOwn; ++i) {
    dp[i] = 0;
    if constexpr (Shape::mass)
      if (Row::expertOf(i) < Shape::experts)
        dp[i] = loadOne(dmass + Row::expertOf(i));
  }
  const i64 first = i64(token) * Shape::chosen;
  Real sum = 1, along = 0;
  if constexpr (Shape::normalize) {
    sum = Real(leastSum<Shape>());
    for (int j = 0; j < Shape::chosen; ++j) {
      const Real p = row.at(loadOne(chosen + first + j));
      sum += p;
      along += Real(Shape::scale) * loadOne(dweights + first + j) * p;
    }
    along = along / sum;
  }
  for (int j = 0; j < Shape::chosen; ++j) {
    const int expert = loadOne(chosen + first + j);
    const Real gradient = (Real(Shape::scale) * loadOne(dweights + first + j) - along) / sum;
#pragma unroll
    for (int i = 0; i < Row::kOwn; ++i)
      dp[i] += Row::expertOf(i) == expert ? gradient : Real(0);
  }
  Real inner = 0;
  if constexpr (!Shape::sigmoid) {
#pragma unroll
    for (int i = 0; i < Row::kOwn; ++i)
      inner += row.p[i] * dp[i];
    inner = warpSum(inner);
  }
#pragma unroll
  for (int i = 0; i < Row::kOwn; ++i)
    if (Row::expertOf(i) < Shape::experts) {
      T value;
      fromReal(value, Shape::sigmoid ? dp[i] * row.p[i] * (1 - row.p[i])
                                     : row.p[i] * (dp[i] - inner));
      storeOne(dlogits + i64(token) * Shape::experts + Row::expertOf(i), value);
    }
}

} // namespace lmc
