#include "compiler/targets/cuda/CudaProgram.h"

#include "compiler/targets/cuda/CudaCode.h"
#include "compiler/targets/cuda/templates/AttentionTemplates.h"
#include "compiler/targets/cuda/templates/CommandTemplates.h"
#include "compiler/targets/cuda/templates/InitializerTemplates.h"
#include "compiler/targets/cuda/templates/SwigluGemmTemplates.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

// Returns a slice's pitch: the number of elements from a row's start to the next; 0: no gaps.
int64_t pitchOf(Value slice) {
  Operation *op = slice.getDefiningOp();
  auto whole = dyn_cast<plan_ir::SliceOp>(op);
  auto variable = dyn_cast<plan_ir::VariableRefOp>(op);
  int64_t pitch = whole ? whole.getPitch() : variable ? variable.getPitch() : 0;
  return pitch * 8 / int64_t(contentOf(slice).getElementTypeBitWidth());
}

template <typename AttentionLike> AttentionShape shapeOf(AttentionLike op) {
  RankedTensorType q = contentOf(op.getQ()), k = contentOf(op.getK());
  AttentionShape shape;
  shape.type = *dataTypeOf(q.getElementType());
  shape.seq = int64_t(op.getSeq());
  shape.headDim = int64_t(op.getHeadDim());
  shape.batch = q.getDimSize(0) / shape.seq;
  shape.heads = q.getDimSize(1) / shape.headDim;
  shape.kvHeads = k.getDimSize(1) / shape.headDim;
  shape.window = int64_t(op.getWindow());
  shape.scale = op.getScale().convertToDouble();
  shape.documents = bool(op.getStarts());
  shape.largest = bool(op.getLargest());
  shape.qPitch = pitchOf(op.getQ());
  shape.kPitch = pitchOf(op.getK());
  shape.vPitch = pitchOf(op.getV());
  shape.outPitch = pitchOf(op.getOut());
  return shape;
}

// Returns the launch of a kernel. Its arguments are `inputs` and `results`, without null values.
CudaProgram::Launch launchOf(size_t kernel, ArrayRef<Value> inputs, ArrayRef<Value> results) {
  CudaProgram::Launch launch{kernel, {}, 0};
  for (Value input : inputs)
    if (input)
      launch.args.push_back(input);
  launch.inputs = uint32_t(launch.args.size());
  llvm::copy_if(results, std::back_inserter(launch.args), [](Value value) { return bool(value); });
  return launch;
}

template <typename Op>
SwigluGemmShape swigluGemmShapeOf(Op op, Value left, Value a, const CudaArch &arch) {
  return {.rows = contentOf(left).getDimSize(0),
          .inner = contentOf(left).getDimSize(1),
          .columns = contentOf(a).getDimSize(1),
          .both = op.getBoth(),
          .blocks = arch.chip.sms};
}

class Planner {
public:
  Planner(const CudaArch &arch, LongRows longRows) : arch(arch), longRows(longRows) {}

  LogicalResult addKernel(kern::KernelOp op) {
    llvm::Expected<CudaKernel> printed =
        printCudaKernel(op, {longRows, arch.sharedBytesPerBlock, arch.sharedBytesPerSm});
    if (!printed)
      return emitError(op.getLoc()) << "kernel '" << op.getSymName() << "' cannot be generated for "
                                    << arch.name << ": " << llvm::toString(printed.takeError());
    names.insert(printed->name);
    program.kernels.push_back({std::move(*printed), op, "", {}});
    return success();
  }

  void addInitializers(ModuleOp module) {
    for (auto &[key, kernel] : initializerKernels(module))
      program.initializers[key] = indexOf(std::move(kernel), "");
  }

  LogicalResult addCommand(Operation &command) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(&command)
        .Case([&](plan_ir::ScatterAddOp op) {
          addLaunches(op, "lm.embedding_grad", templatesOf(op, arch));
          return success();
        })
        .Case<plan_ir::LinearSwigluOp, plan_ir::SwigluLinearGradOp, plan_ir::AttentionOp,
              plan_ir::AttentionGradOp>([&](auto op) { return add(op); })
#define LMC_CASE(Name)                                                                             \
  .Case([&](plan_ir::Name##Op op) {                                                                \
    addLaunches(op, ("lm." + op->getName().stripDialect()).str(), templatesOf(op, arch));          \
    return success();                                                                              \
  })
            LMC_COMMANDS_OF_TEMPLATES(LMC_CASE)
#undef LMC_CASE
        // These commands need no template. The printed kernel of a LaunchOp has been added already.
        .Case<plan_ir::LaunchOp, plan_ir::GemmOp, plan_ir::CopyOp, plan_ir::AllGatherOp,
              plan_ir::ReduceScatterOp, plan_ir::AllReduceOp, plan_ir::WaitOp>(
            [](auto) { return success(); })
        .Case([&](CommandOpInterface op) -> LogicalResult {
          return op.emitOpError("has no kernel for ") << arch.name;
        })
        .Default(success()); // slices
  }

  CudaProgram program;

