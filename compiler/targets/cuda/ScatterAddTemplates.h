// The kernels of kern.scatter_add on a CUDA device, from compiler/targets/cuda/device/scatter_add.cuh.
#pragma once

#include "compiler/targets/cuda/ScatterAddLayout.h"
#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"

#include <vector>

namespace lmc::codegen {

// The operands are ids i32 [rows], x [rows, columns] and d [vocabulary, columns] of
// dtype sumType().
struct ScatterAddShape {
  int64_t rows = 0, columns = 0, vocabulary = 0;
  DataType x = DataType::BF16;
  bool accumulate = false; // else all of d is written; rows without an id become zero

  DataType sumType() const { return x == DataType::F64 ? DataType::F64 : DataType::F32; }
  ScatterAddLayout layout() const {
    return scatterAddLayout(rows, columns, vocabulary, bytesOf(sumType()));
  }
};

enum class ScatterAddOperand { Ids, X, Workspace, D };

// One of plan::ScatterAdd.launches: `args` are the kernel's arguments in order; the first `inputs`
// of them are only read. The workspace is the command's: layout().bytes long, aligned to 64, with
// any contents.
struct ScatterAddLaunch {
  CudaKernel kernel;
  std::vector<ScatterAddOperand> args;
  uint32_t inputs = 0;
};

// Returns the kernels in the order to run. Their traffic depends on the ids. CudaKernel::bytes
// assumes that all ids are in the vocabulary, that they are as different as possible, and that no
// run of equal ids lies in two ranges of the sorted tokens. Each row of x is then read once; each
// row of d is written once, as a sum or as zeros; each pass of the sort reads the keys once in
// either kernel and writes every pair. For a run in several ranges, each further range adds a row
// of partial sums and one more access to the row of d. Not counted are reads that hit the caches:
// the digit counts, which every block of a pass reads; the sorted keys, which the warps of all
// stretches of columns read; and repeated reads in the search for absent ids.
//
// A kernel that does not depend on all of the shape has the same name and text in the launches of
// other shapes.
std::vector<ScatterAddLaunch> scatterAddKernels(const ScatterAddShape &shape);

} // namespace lmc::codegen
