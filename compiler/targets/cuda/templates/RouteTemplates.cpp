#include "compiler/targets/cuda/templates/RouteTemplates.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace lmc;
using namespace lmc::codegen;
using llvm::divideCeil;
using llvm::formatv;

namespace {

// As in route.cuh.
constexpr int64_t kRouteThreads = 256, kRouteWarps = 8, kRouteTokens = 64;

// Returns a kernel. In `parameters`, {0} stands for the type of logits, and {1} for that of sums.
CudaKernel routeKernel(const RouteShape &shape, const char *hero, const std::string &comment,
                       const std::string &parameters, const std::string &call, int64_t blocks) {
  CudaKernel kernel;
  kernel.hero = hero;
  kernel.name = formatv("{0}_{1}x{2}_{3}{4}{5}{6}{7}_{8}", hero, shape.tokens, shape.experts,
                        shape.chosen, shape.normalize ? "_n" : "", shape.mass ? "_m" : "",
                        shape.sigmoid ? "_s" : "", shape.bias ? "_b" : "", shortName(shape.type));
  std::string scale;
  llvm::raw_string_ostream(scale) << llvm::format("%a", shape.scale);
  const std::string signature =
      formatv(parameters.c_str(), cudaName(shape.type), cudaName(shape.realType()));
  kernel.source =
      formatv("// {0}\n#include \"lmc/route.cuh\"\n\n"
              "struct Shape {{\n"
              "  static constexpr int tokens = {1}, experts = {2}, chosen = {3};\n"
              "  static constexpr bool normalize = {4}, sigmoid = {5}, bias = {6}, mass = {7};\n"
              "  static constexpr double scale = {8};\n"
              "};\n\n"
              "extern \"C\" __global__ void __launch_bounds__({9}) {10}({11}) {{\n  {12};\n}\n",
              comment, shape.tokens, shape.experts, shape.chosen, shape.normalize, shape.sigmoid,
              shape.bias, shape.mass, scale, kRouteThreads, kernel.name, signature,
              formatv(call.c_str(), cudaName(shape.realType())).str());
  kernel.grid = {uint32_t(blocks), 1, 1};
  kernel.threads = uint32_t(kRouteThreads);
  kernel.contract = true;
  return kernel;
}

} // namespace

int64_t RouteShape::workspaceBytes() const {
  return int64_t(divideCeil(tokens, kRouteTokens)) * 2 * experts * elementBytes(realType());
}

std::vector<CudaKernel> lmc::codegen::routeKernels(const RouteShape &shape) {
  const uint64_t real = uint64_t(elementBytes(shape.realType()));
  const uint64_t choices = uint64_t(shape.tokens * shape.chosen);
  const uint64_t logits = uint64_t(shape.tokens * shape.experts * elementBytes(shape.type));
  const auto parts = uint64_t(shape.workspaceBytes());
  CudaKernel choose = routeKernel(
      shape, "route",
      formatv("The {0} of {1} experts with the largest {2}{3} of each row of logits, with their "
              "weights.",
              shape.chosen, shape.experts, shape.sigmoid ? "sigmoid" : "softmax",
              shape.bias ? " and bias" : ""),
      std::string("const {0} *logits, ") + (shape.bias ? "const {1} *bias, " : "") +
          "{1} *weights, lmc::i32 *experts, lmc::u8 *workspace",
      std::string("lmc::route<Shape>(logits, ") + (shape.bias ? "bias" : "nullptr") +
          ", weights, experts, reinterpret_cast<{0} *>(workspace))",
      int64_t(divideCeil(shape.tokens, kRouteTokens)));
  choose.sharedBytes = uint32_t(kRouteWarps * 2 * shape.experts) * uint32_t(real);
  choose.bytes = {logits + (shape.bias ? uint64_t(shape.experts) * real : 0),
                  choices * (real + 4) + parts};
  CudaKernel sums = routeKernel(
      shape, "route_sums", "How many choices each expert got, and the sum of its probabilities.",
      "const lmc::u8 *workspace, {1} *counts, {1} *mass",
      "lmc::routeSums<Shape>(reinterpret_cast<const {0} *>(workspace), counts, mass)",
      int64_t(divideCeil(shape.experts, kRouteThreads)));
  sums.bytes = {parts, 2 * uint64_t(shape.experts) * real};
  return {std::move(choose), std::move(sums)};
}

CudaKernel lmc::codegen::routeGradKernel(const RouteShape &shape) {
  const uint64_t real = uint64_t(elementBytes(shape.realType()));
  const uint64_t choices = uint64_t(shape.tokens * shape.chosen);
  const uint64_t logits = uint64_t(shape.tokens * shape.experts * elementBytes(shape.type));
  CudaKernel kernel =
      routeKernel(shape, "route_grad", "The gradient of the router for its logits.",
                  std::string("const {0} *logits, const lmc::i32 *experts, const {1} *dweights, ") +
                      (shape.mass ? "const {1} *dmass, " : "") + "{0} *dlogits",
                  std::string("lmc::routeGrad<Shape>(logits, experts, dweights, ") +
                      (shape.mass ? "dmass" : "nullptr") + ", dlogits)",
                  int64_t(divideCeil(shape.tokens, kRouteWarps)));
  kernel.bytes = {logits + choices * (real + 4) + (shape.mass ? uint64_t(shape.experts) * real : 0),
                  logits};
  return kernel;
}
