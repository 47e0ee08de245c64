// SwiGLU of bf16 rows, and its gradient. A library (cuBLAS) computes gu or d before these kernels.
//
//   swigluRows:      a = silu(g) u                           gu = [g | u] [rows, 2 columns], a [rows, columns]
//   swigluRowsGrad:  dg = d u s (1 + g (1 - s)), du = d g s,  d and a [rows, columns],
//                    a = g s u, s = 1 / (1 + e^-g)             gu and dgu [rows, 2 columns]
//
// Arithmetic is in f32. A `Shape` has constants: int rows, columns (a multiple of 8); bool both
// (true: swigluRowsGrad also writes a). dgu may use the memory of gu, and a may use that of d.
#pragma once

#include "lmc/vector_io.cuh"

namespace lmc {

namespace products {

__device__ inline float lowOf(u32 word) { return toFloat(bf16{u16(word)}); }
__device__ inline float highOf(u32 word) { return toFloat(bf16{u16(word >> 16)}); }
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Returns silu(g) u of two elements, rounded to bf16.
__device__ inline u32 gated(u32 gate, u32 up) {
  const float g0 = lowOf(gate), g1 = highOf(gate);
  return packBf16(g0 * sigmoid(g0) * lowOf(up), g1 * sigmoid(g1) * highOf(up));
}

__device__ inline void gatedGrad(u32 gradient, u32 gate, u32 up, u32 &dgate, u32 &dup,
                                 u32 &activation) {
  float of[2][3];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const float g = e ? highOf(gate) : lowOf(gate), u = e ? highOf(up) : lowOf(up);
    const float d = e ? highOf(gradient) : lowOf(gradient);
    const float s = sigmoid(g);
    of[e][0] = d * u * (s * (1.0f + g * (1.0f - s)));
    of[e][1] = d * (g * s);
    of[e][2] = g * s * u;
  }
  dgate = packBf16(of[0][0], of[1][0]);
  dup = packBf16(of[0][1], of[1][1]);
  activation = packBf16(of[0][2], of[1][2]);
}

// A thread's 8 columns start at element `single` of the array a, and at element `pair` of gu.
template <typename Shape> struct Eight {
  i64 single = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
  i64 pair = single / Shape::columns * (2 * Shape::columns) + single % Shape::columns;
  __device__ bool exists() const { return single < i64(Shape::rows) * Shape::columns; }
};

} // namespace products

// The grid of both kernels has one thread for each 8 elements of the array a.
template <typename Shape> __device__ inline void swigluRows(const bf16 *gu, bf16 *a) {
  const products::Eight<Shape> at;
  if (!at.exists())
    return;
  const Bits<16> gate = loadGlobal<16>(gu + at.pair);
  const Bits<16> up = loadGlobal<16>(gu + at.pair + Shape::columns);
  Bits<16> activation;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    activation.words[i] = products::gated(gate.words[i], up.words[i]);
  storeGlobal<16>(a + at.single, activation);
}

template <typename Shape>
__device__ inline void swigluRowsGrad(const bf16 *d, const bf16 *gu, bf16 *dgu, bf16 *a) {
  const products::Eight<Shape> at;
  if (!at.exists())
    return;
  const Bits<16> gradient = loadGlobal<16>(d + at.single);
  const Bits<16> gate = loadGlobal<16>(gu + at.pair);
  const Bits<16> up = loadGlobal<16>(gu + at.pair + Shape::columns);
  Bits<16> dgate, dup, activation;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    products::gatedGrad(gradient.words[i], gate.words[i], up.words[i], dgate.words[i], dup.words[i],
                        activation.words[i]);
  storeGlobal<16>(dgu + at.pair, dgate);
  storeGlobal<16>(dgu + at.pair + Shape::columns, dup);
  if constexpr (Shape::both)
    storeGlobal<16>(a + at.single, activation);
}

} // namespace lmc
