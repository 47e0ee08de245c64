// An extracted program (ExtractKernel.h) in parts, and how they become one text.
#pragma once

#include "compiler/cost/PlanCost.h"
#include "ground/plan/Operands.h"

#include "plan_generated.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc::extract {

template <typename... Args> llvm::Error fail(const char *format, Args &&...args) {
  return llvm::createStringError(llvm::formatv(format, std::forward<Args>(args)...).str());
}

// Returns the text of the file STEM in compiler/extract/text, without its extension. "NormalStream"
// stands for runtime/step/NormalStream.cpp.
std::string textOf(llvm::StringRef stem);
bool hasText(llvm::StringRef stem);

inline bool isInclude(llvm::StringRef line) { return line.trim().starts_with("#include"); }

inline const char *boolText(bool value) { return value ? "true" : "false"; }

// A tensor of the program. The program declares it as a host::Array (text/harness.cu).
struct Array {
  std::string name;
  const char *type; // name of a host::Type, such as "BF16"
  std::vector<int64_t> shape;
  int64_t rows = 1, pitch = 0; // pitch in elements; 0: rows are adjacent
  bool isInput = true;
  int64_t least = 0, bound = 1;
  bool isPositive = false;
  double relative = 0, absolute = 0; // tolerances for Expected::compare in harness.cu

  // Sets the allowed error of this result; its reference has f64. `precision` is the least precise
  // type to which the kernel rounds the result or values before it.
  void allowRoundingTo(llvm::StringRef precision);
  std::string print() const;
};

struct Launch {
  const plan::Kernel *kernel;
  std::vector<size_t> args; // indices into Program::arrays
};

struct Program {
  std::vector<Array> arrays;
  std::vector<Launch> launches;
  std::string constants; // constants that the main text uses
  std::string reference; // text of hostReference(), or texts that several main texts share
  std::string main;      // name of the main text in compiler/extract/text
  std::string options = "-std=c++17 -O2 -fmad=false"; // options of nvcc
  double bytes = 0, flops = 0;

  // Returns the text of the program. `costs` has predictions for the plan's kernels, or is empty.
  std::string print(const plan::Plan &plan, llvm::StringRef name,
                    llvm::ArrayRef<cost::KernelCost> costs) const;

private:
  std::string kernels() const;
  std::string tables(const plan::Plan &plan, llvm::ArrayRef<cost::KernelCost> costs) const;
};

// Adds the tensors and launches of a plan's command to a program.
class CommandProgram {
public:
  explicit CommandProgram(const plan::Plan &plan) : plan(plan) {}

  // Adds the tensor `slice`. The program's constant kNAME is its index in `arrays`, or -1 if
  // `slice` is negative (absent).
  void add(llvm::StringRef name, int64_t slice, bool isInput, int64_t bound = 1);
  void add(Array array);
  // Returns the program that launches all kernels of `command`, or only number `only` of them.
  llvm::Expected<Program> launching(const plan::Command &command,
                                    std::optional<size_t> only = std::nullopt);
  // Defines the constant kNAME of the program, with the first letter of `name` in upper case.
  void constant(llvm::StringRef type, llvm::StringRef name, const llvm::Twine &value);

  Program program;

private:
  const plan::Plan &plan;
  llvm::DenseMap<uint32_t, size_t> arrayOf; // index of the array for each slice
};

// Returns the program for the kernels of `command`, whose contents are `op`. Some commands have
// several alternative launches: the program then has only the launch with index `launch`.
#define LMC_DECLARE(Name)                                                                          \
  llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,          \
                                    const plan::Name &op, size_t launch);
LMC_COMMANDS_OF_TEMPLATES(LMC_DECLARE)
LMC_DECLARE(Attention)
LMC_DECLARE(AttentionGrad)
LMC_DECLARE(ScatterAdd)
LMC_DECLARE(LinearSwiglu)
LMC_DECLARE(SwigluLinearGrad)
#undef LMC_DECLARE

// Returns the program for the kernel that writes the initial values of `variable`.
llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::Variable &variable);

// Returns the largest variable whose initial values the kernel with index `kernel` writes; null if
// there is none.
const plan::Variable *initializedBy(const plan::Plan &plan, uint32_t kernel);

// Commands without a function above have no kernels to extract.
template <typename Body>
llvm::Expected<Program> programOf(const plan::Plan &, const plan::Command &command, const Body &,
                                  size_t) {
  return fail("a {0} has no kernels to extract", plan::commandName(command));
}

} // namespace lmc::extract
