// The functions that are compiled once per instruction set. KernelSet.cpp collects them in a table.
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"
#include "runtime/device/cpu/kernels/Vector.h"

namespace lmc::cpu::LMC_ISA {

// These two set the members of `kernels` for attention, and for its gradient.
template <typename T> void addAttention(AttentionKernels &kernels);
template <typename T> void addAttentionBackward(AttentionKernels &kernels);

template <typename T> PackedGemmKernels packedGemm();
#if defined(__AVX512F__)
// Takes packedGemm<Bf16>()'s result. Returns it with packing and multiply() for AVX512_BF16.
PackedGemmKernels withBf16Products(PackedGemmKernels kernels);
#endif

template <typename R> void exp2All(const R *x, R *e, int64_t n);

} // namespace lmc::cpu::LMC_ISA
