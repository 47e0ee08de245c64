// Writes the extracted programs for the kernels of a mixture of experts.
#include "compiler/extract/Program.h"
#include "ground/plan/Operands.h"

#include "llvm/Support/Format.h"

using llvm::Expected;
using llvm::format;
using llvm::formatv;
using llvm::StringRef;
using llvm::Twine;

namespace lmc::extract {
namespace {

// A program whose bytes are those of the tensors that it adds, without the workspace.
class ExpertsProgram : public CommandProgram {
public:
  ExpertsProgram(const plan::Plan &plan, const plan::Command &command, StringRef main)
      : CommandProgram(plan), command(command), plan(plan) {
    program.main = main.str();
    program.reference = textOf("experts");
    // Fuses multiply-adds, as CudaKernel::contract allows.
    program.options = "-std=c++17 -O2 -fmad=true";
  }

  // Adds an input; -1: there is none. Indices are random below `bound`.
  void input(StringRef name, int64_t slice, uint64_t bound = 1) {
    add(name, slice, true, int64_t(bound));
    count(slice);
  }
  // Adds a result that must be equal to its reference: an index, a count or a copy.
  void exact(StringRef name, uint32_t slice) {
    add(name, slice, /*isInput=*/false);
    count(slice);
  }
  // Adds a result that may differ from its reference, which is in f64, by rounding.
  void result(StringRef name, uint32_t slice) {
    exact(name, slice);
    program.arrays.back().allowRoundingTo(program.arrays.back().type);
  }
  // Adds a result whose elements are sums of many products, the order of which changes their
  // rounding. With `accumulates`, they are added to the random values of the result.
  void sumOfProducts(StringRef name, uint32_t slice, bool accumulates = false) {
    result(name, slice);
    Array &sum = program.arrays.back();
    if (StringRef(sum.type) == "F32")
      sum.absolute = 1e-4;
    sum.isInput = accumulates;
    if (accumulates)
      count(slice);
  }
  void workspace() { add("workspace", command.workspace(), /*isInput=*/false); }
  void extent(StringRef name, uint64_t value) { constant("int64_t", name, Twine(value)); }
  void flag(StringRef name, bool value) { constant("bool", name, boolText(value)); }
  // With launches of all kernels of the command, or of number `only` alone.
  Expected<Program> finish(std::optional<size_t> only = std::nullopt) {
    return launching(command, only);
  }

private:
  void count(int64_t slice) {
    if (slice >= 0)
      program.bytes += double(plan.slices()->Get(uint32_t(slice))->bytes());
  }

