// Generates the kernels of kern.scatter_add on a CUDA device, from scatter_add.cuh.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"
#include "compiler/targets/cuda/templates/ScatterAddLayout.h"

#include <vector>

namespace lmc::codegen {

// d[ids[t], :] += x[t, :]: ids i32 [rows], x [rows, columns], d [vocabulary, columns] in sumType().
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

// One launch of the command plan::ScatterAdd. The first `inputs` arguments are only read.
// The workspace has layout().bytes bytes, is aligned to 64 bytes, and may contain anything.
struct ScatterAddLaunch {
  CudaKernel kernel;
  std::vector<ScatterAddOperand> args;
  uint32_t inputs = 0;
};

// Returns the launches in the order to run. Their traffic depends on the ids. CudaKernel::bytes
// assumes that all ids are in the vocabulary, as few ids as possible are equal, and no run of equal
// ids lies in two ranges. Each row of x is then read once, and each row of d is written once. Each
// pass of the sort reads the keys twice and writes every pair. Reads from caches do not count.
//
// Two shapes may share a kernel that depends only on a part of the shape.
std::vector<ScatterAddLaunch> scatterAddKernels(const ScatterAddShape &shape);

} // namespace lmc::codegen
