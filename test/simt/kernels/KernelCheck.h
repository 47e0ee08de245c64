// Printed CUDA kernels beside the CPU's object code of the same kern.kernel.
#pragma once

#include "compiler/kernels/Hero.h"
#include "compiler/targets/cpu/CpuObject.h"
#include "compiler/targets/cuda/CudaKernel.h"
#include "test/simt/SimtKernel.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace lmc::simt {

inline Source sourceOf(const codegen::CudaKernel &kernel) {
  return {kernel.name, kernel.source, kernel.grid, kernel.threads, kernel.sharedBytes};
}

// Host memory of an argument: elements of a ranked tensor, in rows that may be pitched, at an
// address that is aligned as on a device, between bytes that belong to nobody.
class Buffer {
public:
  Buffer(mlir::RankedTensorType type, int64_t rows, int64_t pitch);

  Argument argument(Access access) const;
  void *data() const;
  int64_t size() const { return elements; }
  // An element, in row-major order of the tensor.
  double at(int64_t element) const { return read(address(element)); }
  void set(int64_t element, double value) { write(address(element), value); }
  mlir::Type elementType() const { return type.getElementType(); }

private:
  char *address(int64_t element) const;

  mlir::RankedTensorType type;
  int64_t elements;
  int64_t width, rows, pitch; // bytes; runs; bytes, 0: dense
  double (*read)(const char *place);
  void (*write)(char *place, double value);
  std::vector<char> storage;
};

// An argument as the kernel's loops see it.
struct ArgumentFacts {
  uint64_t bytes = 0;        // of all elements
  uint64_t elementBytes = 0; // of one
  bool coversDomain = false; // it has an element for every point of the domain
  bool wholeSectors = false; // its runs along the lane are whole sectors of 32 bytes
  bool alongLane = false;    // its place changes with the innermost dimension of the domain
  // Of an input: places that the kernel reads it at, in terms of a point of the domain, and
  // whether one of them changes with the outer dimensions.
  unsigned places = 0;
  bool alongRows = false;
};

// What a kernel's run on the executor came to.
struct CheckedKernel {
  std::string name;
  kern::Hero hero;
  codegen::KernelShape shape;
  codegen::CudaKernel cuda;
  size_t inputs = 0;
  std::vector<ArgumentFacts> arguments; // inputs, then results
  std::vector<Traffic> traffic;         // of the same
  std::string failure;                  // "": it agrees with the CPU
};

// Prints every kern.kernel of `module`, runs it twice on the executor and once on the
// CPU from the same random inputs (with only positive numbers and with all), and again with each
// result over each input that it may share memory with. bf16 results agree within one unit of
// the last place, but for a few that hang on a tie, others within the error of sums of f32.
std::vector<CheckedKernel> checkKernels(mlir::ModuleOp module, uint64_t seed = 1);

} // namespace lmc::simt
