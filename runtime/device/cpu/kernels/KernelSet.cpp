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
      exp2All<float>,
      exp2All<double>,
  };
  return set;
}

#if defined(__AVX512F__)
const KernelSet &kernelsWithBf16() {
  static const KernelSet set = [] {
    KernelSet copy = kernels();
    copy.name = LMC_ISA_NAME "-bf16";
    PackedGemmKernels &bf16 = copy.gemm[int(Storage::BF16)];
    bf16 = withBf16Products(bf16);
    return copy;
  }();
  return set;
}
#endif

} // namespace lmc::cpu::LMC_ISA
