// Generates the kernels of kern.scatter_add on a CUDA device, from scatter_add.cuh in
// compiler/targets/cuda/device.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"
#include "compiler/targets/cuda/templates/ScatterAddLayout.h"

#include <vector>

namespace lmc::codegen {

// The shape of d[ids[t], :] += x[t, :] with ids i32 [rows], x [rows, columns] and d [vocabulary,
// columns] of dtype sumType().
struct ScatterAddShape {
  int64_t rows = 0, columns = 0, vocabulary = 0;
  DataType x = DataType::BF16;
  bool accumulate = false; // if false, all of d is written: rows without a token become zero

  DataType sumType() const { return x == DataType::F64 ? DataType::F64 : DataType::F32; }
  ScatterAddLayout layout() const {
    return scatterAddLayout(rows, columns, vocabulary, elementBytes(sumType()));
  }
};

enum class ScatterAddOperand { Ids, X, Workspace, D };

// One launch of the command plan::ScatterAdd. `args` are the kernel's arguments in order, of which
// it only reads the first `inputs`. The workspace belongs to the command: it has layout().bytes
// bytes, is aligned to 64 bytes, and may have any contents.
struct ScatterAddLaunch {
  CudaKernel kernel;
  std::vector<ScatterAddOperand> args;
  uint32_t inputs = 0;
};

// Returns the launches in the order to run. Their traffic depends on the ids. CudaKernel::bytes
// assumes that all ids are in the vocabulary, that they are as different as possible, and that no
// run of equal ids lies in two ranges of the sorted tokens. Then each row of x is read once, each
// row of d is written once (a sum or zeros), and each pass of the sort reads the keys once in each
// of its two kernels and writes every pair. For a run in several ranges, each further range adds a
// row of partial sums and one more access to the row of d. Reads that hit the caches do not count:
// the digit counts (read by every block of a pass), the sorted keys (read by the warps of all
// groups of columns), and repeated reads in the search for absent ids.
//
// Two shapes may share a kernel: a kernel that depends only on a part of the shape has the same
// name and text for both.
std::vector<ScatterAddLaunch> scatterAddKernels(const ScatterAddShape &shape);

} // namespace lmc::codegen
