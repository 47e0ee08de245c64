// The kernels of kern.scatter_add on a CUDA device, from compiler/targets/cuda/device/scatter_add.cuh.
#pragma once

#include "compiler/config/Config.h"
#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/kernels/ScatterAddLayout.h"

#include <vector>

namespace lmc::codegen {

// ids i32 [rows], x [rows, columns], d f32 (f64 for f64) [vocabulary, columns].
struct ScatterAddShape {
  int64_t rows = 0, columns = 0, vocabulary = 0;
  DataType x = DataType::BF16;
  bool accumulate = false; // else every row of d is written, those without an id with zeros

  ScatterAddLayout layout() const {
    return scatterAddLayout(rows, columns, vocabulary, x == DataType::F64 ? 8 : 4);
  }
};

enum class ScatterAddOperand { Ids, X, Workspace, D };

// A launch of plan::ScatterAdd.launches: `args` are the kernel's arguments in order, of which
// the first `inputs` are only read. The workspace is the command's, layout().bytes long,
// aligned to 64, and may hold anything before.
struct ScatterAddLaunch {
  CudaKernel kernel;
  std::vector<ScatterAddOperand> args;
  uint32_t inputs = 0;
};

// In the order to run. What they move depends on the ids; CudaKernel::bytes is that of ids that
// are all in the vocabulary and as different as can be, with no run of equal ones in two ranges
// of the sorted tokens: each row of x read once, each row of d written once, by the sums or as
// zeros; in each pass of the sort the keys read once by either kernel, and every pair written.
// A run in several ranges takes a row of partial sums and its row of d once more for each
// further range. From the caches come the digits' counts, which every block of a pass reads; the
// sorted keys, which the warps of all stretches of columns read; and what the search for absent
// ids reads again.
//
// Kernels that do not depend on all of the shape have the same name and
// text in the launches of other shapes.
std::vector<ScatterAddLaunch> scatterAddKernels(const ScatterAddShape &shape);

} // namespace lmc::codegen
