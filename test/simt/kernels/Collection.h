// Kernels of many texts in one module, which is compiled and checked at once.
#pragma once

#include "test/compiler/targets/cpu/KernelRunner.h"
#include "test/simt/kernels/Draw.h"
#include "test/simt/kernels/KernelCheck.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lmc::simt {

using Values = std::map<std::string, std::string>;

class Collection {
public:
  // The one kernel of `text` with `values` filled in, as `name`; null where it does not parse,
  // which fails the test.
  kern::KernelOp add(const std::string &text, const Values &values, const std::string &name);
  // The same, named by the kernel's own name and the values.
  kern::KernelOp add(const std::string &text, const Values &values);

  // Every kernel agrees with the CPU; a failure prints the kernel with its shapes.
  std::vector<CheckedKernel> expectRight();

private:
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

struct Extents {
  int64_t rows, columns;
};

// Kernels of `count` drawn shapes of at most so many rows and columns, in f32 and in bf16, with
// rows that touch and that do not. `textOf` gives the text of a shape.
void expectRightInDrawnShapes(int64_t count, Extents most,
                              const std::function<std::string(Extents, Draw &)> &textOf);

// The same of one text, which `valuesOf` fills in for a shape.
void expectRightInDrawnShapes(const std::string &text, int64_t count, Extents most,
                              const std::function<Values(Extents, Draw &)> &valuesOf);

// Stores inputs and results of f32 as bf16, all of them or some as `draw` has it; the region
// computes as before. Scalars, what a reduction starts from, and sums of blocks of rows stay as
// they are.
void narrow(kern::KernelOp kernel, Draw &draw);

// Spaces the rows of some inputs and results.
void spaceRows(kern::KernelOp kernel, Draw &draw);

} // namespace lmc::simt
