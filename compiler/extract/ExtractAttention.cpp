// Writes the extracted program for the kernels of attention and of its gradient.
#include "compiler/cost/Roofline.h"
#include "compiler/extract/Program.h"

#include "llvm/Support/Format.h"

using llvm::Expected;
using llvm::format;
using llvm::formatv;
using llvm::Twine;

namespace lmc::extract {

// `products` is the number of dot products that are computed per pair of a query and a visible key.
template <typename Op>
static Expected<Program> attentionOf(CommandProgram &to, const plan::Command &command, const Op &op,
                                     bool isGradient, double products) {
  to.add("q", op.q(), true);
  to.add("k", op.k(), true);
  to.add("v", op.v(), true);
  to.add("starts", op.starts(), true, 300); // random in [0, 300); each 0 begins a new document
  to.add("out", op.out(), isGradient);
  to.add("lse", op.lse(), isGradient);
  to.add("largest", op.largest(), false);
  for (auto [name, value] : {std::pair<const char *, uint64_t>{"Batch", op.batch()},
                             {"Seq", op.seq()},
                             {"Heads", op.heads()},
                             {"Group", op.heads() / op.kv_heads()},
                             {"HeadDim", op.head_dim()},
                             {"Window", op.window()}})
    to.constant("int", name, Twine(value));
  to.constant("float", "Scale", formatv("float({0})", format("%.17g", op.scale())).str());
  to.constant("bool", "IsGradient", boolText(isGradient));
  to.program.main = "attention";
  // Allows fused multiply-adds, as CudaKernel::contract does.
  to.program.options = "-std=c++17 -O2 -fmad=true";
  to.program.flops = 2 * products * op.head_dim() * cost::visiblePairs(op.seq(), op.window()) *
                     op.heads() * op.batch();
  return to.launching(command);
}

Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::Attention &op, size_t) {
  CommandProgram made(plan);
  for (const char *name : {"dout", "dq", "dk", "dv", "cos", "sin"})
    made.add(name, -1, false);
  return attentionOf(made, command, op, /*isGradient=*/false, 2);
}

Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                            const plan::AttentionGrad &op, size_t) {
  CommandProgram made(plan);
  made.add("dout", op.dout(), true);
  made.add("dq", op.dq(), false);
  made.add("dk", op.dk(), false);
  made.add("dv", op.dv(), false);
  made.add("delta", command.workspace(), false);
  made.add("cos", op.cos(), true);
  made.add("sin", op.sin(), true);
  return attentionOf(made, command, op, /*isGradient=*/true, 5);
}

} // namespace lmc::extract
