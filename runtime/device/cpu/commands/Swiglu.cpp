// SwiGLU and its gradient on the CPU.
#include "runtime/device/cpu/commands/Rows.h"
#include "runtime/device/cpu/kernels/Kernels.h"

#include <cmath>
#include <numbers>

namespace lmc::cpu {
namespace {

// Rows of the form [g | u]. Both g and u have `columns` elements.
struct GatedRows {
  int64_t columns;
  int threads;
  int64_t rows = 0;
  const int32_t *end = nullptr; // if not null, the number of rows is *end

  int64_t count() const { return end ? *end : rows; }
};

template <typename Op> GatedRows rowsOfExperts(Resolver &at, const Op &op) {
  return {int64_t(op.columns()), at.threads, 0,
          at.address<const int32_t>(op.offsets()) + op.experts()};
}

// The number of values whose sigmoids SwiGLU computes at a time.
constexpr int64_t kSwigluValues = 256;

// Sets s to the sigmoids of `count` values, at most kSwigluValues.
template <typename T> void sigmoids(const T *x, int64_t count, RealOf<T> *s) {
  if constexpr (std::is_same_v<RealOf<T>, float>) {
    // exp2F32() needs x <= 127, so x is limited to 126. This changes sigmoids by less than 2^-126.
    constexpr float kMostPower = 126;
    for (int64_t i = 0; i < count; ++i)
      s[i] = std::min(kMostPower, -widened(x[i]) * std::numbers::log2e_v<float>);
    kernelSet().exp2F32(s, s, count);
    for (int64_t i = 0; i < count; ++i)
      s[i] = 1 / (1 + s[i]);
  } else {
    for (int64_t i = 0; i < count; ++i)
      s[i] = 1 / (1 + std::exp(-widened(x[i])));
  }
}

// Divides each row of g into parts of at most kSwigluValues columns. Calls part(row, first, count,
// s) for each part, where s has the sigmoids of columns [first, first + count) of g.
template <typename T, typename Part> void forGates(const GatedRows &gated, const T *gu, Part part) {
  forRows(gated.threads, gated.count(), [&](int64_t row) {
    RealOf<T> s[kSwigluValues];
    for (int64_t first = 0; first < gated.columns; first += kSwigluValues) {
      const int64_t count = std::min(kSwigluValues, gated.columns - first);
      sigmoids(gu + row * 2 * gated.columns + first, count, s);
      part(row, first, count, s);
    }
  });
}

// Sets a to silu(g) u.
template <typename T> void activate(const GatedRows &gated, const T *gu, T *a) {
  forGates(gated, gu, [&](int64_t row, int64_t first, int64_t count, const RealOf<T> *s) {
    const T *gate = gu + row * 2 * gated.columns + first, *up = gate + gated.columns;
    T *to = a + row * gated.columns + first;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i)
      narrow(to[i], widened(gate[i]) * s[i] * widened(up[i]));
  });
}

// Sets dgu to the gradients of g and u, where `d` is the gradient of silu(g) u. If `a` is not null,
// sets it to silu(g) u. dgu may use the same memory as gu, and `a` the same memory as d.
template <typename T>
void differentiate(const GatedRows &gated, const T *d, const T *gu, T *dgu, T *a) {
  forGates(gated, gu, [&](int64_t row, int64_t first, int64_t count, const RealOf<T> *s) {
    const T *gate = gu + row * 2 * gated.columns + first, *up = gate + gated.columns;
    const T *from = d + row * gated.columns + first;
    T *dgate = dgu + row * 2 * gated.columns + first, *dup = dgate + gated.columns;
    T *to = a ? a + row * gated.columns + first : nullptr;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const RealOf<T> g = widened(gate[i]), u = widened(up[i]), gradient = widened(from[i]);
      narrow(dgate[i], gradient * u * (s[i] * (1 + g * (1 - s[i]))));
      narrow(dup[i], gradient * (g * s[i]));
      if (to)
        narrow(to[i], g * s[i] * u);
    }
  });
}

} // namespace

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::ExpertSwiglu &op) {
  return withTypeOf(at.storage(op.x()), [&](auto type) {
    using T = decltype(type);
    return BoundCommand([gated = rowsOfExperts(at, op), x = at.address<const T>(op.x()),
                         y = at.address<T>(op.y())] { activate(gated, x, y); });
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::ExpertSwigluGrad &op) {
  return withTypeOf(at.storage(op.x()), [&](auto type) {
    using T = decltype(type);
    return BoundCommand([gated = rowsOfExperts(at, op), dy = at.address<const T>(op.dy()),
                         x = at.address<const T>(op.x()), dx = at.address<T>(op.dx())] {
      differentiate<T>(gated, dy, x, dx, nullptr);
    });
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::LinearSwiglu &op) {
  LMC_LET(product, bindGemm(*op.product(), -1, at.memory, at.gemms));
  const GatedRows gated{int64_t(op.product()->n() / 2), at.threads, int64_t(op.product()->m())};
  return withTypeOf(at.storage(op.a()), [&](auto type) {
    using T = decltype(type);
    return BoundCommand([product = *product, gated, gu = at.address<const T>(op.product()->d()),
                         a = at.address<T>(op.a())] {
      product.run();
      activate(gated, gu, a);
    });
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::SwigluLinearGrad &op) {
  LMC_LET(product, bindGemm(*op.product(), -1, at.memory, at.gemms));
  const GatedRows gated{int64_t(op.product()->n()), at.threads, int64_t(op.product()->m())};
  return withTypeOf(at.storage(op.dgu()), [&](auto type) {
    using T = decltype(type);
    return BoundCommand([product = *product, gated, both = op.both(), dgu = at.address<T>(op.dgu()),
                         a = at.address<T>(op.product()->d())] {
      product.run();
      differentiate<T>(gated, a, dgu, dgu, both ? a : nullptr);
    });
  });
}

} // namespace lmc::cpu
