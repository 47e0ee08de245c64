// Matrix products by cuBLASLt, and the choice of an algorithm for each.
//
// Matrices of a plan are row-major, those of cuBLASLt column-major. A row-major [m, n] matrix has
// the same bytes as its column-major [n, m] transpose. So d = op(a) op(b) is computed as
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

// A shape determines which algorithms cuBLASLt can use. An alignment is the largest power of two,
// at most 16 bytes, that divides the address of each of the `batch` matrices of an operand.
struct ProductShape {
  uint64_t m = 0, n = 0, k = 0;
  uint64_t batch = 1; // number of products; their matrices are adjacent in memory
  bool transposeA = false, transposeB = false;
  bool accumulate = false; // true: the product is added to d
  bool residual = false;   // true: another matrix is added to the product
  plan::DType input = plan::DType::F32, output = plan::DType::F32; // of a, and of d
  plan::DType inputB = plan::DType::F32; // of b; another one than a's only if both have 8 bits
  plan::Scaling scaling = plan::Scaling::Tensor;
  bool hasBias = false;
  plan::DType bias = plan::DType::F32;
  uint32_t alignA = 16, alignB = 16, alignD = 16, alignBias = 16, alignC = 16; // C is the residual
  uint64_t workspaceBytes = 0;

  auto operator<=>(const ProductShape &) const = default;

  // Returns true if a and b hold 8-bit floats. Their product is multiplied by a scale for each.
  bool isScaled() const { return byteWidth(input) == 1; }
};

// The device addresses of one product's matrices. `workspace` points to workspaceBytes bytes.
struct ProductAddresses {
  CUdeviceptr a = 0, b = 0, d = 0, bias = 0, workspace = 0, residual = 0;
  CUdeviceptr scaleA = 0, scaleB = 0; // f32, as plan::Scaling says
};

// A product of one shape, with the algorithm that was chosen for it.
class Product;

class Products {
public:
  struct Library; // cuBLASLt

  // Opens the library that the environment variable LMC_CUBLASLT names. If not set, opens
  // libcublasLt of the CUDA major release that lmc-run was built with. Error: there is none.
  static Result<std::unique_ptr<Products>> open(const Driver &driver, const Gpu &gpu);
  ~Products();

  LibraryFile libraryFile() const;

  // Returns the shape of a command's product.
  static ProductShape shapeOf(const plan::Plan &plan, const plan::Command &command,
                              const plan::Gemm &gemm);

  // Chooses an algorithm for each shape. An algorithm in `choices` has priority. Otherwise, if
  // `choices` asks for measurements, takes the fastest proposal of cuBLASLt, else the first one.
  // Tries each algorithm once, outside of the arenas. Rejects those that fail or give wrong sums.
  Result<void> choose(std::vector<ProductShape> shapes, GemmChoices *choices, CUstream stream);

  // One line for each rejected algorithm.
  const std::vector<std::string> &remarks() const { return leftOut; }

  // Enqueues a product. choose() must have been called for its shape.
  Result<void> run(const ProductShape &shape, const ProductAddresses &at, CUstream stream);

  GemmKey keyOf(const ProductShape &shape) const;

private:
  class Trial;
  Result<void> chooseOne(Product &product, const GemmKey &key, GemmChoices *choices, Trial &trial);
  // Runs an algorithm once. Returns true if the product is correct; else adds a line to remarks().
  Result<bool> tryOut(const Product &product, const cublasLtMatmulAlgo_t &algorithm, Trial &trial);
  // Chooses the first proposal whose product is correct. Returns the proposal's number, from 1.
  Result<size_t> chooseFirst(Product &product, Trial &trial);
  // Times the proposals and returns the fastest.
  Result<GemmChoice> measure(const Product &product, Trial &trial);

  Products(const Driver &driver, const Gpu &gpu, std::unique_ptr<Library> library);

  const Driver &driver;
  const Gpu &gpu;
  std::unique_ptr<Library> library;
  std::map<ProductShape, std::unique_ptr<Product>> products;
  std::vector<std::string> leftOut;
  bool warm = false; // true if the GPU has worked long enough before the first timing
  // The largest product of the current dtype, and its seconds. It heats the GPU before each timing.
  struct Hottest {
    const Product *product = nullptr;
    double seconds = 0;
  } hottest;
};

} // namespace lmc::cuda
