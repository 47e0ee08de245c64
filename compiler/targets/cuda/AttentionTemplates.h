// Attention on CUDA: kernels that are not printed from a region but filled in from templates of
// compiler/targets/cuda/device.
//
// The plan keeps attention as a typed command and hangs these kernels on it as launches, so
// another implementation plugs in here and nowhere else: a kernel for one architecture (wgmma and
// TMA on sm_90a) as a further case of attentionKernels, with the same arguments; a library (cuDNN)
// in the runtime's device, which may take the typed command and leave the launches alone.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc::codegen {

enum class AttentionType { F32, BF16, F64 };

// softmax(scale q k^T + mask) v per head, as plan.fbs has it. Query i of a sequence sees key j
// where j <= i, i - j < window if there is one, and j >= starts[i] with documents.
struct AttentionShape {
  AttentionType type = AttentionType::BF16;
  int64_t batch = 1, seq = 1, heads = 1, kvHeads = 1, headDim = 64;
  int64_t window = 0;     // 0: none
  double scale = 1;
  bool documents = false; // an argument `starts`, i32 [batch * seq]
  // Gradients only: dq and dk are rotated back by arguments `cos` and `sin`, f32
  // [seq, headDim / 2], which is the gradient of lm.rope on q and k.
  bool rope = false;
  // Elements from one row (token) to the next; 0: the row's own width.
  int64_t qPitch = 0, kPitch = 0, vPitch = 0, outPitch = 0;
  int64_t doutPitch = 0, dqPitch = 0, dkPitch = 0, dvPitch = 0;
};

// The kernels of plan::Attention. One, with arguments
//   q, k, v, [starts], out, lse
// Errors: a shape that makes no sense, f64, or a head size that no kernel takes.
llvm::Expected<std::vector<CudaKernel>>
attentionKernels(const AttentionShape &shape, const CudaArch &arch,
                 const std::string &name = "attention");

// The kernels of plan::AttentionGrad. Two, to run in this order, with arguments
//   q, k, v, out, lse, dout, [starts], [cos, sin], dq, delta
//   q, k, v, lse, dout, delta, [starts], [cos, sin], dk, dv
// where delta, f32 [batch * seq, heads], is workspace. Errors: as attentionKernels.
llvm::Expected<std::vector<CudaKernel>>
attentionGradKernels(const AttentionShape &shape, const CudaArch &arch,
                     const std::string &name = "attention_grad");

//===-- Tiles -------------------------------------------------------------------------------===//

enum class AttentionPart { Forward, GradQueries, GradKeys };

// A variant of a tensor core kernel (compiler/targets/cuda/device/attention_forward.cuh and
// attention_backward.cuh say what the numbers do).
struct AttentionTile {
  AttentionPart part;
  int headDim;
  int queries, keys, warps;
  int stages;          // places in shared memory: tiles of keys or values, or pairs of tiles
  bool queryRegisters; // Forward and GradQueries
  int blocks;          // per SM, as the kernel's launch bounds ask for
  int registers;       // of a thread, the most over masks and architectures
  // Without documents, and where sequences are whole tiles only: more would spill.
  bool wholeOnly;
};

// Every variant that may be chosen. None of them spills as NVRTC compiles it: a test compiles
// each with the masks that ask most of it.
llvm::ArrayRef<AttentionTile> attentionTiles();

// Dynamic shared memory of a block, bytes.
int64_t sharedBytesOf(const AttentionTile &tile, const AttentionShape &shape);

// What the cost model says of a variant.
struct AttentionEstimate {
  int64_t blocks = 0;      // of the launch
  int64_t blocksPerSm = 0; // resident at a time; 0: it does not fit
  double blockFlops = 0;   // of the longest block, masked scores included
  double visited = 0;      // scores computed per score that the mask leaves, 1 at best
  double clocks = 0;       // of an SM, for the whole launch
};
AttentionEstimate estimate(const AttentionTile &tile, const AttentionShape &shape,
                           const CudaArch &arch);

// The variant with the fewest clocks. Null: the shape is one for the plain kernels, that is
// not bf16, a head size without variants, or rows that are not at multiples of 16 bytes.
const AttentionTile *chooseAttentionTile(AttentionPart part, const AttentionShape &shape,
                                         const CudaArch &arch);

// The kernel of one part with a given variant; null for the plain one. For tests and benches.
CudaKernel attentionKernel(AttentionPart part, const AttentionTile *tile,
                           const AttentionShape &shape, const CudaArch &arch,
                           const std::string &name);

} // namespace lmc::codegen
