// Computes the rows of a matrix on several threads.
#pragma once

#include "ground/plan/FloatConvert.h"
#include "runtime/device/cpu/Resolver.h"

#include <algorithm>
#include <bit>

namespace lmc::cpu {

struct StoredBf16 {
  uint16_t bits;
};

// These convert an element from the type in memory to the type of arithmetic, and back.
inline float widened(float x) { return x; }
inline double widened(double x) { return x; }
inline float widened(StoredBf16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
inline void narrow(float &to, float x) { to = x; }
inline void narrow(double &to, double x) { to = x; }
inline void narrow(StoredBf16 &to, float x) { to.bits = toBFloat16(x); }

// The type of arithmetic on values of type T.
template <typename T> using RealOf = decltype(widened(T()));

// Returns visit(T()), where T is the C++ type of the elements: float, double or StoredBf16.
template <typename Visit> auto withTypeOf(Storage storage, Visit visit) {
  if (storage == Storage::F64)
    return visit(double());
  if (storage == Storage::BF16)
    return visit(StoredBf16());
  return visit(float());
}

// Runs task(i) for every i in [0, tasks) on `threads` threads.
template <typename Task> void inParallel(int threads, int64_t tasks, Task task) {
#pragma omp parallel for num_threads(threads) schedule(static) if (tasks > 1)
  for (int64_t i = 0; i < tasks; ++i)
    task(i);
}

constexpr int64_t kRowsPerTask = 64;
inline int64_t tasksOf(int64_t rows) { return (rows + kRowsPerTask - 1) / kRowsPerTask; }

// Runs row(i) for every row i. One task runs kRowsPerTask rows.
template <typename Row> void forRows(int threads, int64_t rows, Row row) {
  inParallel(threads, tasksOf(rows), [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t i = task * kRowsPerTask; i < end; ++i)
      row(i);
  });
}

} // namespace lmc::cpu
