// The CUDA target. It compiles each kernel to a cubin. The source of a kernel is printed, or is a
// template of compiler/targets/cuda/device (for commands such as attention, and initial values).
#include "compiler/kernels/Target.h"
#include "compiler/targets/cuda/CudaCostModel.h"
#include "compiler/targets/cuda/CudaProgram.h"
#include "compiler/targets/cuda/templates/InitializerTemplates.h"
#include "passes/fusion/Passes.h"

#include "llvm/Support/Regex.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

class Code : public TargetCode {
public:
  FailureOr<std::optional<Initializer>> initializer(lm::InitAttr init, RankedTensorType type,
                                                    Type source) const override {
    std::optional<InitializerShape> shape = initializerShape(init, type.getElementType(), source);
    if (!shape)
      return std::optional<Initializer>();
    auto found = initializers.find(initializerKey(*shape));
    if (found == initializers.end())
      return failure();
    return std::optional(
        Initializer{found->second, initializerBytes(*shape, type.getNumElements())});
  }

  llvm::StringMap<size_t> initializers; // initializerKey() of a shape -> index of its kernel
};

// Converts a compiled program to the code in a plan. Kernels with equal cubins share one module.
std::unique_ptr<Code> codeOf(CudaProgram program) {
  auto code = std::make_unique<Code>();
  std::map<std::vector<uint8_t>, size_t> modules;
  for (CudaProgram::Kernel &kernel : program.kernels) {
    auto [known, isNew] = modules.try_emplace(kernel.cubin.image, code->modules.size());
    if (isNew)
      code->modules.push_back({{}, kernel.cubin.image});
    const KernelResources &resources = kernel.cubin.resources;
    CudaKernel &cuda = kernel.cuda;
    code->kernels.push_back(
        {kernel.op, known->second, std::move(cuda.name), std::move(cuda.source),
         TargetCode::Grid{cuda.grid, cuda.threads, cuda.sharedBytes, resources.registers,
                          resources.spillBytes, resources.stackBytes},
         std::move(cuda.hero), std::move(kernel.sourceOp), cuda.bytes});
  }
  code->launches = std::move(program.launches);
  code->initializers = std::move(program.initializers);
  return code;
}

class Cuda : public Target {
public:
  StringRef name() const override { return "cuda"; }
  bool isDevice(StringRef device) const override {
    return llvm::Regex("^cuda:sm_[0-9][0-9][0-9]?[af]?$").match(device);
  }
  StringRef devices() const override { return "cuda:sm_XY, such as cuda:sm_90a"; }

  llvm::Error checkDevice(const TargetConfig &job) const override {
    if (!job.longRows.empty() && !longRowsOf(job.longRows))
      return llvm::createStringError("--long-rows=" + job.longRows +
                                     ": it must be shared, again or alone");
    if (archOf(job.device))
      return llvm::Error::success();
    std::string names;
    for (const CudaArch &arch : cudaArchs())
      names += (names.empty() ? "" : ", ") + arch.name.str();
    return llvm::createStringError("no code can be generated for '" + job.device + "'; lmc knows " +
                                   names);
  }
  llvm::Expected<std::string> planTarget(const TargetConfig &job) const override {
    return job.device;
  }

  ArrayRef<llvm::StringLiteral> fusionKinds() const override { return kFusionKinds; }
  void addModelPasses(OpPassManager &passes, StringRef device,
                      llvm::function_ref<bool(StringRef)> isOn) const override {
    if (isOn(kFusionKinds[0]))
      passes.addPass(createFoldRopePass());
    if (isOn(kFusionKinds[1]))
      passes.addPass(createFoldResidualPass());
    const CudaArch *arch = archOf(device);
    if (isOn(kFusionKinds[2]) && arch && arch->hasWarpgroups())
      passes.addPass(createFoldSwigluPass());
    if (isOn(kFusionKinds[3]))
      passes.addPass(createFoldTransposePass());
    if (isOn(kFusionKinds[4])) // behind the one above, which looks for maxima of what is cast
      passes.addPass(createFoldLargestPass());
  }
  // Fusion has moved some column reductions into other kernels. The first pass splits long ones of
  // the rest in two stages. The second rounds biases to the result's type: cuBLASLt adds no others.
  void addFusionPasses(OpPassManager &passes) const override {
    passes.addPass(createSplitColumnReductionsPass());
    passes.addPass(createRoundBiasesPass());
  }

  RankedTensorType scratchOf(Operation *op, uint64_t gemmBytes) const override {
    return cudaScratchOf(op, gemmBytes);
  }
  // cuBLASLt needs workspaces at multiples of 256 bytes.
  uint64_t bufferAlignment() const override { return 256; }
  // Tensor cores are fastest with rows at multiples of 128 bytes:
  // https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication
  int64_t paddedMultiple(DataType dtype) const override { return dtype == DataType::BF16 ? 64 : 1; }

  // Tensor cores multiply 8-bit floats from sm_89 on.
  bool multipliesEightBits(StringRef device, StringRef scales) const override {
    const CudaArch *arch = archOf(device);
    // cuBLASLt multiplies with scales for blocks of 128 on Hopper only (its manual,
    // cublasLtMatmul).
    return arch && (scales == "tensor" ? arch->version >= 89 : arch->version == 90);
  }
  bool needsRowsOfK() const override { return true; }

  FailureOr<std::unique_ptr<TargetCode>> generate(ModuleOp plan, const TargetConfig &job,
                                                  const std::string &cache) const override {
    auto report = [&](llvm::Error error) {
      return emitError(UnknownLoc::get(plan.getContext())) << llvm::toString(std::move(error));
    };
    if (llvm::Error error = checkDevice(job))
      return report(std::move(error));
    const CudaArch &arch = *archOf(job.device);
    FailureOr<CudaProgram> program = planCudaProgram(
        plan, arch, longRowsOf(job.longRows).value_or(LongRows::Shared));
    if (failed(program))
      return failure();
    if (llvm::Error error = compileProgram(*program, arch, KernelCache(cache)))
      return report(std::move(error));
    return std::unique_ptr<TargetCode>(codeOf(std::move(*program)));
  }

  StringRef language() const override { return "CUDA C++"; }
  llvm::Expected<std::string> print(kern::KernelOp kernel) const override {
    llvm::Expected<CudaKernel> printed = printCudaKernel(kernel);
    if (!printed)
      return printed.takeError();
    return std::move(printed->source);
  }

  std::unique_ptr<cost::CostModel> costModel(StringRef device,
                                             cost::DeviceSpec spec) const override {
    if (const CudaArch *arch = archOf(device))
      return std::make_unique<CudaCostModel>(*arch, std::move(spec));
    return Target::costModel(device, std::move(spec));
  }

  bool reportsResources() const override { return true; }
  std::optional<Occupancy> occupancy(StringRef planTarget,
                                     const TargetCode::Grid &grid) const override {
    const CudaArch *arch = archOf(planTarget);
    if (!arch)
      return std::nullopt;
    unsigned blocks = residentBlocks(*arch, grid.threads, grid.registers, grid.sharedBytes);
    return Occupancy{blocks, double(blocks * grid.threads) / arch->threadsPerSm};
  }

private:
  static constexpr llvm::StringLiteral kFusionKinds[] = {"rope", "residual", "swiglu", "transpose",
                                                         "largest"};

  // Returns the architecture of a device such as "cuda:sm_90a"; null for other devices.
  static const CudaArch *archOf(StringRef device) { return findCudaArch(device.split(':').second); }
};

} // namespace

const Target &cudaTarget() {
  static const Cuda cuda;
  return cuda;
}

} // namespace lmc::codegen
