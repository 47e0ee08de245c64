// The CPU target: it compiles all kernels to one shared object.
#include "compiler/kernels/Target.h"
#include "compiler/targets/cpu/CpuObject.h"
#include "compiler/targets/cpu/Passes.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

llvm::Error noCode(const TargetConfig &job, llvm::Error reason) {
  return llvm::createStringError("cannot generate code for " + job.cpu + ": " +
                                 llvm::toString(std::move(reason)));
}

class Cpu : public Target {
public:
  StringRef name() const override { return "cpu"; }
  bool isDevice(StringRef device) const override { return device == name(); }
  StringRef devices() const override { return "cpu"; }
  llvm::Error checkDevice(const TargetConfig &job) const override {
    return planTarget(job).takeError();
  }

  // A plan names a real CPU instead of "native", even if the plan has no code.
  llvm::Expected<std::string> planTarget(const TargetConfig &job) const override {
    llvm::Expected<std::string> cpu = resolveCpu(job.cpu);
    if (!cpu)
      return noCode(job, cpu.takeError());
    return (name() + ":" + *cpu).str();
  }

  // Attention's gradient adds up dq in f32. If q has a narrower type, this needs scratch memory. So
  // does a product of factors of 8 bits, which a library computes in bf16.
  RankedTensorType scratchOf(Operation *op, uint64_t) const override {
    auto numbersOf = [](Value a, Value b) {
      auto count = [](Value each) {
        return cast<RankedTensorType>(each.getType()).getNumElements();
      };
      return RankedTensorType::get({count(a) + count(b)}, BFloat16Type::get(a.getContext()));
    };
    if (auto gemm = dyn_cast<kern::GemmOp>(op); gemm && gemm.getScaleA())
      return numbersOf(gemm.getA(), gemm.getB());
    if (auto experts = dyn_cast<kern::ExpertScaledLinearOp>(op))
      return numbersOf(experts.getX(), experts.getWeight());
    auto grad = dyn_cast<kern::AttentionGradOp>(op);
    if (!grad)
      return {};
    auto type = cast<RankedTensorType>(grad.getQ().getType());
    return type.getElementTypeBitWidth() < 32 ? type.clone(Float32Type::get(op->getContext()))
                                              : RankedTensorType();
  }

  bool runsAxesAtOnce() const override { return true; }
  bool multipliesEightBits(StringRef, StringRef) const override { return true; }
  void registerPasses() const override { registerCpuPasses(); }

  FailureOr<std::unique_ptr<TargetCode>> generate(ModuleOp plan, const TargetConfig &job,
                                                  const std::string &cache) const override {
    // Copies only kernels: the plan's functions need no code, as they only say when kernels run.
    OwningOpRef<ModuleOp> kernels = ModuleOp::create(plan.getLoc());
    for (auto kernel : plan.getOps<kern::KernelOp>())
      kernels->push_back(kernel->clone());
    llvm::Expected<CpuImage> image = buildCpuImage(*kernels, {.cpu = job.cpu, .cache = cache});
    if (!image)
      return emitError(UnknownLoc::get(plan.getContext()))
             << llvm::toString(noCode(job, image.takeError()));
    auto code = std::make_unique<TargetCode>(kernelsWithoutCode(plan));
    code->modules.front() = {std::move(image->features), std::move(image->object)};
    return code;
  }
};

} // namespace

const Target &cpuTarget() {
  static const Cpu cpu;
  return cpu;
}

} // namespace lmc::codegen