  const plan::Command &command;
  const plan::Plan &plan;
};

template <typename Op> void describeRouter(ExpertsProgram &to, const Op &op) {
  to.extent("Tokens", op.tokens());
  to.extent("Count", op.count());
  to.extent("Chosen", op.chosen());
  to.flag("Normalize", op.normalize());
  to.flag("Sigmoid", op.sigmoid());
  to.constant("double", "Scale", formatv("{0}", format("%.17g", op.scale())).str());
  to.program.reference += "\n" + textOf("router");
}

template <typename Op> void describeRows(ExpertsProgram &to, const Op &op) {
  to.extent("Tokens", op.tokens());
  to.extent("Chosen", op.chosen());
  to.extent("Columns", op.columns());
}

template <typename Op> void describeProducts(ExpertsProgram &to, const Op &op) {
  to.extent("Rows", op.rows());
  to.extent("Experts", op.experts());
  to.extent("Inner", op.inner());
  to.extent("Columns", op.columns());
  to.program.flops = 2 * double(op.rows()) * double(op.inner()) * double(op.columns());
}

// Fails for a command that has rows for the choices of some experts only.
llvm::Error divided(const plan::Command &command) {
  const std::string source = command.source() ? command.source()->str() : "";
  return llvm::createStringError(
      "ranks divide the experts of '" + source +
      "', and a program of its own knows no rank: extract the kernel from a plan with "
      "distributed.expert_parallel = 1");
}

// Rows are in the order of random choices among so many experts (text/experts.cu).
constexpr uint64_t kExpertsOfRows = 8;

} // namespace

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::Route &op) {
  ExpertsProgram made(plan, command, "route");
  made.input("logits", op.logits());
  made.input("bias", op.bias());
  made.result("weights", op.weights());
  made.exact("experts", op.experts());
  made.exact("counts", op.counts());
  made.result("mass", op.mass());
  made.workspace();
  describeRouter(made, op);
  return made.finish();
}

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::RouteGrad &op) {
  ExpertsProgram made(plan, command, "route_grad");
  made.input("logits", op.logits());
  made.input("experts", op.experts(), op.count());
  made.input("dweights", op.dweights());
  made.input("dmass", op.dmass());
  made.result("dlogits", op.dlogits());
  describeRouter(made, op);
  return made.finish();
}

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::SortRows &op) {
  if (op.groups() > 1)
    return divided(command);
  ExpertsProgram made(plan, command, "sort_rows");
  made.input("experts", op.experts(), op.count());
  made.exact("offsets", op.offsets());
  made.exact("rows", op.rows());
  made.exact("places", op.places());
  made.workspace();
  made.extent("Choices", op.choices());
  made.extent("Count", op.count());
  return made.finish();
}

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::TakeRows &op) {
  if (op.held() && op.held() != op.tokens() * op.chosen())
    return divided(command);
  ExpertsProgram made(plan, command, "take_rows");
  made.input("x", op.x());
  made.input("rows", op.rows(), kExpertsOfRows);
  made.exact("y", op.y());
  describeRows(made, op);
  return made.finish();
}

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::TakeRowsGrad &op) {
  if (op.held() && op.held() != op.tokens() * op.chosen())
    return divided(command);
  ExpertsProgram made(plan, command, "take_rows_grad");
  made.input("dy", op.dy());
  made.input("places", op.places(), kExpertsOfRows);
  made.result("dx", op.dx());
  describeRows(made, op);
  return made.finish();
}

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::CombineRows &op) {
  if (op.held() && op.held() != op.tokens() * op.chosen())
    return divided(command);
  ExpertsProgram made(plan, command, "combine_rows");
  made.input("y", op.y());
  made.input("weights", op.weights());
  made.input("places", op.places(), kExpertsOfRows);
  made.result("out", op.out());
  describeRows(made, op);
  return made.finish();
}

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::CombineRowsGrad &op) {
  if (op.held() && op.held() != op.tokens() * op.chosen())
    return divided(command);
  ExpertsProgram made(plan, command, "combine_rows_grad");
  made.input("dout", op.dout());
  made.input("y", op.y());
  made.input("weights", op.weights());
  made.input("rows", op.rows(), kExpertsOfRows);
  made.input("places", op.places(), kExpertsOfRows);
  made.result("dy", op.dy());
  made.sumOfProducts("dweights", op.dweights());
  describeRows(made, op);
  return made.finish();
}

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::ExpertLinear &op, size_t launch) {
  ExpertsProgram made(plan, command, "expert_linear");
  made.input("x", op.x());
  made.input("weight", op.weight());
  made.input("offsets", op.offsets(), op.rows() + 1);
  made.sumOfProducts("y", op.y());
  describeProducts(made, op);
  made.flag("Transposed", op.transposed());
  return made.finish(plan::hasTwoWays(command) ? std::optional(launch) : std::nullopt);
}

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::ExpertLinearGrad &op) {
  ExpertsProgram made(plan, command, "expert_linear_grad");
  made.input("dy", op.dy());
  made.input("x", op.x());
  made.input("offsets", op.offsets(), op.rows() + 1);
  made.sumOfProducts("d", op.d(), op.accumulate());
  describeProducts(made, op);
  made.flag("Accumulate", op.accumulate());
  return made.finish();
}

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::ExpertSwiglu &op) {
  ExpertsProgram made(plan, command, "expert_swiglu");
  made.input("x", op.x());
  made.input("offsets", op.offsets(), op.rows() + 1);
  made.result("y", op.y());
  made.extent("Rows", op.rows());
  made.extent("Columns", op.columns());
  return made.finish();
}

template <>
Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::ExpertSwigluGrad &op) {
  ExpertsProgram made(plan, command, "expert_swiglu_grad");
  made.input("dy", op.dy());
  made.input("x", op.x());
  made.input("offsets", op.offsets(), op.rows() + 1);
  made.result("dx", op.dx());
  made.extent("Rows", op.rows());
  made.extent("Columns", op.columns());
  return made.finish();
}

} // namespace lmc::extract
