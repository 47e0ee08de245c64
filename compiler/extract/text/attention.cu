// Computes attention by plain reference kernels, and compares their results with those of the
// extracted kernels. The reference kernels use one thread per head and row.

namespace plain {

struct View {
  const void *data;
  int64_t pitch; // elements from the start of one row to the start of the next
  bool isBf16;
  __device__ float at(int64_t row, int64_t column) const {
    const int64_t i = row * pitch + column;
    return isBf16 ? __uint_as_float(uint32_t(static_cast<const uint16_t *>(data)[i]) << 16)
                  : static_cast<const float *>(data)[i];
  }
};

__device__ inline bool sees(int i, int j, const int *starts) {
  return j <= i && (kWindow == 0 || i - j < kWindow) && (!starts || j >= starts[i]);
}

__device__ inline float score(View q, View k, int64_t base, int i, int j, int head) {
  float sum = 0;
  for (int c = 0; c < kHeadDim; ++c)
    sum += q.at(base + i, head * kHeadDim + c) * k.at(base + j, head / kGroup * kHeadDim + c);
  return sum * kScale;
}

// Computes out, f32 [tokens, heads * head_dim], and lse, f32 [tokens, heads].
__global__ void forward(View q, View k, View v, const int *starts, float *out, float *lse) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= int64_t(kBatch) * kSeq * kHeads)
    return;
  const int head = int(thread % kHeads), i = int(thread / kHeads % kSeq);
  const int64_t base = thread / kHeads / kSeq * kSeq;
  const int *mine = starts ? starts + base : nullptr;
  float most = -INFINITY, total = 0;
  for (int j = 0; j <= i; ++j)
    if (sees(i, j, mine))
      most = fmaxf(most, score(q, k, base, i, j, head));
  float *row = out + ((base + i) * kHeads + head) * kHeadDim;
  for (int c = 0; c < kHeadDim; ++c)
    row[c] = 0;
  for (int j = 0; j <= i; ++j)
    if (sees(i, j, mine)) {
      const float p = expf(score(q, k, base, i, j, head) - most);
      total += p;
      for (int c = 0; c < kHeadDim; ++c)
        row[c] += p * v.at(base + j, head / kGroup * kHeadDim + c);
    }
  for (int c = 0; c < kHeadDim; ++c)
    row[c] /= total;
  lse[(base + i) * kHeads + head] = most + logf(total);
}

// Returns the sum of dout x out over one head of one row: the term delta of attention's gradient.
__device__ inline float delta(View out, View dout, int64_t row, int head) {
  float sum = 0;
  for (int c = head * kHeadDim; c < (head + 1) * kHeadDim; ++c)
    sum += out.at(row, c) * dout.at(row, c);
  return sum;
}

__device__ inline float scoreGradient(View q, View k, View v, View out, View dout,
                                      const float *lse, int64_t base, int i, int j, int head,
                                      float &p) {
  p = expf(score(q, k, base, i, j, head) - lse[(base + i) * kHeads + head]);
  float dp = 0;
  for (int c = 0; c < kHeadDim; ++c)
    dp += dout.at(base + i, head * kHeadDim + c) * v.at(base + j, head / kGroup * kHeadDim + c);
  return p * (dp - delta(out, dout, base + i, head)) * kScale;
}

// Computes dq, f32 [tokens, heads * head_dim].
__global__ void gradQueries(View q, View k, View v, View out, View dout, const int *starts,
                            const float *lse, float *dq) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= int64_t(kBatch) * kSeq * kHeads)
    return;
  const int head = int(thread % kHeads), i = int(thread / kHeads % kSeq);
  const int64_t base = thread / kHeads / kSeq * kSeq;
  float *row = dq + ((base + i) * kHeads + head) * kHeadDim;
  for (int c = 0; c < kHeadDim; ++c)
    row[c] = 0;
  for (int j = 0; j <= i; ++j)
    if (sees(i, j, starts ? starts + base : nullptr)) {
      float p;
      const float ds = scoreGradient(q, k, v, out, dout, lse, base, i, j, head, p);
      for (int c = 0; c < kHeadDim; ++c)
        row[c] += ds * k.at(base + j, head / kGroup * kHeadDim + c);
    }
}

