// Generates the CUDA kernels of attention from templates in compiler/targets/cuda/device.
//
// In a plan, attention is one command, and these kernels are its launches. A device can therefore
// call a library (cuDNN) instead.
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

// The shape of attention, softmax(scale q k^T + mask) v per head, as in plan.fbs. Query i sees key
// j if j <= i, if i - j < window (when window > 0), and if j >= starts[i] (documents).
struct AttentionShape {
  DataType type = DataType::BF16;
  int64_t batch = 1, seq = 1, heads = 1, kvHeads = 1, headDim = 64;
  int64_t window = 0; // number of keys that a query sees; 0: no window
  double scale = 1;
  bool documents = false; // true if there is an argument `starts`, i32 [batch * seq]
  bool largest = false;   // true if there is a result `largest`, as in commands.toml
  // Only for gradients: true if the kernels also apply the gradient of lm.rope to dq and dk. The
  // kernels then have the arguments `cos` and `sin`, f32 [seq, headDim / 2].
  bool rope = false;
  // A pitch is the number of elements from the start of a row (token) to the next; 0: no gaps.
  int64_t qPitch = 0, kPitch = 0, vPitch = 0, outPitch = 0;
  int64_t doutPitch = 0, dqPitch = 0, dkPitch = 0, dvPitch = 0;
};

// Returns the one kernel of the command plan::Attention, with the arguments
//   q, k, v, [starts], out, lse, [largest]
// Errors: an inconsistent shape, f64, or a head size that no kernel supports.
llvm::Expected<std::vector<CudaKernel>> attentionKernels(const AttentionShape &shape,
                                                         const CudaArch &arch,
                                                         const std::string &name = "attention");

// Returns the two kernels of the command plan::AttentionGrad in launch order, with the arguments
//   q, k, v, out, lse, dout, [starts], [cos, sin], dq, delta, [largest]
//   q, k, v, lse, dout, delta, [starts], [cos, sin], dk, dv, [largest]
// The first kernel writes delta, f32 [batch * seq, heads], for the second. Errors: as above.
llvm::Expected<std::vector<CudaKernel>>
attentionGradKernels(const AttentionShape &shape, const CudaArch &arch,
                     const std::string &name = "attention_grad");

//===-- Tiles -------------------------------------------------------------------------------===//

enum class AttentionPart { Forward, GradQueries, GradKeys };

// Returns the parts of attention (or of its gradient) in launch order. Each part has one kernel.
llvm::ArrayRef<AttentionPart> partsOfAttention(bool backward);

// Returns the number of matrix products that a part computes for a pair of tiles.
int productsOf(AttentionPart part);

// Returns the traffic of a part's kernel. A byte that is read several times counts once.
GlobalBytes bytesOf(AttentionPart part, const AttentionShape &shape);

// The shapes that a variant does not support, because it would need too many registers for them.
enum class AttentionLimits {
  None,
  Whole,  // documents, a last tile that is not full, heads with fewer columns than a tile
  Causal, // the shapes of Whole, and a sliding window
};

// A variant of a tensor core kernel: its tile sizes and resources.
struct AttentionTile {
  AttentionPart part;
  // Tile sizes, and warps per thread block. A tile pads smaller heads with columns of zeros.
  int headDim;
  int queries, keys, warps;
  int stages; // buffers in shared memory, each for one tile or a pair of tiles

  // True if registers hold a warp's rows: those of q in Forward; of q and dout in GradQueries; of
  // k and v in GradKeys by warpgroups.
  bool inRegisters;
  int blocks;    // thread blocks per SM that the launch bounds request
  int registers; // registers per thread, maximum over masks and architectures
  AttentionLimits limits;
  bool warpgroups; // true if wgmma (only on sm_90a) computes products of 64 rows

  bool isFor(const AttentionShape &shape, const CudaArch &arch) const;
};

// Returns all variants. A test compiles each one and checks that NVRTC spills no register.
llvm::ArrayRef<AttentionTile> attentionTiles();

inline constexpr int kLargestTileHeadDim = 256;

// Returns the number of columns of the tiles for heads of this size, or 0 if no tiles fit. headDim
// must be a multiple of 8, because tiles are copied in units of 16 bytes. Above 128, it must be a
// multiple of 16, because RoPE would need too many registers for other sizes.
int tileHeadDim(int64_t headDim);

// Returns the dynamic shared memory of a thread block, in bytes.
int64_t sharedBytesOf(const AttentionTile &tile, const AttentionShape &shape);

// The prediction of the cost model of AttentionTiles.cpp for a variant.
struct AttentionEstimate {
  int64_t blocksPerSm = 0; // number of blocks resident at the same time; 0: no block fits an SM
  double clocks = 0;       // SM clock cycles of the whole launch
};
AttentionEstimate estimate(const AttentionTile &tile, const AttentionShape &shape,
                           const CudaArch &arch);

// Returns false for a shape that needs the plain kernels (attention_plain.cuh).
bool hasTiles(const AttentionShape &shape);

// Returns the variant with the fewest predicted clock cycles; null if the shape has no tiles.
const AttentionTile *chooseAttentionTile(AttentionPart part, const AttentionShape &shape,
                                         const CudaArch &arch);

// The warps per thread block of a plain kernel, and its maximum number of registers per thread.
inline constexpr int kPlainWarps = 8, kPlainRegisters = 128;
int64_t plainSharedBytes(const AttentionShape &shape);

// Returns the SM clock cycles that the cost model predicts for a launch of a part's plain kernel.
double plainClocks(AttentionPart part, const AttentionShape &shape, const CudaArch &arch);

// Returns the kernel of one part in the variant `tile`, or the plain kernel if `tile` is null.
CudaKernel attentionKernel(AttentionPart part, const AttentionTile *tile,
                           const AttentionShape &shape, const CudaArch &arch,
                           const std::string &name);

} // namespace lmc::codegen
