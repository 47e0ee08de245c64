// Writes the extracted programs of commands. A file of compiler/extract/text with the command's
// name checks the results.
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

// Options of nvcc that allow fused multiply-adds, as CudaKernel::contract does.
constexpr const char *kFused = "-std=c++17 -O2 -fmad=true";

// A program for a command whose kernels are templates (ground/plan/commands.toml). Its traffic is
// the number of bytes of all tensors that this class adds. The workspace does not count.
class TableProgram : public CommandProgram {
public:
  TableProgram(const plan::Plan &plan, const plan::Command &command, StringRef main)
      : CommandProgram(plan), command(command), plan(plan) {
    program.main = main.str();
    program.reference = textOf("experts");
    program.options = kFused;
  }

  // Adds an input; `slice` is -1 if the command has none. Integers are random below `bound`.
  void input(StringRef name, int64_t slice, uint64_t bound = 1) {
    add(name, slice, true, int64_t(bound));
    count(slice);
  }
  // Adds a result that must equal its reference: an index, a count or a copy.
  void exact(StringRef name, uint32_t slice) {
    add(name, slice, /*isInput=*/false);
    count(slice);
  }
  // Adds a result that the kernel rounds to the result's type. The reference has f64.
  void result(StringRef name, uint32_t slice) {
    exact(name, slice);
    program.arrays.back().allowRoundingTo(program.arrays.back().type);
  }
  // Adds a result whose elements are sums of many products. If `accumulates` is true, the kernel
  // adds the sums to random initial values.
  void sumOfProducts(StringRef name, uint32_t slice, bool accumulates = false) {
    result(name, slice);
    Array &sum = program.arrays.back();
    if (StringRef(sum.type) == "F32")
      sum.absolute = 1e-4;
    sum.isInput = accumulates;
    if (accumulates)
      count(slice);
  }
  void field(StringRef name, uint64_t value) { constant("int64_t", name, Twine(value)); }
  void field(StringRef name, bool value) { constant("bool", name, boolText(value)); }
  void field(StringRef name, double value) {
    constant("double", name, formatv("{0}", format("%.17g", value)).str());
  }
  Expected<Program> finish(size_t way) {
    if (!hasText(program.main))
      return fail("a {0} has no text in compiler/extract/text that checks it", program.main);
    if (command.workspace() >= 0)
      add("workspace", command.workspace(), /*isInput=*/false);
    return launching(command, plan::hasTwoWays(command) ? std::optional(way) : std::nullopt);
  }

private:
  void count(int64_t slice) {
    if (slice >= 0)
      program.bytes += double(plan.slices()->Get(uint32_t(slice))->bytes());
  }

  const plan::Command &command;
  const plan::Plan &plan;
};

// Adds to `made` what this command's program needs beyond its entry in ground/plan/commands.toml.
template <typename Op> void complete(TableProgram &made, const Op &) {
  constexpr bool isCastInBlocks = requires(const Op &op) { op.codes() + op.scales(); };
  if constexpr (isCastInBlocks)
    made.program.reference += "\n" + textOf("blocks");
}
void complete(TableProgram &made, const plan::Route &) {
  made.program.reference += "\n" + textOf("router");
}
void complete(TableProgram &made, const plan::RouteGrad &) {
  made.program.reference += "\n" + textOf("router");
}
double flopsOf(const auto &op) {
  return 2 * double(op.rows()) * double(op.inner()) * double(op.columns());
}
void complete(TableProgram &made, const plan::ExpertLinear &op) {
  made.program.flops = flopsOf(op);
}
void complete(TableProgram &made, const plan::ExpertScaledLinear &op) {
  constexpr double kBlock = 128;
  made.program.flops =
      2 * double(op.rows()) * kBlock * double(op.depth()) * kBlock * double(op.across());
}
void complete(TableProgram &made, const plan::ExpertLinearGrad &op) {
  made.program.flops = flopsOf(op);
}

// A program for a kernel of SwiGLU after a matrix product. If `whole` is true, the kernel also
// computes the product. Otherwise a library has computed it.
class SwigluProgram : public CommandProgram {
public:
  SwigluProgram(const plan::Plan &plan, const plan::Gemm &product, StringRef main, bool whole)
      : CommandProgram(plan) {
    program.main = main.str();
    program.reference = textOf("experts");
    program.options = kFused;
    constant("bool", "Whole", boolText(whole));
    constant("int64_t", "Rows", Twine(product.m()));
    constant("int64_t", "Inner", Twine(product.k()));
  }

  // Adds the factors of the product. Only a kernel that computes the product reads them.
  void operands(StringRef left, const plan::Gemm &product, bool whole) {
    add(left, whole ? int64_t(product.a()) : -1, true);
    add("weight", whole ? int64_t(product.b()) : -1, true);
  }
  // Adds a result. The kernel rounds values to bf16 several times before it stores the result.
  // If the terms of a sum cancel, the error is small compared with typical values, not with the
  // sum.
  void result(StringRef name, uint32_t slice, bool isInput = false) {
    add(name, slice, isInput);
    program.arrays.back().relative = program.arrays.back().absolute = 0x1p-6;
  }
};

} // namespace

#include "compiler/extract/Programs.inc"

Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::LinearSwiglu &op, size_t launch) {
  const plan::Gemm &product = *op.product();
  const bool whole = launch == 1;
  SwigluProgram made(plan, product, "linear_swiglu", whole);
  made.operands("x", product, whole);
  made.result("gu", product.d(), !whole);
  made.result("a", op.a());
  made.constant("int64_t", "Columns", Twine(product.n() / 2));
  made.constant("bool", "Both", boolText(op.both()));
  return made.launching(command, launch);
}

Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::SwigluLinearGrad &op, size_t launch) {
  const plan::Gemm &product = *op.product();
  const bool whole = launch == 1;
  SwigluProgram made(plan, product, "swiglu_linear_grad", whole);
  made.operands("dy", product, whole);
  made.result("gu", op.dgu(), true);
  made.result("a", product.d(), !whole);
  made.constant("int64_t", "Columns", Twine(product.n()));
  made.constant("bool", "Both", boolText(op.both()));
  return made.launching(command, launch);
}

Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::ScatterAdd &op, size_t) {
  CommandProgram made(plan);
  made.add("ids", op.ids(), true, int64_t(op.vocabulary()) + 1);
  made.program.arrays.back().least = -1;
  made.add("x", op.x(), true);
  made.add("workspace", command.workspace(), false);
  made.add("d", op.d(), false);
  made.constant("int64_t", "Rows", Twine(op.rows()));
  made.constant("int64_t", "Columns", Twine(op.columns()));
  made.constant("int64_t", "Vocabulary", Twine(op.vocabulary()));
  made.constant("bool", "Accumulate", boolText(op.accumulate()));
  made.program.main = "scatter_add";
  made.program.bytes = double(plan.slices()->Get(op.x())->bytes()) +
                       double(plan.slices()->Get(op.d())->bytes()) * (op.accumulate() ? 2 : 1);
  return made.launching(command);
}

} // namespace lmc::extract
