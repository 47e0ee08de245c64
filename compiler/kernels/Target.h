// The interface of a target: the devices that a job may name, the needs of their kernels, and the
// code of a plan.
//
// A target is a folder of compiler/targets. compiler/targets/Targets.def lists the targets, one per
// line; no other file of the compiler refers to a target by name.
#pragma once

#include "compiler/config/Config.h"
#include "dialects/kern/Kern.h"
#include "dialects/lm/Lm.h"

#include "mlir/Pass/PassManager.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc::codegen {

// Bytes of global memory.
struct GlobalBytes {
  uint64_t read = 0, written = 0;
};

// The code of a plan's kernels and commands, in the form of the plan file (plan.fbs).
class TargetCode {
public:
  virtual ~TargetCode() = default;

  struct Module {
    std::vector<std::string> features; // of the machine, without which the code does not run
    std::vector<uint8_t> image;
  };

  // The launch of a kernel with a grid, and the resources of the device that the kernel uses.
  struct Grid {
    std::array<uint32_t, 3> blocks;
    uint32_t threads, sharedBytes;
    uint32_t registers, spillBytes, stackBytes; // of a thread
  };

  struct Kernel {
    kern::KernelOp op; // what the code computes; null for a kernel that a command or variable needs
    size_t module;
    std::string entry = "";  // the module's function; "": it has the op's name
    std::string source = ""; // the text that was compiled; "": the plan shows the op
    std::optional<Grid> grid = std::nullopt;
    // Only for a kernel without an op, whose name is that of its entry.
    std::string hero = "", sourceOp = ""; // sourceOp: "lm.attention"; "": a variable's
    GlobalBytes bytes = {};               // of a launch
  };

  struct Launch {
    size_t kernel;
    llvm::SmallVector<mlir::Value> args; // slices; the first `inputs` are only read
    uint32_t inputs;
  };

  std::vector<Module> modules;
  std::vector<Kernel> kernels;
  llvm::DenseMap<mlir::Operation *, std::vector<Launch>> launches; // of plan commands, in order

  // The kernel that writes a variable's initial values, and the traffic of this launch of it.
  struct Initializer {
    size_t kernel;
    GlobalBytes bytes;
  };
  // Returns the kernel for `init`, the initializer of a plan.variable of `type`. A copy reads
  // elements of type `source` (null for other initializers). Returns nothing if the runtime writes
  // the values itself. Fails if the code lacks the kernel.
  virtual mlir::FailureOr<std::optional<Initializer>>
  initializer(lm::InitAttr init, mlir::RankedTensorType type, mlir::Type source) const {
    return std::optional<Initializer>();
  }
};

// Returns every kern.kernel of `plan`, without code, in one module.
TargetCode kernelsWithoutCode(mlir::ModuleOp plan);

// How well a kernel fills a multiprocessor.
struct Occupancy {
  unsigned blocks; // resident at a time
  double threads;  // resident ones, as a fraction of what the multiprocessor can hold
};

class Target {
public:
  virtual ~Target() = default;

  // The part of a device's name before the ':': "cuda".
  virtual llvm::StringRef name() const = 0;

  // Returns true if `device`, a job's target.device, has the form of this target's devices. Code
  // for it may still be refused (checkDevice).
  virtual bool isDevice(llvm::StringRef device) const = 0;
  // The form of the devices' names, for errors: "cuda:sm_XY, such as cuda:sm_90a".
  virtual llvm::StringRef devices() const = 0;
  // Fails for a device that no code can be generated for; the error says which devices are
  // possible.
  virtual llvm::Error checkDevice(const TargetConfig &job) const = 0;
  // Returns the name of the target in a plan: "cpu:x86-64-v3". Fails for an unknown CPU.
  virtual llvm::Expected<std::string> planTarget(const TargetConfig &job) const = 0;

  // The kinds of fusion that only this target's passes do, by their names in --disable-fusion.
  virtual llvm::ArrayRef<llvm::StringLiteral> fusionKinds() const { return {}; }
  // Adds the target's passes over ops of the model, before these become kernels. `isOn` returns
  // true for a kind of fusion that is not disabled.
  virtual void addModelPasses(mlir::OpPassManager &passes,
                              llvm::function_ref<bool(llvm::StringRef)> isOn) const {}
  // Adds the target's passes over fusions, before equal fusions become one kernel.
  virtual void addFusionPasses(mlir::OpPassManager &passes) const {}
  // Returns the type of the scratch memory that `op`, a kern op, needs when it becomes a command,
  // or null.
  virtual mlir::RankedTensorType scratchOf(mlir::Operation *op) const { return {}; }
  // Registers the passes of the target's folder, for lmc-opt.
  virtual void registerPasses() const {}

  // Generates code for `plan`, a module of the plan level with its kern.kernel ops. `cache` is the
  // folder of compiled kernels; with "" nothing is cached. Reports errors at the ops.
  virtual mlir::FailureOr<std::unique_ptr<TargetCode>>
  generate(mlir::ModuleOp plan, const TargetConfig &job, const std::string &cache) const = 0;
  // The default folder of compiled kernels; "" if there is none.
  virtual std::string defaultKernelCache() const { return ""; }

  // The language that `print` writes, for people; "" if it cannot print.
  virtual llvm::StringRef language() const { return ""; }
  // Returns the source of one kernel. Fails, with the reason, for a kernel that has no code.
  virtual mlir::FailureOr<std::string> print(kern::KernelOp kernel, std::string *reason) const {
    return mlir::failure();
  }

  // Returns true if the code states the resources that kernels use: registers, occupancy.
  virtual bool reportsResources() const { return false; }
  // Returns the occupancy of a kernel with `grid`, in a plan for `planTarget`; nothing if it is not
  // known.
  virtual std::optional<Occupancy> occupancy(llvm::StringRef planTarget,
                                             const TargetCode::Grid &grid) const {
    return std::nullopt;
  }
};

// Adds `target` to the list, unless it is already there.
void registerTarget(const Target &target);

// All registered targets.
llvm::ArrayRef<const Target *> targets();

// Returns the target of `device` (its name, a job's target.device or a plan's target), or null.
const Target *findTarget(llvm::StringRef device);

// Returns "" if some target accepts this target.device; otherwise what it must be: "it must be cpu
// or cuda:sm_XY, such as cuda:sm_90a".
std::string deviceProblem(const std::string &device);

} // namespace lmc::codegen
