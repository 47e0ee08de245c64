// Writes the extracted program for the kernels of scatter-add.
#include "compiler/extract/Program.h"

using llvm::Expected;
using llvm::Twine;

namespace lmc::extract {

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
