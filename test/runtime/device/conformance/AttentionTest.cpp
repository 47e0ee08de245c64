// Attention, and sums of rows by id.
#include "test/runtime/device/conformance/Conformance.h"

#include <algorithm>
#include <cmath>

using namespace lmc;
using namespace lmc::test;

// Two sequences of 8 tokens, 4 heads of 8 that share 2 key/value heads, a window of 5.
constexpr int64_t kTokens = 16, kSequence = 8, kHeads = 4, kKvHeads = 2, kHeadDim = 8, kWindow = 5;
constexpr double kScale = 0.25;

// One thread for each token and head.
static const KernelText kAttention = {"attention", "", R"(
extern "C" __global__ void __launch_bounds__(32)
attention(const float *q, const float *k, const float *v, float *out, float *lse, float *largest) {
  const int at = blockIdx.x * 32 + threadIdx.x, token = at / 4, head = at % 4, i = token % 8;
  float scores[8], sum = 0;
  for (int j = 0; j <= i; ++j) {
    float score = 0;
    for (int c = 0; c < 8; ++c)
      score += loadOne(q + token * 32 + head * 8 + c) *
               loadOne(k + (token - i + j) * 16 + head / 2 * 8 + c);
    scores[j] = i - j < 5 ? expf(0.25f * score) : 0;
    sum += scores[j];
  }
  float most = 0;
  for (int c = 0; c < 8; ++c) {
    float mean = 0;
    for (int j = 0; j <= i; ++j)
      mean += scores[j] * loadOne(v + (token - i + j) * 16 + head / 2 * 8 + c);
    storeOne(out + token * 32 + head * 8 + c, mean / sum);
    most = fmaxf(most, fabsf(mean / sum));
  }
  storeOne(largest + at, most);
  storeOne(lse + at, logf(sum));
}
)",
                                      2, 32};

TEST_P(Conformance, Attends) {
  plan::AttentionT op;
  op.q = b.slice(DType::F32, {kTokens, kHeads * kHeadDim});
  op.k = b.slice(DType::F32, {kTokens, kKvHeads * kHeadDim});
  op.v = b.slice(DType::F32, {kTokens, kKvHeads * kHeadDim});
  op.out = b.slice(DType::F32, {kTokens, kHeads * kHeadDim});
  op.lse = b.slice(DType::F32, {kTokens, kHeads});
  const uint32_t largest = b.slice(DType::F32, {kTokens, kHeads});
  op.largest = int32_t(largest);
  op.batch = kTokens / kSequence;
  op.seq = kSequence;
  op.heads = kHeads;
  op.kv_heads = kKvHeads;
  op.head_dim = kHeadDim;
  op.scale = kScale;
  op.window = kWindow;
  b.command(op);
  if (!GetParam().ownKernels)
    addLaunch(kAttention, {op.q, op.k, op.v, op.out, op.lse, largest}, 3);
  ASSERT_NO_FATAL_FAILURE(record(2));
  auto wave = [](size_t count, double step) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = float(std::sin(step * double(i + 1)));
    return values;
  };
  const auto q = wave(kTokens * kHeads * kHeadDim, 0.7),
             k = wave(kTokens * kKvHeads * kHeadDim, 1.3),
             v = wave(kTokens * kKvHeads * kHeadDim, 2.1);
  write(op.q, q);
  write(op.k, k);
  write(op.v, v);
  ASSERT_NO_FATAL_FAILURE(run());
  const auto out = read<float>(op.out), lse = read<float>(op.lse),
             mostOfHeads = read<float>(largest);
  for (int64_t token = 0; token < kTokens; ++token)
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t i = token % kSequence, kvHead = head / (kHeads / kKvHeads);
      double sum = 0, mean[kHeadDim] = {};
      for (int64_t j = std::max<int64_t>(0, i - kWindow + 1); j <= i; ++j) {
        const int64_t row = ((token - i + j) * kKvHeads + kvHead) * kHeadDim;
        double score = 0;
        for (int64_t c = 0; c < kHeadDim; ++c)
          score += double(q[size_t((token * kHeads + head) * kHeadDim + c)]) * k[size_t(row + c)];
        const double weight = std::exp(kScale * score);
        sum += weight;
        for (int64_t c = 0; c < kHeadDim; ++c)
          mean[c] += weight * v[size_t(row + c)];
      }
      EXPECT_NEAR(lse[size_t(token * kHeads + head)], std::log(sum), 1e-5);
      float most = 0;
      for (int64_t c = 0; c < kHeadDim; ++c) {
        const float found = out[size_t((token * kHeads + head) * kHeadDim + c)];
        EXPECT_NEAR(found, mean[c] / sum, 1e-5);
        most = std::max(most, std::abs(found));
      }
      EXPECT_EQ(mostOfHeads[size_t(token * kHeads + head)], most);
    }
}

// d[5, 3] = 0, a thread for each element.
static const KernelText kZero = {"zero", "", R"(
extern "C" __global__ void __launch_bounds__(32) zero(float *d) {
  if (threadIdx.x < 15)
    storeOne(d + threadIdx.x, 0.0f);
}
)",
                                 1, 32};

// d[ids[t], :] += x[t, :] for x[4, 3], a thread for each column.
static const KernelText kAddRows = {"addRows", "", R"(
extern "C" __global__ void __launch_bounds__(32) addRows(const int *ids, const float *x, float *d) {
  for (int t = 0; t < 4 && threadIdx.x < 3; ++t) {
    const unsigned id = loadOne(ids + t);
    if (id < 5)
      storeOne(d + id * 3 + threadIdx.x,
               loadOne(d + id * 3 + threadIdx.x) + loadOne(x + t * 3 + threadIdx.x));
  }
}
)",
                                    1, 32};

// The launches of a command run in order: first zeros, then sums. An id outside of the vocabulary
// adds nothing.
TEST_P(Conformance, AddsRows) {
  plan::ScatterAddT op;
  op.ids = b.slice(DType::I32, {4});
  op.x = b.slice(DType::F32, {4, 3});
  op.d = b.slice(DType::F32, {5, 3});
  op.rows = 4;
  op.columns = 3;
  op.vocabulary = 5;
  b.command(op);
  if (!GetParam().ownKernels) {
    b.plan.functions[0]->commands.back()->workspace = int(b.slice(DType::I8, {4 * 8}, 1));
    addLaunch(kZero, {op.d}, 0);
    addLaunch(kAddRows, {op.ids, op.x, op.d}, 2);
  }
  ASSERT_NO_FATAL_FAILURE(record(2));
  write(op.ids, std::vector<int32_t>{3, -1, 0, 3});
  write(op.x, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  write(op.d, std::vector<float>(15, 99.0f));
  ASSERT_NO_FATAL_FAILURE(run());
  EXPECT_EQ(read<float>(op.d),
            (std::vector<float>{7, 8, 9, 0, 0, 0, 0, 0, 0, 11, 13, 15, 0, 0, 0}));
}