private:
  size_t indexOf(CudaKernel kernel, StringRef sourceOp) {
    std::vector<size_t> &known = templates[kernel.source];
    for (size_t index : known) {
      const CudaKernel &other = program.kernels[index].cuda;
      if (other.grid == kernel.grid && other.threads == kernel.threads &&
          other.sharedBytes == kernel.sharedBytes)
        return index;
    }
    names.insert(kernel.name);
    known.push_back(program.kernels.size());
    program.kernels.push_back({std::move(kernel), nullptr, sourceOp.str(), {}});
    return known.back();
  }

  void addLaunches(Operation *command, StringRef sourceOp, std::vector<TemplateLaunch> launches) {
    for (TemplateLaunch &launch : launches)
      program.launches[command].push_back(
          launchOf(indexOf(std::move(launch.kernel), sourceOp), launch.inputs, launch.results));
  }

  LogicalResult add(plan_ir::LinearSwigluOp op) {
    const SwigluGemmShape shape = swigluGemmShapeOf(op, op.getX(), op.getA(), arch);
    return addSwiglu(op, shape, linearSwigluKernels,
                     {launchOf(0, op.getGu(), op.getA()),
                      launchOf(1, {op.getX(), op.getWeight()}, {op.getGu(), op.getA()})});
  }

  LogicalResult add(plan_ir::SwigluLinearGradOp op) {
    const SwigluGemmShape shape = swigluGemmShapeOf(op, op.getDy(), op.getA(), arch);
    const Value halves = op.getDgu();
    return addSwiglu(op, shape, swigluLinearGradKernels,
                     {launchOf(0, halves, {halves, op.getA()}),
                      launchOf(1, {op.getDy(), op.getWeight(), halves}, {halves, op.getA()})});
  }

  LogicalResult add(plan_ir::AttentionOp op) {
    AttentionShape shape = shapeOf(op);
    auto make = [&](const std::string &name) { return attentionKernels(shape, arch, name); };
    return addTemplates(op, "lm.attention", "attention", make,
                        launchOf(0, {op.getQ(), op.getK(), op.getV(), op.getStarts()},
                                 {op.getOut(), op.getLse(), op.getLargest()}));
  }

  LogicalResult add(plan_ir::AttentionGradOp op) {
    AttentionShape shape = shapeOf(op);
    shape.doutPitch = pitchOf(op.getDout());
    shape.dqPitch = pitchOf(op.getDq());
    shape.dkPitch = pitchOf(op.getDk());
    shape.dvPitch = pitchOf(op.getDv());
    shape.rope = bool(op.getCos());
    auto make = [&](const std::string &name) { return attentionGradKernels(shape, arch, name); };
    Value delta = op.getWorkspace();
    return addTemplates(op, "lm.attention_grad", "attention_grad", make,
                        {launchOf(0,
                                  {op.getQ(), op.getK(), op.getV(), op.getOut(), op.getLse(),
                                   op.getDout(), op.getStarts(), op.getCos(), op.getSin()},
                                  {op.getDq(), delta, op.getLargest()}),
                         launchOf(1,
                                  {op.getQ(), op.getK(), op.getV(), op.getLse(), op.getDout(),
                                   delta, op.getStarts(), op.getCos(), op.getSin()},
                                  {op.getDk(), op.getDv(), op.getLargest()})});
  }

  // Adds a SwiGLU kernel that runs after cuBLASLt's product; with wgmma, also one that does both.
  LogicalResult addSwiglu(CommandOpInterface command, const SwigluGemmShape &shape,
                          decltype(linearSwigluKernels) *kernelsOf,
                          ArrayRef<CudaProgram::Launch> launches) {
    if (!shape.isTiled() || !contentOf(launches[0].args[0]).getElementType().isBF16())
      return command.emitOpError("has rows of no whole units of 16 bytes of bf16");
    auto make = [&](const std::string &name) -> Kernels {
      SwigluGemmKernels made = kernelsOf(shape, name);
      std::vector<CudaKernel> kernels = {std::move(made.rows)};
      if (arch.hasWarpgroups())
        kernels.push_back(std::move(made.whole));
      return kernels;
    };
    const std::string name = command.getCommandName().str();
    return addTemplates(command, "lm." + name, name, make,
                        launches.take_front(arch.hasWarpgroups() ? 2 : 1));
  }

  using Kernels = llvm::Expected<std::vector<CudaKernel>>;

  // Adds the kernels that make(name) returns, and the launches of `command`. Launch::kernel is an
  // index into these kernels. If a kernel with another source already has the name, the kernels get
  // the name NAME_2, NAME_3, ...
  LogicalResult addTemplates(Operation *command, StringRef sourceOp, StringRef name,
                             llvm::function_ref<Kernels(const std::string &name)> make,
                             ArrayRef<CudaProgram::Launch> launches) {
    for (int variant = 1;; ++variant) {
      std::string given = variant == 1 ? name.str() : (name + "_" + llvm::Twine(variant)).str();
      Kernels made = make(given);
      if (!made)
        return emitError(command->getLoc()) << llvm::toString(made.takeError());
      if (llvm::any_of(*made, [&](const CudaKernel &kernel) {
            return names.contains(kernel.name) && !templates.contains(kernel.source);
          }))
        continue; // another kernel already has one of these names
      std::vector<size_t> indices;
      for (CudaKernel &kernel : *made)
        indices.push_back(indexOf(std::move(kernel), sourceOp));
      for (CudaProgram::Launch launch : launches) {
        launch.kernel = indices[launch.kernel];
        program.launches[command].push_back(std::move(launch));
      }
      return success();
    }
  }

  const CudaArch &arch;
  const LongRows longRows;
  // Maps a source to its kernels, which differ only in their launch (grid, shared memory).
  llvm::StringMap<std::vector<size_t>> templates;
  llvm::StringSet<> names; // names of all kernels
};

} // namespace

