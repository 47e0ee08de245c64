// The interface of a target: its devices, what their kernels need, and the code of a plan.
//
// A target is a folder of compiler/targets. Only compiler/targets/Targets.def names the targets.
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

struct GlobalBytes {
  uint64_t read = 0, written = 0;
};

// The code and the kernels of a plan, in the form of the plan file (plan.fbs).
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
    kern::KernelOp op; // op to compile; null for kernels of plan commands and of initial values
    size_t module;
    std::string entry = "";  // name of the function in the module; "": the op's name
    std::string source = ""; // source text of the kernel; "": the plan stores the op instead
    std::optional<Grid> grid = std::nullopt;
    // Set only for a kernel without an op, whose name is `entry`.
    std::string hero = "", sourceOp = ""; // sourceOp: such as "lm.attention"; "" for initial values
    GlobalBytes bytes = {};               // traffic of one launch
  };

  struct Launch {
    size_t kernel;
    llvm::SmallVector<mlir::Value> args; // slices; the kernel only reads the first `inputs` of them
    uint32_t inputs;
  };

  std::vector<Module> modules;
  std::vector<Kernel> kernels;
  llvm::DenseMap<mlir::Operation *, std::vector<Launch>> launches; // per plan command, in order

  // The kernel that writes a variable's initial values, and the traffic of its launch.
  struct Initializer {
    size_t kernel;
    GlobalBytes bytes;
  };
  // Returns the kernel that computes `init`, the initializer of a plan.variable of type `type`.
  // `source` is the element type that a copy reads (null for other initializers). Returns nullopt
  // if the runtime writes the values. Fails if the target's code lacks a needed kernel.
  virtual mlir::FailureOr<std::optional<Initializer>>
  initializer(lm::InitAttr init, mlir::RankedTensorType type, mlir::Type source) const {
    return std::optional<Initializer>();
  }
};

// Returns all kernels of `plan`, in one module that has no code.
TargetCode kernelsWithoutCode(mlir::ModuleOp plan);

// How much of a multiprocessor (SM) a kernel uses.
struct Occupancy {
  unsigned blocks; // thread blocks resident on an SM at a time
  double threads;  // resident threads, as a fraction of the maximum
};

class Target {
public:
  virtual ~Target() = default;

  // Returns the part of a device's name before the ':', such as "cuda".
  virtual llvm::StringRef name() const = 0;

  // Returns true if `device` has the form of a target.device; checkDevice may still refuse it.
  virtual bool isDevice(llvm::StringRef device) const = 0;
  // Returns how devices of this target are named, for errors: "cuda:sm_XY, such as cuda:sm_90a".
  virtual llvm::StringRef devices() const = 0;
  // Returns an error if this target cannot make code for the device; the error lists all devices.
  virtual llvm::Error checkDevice(const TargetConfig &job) const = 0;
  // Returns the name of the target in a plan: "cpu:x86-64-v3". Fails for an unknown CPU.
  virtual llvm::Expected<std::string> planTarget(const TargetConfig &job) const = 0;

  // Returns the kinds of fusion (names in --disable-fusion) that the target's own passes perform.
  virtual llvm::ArrayRef<llvm::StringLiteral> fusionKinds() const { return {}; }
  // Adds the target's compiler passes that change the model's ops before they become kernels.
  // `device` is the value of target.device. `isOn` tells whether a kind of fusion is enabled.
  virtual void addModelPasses(mlir::OpPassManager &passes, llvm::StringRef device,
                              llvm::function_ref<bool(llvm::StringRef)> isOn) const {}
  // Adds the target's compiler passes that change fusions. Later, equal fusions become one kernel.
  virtual void addFusionPasses(mlir::OpPassManager &passes) const {}
  // Returns the type of the scratch memory that the command of the kern op `op` needs; null if
  // none. A matrix product gets at most `gemmBytes` bytes (DeviceSpec::gemmWorkspaceBytes).
  virtual mlir::RankedTensorType scratchOf(mlir::Operation *op, uint64_t gemmBytes) const {
    return {};
  }
  // Returns the alignment of a plan's buffers in bytes: a power of two, by default a cache line.
  virtual uint64_t bufferAlignment() const { return 64; }
  // Returns true if the runtime can run collectives along both mesh axes at the same time.
  virtual bool runsAxesAtOnce() const { return false; }
  // Returns n: rows of this dtype are padded to multiples of n elements. 1: no padding.
  virtual int64_t paddedMultiple(DataType dtype) const { return 1; }
  // Returns true if the device computes products of 8-bit floats with these scales: "tensor" or
  // "block" (training.fp8).
  virtual bool multipliesEightBits(llvm::StringRef device, llvm::StringRef scales) const {
    return false;
  }
  // Returns true if the rows of both factors of such a product must run along the dimension that is
  // summed over (EightBits::RowsOfK in ground/plan/TargetRules.h).
  virtual bool needsRowsOfK() const { return false; }
  // Registers the compiler passes in the target's folder, for lmc-opt.
  virtual void registerPasses() const {}

  // Generates code for `plan`, a module with kern.kernel ops and ops of the plan dialect. If
  // `cache` is not "", this folder keeps compiled kernels. Reports errors at the ops.
  virtual mlir::FailureOr<std::unique_ptr<TargetCode>>
  generate(mlir::ModuleOp plan, const TargetConfig &job, const std::string &cache) const = 0;

  // Returns the name of the language that print() writes; "" if the target cannot print.
  virtual llvm::StringRef language() const { return ""; }
  // Returns the source of one kernel, or an error that says why it has no code.
  virtual llvm::Expected<std::string> print(kern::KernelOp kernel) const {
    return llvm::createStringError("the target prints no kernels");
  }

  // Returns the cost model for the device of `spec`. `device` may also be the target of a plan.
  virtual std::unique_ptr<cost::CostModel> costModel(llvm::StringRef device,
                                                     cost::DeviceSpec spec) const {
    return std::make_unique<cost::CostModel>(std::move(spec));
  }

  // Returns true if the generated code states the resources of kernels (registers, occupancy).
  virtual bool reportsResources() const { return false; }
  // Returns the occupancy of a kernel with `grid` in a plan for `planTarget`; nullopt if unknown.
  virtual std::optional<Occupancy> occupancy(llvm::StringRef planTarget,
                                             const TargetCode::Grid &grid) const {
    return std::nullopt;
  }
};

// Adds `target` to the list, unless it is already there.
void registerTarget(const Target &target);

llvm::ArrayRef<const Target *> targets();

// Returns the target of a device or plan ("cuda:sm_90a", "cpu:x86-64-v3"); null if there is none.
const Target *findTarget(llvm::StringRef device);

// Returns Target::costModel of the device's target. Without such a target, returns CostModel(spec).
std::unique_ptr<cost::CostModel> costModelOf(llvm::StringRef device, cost::DeviceSpec spec);

// Succeeds if a target accepts this target.device. Error: the possible names.
Result<void> checkDeviceName(const std::string &device);

} // namespace lmc::codegen
