// What the compiler asks of a target: the devices that a job may name, what their kernels need, and
// the code that a plan carries for them.
//
// A target is a folder of compiler/targets. compiler/targets/Targets.def lists them, one a line,
// and no other file of the compiler knows one by its name.
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

// The code of a plan's kernels and commands, as the plan file carries it (plan.fbs).
class TargetCode {
public:
  virtual ~TargetCode() = default;

  struct Module {
    std::vector<std::string> features; // of the machine, without which the code does not run
    std::vector<uint8_t> image;
  };

  // How a device starts a kernel that takes a grid, and what the kernel takes of the device.
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
    // Only of a kernel without an op, which has the name of its entry.
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

  // The kernel that writes a variable's initial values, and what this launch of it moves.
  struct Initializer {
    size_t kernel;
    GlobalBytes bytes;
  };
  // `init` is the initializer of a plan.variable of `type`; a copy is made from elements of type
  // `source` (null for other initializers). None where the runtime writes the values itself.
  // Failure where the code lacks the kernel.
  virtual mlir::FailureOr<std::optional<Initializer>>
  initializer(lm::InitAttr init, mlir::RankedTensorType type, mlir::Type source) const {
    return std::optional<Initializer>();
  }
};

// Every kern.kernel of `plan`, without code, in one module.
TargetCode kernelsWithoutCode(mlir::ModuleOp plan);

// How a kernel fills a multiprocessor.
struct Occupancy {
  unsigned blocks; // resident at a time
  double threads;  // resident ones, as a fraction of what the multiprocessor can hold
};

class Target {
public:
  virtual ~Target() = default;

  // What stands before the ':' of its devices: "cuda".
  virtual llvm::StringRef name() const = 0;

  // Whether `device`, a job's target.device, is written as this target's devices are. Code may
  // still be refused (checkDevice).
  virtual bool isDevice(llvm::StringRef device) const = 0;
  // How its devices are written, for errors: "cuda:sm_XY, such as cuda:sm_90a".
  virtual llvm::StringRef devices() const = 0;
  // An error, which says what would do, for a device that no code can be generated for.
  virtual llvm::Error checkDevice(const TargetConfig &job) const = 0;
  // What a plan calls its target: "cpu:x86-64-v3". Error: an unknown CPU.
  virtual llvm::Expected<std::string> planTarget(const TargetConfig &job) const = 0;

  // The kinds of fusion that this target's passes do, as --disable-fusion names them.
  virtual llvm::ArrayRef<llvm::StringLiteral> fusionKinds() const { return {}; }
  // Adds passes over ops of the model, before they become kernels. `isOn`: a kind is not disabled.
  virtual void addModelPasses(mlir::OpPassManager &passes,
                              llvm::function_ref<bool(llvm::StringRef)> isOn) const {}
  // Adds passes over fusions, before equal ones become one kernel.
  virtual void addFusionPasses(mlir::OpPassManager &passes) const {}
  // The type of the scratch memory that `op`, a kern op, needs when it becomes a command; null for
  // an op that needs none.
  virtual mlir::RankedTensorType scratchOf(mlir::Operation *op) const { return {}; }
  // Registers the passes of the target's folder, for lmc-opt.
  virtual void registerPasses() const {}

  // Generates code for `plan`, a module of the plan level with its kern.kernel ops. `cache` is the
  // folder that keeps compiled kernels; "": none is kept. Reports errors at the ops.
  virtual mlir::FailureOr<std::unique_ptr<TargetCode>>
  generate(mlir::ModuleOp plan, const TargetConfig &job, const std::string &cache) const = 0;
  // The folder that keeps compiled kernels unless the user names another; "": none.
  virtual std::string defaultKernelCache() const { return ""; }

  // The language that `print` writes, for people; "": it writes none.
  virtual llvm::StringRef language() const { return ""; }
  // The source of one kernel. Failure with the reason for a kernel that has no code.
  virtual mlir::FailureOr<std::string> print(kern::KernelOp kernel, std::string *reason) const {
    return mlir::failure();
  }

  // Whether code tells what kernels take of the device: registers, occupancy.
  virtual bool reportsResources() const { return false; }
  // Of a kernel with `grid`, in a plan for `planTarget`; none where that is not known.
  virtual std::optional<Occupancy> occupancy(llvm::StringRef planTarget,
                                             const TargetCode::Grid &grid) const {
    return std::nullopt;
  }
};

// Adds `target` to the list; once is enough.
void registerTarget(const Target &target);

// All registered targets.
llvm::ArrayRef<const Target *> targets();

// The target of `device`: its name, a job's target.device or a plan's target. Null: there is none.
const Target *findTarget(llvm::StringRef device);

// "" for a target.device that some target takes; otherwise what it must be: "it must be cpu or
// cuda:sm_XY, such as cuda:sm_90a".
std::string deviceProblem(const std::string &device);

} // namespace lmc::codegen