// Computes dk and dv, f32 [tokens, kv_heads * head_dim].
__global__ void gradKeys(View q, View k, View v, View out, View dout, const int *starts,
                         const float *lse, float *dk, float *dv) {
  constexpr int kvHeads = kHeads / kGroup;
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= int64_t(kBatch) * kSeq * kvHeads)
    return;
  const int kvHead = int(thread % kvHeads), j = int(thread / kvHeads % kSeq);
  const int64_t base = thread / kvHeads / kSeq * kSeq;
  float *keys = dk + ((base + j) * kvHeads + kvHead) * kHeadDim;
  float *values = dv + ((base + j) * kvHeads + kvHead) * kHeadDim;
  for (int c = 0; c < kHeadDim; ++c)
    keys[c] = values[c] = 0;
  for (int head = kvHead * kGroup; head < (kvHead + 1) * kGroup; ++head)
    for (int i = j; i < kSeq; ++i)
      if (sees(i, j, starts ? starts + base : nullptr)) {
        float p;
        const float ds = scoreGradient(q, k, v, out, dout, lse, base, i, j, head, p);
        for (int c = 0; c < kHeadDim; ++c) {
          keys[c] += ds * q.at(base + i, head * kHeadDim + c);
          values[c] += p * dout.at(base + i, head * kHeadDim + c);
        }
      }
}

// Rotates each head of each row of x back (RoPE) in place, with one thread per head and row. x is
// f32 [tokens, heads * head_dim]; cos and sin are f32 [seq, head_dim / 2].
__global__ void rotateBack(float *x, int heads, const float *cos, const float *sin) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= int64_t(kBatch) * kSeq * heads)
    return;
  const int64_t table = thread / heads % kSeq * (kHeadDim / 2);
  float *low = x + thread * kHeadDim, *high = low + kHeadDim / 2;
  for (int c = 0; c < kHeadDim / 2; ++c) {
    const float a = low[c], b = high[c];
    low[c] = a * cos[table + c] + b * sin[table + c];
    high[c] = b * cos[table + c] - a * sin[table + c];
  }
}

} // namespace plain

plain::View viewOf(int index) {
  const host::Array &array = arrays[size_t(index)];
  return {array.device, array.pitch ? array.pitch : array.shape[1], array.type == host::Type::BF16};
}

float *deviceFloats(int64_t count) {
  void *memory = nullptr;
  host::check(cudaMalloc(&memory, size_t(count) * sizeof(float)), "reference");
  return static_cast<float *>(memory);
}

std::vector<float> fetched(const float *from, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  host::check(cudaMemcpy(values.data(), from, values.size() * sizeof(float),
                         cudaMemcpyDeviceToHost),
              "reference");
  return values;
}

// Compares every element of a result with `expected`. The allowed error is relative to the largest
// element, because the kernels round scores and probabilities to bf16 for the tensor cores.
void compare(host::Difference &difference, int index, const float *expected) {
  host::Array &array = arrays[size_t(index)];
  array.fetch();
  std::vector<float> reference = fetched(expected, array.size());
  double largest = 0;
  for (float x : reference)
    largest = std::max(largest, std::fabs(double(x)));
  const bool isBf16 = arrays[kQ].type == host::Type::BF16;
  const double relative = isBf16 ? 0.02 : 1e-4;
  array.tolerance = {relative, relative * largest};
  for (int64_t i = 0; i < array.size(); ++i)
    difference.compare(array, i, reference[size_t(i)]);
}

