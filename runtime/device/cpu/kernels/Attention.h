// Attention and its gradient on the CPU: what their kernels are given, and the kernels.
#pragma once

#include "runtime/device/cpu/kernels/Storage.h"

#include <cstddef>

namespace lmc::cpu {

// The operands of plan::Attention, resolved. Rows are tokens, batch-major; a pitch is
// the number of elements from one row to the next, where rows need not touch.
struct AttentionArgs {
  const void *q, *k, *v;
  void *out;
  void *lse;
  int64_t batch, seq, heads, kvHeads, headDim;
  int64_t window; // 0: causal only
  double scale;
  int64_t qPitch, kPitch, vPitch;
  // [batch * seq], or null: the position in its sequence where the document of a token
  // begins; ascending within a sequence, and nowhere beyond the token itself.
  const int32_t *starts = nullptr;
};

struct AttentionGradArgs {
  const void *q, *k, *v, *out, *lse, *dout;
  void *dq, *dk, *dv;
  void *workspace; // BF16 only: f32, shaped as dq, dense
  int64_t batch, seq, heads, kvHeads, headDim;
  int64_t window;
  double scale;
  int64_t qPitch, kPitch, vPitch, dqPitch, dkPitch, dvPitch;
  const int32_t *starts = nullptr; // as AttentionArgs
  // [seq, headDim / 2], both or neither: dq and dk are rotated back by them.
  const float *cos = nullptr, *sin = nullptr;
};

// The kernels for one storage type. A task works in `scratch`, 64-byte aligned and of as many
// bytes as scratchBytes or gradScratchBytes says.
struct AttentionKernels {
  int64_t (*tasks)(const AttentionArgs &args);
  size_t (*scratchBytes)(const AttentionArgs &args);
  void (*run)(const AttentionArgs &args, int64_t task, void *scratch);
  int64_t (*gradTasks)(const AttentionGradArgs &args);
  size_t (*gradScratchBytes)(const AttentionGradArgs &args);
  void (*gradRun)(const AttentionGradArgs &args, int64_t task, void *scratch);
};

} // namespace lmc::cpu
