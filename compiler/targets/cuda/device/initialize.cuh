// Computes the initial values of variables with the same bits as runtime/step/Initializer.cpp on
// the CPU. Only RoPE tables may differ (within 2 ulp of f64), because cos and sin are from
// different libraries.
//
// An InitializerRecord per variable, in device memory, has the values that are known only when a
// job starts. So one kernel serves all variables of a kind. A grid may have any size.
#pragma once

#include "lmc/random.cuh"
#include "lmc/vector_io.cuh"

namespace lmc {

struct InitializerRecord {
  u64 first, elements; // the variable's elements [first, first + elements) are written
  u64 seed, stream;    // seed of the job; stream number of the variable, from its name
  double value;        // normal: standard deviation; constant: its value; RoPE table: a factor
};

__device__ inline InitializerRecord loadRecord(const InitializerRecord *record) {
  return {loadOne(&record->first), loadOne(&record->elements), loadOne(&record->seed),
          loadOne(&record->stream), loadOne(&record->value)};
}

template <typename T> __device__ inline T rounded(double x);
template <> __device__ inline double rounded<double>(double x) { return x; }
template <> __device__ inline float rounded<float>(double x) { return float(x); }
template <> __device__ inline bf16 rounded<bf16>(double x) { return toBf16(float(x)); }

// Sets out[j] to the value of element first + j, for j in [0, elements). Stores words of 16 bytes
// where possible. `fill(j, values)` must set `values` to the elements first + j, first + j + 1, and
// so on. Values outside of the range are not stored.
template <typename T, typename Fill>
__device__ inline void fillWords(const InitializerRecord &record, T *out, Fill fill) {
  constexpr int width = 16 / int(sizeof(T));
  i64 elements = i64(record.elements);
  i64 offset = i64(reinterpret_cast<u64>(out) % 16 / sizeof(T)); // index of out[0] in its word
  i64 words = (offset + elements + width - 1) / width, threads = i64(gridDim.x) * blockDim.x;
  for (i64 word = i64(blockIdx.x) * blockDim.x + threadIdx.x; word < words; word += threads) {
    i64 begin = word * width - offset;
    Vec<T, width> values;
    fill(begin, values);
    if (begin >= 0 && begin + width <= elements) {
      store(out + begin, values);
      continue;
    }
#pragma unroll
    for (int i = 0; i < width; ++i)
      if (begin + i >= 0 && begin + i < elements)
        storeOne(out + begin + i, values.at[i]);
  }
}

// Sets each element i to value * z(i), where z is standard normal; see random.cuh.
template <typename T>
__device__ inline void initializeNormal(const InitializerRecord *how, T *out) {
  InitializerRecord record = loadRecord(how);
  fillWords(record, out, [&](i64 begin, auto &values) {
    constexpr int width = sizeof(values.at) / sizeof(T);
    i64 first = i64(record.first) + begin;
    double z[4];
#pragma unroll
    for (int i = 0; i < width; ++i) {
      int place = int((first + i) & 3);
      if (i == 0 || place == 0)
        normals(record.seed, record.stream, u64(first + i) / 4, z);
      // Conditions select the element, because a variable index would move z to local memory.
      double chosen = place == 0 ? z[0] : place == 1 ? z[1] : place == 2 ? z[2] : z[3];
      values.at[i] = rounded<T>(multiplyExactly(record.value, chosen));
    }
  });
}

template <typename T>
__device__ inline void initializeConstant(const InitializerRecord *how, T *out) {
  InitializerRecord record = loadRecord(how);
  T value = rounded<T>(record.value);
  fillWords(record, out, [&](i64, auto &values) {
#pragma unroll
    for (int i = 0; i < int(sizeof(values.at) / sizeof(T)); ++i)
      values.at[i] = value;
  });
}

// Computes RoPE tables [positions, Columns]: value * cos or sin of position * frequencies[column].
template <typename T, bool Sine, int Columns>
__device__ inline void initializeRope(const InitializerRecord *how,
                                      const double (&frequencies)[Columns], T *out) {
  InitializerRecord record = loadRecord(how);
  fillWords(record, out, [&](i64 begin, auto &values) {
#pragma unroll
    for (int i = 0; i < int(sizeof(values.at) / sizeof(T)); ++i) {
      i64 element = i64(record.first) + begin + i;
      if (element < 0)
        continue; // the variable has no such element, and fillWords does not store values.at[i]
      double angle = multiplyExactly(double(element / Columns), frequencies[element % Columns]);
      values.at[i] = rounded<T>(multiplyExactly(Sine ? sin(angle) : cos(angle), record.value));
    }
  });
}

__device__ inline double toDouble(double x) { return x; }
__device__ inline double toDouble(float x) { return x; }
__device__ inline double toDouble(bf16 x) { return toFloat(x); }

// Sets out[j] = source[j], rounded to T.
template <typename S, typename T>
__device__ inline void initializeCopy(const InitializerRecord *how, const S *source, T *out) {
  InitializerRecord record = loadRecord(how);
  constexpr int width = 16 / int(sizeof(T));
  // `wide`: the source elements for each word of `out` are aligned, so wide loads may read them.
  constexpr int bytes = width * int(sizeof(S));
  u64 offset = reinterpret_cast<u64>(out) % 16 / sizeof(T);
  bool wide = (reinterpret_cast<u64>(source) - offset * sizeof(S)) % (bytes < 16 ? bytes : 16) == 0;
  fillWords(record, out, [&](i64 begin, auto &values) {
    if (wide && begin >= 0 && begin + width <= i64(record.elements)) {
      Vec<S, width> from = load<width>(source + begin);
#pragma unroll
      for (int i = 0; i < width; ++i)
        values.at[i] = rounded<T>(toDouble(from.at[i]));
      return;
    }
#pragma unroll
    for (int i = 0; i < width; ++i)
      if (begin + i >= 0 && begin + i < i64(record.elements))
        values.at[i] = rounded<T>(toDouble(loadOne(source + begin + i)));
  });
}

} // namespace lmc
