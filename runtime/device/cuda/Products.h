// Matrix products by cuBLASLt: the shape of a product, the algorithms that can compute it, and the
// choice among them.
//
// Matrices of a plan are row-major, those of cuBLASLt column-major. The bytes of a row-major [m, n]
// matrix are those of its column-major [n, m] transpose, so d = op(a) op(b) is computed as
// d^T = op(b)^T op(a)^T, with b as cuBLASLt's first matrix.
#pragma once

#include "runtime/device/GemmChoices.h"
#include "runtime/device/cuda/Gpu.h"

#include <cublasLt.h>

#include <compare>
#include <map>
#include <memory>
#include <vector>

namespace lmc::cuda {

// The properties on which an algorithm of cuBLASLt depends. Alignments are those of the addresses
// of all matrices of a batch, in bytes: 16 for multiples of 16, which is the maximum that
// algorithms need, else the largest power of two that divides the addresses.
struct ProductShape {
  uint64_t m = 0, n = 0, k = 0;
  uint64_t batch = 1; // number of products; their matrices lie one behind the other
  bool transposeA = false, transposeB = false;
  bool accumulate = false; // the product is added to d
  bool residual = false;   // another matrix is added to the product
  plan::DType input = plan::DType::F32, output = plan::DType::F32;
  bool hasBias = false;
  plan::DType bias = plan::DType::F32;
  uint32_t alignA = 16, alignB = 16, alignD = 16, alignBias = 16, alignC = 16; // alignC: of the residual
  uint64_t workspaceBytes = 0;

  auto operator<=>(const ProductShape &) const = default;
};

// The addresses of one product. `workspace` has the shape's workspaceBytes.
struct ProductAddresses {
  CUdeviceptr a = 0, b = 0, d = 0, bias = 0, workspace = 0, residual = 0;
};

// A product of one shape with its chosen algorithm.
class Product;

class Products {
public:
  struct Library; // cuBLASLt

  // Opens the library that LMC_CUBLASLT names, else libcublasLt of the major release of CUDA that
  // lmc-run was built with: where the system's loader looks, then in CUDA_HOME and /usr/local/cuda.
  // Error: there is none.
  static Result<std::unique_ptr<Products>> open(const Driver &driver, const Gpu &gpu);
  ~Products();

  LibraryFile libraryFile() const;

  // Returns the shape of a command, whose slices lie in arenas at `arenas`.
  static ProductShape shapeOf(const plan::Plan &plan, const plan::Command &command,
                              const plan::Gemm &gemm);

  // Chooses an algorithm for each shape, and runs each once on memory of its own, so that its code
  // is loaded before a capture, and some sums are checked. For a shape without a choice it takes
  // the fastest algorithm that cuBLASLt proposes if `choices` measures, else the first one that it
  // proposes. The same release of the library always proposes the same first one. Algorithms that
  // do not run, or compute wrong sums, are left out.
  Result<void> choose(std::vector<ProductShape> shapes, GemmChoices *choices, CUstream stream);

  // Returns one line for each algorithm that a choice has left out because it does not run, or
  // computes wrong sums.
  const std::vector<std::string> &remarks() const { return leftOut; }

  // Enqueues a product, for whose shape choose() was called. The stream may be capturing.
  Result<void> run(const ProductShape &shape, const ProductAddresses &at, CUstream stream);

  // Returns the key under which a choice for this shape is kept.
  GemmKey keyOf(const ProductShape &shape) const;

private:
  class Trial;
  Result<void> chooseOne(Product &product, const GemmKey &key, GemmChoices *choices, Trial &trial,
                         CUstream stream);
  // Runs an algorithm once. Returns true if it computes the product; else keeps a remark.
  Result<bool> tryOut(const Product &product, const cublasLtMatmulAlgo_t &algorithm, Trial &trial);
  // Gives the product the first proposal that computes it. Returns the proposal's number, from 1
  // on.
  Result<size_t> chooseFirst(Product &product, Trial &trial);
  // Times the proposals, each behind 3 ms of other products, and returns the fastest.
  Result<GemmChoice> measure(const Product &product, Trial &trial, CUstream stream);
  // Returns the mean seconds of `runs` runs, one after the other.
  Result<double> secondsOf(const Product &product, const cublasLtMatmulAlgo_t &algorithm,
                           const Trial &trial, int runs, CUstream stream);

  Products(const Driver &driver, const Gpu &gpu, std::unique_ptr<Library> library);

  const Driver &driver;
  const Gpu &gpu;
  std::unique_ptr<Library> library;
  std::map<ProductShape, std::unique_ptr<Product>> products;
  std::vector<std::string> leftOut;
  bool warm = false; // true if the GPU is warmed up for timing
  // During choose(): the largest product of this dtype that was ever timed, and its seconds.
  struct Hottest {
    const Product *product = nullptr;
    double seconds = 0;
  } hottest;
};

} // namespace lmc::cuda
