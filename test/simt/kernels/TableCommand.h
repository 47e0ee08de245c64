// A command of ground/plan/commands.toml alone, with drawn extents, on each device and as the
// program that compiler/extract writes for it.
#pragma once

#include "compiler/targets/cuda/CudaProgram.h"
#include "runtime/device/Device.h"
#include "test/ground/plan/PlanBuilder.h"
#include "test/simt/SimtKernel.h"
#include "test/simt/kernels/Draw.h"

#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace lmc::simt {

using Numbers = std::map<std::string, int64_t>; // extents and whole attributes by name
using Shape = std::vector<int64_t>;

struct TableOperand {
  std::string name, role; // "read", "write" or "sum"
  bool isOptional;
  std::string dtype; // as in the table: "T"
  bool isFlat;       // the tensor has two dimensions, whose product is the shape
  Shape (*shape)(const Numbers &);
};

struct TableAttribute {
  std::string name, type, value; // value: the default, or ""
};

struct TableCommand {
  std::string name;
  std::vector<std::string> extents;
  std::vector<TableAttribute> attributes;
  std::string absent; // an extent that is at most most(), and most() if it is not given
  int64_t (*most)(const Numbers &); // of `absent`
  std::vector<TableOperand> operands;

  // Returns what a case has or has not: the flags, the optional operands, "accumulate" and
  // `absent`.
  std::vector<std::string> switches() const;
};

inline void PrintTo(const TableCommand &command, std::ostream *to) { *to << command.name; }

// All commands of the table that are not by hand.
const std::vector<TableCommand> &commandTable();

// The bytes of operands by name.
using Contents = std::map<std::string, std::vector<char>>;

// A command with its extents, attributes and operands.
struct CommandCase {
  const TableCommand *command;
  plan::DType type = plan::DType::F32; // of T
  Numbers numbers;
  std::set<std::string> on; // the switches that are on
  double real = 1;          // of attributes that are real
  codegen::CudaArch arch{}; // of the CUDA kernels

  std::vector<TableOperand> operands() const; // that are not absent
  Shape shapeOf(const TableOperand &operand) const;
  plan::DType dtypeOf(const TableOperand &operand) const;
  uint64_t bytesOf(const TableOperand &operand) const;
  // Returns a text for failures: the command with all that it has.
  std::string describe() const;
};

// Draws a case with these switches on. Its extents may be such that VerifyPlan refuses the command.
CommandCase drawCase(const TableCommand &command, std::set<std::string> on, plan::DType type,
                     Draw &draw);

// The case as a command of the plan dialect, placed for a target, "cpu" or "cuda".
class PlannedCommand {
public:
  PlannedCommand(const CommandCase &given, const std::string &target);

  // Adds the command's slices and the command, with the launches of `code`, to a plan. Returns the
  // numbers of the slices by name.
  std::map<std::string, uint32_t> addTo(test::PlanBuilder &b,
                                        const codegen::TargetCode &code) const;

  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::Operation *command = nullptr;
  // The slices with the names of their operands, or "workspace".
  std::vector<std::pair<mlir::Value, std::string>> slices;
};

// The case on the CPU device.
class CpuCommand {
public:
  // Errors: VerifyPlan refuses the command.
  static Result<std::unique_ptr<CpuCommand>> open(const CommandCase &given);
  Result<void> run(Contents &contents);

private:
  std::unique_ptr<PlanFile> plan;
  std::unique_ptr<Device> device;
  std::unique_ptr<Executable> executable;
  std::map<std::string, uint32_t> slices;
};

// The case's CUDA kernels on the SIMT executor.
class SimtCommand {
public:
  explicit SimtCommand(const CommandCase &given);

  const std::vector<Source> &sources() const { return texts; }
  // The kernels of sources(), compiled.
  void setKernels(std::vector<Kernel> compiled) { kernels = std::move(compiled); }
  // Returns the number of ways to compute the command.
  size_t ways() const;
  // Runs the kernels, each twice in different orders, whose results must be the same bits. Errors:
  // those of the executor, atomic operations, and a kernel that moves more bytes than it says.
  Result<void> run(Contents &contents, size_t way);

  // For each launch the largest share, in [0, 1], of the bytes that its kernel says it moves.
  const std::vector<double> &shares() const { return moved; }

private:
  PlannedCommand planned;
  const TableCommand &command;
  codegen::CudaProgram program;
  std::vector<Source> texts;
  std::vector<Kernel> kernels;
  std::vector<double> moved;
};

// Returns the text of the program for the case, which calls the function that `runOnDevice` points
// to in the place of kernels, with pointers to pointers to operands().
llvm::Expected<std::string> programOf(const CommandCase &given);

} // namespace lmc::simt
