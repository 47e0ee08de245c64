// Attention on CUDA. Its kernels are not printed from a region but instantiated from templates of
// compiler/targets/cuda/device.
//
// The plan keeps attention as a command of its own and lists these kernels as the command's
// launches. Another implementation therefore needs changes in one place only. A kernel for one
// architecture (wgmma and TMA on sm_90a) is a further case of attentionKernels, with the same
// arguments. A library (cuDNN) is called by the runtime's device, which may use the command and
// ignore its launches.
#pragma once

#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc::codegen {

// The shape of softmax(scale q k^T + mask) v per head, as in plan.fbs. Query i of a sequence sees
// key j if j <= i, if i - j < window (when there is a window), and if j >= starts[i] (with
// documents).
struct AttentionShape {
  DataType type = DataType::BF16;
  int64_t batch = 1, seq = 1, heads = 1, kvHeads = 1, headDim = 64;
  int64_t window = 0;     // 0: none
  double scale = 1;
  bool documents = false; // there is an argument `starts`, i32 [batch * seq]
  // Gradients only: dq and dk are rotated back by the arguments `cos` and `sin`, f32 [seq, headDim
  // / 2]. The results are then the gradients of the inputs of lm.rope.
  bool rope = false;
  // Elements from one row (token) to the next; 0 means the width of the row itself.
  int64_t qPitch = 0, kPitch = 0, vPitch = 0, outPitch = 0;
  int64_t doutPitch = 0, dqPitch = 0, dkPitch = 0, dvPitch = 0;
};

// Returns the kernels of plan::Attention: one, with the arguments
//   q, k, v, [starts], out, lse
// Errors: an inconsistent shape, f64, or a head size that no kernel supports.
llvm::Expected<std::vector<CudaKernel>>
attentionKernels(const AttentionShape &shape, const CudaArch &arch,
                 const std::string &name = "attention");

// Returns the kernels of plan::AttentionGrad: two, to run in this order, with the arguments
//   q, k, v, out, lse, dout, [starts], [cos, sin], dq, delta
//   q, k, v, lse, dout, delta, [starts], [cos, sin], dk, dv
// where delta, f32 [batch * seq, heads], is scratch memory. Errors: as attentionKernels.
llvm::Expected<std::vector<CudaKernel>>
attentionGradKernels(const AttentionShape &shape, const CudaArch &arch,
                     const std::string &name = "attention_grad");

//===-- Tiles -------------------------------------------------------------------------------===//

enum class AttentionPart { Forward, GradQueries, GradKeys };

// A variant of a tensor core kernel. attention_forward.cuh and attention_backward.cuh of
// compiler/targets/cuda/device explain what the numbers do.
struct AttentionTile {
  AttentionPart part;
  int headDim;
  int queries, keys, warps;
  int stages;          // buffers in shared memory, each for a tile or a pair of tiles
  bool queryRegisters; // keeps rows of q in registers; not for GradKeys
  int blocks;          // blocks per SM requested by the launch bounds
  int registers;       // per thread, the maximum over masks and architectures
  // True for a variant that supports neither documents nor a partial last tile: with them it would
  // spill registers.
  bool wholeOnly;
};

// All variants. None of them spills registers when NVRTC compiles it: a test compiles each variant
// with the masks that need the most registers.
llvm::ArrayRef<AttentionTile> attentionTiles();

// Returns the dynamic shared memory of a block, in bytes.
int64_t sharedBytesOf(const AttentionTile &tile, const AttentionShape &shape);

// The prediction of the cost model for a variant.
struct AttentionEstimate {
  int64_t blocks = 0;      // in the launch
  int64_t blocksPerSm = 0; // resident at the same time; 0: a block does not fit
  double blockFlops = 0;   // of the longest block, including masked scores
  double visited = 0;      // computed scores / unmasked scores; at least 1
  double clocks = 0;       // SM clocks of the whole launch
};
AttentionEstimate estimate(const AttentionTile &tile, const AttentionShape &shape,
                           const CudaArch &arch);

// Returns the variant with the fewest clocks. Returns null for a shape that needs the plain
// kernels: a dtype other than bf16, a head size without variants, or rows that do not begin at
// multiples of 16 bytes.
const AttentionTile *chooseAttentionTile(AttentionPart part, const AttentionShape &shape,
                                         const CudaArch &arch);

// Returns the kernel of one part with the given variant; a null `tile` gives the plain kernel. For
// tests and benches.
CudaKernel attentionKernel(AttentionPart part, const AttentionTile *tile,
                           const AttentionShape &shape, const CudaArch &arch,
                           const std::string &name);

} // namespace lmc::codegen
