// Commands that need no generated kernel (matrix product, copy), with their operands as addresses
// in this machine's memory. Both the CPU device and the SIMT device run them.
#pragma once

#include "runtime/device/cpu/Gemm.h"
#include "runtime/device/cpu/HostMemory.h"

namespace lmc::cpu {

// Returns the storage type for a float dtype, and F32 for every other dtype.
Storage storageOf(plan::DType dtype);

struct GemmCommand {
  Gemm *gemm;
  const char *a, *b, *bias; // `bias` is null if there is none
  char *d;
  const char *residual; // a matrix like d that is added to the product, or null
  // The number of products, and the bytes from a matrix of one to that of the next.
  int64_t batch = 1, strideA = 0, strideB = 0, strideD = 0;

  void run() const;
};

// The products of a layer's experts. `offsets` (experts + 1 numbers) gives the rows of each expert,
// so that the sizes of the products are known only when the command runs.
struct ExpertCommand {
  GemmGroup *gemms;
  const int32_t *offsets;
  const char *a, *b;
  char *d;
  // Distances in bytes: from an operand of one expert to that of the next (expertB, expertD), and
  // from row to row in an operand with rows of all experts (rowA, rowB, rowD); 0 elsewhere.
  int64_t rowA, rowB, rowD, expertB, expertD;
  bool rowsAreDepth;           // true: an expert's rows are its k; false: its m
  int64_t otherSize;           // of m and k, the one that is equal for all experts
  std::vector<GemmPart> parts; // one per expert

  void run();
};

// A copy of `rows` runs of `bytes` bytes each from x to d. Runs start `xPitch` bytes apart in x and
// `dPitch` bytes apart in d. If neither slice has a pitch, there is one run.
struct CopyCommand {
  char *d;
  const char *x;
  int64_t bytes, rows, dPitch, xPitch;

  void run(int threads) const;
};

Result<GemmCommand> bindGemm(const plan::Gemm &op, HostMemory &memory, GemmCache &gemms);
Result<ExpertCommand> bindExperts(const plan::ExpertLinear &op, HostMemory &memory,
                                  GemmCache &gemms);
Result<ExpertCommand> bindExperts(const plan::ExpertLinearGrad &op, HostMemory &memory,
                                  GemmCache &gemms);
CopyCommand bindCopy(const plan::Copy &op, HostMemory &memory);

} // namespace lmc::cpu