// Compares the largest values of the heads of each row of a result with the result, which has been
// fetched. The values are in columns of kLargest, from `column` on.
void compareLargest(host::Difference &difference, int index, int64_t heads, int64_t column) {
  if (kLargest < 0)
    return;
  const host::Array &result = arrays[size_t(index)];
  host::Array &largest = arrays[size_t(kLargest)];
  largest.fetch();
  largest.tolerance = {0, 0};
  for (int64_t i = 0; i < int64_t(kBatch) * kSeq * heads; ++i) {
    double most = 0;
    for (int64_t c = i * kHeadDim; c < (i + 1) * kHeadDim; ++c)
      most = std::max(most, std::fabs(double(result.at(c))));
    difference.compare(largest, i / heads * largest.shape[1] + column + i % heads, most);
  }
}

static void check(host::Difference &difference) {
  const int64_t tokens = int64_t(kBatch) * kSeq, width = int64_t(kHeads) * kHeadDim;
  for (size_t i = 0; i < arrays.size(); ++i) {
    host::Array &array = arrays[i];
    array.allocate();
    if (array.isInput)
      array.randomise(uint32_t(i + 1), false);
    if (int(i) == kStarts) // documents of at most 1000 tokens
      for (int64_t t = 0, start = 0; t < tokens; ++t) {
        if (t % kSeq == 0)
          start = 0;
        else if (array.at(t) < 1 || t % kSeq - start >= 1000)
          start = t % kSeq;
        array.set(t, double(start));
      }
    if (int(i) == kStarts)
      array.send();
  }
  const int *starts = nullptr;
  if (kStarts >= 0)
    starts = static_cast<const int *>(arrays[size_t(kStarts)].device);
  const unsigned threads = 128, blocks = unsigned((tokens * kHeads + threads - 1) / threads);
  float *out = deviceFloats(tokens * width), *lse = deviceFloats(tokens * kHeads);
  plain::forward<<<blocks, threads>>>(viewOf(kQ), viewOf(kK), viewOf(kV), starts, out, lse);
  host::check(cudaDeviceSynchronize(), "reference");

  if (!kIsGradient) {
    launchAll();
    host::check(cudaDeviceSynchronize(), "kernels");
    compare(difference, kOut, out);
    compareLargest(difference, kOut, kHeads, 0);
    compare(difference, kLse, lse);
  } else {
    // The reference's `out` and `lse` are inputs of the gradient kernels.
    std::vector<float> saved = fetched(out, tokens * width), sums = fetched(lse, tokens * kHeads);
    for (int64_t i = 0; i < tokens * width; ++i)
      arrays[kOut].set(i, saved[size_t(i)]);
    for (int64_t i = 0; i < tokens * kHeads; ++i)
      arrays[kLse].set(i, sums[size_t(i)]);
    arrays[kOut].send();
    arrays[kLse].send();
    launchAll();
    host::check(cudaDeviceSynchronize(), "kernels");
    float *dq = deviceFloats(tokens * width);
    float *dk = deviceFloats(tokens * width / kGroup), *dv = deviceFloats(tokens * width / kGroup);
    plain::gradQueries<<<blocks, threads>>>(viewOf(kQ), viewOf(kK), viewOf(kV), viewOf(kOut),
                                            viewOf(kDout), starts, lse, dq);
    plain::gradKeys<<<blocks, threads>>>(viewOf(kQ), viewOf(kK), viewOf(kV), viewOf(kOut),
                                         viewOf(kDout), starts, lse, dk, dv);
    if (kCos >= 0) {
      const auto *cos = static_cast<const float *>(arrays[size_t(kCos)].device);
      const auto *sin = static_cast<const float *>(arrays[size_t(kSin)].device);
      plain::rotateBack<<<blocks, threads>>>(dq, kHeads, cos, sin);
      plain::rotateBack<<<blocks, threads>>>(dk, kHeads / kGroup, cos, sin);
    }
    host::check(cudaDeviceSynchronize(), "reference");
    compare(difference, kDq, dq);
    compare(difference, kDk, dk);
    compare(difference, kDv, dv);
    compareLargest(difference, kDq, kHeads, 0);
    compareLargest(difference, kDk, kHeads / kGroup, kHeads);
    compareLargest(difference, kDv, kHeads / kGroup, kHeads + kHeads / kGroup);
  }
}
