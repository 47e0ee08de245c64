// The functions of one instruction set's sources, which KernelSet.cpp collects in a table.
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"
#include "runtime/device/cpu/kernels/Vector.h"

namespace lmc::cpu::LMC_ISA {

// These set tasks, scratchBytes and run, for attention and for its gradient.
template <typename T> void addAttention(AttentionKernels &kernels);
template <typename T> void addAttentionBackward(AttentionKernels &kernels);

template <typename T> PackedGemmKernels packedGemm();

void exp2F32(const float *x, float *e, int64_t n);
void exp2F64(const double *x, double *e, int64_t n);

} // namespace lmc::cpu::LMC_ISA
