// Computes normal random numbers by position: element i of stream s with seed k is a function of
// (k, s, i). The bits are the same as on the CPU (runtime/step/NormalStream.cpp), because both use
// the same f64 operations in the same order, and fuse none of them.
#pragma once

#include "lmc/platform.cuh"

namespace lmc {

// Return x + y and x y. The compiler may not fuse them with other operations.
__device__ inline double addExactly(double x, double y) { return __dadd_rn(x, y); }
__device__ inline double multiplyExactly(double x, double y) { return __dmul_rn(x, y); }
// Returns x y + z, rounded after the product and again after the sum.
__device__ inline double multiplyThenAdd(double x, double y, double z) {
  return __dadd_rn(__dmul_rn(x, y), z);
}

// Applies Philox4x32-10 to `c`: ten rounds over a 128-bit counter with a 64-bit key.
// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.
__device__ inline void philox4x32(u32 (&c)[4], u32 k0, u32 k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    u64 p0 = u64(0xD2511F53u) * c[0], p1 = u64(0xCD9E8D57u) * c[2];
    u32 n0 = u32(p1 >> 32) ^ c[1] ^ k0, n2 = u32(p0 >> 32) ^ c[3] ^ k1;
    c[1] = u32(p1);
    c[3] = u32(p0);
    c[0] = n0;
    c[2] = n2;
    k0 += 0x9E3779B9u; // golden ratio
    k1 += 0xBB67AE85u; // sqrt(3) - 1
  }
}

// Returns sqrt(-2 ln u) for u = (x + 1/2) / 2^32. With u = 2^e m, m in [sqrt(1/2), sqrt(2)), and s
// = (m - 1) / (m + 1), ln u = e ln 2 + 2 atanh(s). The series of atanh ends after s^19.
__device__ inline double normalRadius(u32 x) {
  u64 bits = u64(__double_as_longlong(multiplyExactly(addExactly(double(x), 0.5), 0x1p-32)));
  // The exponent field of `shifted` is e + 1023 for this m. That of `bits` is for an m in [1, 2).
  u64 shifted = bits + (0x3FF0000000000000ull - 0x3FE6A09E667F3BCDull);
  double m = __longlong_as_double(i64((shifted & 0x000FFFFFFFFFFFFFull) + 0x3FE6A09E667F3BCDull));
  double e = double(int(shifted >> 52) - 1023);
  double s = addExactly(m, -1.0) / addExactly(m, 1.0), t = multiplyExactly(s, s);
  double series = 1.0 / 19;
  series = multiplyThenAdd(series, t, 1.0 / 17);
  series = multiplyThenAdd(series, t, 1.0 / 15);
  series = multiplyThenAdd(series, t, 1.0 / 13);
  series = multiplyThenAdd(series, t, 1.0 / 11);
  series = multiplyThenAdd(series, t, 1.0 / 9);
  series = multiplyThenAdd(series, t, 1.0 / 7);
  series = multiplyThenAdd(series, t, 1.0 / 5);
  series = multiplyThenAdd(series, t, 1.0 / 3);
  series = multiplyThenAdd(series, t, 1.0);
  double logarithm = addExactly(multiplyExactly(e, 0x1.62e42fefa39efp-1),
                                multiplyExactly(multiplyExactly(2.0, s), series));
  return sqrt(multiplyExactly(-2.0, logarithm));
}

// Computes the cosine and sine of the angle 2 pi y / 2^32. The nearest multiple of a quarter turn
// (q 2^30) is subtracted exactly. The Taylor series takes the rest, at most pi / 4.
__device__ inline void cosSinOfTurn(u32 y, double &cosine, double &sine) {
  u32 q = (y + 0x20000000u) >> 30;
  u32 offset = y + 0x20000000u - (q << 30); // the rest y - q 2^30, plus 2^29: never negative
  double a = multiplyExactly(addExactly(double(offset), -0x1p29), 0x1.921fb54442d18p+2 * 0x1p-32);
  double t = multiplyExactly(a, a);
  double c = 1.0 / 20922789888000;
  c = multiplyThenAdd(c, t, -1.0 / 87178291200);
  c = multiplyThenAdd(c, t, 1.0 / 479001600);
  c = multiplyThenAdd(c, t, -1.0 / 3628800);
  c = multiplyThenAdd(c, t, 1.0 / 40320);
  c = multiplyThenAdd(c, t, -1.0 / 720);
  c = multiplyThenAdd(c, t, 1.0 / 24);
  c = multiplyThenAdd(c, t, -0.5);
  c = multiplyThenAdd(c, t, 1.0);
  double s = -1.0 / 1307674368000;
  s = multiplyThenAdd(s, t, 1.0 / 6227020800);
  s = multiplyThenAdd(s, t, -1.0 / 39916800);
  s = multiplyThenAdd(s, t, 1.0 / 362880);
  s = multiplyThenAdd(s, t, -1.0 / 5040);
  s = multiplyThenAdd(s, t, 1.0 / 120);
  s = multiplyThenAdd(s, t, -1.0 / 6);
  s = multiplyThenAdd(multiplyExactly(s, t), a, a);
  // (cosine, sine) after 0, 1, 2 and 3 quarter turns: (c, s), (-s, c), (-c, -s), (s, -c).
  double x = q & 1 ? s : c, z = q & 1 ? c : s;
  cosine = (q + 1) & 2 ? -x : x;
  sine = q & 2 ? -z : z;
}

// Computes the normal values of elements 4 block .. 4 block + 3 of the stream, by Box-Muller.
__device__ inline void normals(u64 seed, u64 stream, u64 block, double (&z)[4]) {
  u32 word[4] = {u32(block), u32(block >> 32), u32(stream), u32(stream >> 32)};
  philox4x32(word, u32(seed), u32(seed >> 32));
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    double cosine, sine, radius = normalRadius(word[2 * pair]);
    cosSinOfTurn(word[2 * pair + 1], cosine, sine);
    z[2 * pair] = multiplyExactly(radius, cosine);
    z[2 * pair + 1] = multiplyExactly(radius, sine);
  }
}

} // namespace lmc
