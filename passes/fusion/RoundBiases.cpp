// kern-round-biases: converts the bias of a matrix product to the element type of the result.
#include "passes/fusion/Passes.h"
#include "passes/fusion/queue/FusionBuilder.h"

namespace lmc {
#define GEN_PASS_DEF_ROUNDBIASESPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {
struct RoundBiasesPass : lmc::impl::RoundBiasesPassBase<RoundBiasesPass> {
  void runOnOperation() override {
    getOperation().walk([&](kern::GemmOp gemm) {
      Value bias = gemm.getBias();
      // Products of 8-bit floats add a bias in bf16 to a result in f32, too.
      Type element = gemm.getScaleA() ? Type(BFloat16Type::get(gemm.getContext()))
                                      : gemm.getType().getElementType();
      if (!bias || getElementTypeOrSelf(bias) == element)
        return;
      OpBuilder b(gemm);
      FusionBuilder f(b, gemm.getLoc(), kern::Hero::Elementwise, bias, "lm.round_bias");
      auto type = cast<RankedTensorType>(bias.getType()).clone(element);
      // map() converts the values that it computes to the element type of `type`.
      kern::FusionOp fusion = f.finish(f.map(type, {{f.arg(0), f.all(1)}}, identity));
      setStep(fusion, gemm);
      gemm.getBiasMutable().assign(fusion.getResult(0));
      ++numRounded;
    });
  }
};
} // namespace
