// What the sources of one instruction set share (KernelSet.cpp gathers them).
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"
#include "runtime/device/cpu/kernels/Vector.h"

namespace lmc::cpu::LMC_ISA {

int64_t attentionTasks(const AttentionArgs &args);
template <typename T> size_t attentionScratch(const AttentionArgs &args);
template <typename T> void attentionRun(const AttentionArgs &args, int64_t task, void *memory);

int64_t attentionGradTasks(const AttentionGradArgs &args);
template <typename T> size_t attentionGradScratch(const AttentionGradArgs &args);
template <typename T>
void attentionGradRun(const AttentionGradArgs &args, int64_t task, void *memory);

template <typename T> PackedGemmKernels packedGemm();

void exp2F32(const float *x, float *e, int64_t n);
void exp2F64(const double *x, double *e, int64_t n);

} // namespace lmc::cpu::LMC_ISA
