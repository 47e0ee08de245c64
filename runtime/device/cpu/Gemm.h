// Matrix products on the CPU. oneDNN computes them if it has fast instructions of this machine for
// the input type; otherwise the packed kernels of kernels/PackedGemm.cpp do.
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

// The shape of d[m,n] = op(a) op(b) (+ d) (+ bias[n]), where op() transposes or does nothing.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  bool transposeA = false, transposeB = false;
  bool accumulate = false; // the product is added to d
  bool hasBias = false;
  Storage input = Storage::F32; // the type of a and b
  Storage output = Storage::F32;
  Storage bias = Storage::F32;

  auto operator<=>(const GemmShape &) const = default;
};

class Gemm {
public:
  virtual ~Gemm() = default;
  // Computes the product. `bias` is ignored if the shape has no bias. Only one thread may call
  // run() at a time.
  virtual void run(const void *a, const void *b, void *d, const void *bias) = 0;
  // Returns the name of the implementation, for reports: "oneDNN gemm:jit", "packed x86-64-v3".
  virtual std::string implementation() const = 0;
};

enum class GemmLibrary { Automatic, OneDNN, Packed };

// The matrix products of one device. The product of each shape is prepared only once.
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
