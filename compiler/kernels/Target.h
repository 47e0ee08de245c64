// The interface of a target: which devices a job may name, what the kernels of a device need, and
// the generated code of a plan.
//
// A target is a folder of compiler/targets. compiler/targets/Targets.def lists the targets, one per
// line; no other file of the compiler names a target.
#pragma once

#include "compiler/cost/CostModel.h"
#include "dialects/kern/Kern.h"
#include "dialects/lm/Lm.h"
#include "ground/config/Config.h"

#include "mlir/Pass/PassManager.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc::codegen {

// Traffic of global memory in bytes.
struct GlobalBytes {
  uint64_t read = 0, written = 0;
};

// The generated code of a plan's kernels and commands, in the form of the plan file (plan.fbs).
class TargetCode {
public:
  virtual ~TargetCode() = default;

  struct Module {
    std::vector<std::string> features; // CPU features without which the code does not run
    std::vector<uint8_t> image;
  };

  // The launch of a kernel as a grid of thread blocks, and the resources that the kernel uses.
  struct Grid {
    std::array<uint32_t, 3> blocks;
    uint32_t threads, sharedBytes;
    uint32_t registers, spillBytes, stackBytes; // resources per thread
  };

  struct Kernel {
    kern::KernelOp op; // op of the code; null for a kernel of a command or of a variable
    size_t module;
    std::string entry = "";  // name of the function in the module; "": the op's name
    std::string source = ""; // source text of the kernel; "": the plan stores the op instead
    std::optional<Grid> grid = std::nullopt;
    // The next fields are only for a kernel without an op, whose name is `entry`.
    std::string hero = "", sourceOp = ""; // sourceOp: "lm.attention"; "" for initial values
    GlobalBytes bytes = {};               // traffic of one launch
  };

  struct Launch {
    size_t kernel;
    llvm::SmallVector<mlir::Value> args; // slices; the kernel only reads the first `inputs` of them
    uint32_t inputs;
  };

  std::vector<Module> modules;
  std::vector<Kernel> kernels;
  llvm::DenseMap<mlir::Operation *, std::vector<Launch>> launches; // by plan command, in order

  // The kernel that writes a variable's initial values, and the traffic of its launch for this
  // variable.
  struct Initializer {
    size_t kernel;
    GlobalBytes bytes;
  };
  // Returns the kernel for `init`, the initializer of a plan.variable of type `type`. A copy reads
  // elements of type `source` (null for other initializers). Returns nothing if the runtime writes
  // the values itself. Fails if the code has no kernel that is needed.
  virtual mlir::FailureOr<std::optional<Initializer>>
  initializer(lm::InitAttr init, mlir::RankedTensorType type, mlir::Type source) const {
    return std::optional<Initializer>();
  }
};

// Returns all kernels of `plan` in one module without code.
TargetCode kernelsWithoutCode(mlir::ModuleOp plan);

// The share of a multiprocessor's capacity that a kernel uses.
struct Occupancy {
  unsigned blocks; // thread blocks resident at a time
  double threads;  // resident threads, as a fraction of the maximum
};

class Target {
public:
  virtual ~Target() = default;

  // Returns the part of a device's name before the ':', such as "cuda".
  virtual llvm::StringRef name() const = 0;

  // Returns true if `device`, the value of target.device, has the form of this target's device
  // names. checkDevice may still refuse it.
  virtual bool isDevice(llvm::StringRef device) const = 0;
  // Returns the form of the devices' names, for errors: "cuda:sm_XY, such as cuda:sm_90a".
  virtual llvm::StringRef devices() const = 0;
  // Fails if no code can be generated for the job's device; the error names the possible devices.
  virtual llvm::Error checkDevice(const TargetConfig &job) const = 0;
  // Returns the name of the target in a plan: "cpu:x86-64-v3". Fails for an unknown CPU.
  virtual llvm::Expected<std::string> planTarget(const TargetConfig &job) const = 0;

