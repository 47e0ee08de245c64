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
  const char *residual; // added to the product, as large as d; null if there is none
  // The number of products, and the bytes from a matrix of one to that of the next.
  int64_t batch = 1, strideA = 0, strideB = 0, strideD = 0;

  void run() const;
};

// The products of the experts of a layer. `offsets` (experts + 1 numbers) says which rows belong to
// which expert, so the number of rows of each product is known only when the command runs.
struct ExpertCommand {
  GemmGroup *gemms;
  const int32_t *offsets;
  const char *a, *b;
  char *d;
  // The bytes from an operand of one expert to that of the next, and, where an operand has the rows
  // of all experts, from one row to the next; 0 elsewhere.
  int64_t rowA, rowB, rowD, expertB, expertD;
  bool rowsAreDepth;           // an expert's rows are its k, not its m
  int64_t otherSize;           // the one of m and k that all experts have alike
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
