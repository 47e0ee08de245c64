// Writes the extracted programs of commands whose kernels are templates of the table of commands.
// The text in compiler/extract/text that has the command's name checks the results.
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

// A program that counts as traffic the bytes of the tensors that it adds, without the workspace.
class TableProgram : public CommandProgram {
public:
  TableProgram(const plan::Plan &plan, const plan::Command &command, StringRef main)
      : CommandProgram(plan), command(command), plan(plan) {
    program.main = main.str();
    program.reference = textOf("experts");
    // Allows fused multiply-adds, as CudaKernel::contract does.
    program.options = "-std=c++17 -O2 -fmad=true";
  }

  // Adds an input; `slice` is -1 if the command has none. Indices are random below `bound`.
  void input(StringRef name, int64_t slice, uint64_t bound = 1) {
    add(name, slice, true, int64_t(bound));
    count(slice);
  }
  // Adds a result that must be equal to its reference: an index, a count or a copy.
  void exact(StringRef name, uint32_t slice) {
    add(name, slice, /*isInput=*/false);
    count(slice);
  }
  // Adds a result that rounding may make different from its reference, which is in f64.
  void result(StringRef name, uint32_t slice) {
    exact(name, slice);
    program.arrays.back().allowRoundingTo(program.arrays.back().type);
  }
  // Adds a result whose elements are sums of many products, whose rounding depends on their order.
  // With `accumulates`, the sums are added to random initial values of the result.
  void sumOfProducts(StringRef name, uint32_t slice, bool accumulates = false) {
    result(name, slice);
    Array &sum = program.arrays.back();
    if (StringRef(sum.type) == "F32")
      sum.absolute = 1e-4;
    sum.isInput = accumulates;
    if (accumulates)
      count(slice);
  }
  // Defines the constant kNAME of the program with the value of the command's field `name`.
  void field(StringRef name, uint64_t value) { constant("int64_t", name, Twine(value)); }
  void field(StringRef name, bool value) { constant("bool", name, boolText(value)); }
  void field(StringRef name, double value) {
    constant("double", name, formatv("{0}", format("%.17g", value)).str());
  }
  // Returns the program. If the launches are different ways to compute the command, the program has
  // only launch `way`.
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

// Adds to the program of a command what ground/plan/commands.toml does not state.
void complete(TableProgram &, const auto &) {}
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
void complete(TableProgram &made, const plan::ExpertLinearGrad &op) {
  made.program.flops = flopsOf(op);
}

} // namespace

#include "compiler/extract/Programs.inc"

} // namespace lmc::extract
