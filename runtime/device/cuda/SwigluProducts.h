// Matrix products with SwiGLU, or its gradient: the choice between cuBLASLt's product with a kernel
// behind it, and one kernel that computes all.
#pragma once

#include "runtime/device/cuda/Kernels.h"
#include "runtime/device/cuda/Products.h"

#include <map>

namespace lmc::cuda {

// A command of this kind, without its addresses.
struct SwigluProduct {
  ProductShape shape; // of the product by cuBLASLt
  bool gradient = false;
  bool both = false;             // as in plan.fbs
  const Kernel *rows = nullptr;  // follows the product
  const Kernel *whole = nullptr; // computes all; null: there is none

  // Of what a choice depends on.
  auto operator<=>(const SwigluProduct &) const = default;

  // The columns of silu(g) u.
  uint64_t columns() const { return gradient ? shape.n : shape.n / 2; }
  uint64_t bytesOfHalves() const { return 2 * shape.m * columns() * byteWidth(shape.output); }
};

// Where the matrices of a command lie. plan.fbs has their shapes.
struct SwigluAddresses {
  CUdeviceptr left = 0, weight = 0; // x or dy
  CUdeviceptr halves = 0;           // gu
  CUdeviceptr gradients = 0;        // dgu, of the gradient alone; may be gu's
  CUdeviceptr activation = 0;       // a
  CUdeviceptr workspace = 0;        // of cuBLASLt
};

class SwigluProducts {
public:
  // `products` must outlive the object.
  SwigluProducts(const Driver &driver, const Gpu &gpu, Products &products)
      : driver(driver), gpu(gpu), products(products) {}

  // Returns the command as this class describes it.
  static SwigluProduct describe(const plan::Plan &plan, const plan::Command &command,
                                const Kernels &kernels);

  // Chooses a way for each command: that of `choices` if there is one; else the faster one if
  // `choices` measures, and cuBLASLt's if not. The kernel that computes all is left out if its
  // results are not those of the other way. Products must have chosen the algorithms of the shapes.
  Result<void> choose(std::vector<SwigluProduct> commands, GemmChoices *choices, CUstream stream);

  // Returns one line for each kernel that a choice has left out because its results are wrong.
  const std::vector<std::string> &remarks() const { return leftOut; }

  // Enqueues a command. The stream may be capturing.
  Result<void> run(const SwigluProduct &command, const SwigluAddresses &at, CUstream stream);

private:
  class Trial;
  enum class Way { Apart, Whole };
  Result<void> run(const SwigluProduct &command, Way way, const SwigluAddresses &at,
                   CUstream stream);
  GemmKey keyOf(const SwigluProduct &command) const;
  Result<Way> chooseOne(const SwigluProduct &command, GemmChoices *choices, CUstream stream);
  Result<GemmChoice> measure(const SwigluProduct &command, const Trial &trial, CUstream stream);

  const Driver &driver;
  const Gpu &gpu;
  Products &products;
  std::map<SwigluProduct, Way> chosen;
  std::vector<std::string> leftOut;
};

} // namespace lmc::cuda
