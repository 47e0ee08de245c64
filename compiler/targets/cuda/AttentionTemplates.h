// Generates the CUDA kernels of attention. They are not printed from a kernel region but
// instantiated from templates in compiler/targets/cuda/device.
//
// The plan keeps attention as one command, and lists these kernels as the launches of the command.
// Another implementation of attention therefore changes one place only. A kernel for one
// architecture (wgmma and TMA on sm_90a) is a further case of attentionKernels, with the same
// arguments. A library (cuDNN) is called by the runtime's device, which may execute the command and
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

// The shape of attention, softmax(scale q k^T + mask) v per head, as in plan.fbs. Query i of a
// sequence sees key j if j <= i, if i - j < window (when window > 0), and if j >= starts[i] (when
// documents is true).
struct AttentionShape {
  DataType type = DataType::BF16;
  int64_t batch = 1, seq = 1, heads = 1, kvHeads = 1, headDim = 64;
  int64_t window = 0; // number of keys that a query sees; 0: no window
  double scale = 1;
  bool documents = false; // true if there is an argument `starts`, i32 [batch * seq]
  // For gradients only. True if dq and dk are rotated back with the arguments `cos` and `sin`, f32
  // [seq, headDim / 2]. The results are then the gradients of the inputs of lm.rope.
  bool rope = false;
  // Pitches: the number of elements from the start of one row (token) to the start of the next; 0
  // means that rows are adjacent.
  int64_t qPitch = 0, kPitch = 0, vPitch = 0, outPitch = 0;
  int64_t doutPitch = 0, dqPitch = 0, dkPitch = 0, dvPitch = 0;
};

// Returns the kernels of the command plan::Attention: one kernel, with the arguments
//   q, k, v, [starts], out, lse
// Errors: an inconsistent shape, f64, or a head size that no kernel supports.
llvm::Expected<std::vector<CudaKernel>>
attentionKernels(const AttentionShape &shape, const CudaArch &arch,
                 const std::string &name = "attention");

// Returns the kernels of the command plan::AttentionGrad: two, to run in this order, with the
// arguments
//   q, k, v, out, lse, dout, [starts], [cos, sin], dq, delta
//   q, k, v, lse, dout, delta, [starts], [cos, sin], dk, dv
// where delta, f32 [batch * seq, heads], is scratch memory. Errors: as attentionKernels.
llvm::Expected<std::vector<CudaKernel>>
attentionGradKernels(const AttentionShape &shape, const CudaArch &arch,
                     const std::string &name = "attention_grad");

//===-- Tiles -------------------------------------------------------------------------------===//

enum class AttentionPart { Forward, GradQueries, GradKeys };

// A variant of a tensor core kernel: its tile sizes and resources. attention_forward.cuh and
// attention_backward.cuh in compiler/targets/cuda/device explain how they are used.
struct AttentionTile {
  AttentionPart part;
  // The head dimension, the queries and keys of a tile, and the warps of a thread block.
  int headDim;
  int queries, keys, warps;
  int stages;          // buffers in shared memory, each for one tile or a pair of tiles
  bool queryRegisters; // true if rows of q stay in registers; not for GradKeys
  int blocks;          // thread blocks per SM requested by the launch bounds
  int registers;       // registers per thread, maximum over masks and architectures
  // True for a variant that supports neither documents nor a last tile that is not full: with them
  // it would spill registers.
  bool wholeOnly;
};

// Returns all variants. None of them spills registers when NVRTC compiles it: a test compiles each
// variant with the masks that need the most registers.
llvm::ArrayRef<AttentionTile> attentionTiles();

// Returns the dynamic shared memory of a thread block, in bytes.
int64_t sharedBytesOf(const AttentionTile &tile, const AttentionShape &shape);

// What the cost model of AttentionTiles.cpp predicts for a variant.
struct AttentionEstimate {
  int64_t blocks = 0;      // number of thread blocks in the launch
  int64_t blocksPerSm = 0; // resident at the same time; 0: no block fits an SM
  double blockFlops = 0;   // FLOPs of the longest block, including masked scores
  double visited = 0;      // computed scores / scores that the mask leaves; at least 1
  double clocks = 0;       // SM clock cycles of the whole launch
};
AttentionEstimate estimate(const AttentionTile &tile, const AttentionShape &shape,
                           const CudaArch &arch);

// Returns the variant with the fewest predicted clock cycles. Returns null for a shape that needs
// the plain kernels (attention_plain.cuh): a dtype other than bf16, a head size without variants,
// or rows that do not begin at multiples of 16 bytes.
const AttentionTile *chooseAttentionTile(AttentionPart part, const AttentionShape &shape,
                                         const CudaArch &arch);

// Returns the kernel of one part of attention in the variant `tile`; the plain kernel if `tile` is
// null. Tests and benches call it.
CudaKernel attentionKernel(AttentionPart part, const AttentionTile *tile,
                           const AttentionShape &shape, const CudaArch &arch,
                           const std::string &name);

} // namespace lmc::codegen