  // Returns the kinds of fusion that only this target's passes perform, as --disable-fusion names
  // them.
  virtual llvm::ArrayRef<llvm::StringLiteral> fusionKinds() const { return {}; }
  // Adds the target's compiler passes that change ops of the model before these ops become kernels.
  // `device` is the value of target.device; `isOn` returns true for a kind of fusion that is not
  // disabled.
  virtual void addModelPasses(mlir::OpPassManager &passes, llvm::StringRef device,
                              llvm::function_ref<bool(llvm::StringRef)> isOn) const {}
  // Adds the target's compiler passes that change fusions before equal fusions become one kernel.
  virtual void addFusionPasses(mlir::OpPassManager &passes) const {}
  // Returns the type of the scratch memory that the command of `op`, a kern op, needs; null if it
  // needs none. A matrix product gets at most `gemmBytes` bytes (DeviceSpec::gemmWorkspaceBytes).
  virtual mlir::RankedTensorType scratchOf(mlir::Operation *op, uint64_t gemmBytes) const {
    return {};
  }
  // Returns the alignment in bytes of all buffers of a plan's functions: a power of two. The
  // default is a cache line, which is also the widest vector.
  virtual uint64_t bufferAlignment() const { return 64; }
  // Returns true if the runtime runs collectives along the two axes of the mesh at the same time,
  // false if one after the other.
  virtual bool runsAxesAtOnce() const { return false; }
  // Returns the multiple to which rows of matrices of this dtype are padded if padding saves time;
  // 1: rows are never padded.
  virtual int64_t paddedMultiple(DataType dtype) const { return 1; }
  // Registers the compiler passes in the target's folder, for lmc-opt.
  virtual void registerPasses() const {}

  // Generates code for `plan`, a module of the plan level with its kern.kernel ops. Compiled
  // kernels are cached in the folder `cache`, unless it is "". Errors are reported at the ops.
  virtual mlir::FailureOr<std::unique_ptr<TargetCode>>
  generate(mlir::ModuleOp plan, const TargetConfig &job, const std::string &cache) const = 0;
  // Returns the default folder of compiled kernels; "" if the target has none.
  virtual std::string defaultKernelCache() const { return ""; }

  // Returns the name of the language that print() writes; "" if the target cannot print.
  virtual llvm::StringRef language() const { return ""; }
  // Returns the source of one kernel, or an error that says why it has no code.
  virtual llvm::Expected<std::string> print(kern::KernelOp kernel) const {
    return llvm::createStringError("the target prints no kernels");
  }

  // Returns the cost model for plans of `device` (a job's target.device or the target of a plan)
  // that run on the device that `spec` describes.
  virtual std::unique_ptr<cost::CostModel> costModel(llvm::StringRef device,
                                                     cost::DeviceSpec spec) const {
    return std::make_unique<cost::CostModel>(std::move(spec));
  }

  // Returns true if the generated code states the resources of kernels (registers, occupancy).
  virtual bool reportsResources() const { return false; }
  // Returns the occupancy of a kernel with `grid` in a plan for the target `planTarget`; nothing if
  // unknown.
  virtual std::optional<Occupancy> occupancy(llvm::StringRef planTarget,
                                             const TargetCode::Grid &grid) const {
    return std::nullopt;
  }
};

// Adds `target` to the list, unless it is already there.
void registerTarget(const Target &target);

// Returns all registered targets.
llvm::ArrayRef<const Target *> targets();

// Returns the target of a device or of a plan, given its name ("cpu", "cuda:sm_90a",
// "cpu:x86-64-v3"); null if there is none.
const Target *findTarget(llvm::StringRef device);

// Returns Target::costModel of the target of `device`, or a model that knows only the spec if there
// is no such target.
std::unique_ptr<cost::CostModel> costModelOf(llvm::StringRef device, cost::DeviceSpec spec);

// Succeeds if some target accepts this target.device. The error names the possible values: "it must
// be cpu or cuda:sm_XY, such as cuda:sm_90a".
Result<void> checkDeviceName(const std::string &device);

} // namespace lmc::codegen
