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

// The properties on which the choice of an algorithm of cuBLASLt depends. An alignment is the
// largest power of two, at most 16 (no algorithm needs more), that divides the addresses in bytes
// of all matrices of the batch.
struct ProductShape {
  uint64_t m = 0, n = 0, k = 0;
  uint64_t batch = 1; // number of products; their matrices lie one after the other in memory
  bool transposeA = false, transposeB = false;
  bool accumulate = false; // true: the product is added to d
  bool residual = false;   // true: another matrix is added to the product
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

// The product of one shape by its chosen algorithm.
class Product;

class Products {
public:
  struct Library; // cuBLASLt

  // Opens the library that LMC_CUBLASLT names, else libcublasLt of the major release of CUDA with
  // which lmc-run was built, searched where the system's loader looks, then in CUDA_HOME and
  // /usr/local/cuda. Error: there is none.
  static Result<std::unique_ptr<Products>> open(const Driver &driver, const Gpu &gpu);
  ~Products();

  LibraryFile libraryFile() const;

  // Returns the shape of a command's product.
  static ProductShape shapeOf(const plan::Plan &plan, const plan::Command &command,
                              const plan::Gemm &gemm);

  // Chooses an algorithm for each shape: the one in `choices`; if there is none, the fastest that
  // cuBLASLt proposes if `choices` measures, else the first that it proposes, which is always the
  // same for one release of the library. Runs each algorithm once, in memory outside of the arenas:
  // this loads its code before a capture, and some sums are checked. Algorithms that do not run, or
  // compute wrong sums, are left out.
  Result<void> choose(std::vector<ProductShape> shapes, GemmChoices *choices, CUstream stream);

  // Returns one line for each algorithm that was left out.
  const std::vector<std::string> &remarks() const { return leftOut; }

  // Enqueues a product. choose() must have been called for its shape. The stream may be capturing.
  Result<void> run(const ProductShape &shape, const ProductAddresses &at, CUstream stream);

  // Returns the key of the choice for this shape.
  GemmKey keyOf(const ProductShape &shape) const;

private:
  class Trial;
  Result<void> chooseOne(Product &product, const GemmKey &key, GemmChoices *choices, Trial &trial,
                         CUstream stream);
  // Runs an algorithm once. Returns true if it computes the product, else adds to remarks().
  Result<bool> tryOut(const Product &product, const cublasLtMatmulAlgo_t &algorithm, Trial &trial);
  // Chooses the first proposal that computes the product. Returns its number, counted from 1.
  Result<size_t> chooseFirst(Product &product, Trial &trial);
  // Times the proposals, each after 3 ms of other products, and returns the fastest.
  Result<GemmChoice> measure(const Product &product, Trial &trial, CUstream stream);
  // Returns the mean time of `runs` consecutive runs, in seconds.
  Result<double> secondsOf(const Product &product, const cublasLtMatmulAlgo_t &algorithm,
                           const Trial &trial, int runs, CUstream stream);

  Products(const Driver &driver, const Gpu &gpu, std::unique_ptr<Library> library);

  const Driver &driver;
  const Gpu &gpu;
  std::unique_ptr<Library> library;
  std::map<ProductShape, std::unique_ptr<Product>> products;
  std::vector<std::string> leftOut;
  bool warm = false; // true if the GPU has worked long enough before the first timing
  // During choose(): the largest product of the current dtype, once it is timed, and its seconds.
  struct Hottest {
    const Product *product = nullptr;
    double seconds = 0;
  } hottest;
};

} // namespace lmc::cuda
