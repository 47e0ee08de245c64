// Matrix products on the CPU, by the fastest of several libraries for each shape: oneDNN, MKL (if
// it is installed), and the packed kernels of this program.
#pragma once

#include "ground/support/Result.h"
#include "runtime/device/GemmChoices.h"
#include "runtime/device/cpu/AlignedMemory.h"
#include "runtime/device/cpu/kernels/Kernels.h"

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmc::cpu {

inline int64_t elementBytes(Storage storage) {
  return storage == Storage::F64 ? 8 : storage == Storage::F32 ? 4 : 2;
}

// The product d[m,n] = op(a) op(b) (+ d) (+ bias[n]). op(x) is x or its transpose.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  bool transposeA = false, transposeB = false;
  bool accumulate = false; // true: the product is added to d
  bool hasBias = false;
  Storage input = Storage::F32; // the type of a and b
  Storage output = Storage::F32;
  Storage bias = Storage::F32;

  // The distance in elements from one row of a, or of b, to the next in memory.
  int64_t leadingA() const { return transposeA ? m : k; }
  int64_t leadingB() const { return transposeB ? k : n; }
  double flops() const { return 2.0 * double(m) * double(n) * double(k); }

  auto operator<=>(const GemmShape &) const = default;
};

// Returns a text that differs for different shapes: "f32 2048x768x4096 b^T +d".
std::string describe(const GemmShape &shape);

class Gemm {
public:
  virtual ~Gemm() = default;
  // Only one thread may call run() at a time. It needs as many OpenMP threads as when the product
  // was made. Equal operands give equal bits.
  virtual void run(const void *a, const void *b, void *d, const void *bias) = 0;
  // Returns a name for reports: "oneDNN gemm:jit", "packed x86-64-v3".
  virtual std::string implementation() const = 0;
};

// One product of a group, with its own m and k.
struct GemmPart {
  const void *a, *b;
  void *d;
  int64_t m, k;
};

// A group of products that differ in m or k, such as those of a layer's experts. The threads divide
// the work of the whole group. So a group of small products is as fast as one large product.
class GemmGroup {
public:
  virtual ~GemmGroup() = default;
  // The sum of m (Split::M) or k (Split::K) over all parts must not exceed m or k of the group's
  // shape. If k of a part is 0, its d becomes 0, or keeps its value if the shape accumulates. Only
  // one thread may call run() at a time. Equal operands give equal bits. With the packed kernels, a
  // GemmGroup gives the same bits as a Gemm.
  virtual void run(const std::vector<GemmPart> &parts) = 0;
  virtual std::string implementation() const = 0;
};

// The shape of a group of `parts` products without bias. shape.m (Split::M) or shape.k (Split::K)
// is the sum over all parts. With Split::K, the dtype of d is f32 or f64.
struct GemmGroupShape {
  enum class Split { M, K };
  GemmShape shape;
  int64_t parts = 1;
  Split split = Split::M;

  auto operator<=>(const GemmGroupShape &) const = default;
};

// Returns a text that differs for different shapes: "f32 4096x512x1024 b^T, m in 64 parts".
std::string describe(const GemmGroupShape &group);

enum class GemmLibrary { OneDnn, OneDnnSgemm, Packed, Mkl };

const char *nameOf(GemmLibrary library);

// Buffers that all packed matrix products share, because only one of them runs at a time.
struct PackedBuffers {
  AlignedMemory panelsB, sums, perThread;
};

// The matrix products of one device. Each shape is prepared only once.
class GemmCache {
public:
  // `choices` may be null, and must otherwise outlive this object.
  explicit GemmCache(int threads, GemmChoices *choices = nullptr)
      : threads(threads), choices(choices) {}
  GemmCache(const GemmCache &) = delete; // not copyable, as products refer to `buffers`

  // Returns a product. It uses the library in `choices`, else the fastest one (if `choices`
  // measures), else the packed kernels. Error: LMC_MKL names no library.
  Result<Gemm *> find(const GemmShape &shape);
  // Returns a product by `library`, which must be in libraries().
  Result<Gemm *> find(const GemmShape &shape, GemmLibrary library);
  // Like the two functions above, for a group. Groups are timed with parts of equal size.
  Result<GemmGroup *> find(const GemmGroupShape &group);
  Result<GemmGroup *> find(const GemmGroupShape &group, GemmLibrary library);
  // Destroys all products that find() returned.
  void clear();
  // Return the libraries that can compute a product of this shape, or this group.
  Result<std::vector<GemmLibrary>> libraries(const GemmShape &shape) const;
  Result<std::vector<GemmLibrary>> libraries(const GemmGroupShape &group) const;

private:
  Result<GemmKey> key(const std::string &product) const;
  Result<std::unique_ptr<Gemm>> make(const GemmShape &shape, GemmLibrary library);
  Result<std::unique_ptr<GemmGroup>> make(const GemmGroupShape &group, GemmLibrary library);
  template <typename Shape> Result<GemmLibrary> choose(const Shape &shape);
  Result<GemmChoice> measure(const GemmShape &shape, const std::vector<GemmLibrary> &available);
  Result<GemmChoice> measure(const GemmGroupShape &group,
                             const std::vector<GemmLibrary> &available);
  template <typename Product, typename Shape, typename Run>
  Result<GemmChoice> fastest(const Shape &shape, const std::vector<GemmLibrary> &available,
                             Run run);
  template <typename Made, typename Shape>
  auto findIn(Made &made, const Shape &shape, GemmLibrary library)
      -> Result<typename Made::mapped_type::pointer>;

  int threads;
  GemmChoices *choices;
  PackedBuffers buffers;
  std::map<std::pair<GemmShape, GemmLibrary>, std::unique_ptr<Gemm>> gemms;
  std::map<std::pair<GemmGroupShape, GemmLibrary>, std::unique_ptr<GemmGroup>> groups;
};

} // namespace lmc::cpu
