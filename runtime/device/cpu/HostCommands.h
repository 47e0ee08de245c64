// The commands that need no generated kernel, with the addresses of their operands in this
// machine's memory. Both the CPU device and the SIMT device run them.
#pragma once

#include "runtime/device/cpu/Gemm.h"
#include "runtime/device/cpu/HostMemory.h"

#include <memory>

namespace lmc::cpu {

// Returns the storage type of f32, bf16 or f64, and F32 for all other dtypes.
Storage storageOf(plan::DType dtype);

// The numbers for which the codes of a factor of 8 bits stand, code * scale, are written to
// `numbers` as bf16. This is exact for a scale that is a power of two, but where a number is no
// normal bf16. The factor has `rows` rows of `columns` elements. With `block` = 0 it has one scale.
// Otherwise `block` elements of row r, of number b from 0, have the scale
// scales[r / blockRows * pitchRow + b * pitchBlock].
struct ScaledFactor {
  plan::DType format;
  const uint8_t *codes;
  const float *scales;
  uint16_t *numbers;
  int64_t rows, columns;
  int64_t block = 0, blockRows = 1, pitchRow = 0, pitchBlock = 0;
  int64_t pitch = columns; // elements from a row of codes to the next

  void run() const;
};

struct GemmCommand {
  Gemm *gemm;
  const char *a, *b, *bias; // `bias` is null if there is none
  char *d;
  const char *residual; // a matrix of d's shape that is added to the product, or null
  // The number of products, and for each operand the bytes from one product's matrix to the next.
  int64_t batch = 1, strideA = 0, strideB = 0, strideD = 0;
  std::vector<ScaledFactor> scaled; // factors of 8 bits; `a` and `b` are then their numbers

  void run() const;
};

// The products of a layer's experts. Expert e has rows offsets[e] to offsets[e + 1] - 1. An earlier
// command computes `offsets`.
struct ExpertCommand {
  GemmGroup *gemms;
  const int32_t *offsets;
  const char *a, *b;
  char *d;
  // X is an operand: A, B or D. If X is one matrix with the rows of all experts, rowX is the bytes
  // from one row of X to the next, and expertX is 0. If X has one matrix per expert, expertX is the
  // bytes from one matrix of X to the next, and rowX is 0. A always has the rows of all experts.
  int64_t rowA, rowB, rowD, expertB, expertD;
  bool rowsAreDepth;           // true: dimension k counts an expert's rows; false: m counts them
  int64_t otherSize;           // m if rowsAreDepth, else k; it is equal for all experts
  std::vector<GemmPart> parts; // one per expert
  std::vector<ScaledFactor> scaled;
  std::shared_ptr<std::vector<uint16_t>> numbers; // of `scaled`, if they are in no workspace

  void run();
};

// Copies `rows` rows of `bytes` bytes each from x to d. A pitch is the bytes from one row to the
// next. If neither slice has a pitch, the whole slice is one row.
struct CopyCommand {
  char *d;
  const char *x;
  int64_t bytes, rows, dPitch, xPitch;

  void run(int threads) const;
};

// `workspace` is the slice of the command that has the product; -1: none.
Result<GemmCommand> bindGemm(const plan::Gemm &op, int64_t workspace, HostMemory &memory,
                             GemmCache &gemms);
Result<ExpertCommand> bindExperts(const plan::ExpertLinear &op, HostMemory &memory,
                                  GemmCache &gemms);
Result<ExpertCommand> bindExperts(const plan::ExpertLinearGrad &op, HostMemory &memory,
                                  GemmCache &gemms);
// `workspace`: as for bindGemm(). Without one, as in a plan for a GPU, the command has memory of
// its own.
Result<ExpertCommand> bindExperts(const plan::ExpertScaledLinear &op, int64_t workspace,
                                  HostMemory &memory, GemmCache &gemms);
CopyCommand bindCopy(const plan::Copy &op, HostMemory &memory);

} // namespace lmc::cpu
