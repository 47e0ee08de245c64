// Copies blocks of a tensor to and from scratch memory, in the type of arithmetic. `leading` is the
// distance in elements from one row to the next.
#pragma once

#include "runtime/device/cpu/kernels/Attention.h"
#include "runtime/device/cpu/kernels/Vector.h"

namespace lmc::cpu::LMC_ISA {

LMC_INLINE int64_t roundUp(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
LMC_INLINE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
LMC_INLINE int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

// Sets to[r, c] = from[r, c] for c < columns, and 0 for columns <= c < padded.
template <typename T, typename R = Arithmetic<T>>
LMC_INLINE void copyBlock(const T *from, int64_t leading, int64_t rows, int64_t columns,
                          int64_t padded, R *to, int64_t toLeading) {
  for (int64_t r = 0; r < rows; ++r) {
    const T *source = from + r * leading;
    R *target = to + r * toLeading;
    int64_t c = 0;
    for (; c + kWidth<R> <= columns; c += kWidth<R>)
      store(target + c, load(source + c));
    for (; c < columns; ++c)
      target[c] = toReal(source[c]);
    for (; c < padded; ++c)
      target[c] = 0;
  }
}

// Sets to[c, r] = from[r, c] * factor for r < rows, and 0 for rows <= r < padded.
template <typename T, typename R = Arithmetic<T>>
LMC_INLINE void transposeBlock(const T *from, int64_t leading, int64_t rows, int64_t columns,
                               int64_t padded, R factor, R *to, int64_t toLeading) {
  constexpr int kN = kWidth<R>;
  int64_t r = 0;
  for (; r + kN <= rows; r += kN) {
    int64_t c = 0;
    for (; c + kN <= columns; c += kN) {
      V<R> square[kN];
#pragma GCC unroll 16
      for (int i = 0; i < kN; ++i)
        square[i] = load(from + (r + i) * leading + c) * factor;
      transpose<R>(square);
#pragma GCC unroll 16
      for (int i = 0; i < kN; ++i)
        store(to + (c + i) * toLeading + r, square[i]);
    }
    for (; c < columns; ++c)
      for (int i = 0; i < kN; ++i)
        to[c * toLeading + r + i] = toReal(from[(r + i) * leading + c]) * factor;
  }
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t i = r; i < rows; ++i)
      to[c * toLeading + i] = toReal(from[i * leading + c]) * factor;
    for (int64_t i = greater(rows, r); i < padded; ++i)
      to[c * toLeading + i] = 0;
  }
}

// Sets to[r, c] = from[r, c] * factor.
template <typename T, typename R = Arithmetic<T>>
LMC_INLINE void storeBlock(const R *from, int64_t leading, int64_t rows, int64_t columns, R factor,
                           T *to, int64_t toLeading) {
  for (int64_t r = 0; r < rows; ++r) {
    const R *source = from + r * leading;
    T *target = to + r * toLeading;
    int64_t c = 0;
    for (; c + kWidth<R> <= columns; c += kWidth<R>)
      store(target + c, load(source + c) * factor);
    for (; c < columns; ++c)
      fromReal(source[c] * factor, target[c]);
  }
}

// Returns the first key that query `i` of sequence `batch` sees: at most `i`, even if the values of
// `starts` are wrong.
LMC_INLINE int64_t firstVisibleKey(const AttentionArgs &args, int64_t batch, int64_t i) {
  int64_t first = args.window ? greater(0, i - args.window + 1) : 0;
  if (args.starts)
    first = greater(first, args.starts[batch * args.seq + i]);
  return lesser(first, i);
}

// Divides a thread's scratch into pieces that are aligned to 64 bytes.
struct Scratch {
  char *at;
  template <typename R> R *take(int64_t elements) {
    R *piece = reinterpret_cast<R *>(at);
    at += roundUp(elements * int64_t(sizeof(R)), 64);
    return piece;
  }
};

} // namespace lmc::cpu::LMC_ISA
