// Matrix products on the CPU: oneDNN where it has the machine's fast
// instructions for a type, the packed kernels of kernels/PackedGemm.cpp where not.
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"
#include "runtime/support/Result.h"

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

namespace lmc::cpu {

inline int64_t elementBytes(Storage storage) {
  return storage == Storage::F64 ? 8 : storage == Storage::F32 ? 4 : 2;
}

// d[m,n] = op(a) op(b) (+ d) (+ bias[n]), as plan::Gemm.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  bool transposeA = false, transposeB = false;
  bool accumulate = false; // d is added to
  bool hasBias = false;
  Storage input = Storage::F32; // of a and b
  Storage output = Storage::F32;
  Storage bias = Storage::F32;

  auto operator<=>(const GemmShape &) const = default;
};

class Gemm {
public:
  virtual ~Gemm() = default;
  // `bias` is ignored unless the shape has one. Not reentrant.
  virtual void run(const void *a, const void *b, void *d, const void *bias) = 0;
  // What runs it, for reports: "oneDNN gemm:jit", "packed x86-64-v3".
  virtual std::string implementation() const = 0;
};

enum class GemmLibrary { Automatic, OneDNN, Packed };

// One per device: each shape is prepared once.
class GemmCache {
public:
  explicit GemmCache(int threads);
  ~GemmCache();

  Result<Gemm *> find(const GemmShape &shape, GemmLibrary library = GemmLibrary::Automatic);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc::cpu
