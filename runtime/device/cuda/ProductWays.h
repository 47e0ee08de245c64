// Commands with matrix products that can be computed in two ways, and the choice between the ways:
//
//   LinearSwiglu, SwigluLinearGrad   cuBLASLt's product and then a kernel, or one kernel for both
//   ExpertLinear                     a thread block for each tile, or a persistent kernel, whose
//                                    thread blocks compute one tile after the other
#pragma once

#include "runtime/device/cuda/Kernels.h"
#include "runtime/device/cuda/Products.h"

#include <map>

namespace lmc::cuda {

// A command that can be computed in two ways, without its addresses.
struct TwoWayProduct {
  enum class Kind { Forward, Gradient, Experts }; // LinearSwiglu, SwigluLinearGrad, ExpertLinear

  Kind kind = Kind::Forward;
  // The shape of cuBLASLt's product. For Kind::Experts, m is the number of all experts' rows.
  ProductShape shape;
  bool both = false; // as in plan.fbs
  uint64_t experts = 0;
  // The kernels of the two ways. If `second` is null, there is only one way.
  const Kernel *first = nullptr, *second = nullptr;

  auto operator<=>(const TwoWayProduct &) const = default;

  // Returns the number of columns of SwiGLU's result silu(g) u.
  uint64_t columns() const { return kind == Kind::Forward ? shape.n / 2 : shape.n; }
};

// The addresses of a command's matrices. plan.fbs has their shapes.
struct WayAddresses {
  CUdeviceptr left = 0, weight = 0; // left: x, or dy for Kind::Gradient; weight: w
  CUdeviceptr halves = 0;           // gu
  CUdeviceptr gradients = 0;        // dgu, only for Kind::Gradient; may equal `halves`
  CUdeviceptr result = 0;           // Forward: a; Experts: y; Gradient: d, then a if `both`
  CUdeviceptr offsets = 0;          // only for Kind::Experts
  CUdeviceptr workspace = 0;        // only for cuBLASLt
};

class ProductWays {
public:
  // `products` must outlive the object.
  ProductWays(const Driver &driver, const Gpu &gpu, Products &products)
      : driver(driver), gpu(gpu), products(products) {}

  static TwoWayProduct describe(const plan::Plan &plan, const plan::Command &command,
                                const Kernels &kernels);

  // Chooses a way for each command. A way in `choices` has priority. Else takes the faster way if
  // `choices` asks for measurements, otherwise the first. Rejects the second way if its results
  // differ from those of the first way. Products::choose() must have been called for the shapes.
  Result<void> choose(std::vector<TwoWayProduct> commands, GemmChoices *choices, CUstream stream);

  // Returns a line for each rejected kernel: its results are wrong, or there was too little memory
  // to try it.
  const std::vector<std::string> &remarks() const { return leftOut; }

  // Enqueues a command.
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
