// The CPU kernels for attention and its gradient.
#pragma once

#include "runtime/device/cpu/kernels/Storage.h"

#include <cstddef>

namespace lmc::cpu {

// The operands of plan::Attention as addresses. Rows are tokens, one sequence after the other. A
// pitch is the number of elements from one row to the next.
struct AttentionArgs {
  const void *q, *k, *v;
  void *out;
  void *lse;
  int64_t batch, seq, heads, kvHeads, headDim;
  int64_t window; // 0: no window; else query i sees key j only if i - j < window
  double scale;
  int64_t qPitch, kPitch, vPitch;
  // Null, or [batch * seq]: for each token, the position in its sequence at which its document
  // begins. These ascend within a sequence, and none exceeds the token's own position.
  const int32_t *starts = nullptr;
};

// The operands of plan::AttentionGrad. `out` and `lse` are only read.
struct AttentionGradArgs : AttentionArgs {
  const void *dout;
  void *dq, *dk, *dv;
  void *workspace; // sums of dq, only for BF16: f32 [batch * seq, heads * headDim], without gaps
  int64_t dqPitch, dkPitch, dvPitch;
  // Tables of the rotary embedding, [seq, headDim / 2]. If not null, they rotate dq and dk back.
  const float *cos = nullptr, *sin = nullptr;
};

// The kernels of one storage type. tasks() returns the number of tasks, and run() computes one
// task. `scratch` has scratchBytes() bytes, and is aligned to 64 bytes. The functions with `grad`
// do the same for the gradient.
struct AttentionKernels {
  int64_t (*tasks)(const AttentionArgs &args);
  size_t (*scratchBytes)(const AttentionArgs &args);
  void (*run)(const AttentionArgs &args, int64_t task, void *scratch);
  int64_t (*gradTasks)(const AttentionGradArgs &args);
  size_t (*gradScratchBytes)(const AttentionGradArgs &args);
  void (*gradRun)(const AttentionGradArgs &args, int64_t task, void *scratch);
};

} // namespace lmc::cpu
