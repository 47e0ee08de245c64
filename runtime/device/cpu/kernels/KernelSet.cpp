// Collects the kernels of one instruction set in a table.
#include "runtime/device/cpu/kernels/Functions.h"

namespace lmc::cpu::LMC_ISA {
namespace {

template <typename T> AttentionKernels attention() {
  AttentionKernels kernels;
  addAttention<T>(kernels);
  addAttentionBackward<T>(kernels);
  return kernels;
}

} // namespace

const KernelSet &kernels() {
  static const KernelSet set = {
      LMC_ISA_NAME,
      {attention<float>(), attention<Bf16>(), attention<double>()},
      {packedGemm<float>(), packedGemm<Bf16>(), packedGemm<double>()},
      exp2F32,
      exp2F64,
  };
  return set;
}

} // namespace lmc::cpu::LMC_ISA
