// Writes the extracted programs for the kernels of matrix products with SwiGLU: for the kernel that
// follows a library's product, or for the kernel that computes all.
#include "compiler/extract/Program.h"

using llvm::Expected;
using llvm::StringRef;

namespace lmc::extract {
namespace {

class SwigluProgram : public CommandProgram {
public:
  SwigluProgram(const plan::Plan &plan, const plan::Gemm &product, StringRef main, bool whole)
      : CommandProgram(plan) {
    program.main = main.str();
    program.reference = textOf("experts");
    program.options = "-std=c++17 -O2 -fmad=true"; // as CudaKernel::contract allows
    constant("bool", "Whole", boolText(whole));
    constant("int64_t", "Rows", llvm::Twine(product.m()));
    constant("int64_t", "Inner", llvm::Twine(product.k()));
  }

  // Adds the factors of the product, which only the kernel that computes all reads.
  void operands(StringRef left, const plan::Gemm &product, bool whole) {
    add(left, whole ? int64_t(product.a()) : -1, true);
    add("weight", whole ? int64_t(product.b()) : -1, true);
  }
  // Adds a result. Values on the way to it are rounded to bf16 several times. Where the terms of a
  // sum cancel, the error is small compared with the typical value, not with the sum.
  void result(StringRef name, uint32_t slice, bool isInput = false) {
    add(name, slice, isInput);
    program.arrays.back().relative = program.arrays.back().absolute = 0x1p-6;
  }
};

} // namespace

Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::LinearSwiglu &op, size_t launch) {
  const plan::Gemm &product = *op.product();
  const bool whole = launch == 1;
  SwigluProgram made(plan, product, "linear_swiglu", whole);
  made.operands("x", product, whole);
  made.result("gu", product.d(), !whole);
  made.result("a", op.a());
  made.constant("int64_t", "Columns", llvm::Twine(product.n() / 2));
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
  made.constant("int64_t", "Columns", llvm::Twine(product.n()));
  made.constant("bool", "Both", boolText(op.both()));
  return made.launching(command, launch);
}

} // namespace lmc::extract
