// The commands with matrix products that can be computed in two ways, and the choice between these:
//
//   LinearSwiglu, SwigluLinearGrad   cuBLASLt's product and a kernel behind it, or one kernel
//   ExpertLinear                     a kernel with a block for each tile, or one with blocks that stay
//                                    on their SMs
#pragma once

#include "runtime/device/cuda/Kernels.h"
#include "runtime/device/cuda/Products.h"

#include <map>

namespace lmc::cuda {

// A command of this kind, without its addresses.
struct TwoWayProduct {
  enum class Kind { Forward, Gradient, Experts }; // with SwiGLU, its gradient, of experts

  Kind kind = Kind::Forward;
  // Of the product by cuBLASLt; of experts m is the number of all rows.
  ProductShape shape;
  bool both = false;    // as in plan.fbs
  uint64_t experts = 0; // whose matrices are multiplied
  // The kernels of the two ways; the second may be null: then there is one way.
  const Kernel *first = nullptr, *second = nullptr;

  // Equal commands have one choice.
  auto operator<=>(const TwoWayProduct &) const = default;

  // The columns of silu(g) u.
  uint64_t columns() const { return kind == Kind::Forward ? shape.n / 2 : shape.n; }
};

// Where the matrices of a command lie. plan.fbs has their shapes.
struct WayAddresses {
  CUdeviceptr left = 0, weight = 0; // x or dy
  CUdeviceptr halves = 0;           // gu
  CUdeviceptr gradients = 0;        // dgu, of the gradient alone; may be gu's
  CUdeviceptr result = 0;           // a; of experts y
  CUdeviceptr offsets = 0;          // of experts
  CUdeviceptr workspace = 0;        // of cuBLASLt
};

class ProductWays {
public:
  // `products` must outlive the object.
  ProductWays(const Driver &driver, const Gpu &gpu, Products &products)
      : driver(driver), gpu(gpu), products(products) {}

  // Returns the command as this class describes it.
  static TwoWayProduct describe(const plan::Plan &plan, const plan::Command &command,
                                const Kernels &kernels);

  // Chooses a way for each command: that of `choices` if there is one; else the faster one if
  // `choices` measures, and the first if not. The second is left out if its results are not those
  // of the first. Products must have chosen the algorithms of the shapes.
  Result<void> choose(std::vector<TwoWayProduct> commands, GemmChoices *choices, CUstream stream);

  // Returns one line for each kernel that choose() has left out: its results are wrong, or there was
  // too little memory to try it.
  const std::vector<std::string> &remarks() const { return leftOut; }

  // Enqueues a command. The stream may be capturing.
  Result<void> run(const TwoWayProduct &command, const WayAddresses &at, CUstream stream);

private:
  class Trial;
  enum class Way { First, Second };
  Result<void> run(const TwoWayProduct &command, Way way, const WayAddresses &at, CUstream stream);
  GemmKey keyOf(const TwoWayProduct &command) const;
  Result<Way> chooseOne(const TwoWayProduct &command, GemmChoices *choices, CUstream stream);
  Result<GemmChoice> measure(const TwoWayProduct &command, const Trial &trial, CUstream stream);

  const Driver &driver;
  const Gpu &gpu;
  Products &products;
  std::map<TwoWayProduct, Way> chosen;
  std::vector<std::string> leftOut;
};

} // namespace lmc::cuda