// Returns the type of the scratch memory for a product d = a b, whose sums have k terms each.
static RankedTensorType gemmScratchOf(Operation *op, RankedTensorType d, int64_t k,
                                      uint64_t mostBytes) {
  constexpr uint64_t kTileDepth = 64;
  const uint64_t sumBytes = d.getElementType().isF64() ? 8 : 4;
  const uint64_t parts = (uint64_t(k) + kTileDepth - 1) / kTileDepth;
  // k >= 1, so parts >= 1. Nothing overflows: dimensions are below 2^31, so m n is below 2^62.
  const uint64_t elements = uint64_t(d.getNumElements());
  const uint64_t most = mostBytes / sumBytes / parts;
  const uint64_t bytes = elements < most ? elements * parts * sumBytes : mostBytes;
  return bytes ? bytesType(op, int64_t(bytes)) : RankedTensorType();
}

RankedTensorType cudaScratchOf(Operation *op, uint64_t gemmBytes) {
  return llvm::TypeSwitch<Operation *, RankedTensorType>(op)
      .Case([&](kern::GemmOp gemm) {
        auto a = cast<RankedTensorType>(gemm.getA().getType());
        const int64_t k =
            gemm.getTransposeA() ? a.getDimSize(0) / int64_t(gemm.getBatch()) : a.getDimSize(1);
        return gemmScratchOf(op, gemm.getType(), k, gemmBytes);
      })
      .Case([&](kern::LinearSwigluOp swiglu) {
        return gemmScratchOf(op, swiglu.getGu().getType(), swiglu.getX().getType().getDimSize(1),
                             gemmBytes);
      })
      .Case([&](kern::SwigluLinearGradOp grad) {
        return gemmScratchOf(op, grad.getA().getType(), grad.getDy().getType().getDimSize(1),
                             gemmBytes);
      })
      // The first kernel writes sum(dout * out) per query and head; the second kernel reads it.
      .Case([](kern::AttentionGradOp grad) { return contentOf(grad.getLse()); })
      .Case<kern::RouteOp, kern::SortRowsOp, kern::ScatterAddOp>(
          [](auto command) { return scratchOf(command); })
      .Default(RankedTensorType());
}

FailureOr<CudaProgram> planCudaProgram(ModuleOp module, const CudaArch &arch, LongRows longRows) {
  Planner planner(arch, longRows);
  for (auto kernel : module.getOps<kern::KernelOp>())
    if (failed(planner.addKernel(kernel)))
      return failure();
  for (auto function : module.getOps<plan_ir::FunctionOp>())
    for (Operation &command : function.getBody().front())
      if (failed(planner.addCommand(command)))
        return failure();
  planner.addInitializers(module);
  return std::move(planner.program);
}

llvm::Error compileProgram(CudaProgram &program, const CudaArch &arch, const KernelCache &cache) {
  std::vector<CudaKernel> kernels;
  for (const CudaProgram::Kernel &kernel : program.kernels)
    kernels.push_back(kernel.cuda);
  llvm::Expected<std::vector<CudaCode>> code = compileCuda(std::move(kernels), arch.name, cache);
  if (!code)
    return code.takeError();
  for (auto [kernel, compiled] : llvm::zip(program.kernels, *code))
    kernel.cubin = std::move(compiled.cubin);
  return llvm::Error::success();
}

} // namespace lmc::codegen
