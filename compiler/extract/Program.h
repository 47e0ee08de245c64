// The program that extractKernel prints: tensors, launches of kernels, and a reference.
#pragma once

#include "plan_generated.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"

#include <string>
#include <vector>

namespace lmc::extract {

template <typename... Args> llvm::Error fail(const char *format, Args &&...args) {
  return llvm::createStringError(llvm::formatv(format, std::forward<Args>(args)...).str());
}

// Returns a text of compiler/extract/text by its stem. "NormalStream" is the runtime's
// NormalStream.cpp.
std::string textOf(llvm::StringRef stem);

inline bool isInclude(llvm::StringRef line) { return line.trim().starts_with("#include"); }

inline const char *boolText(bool value) { return value ? "true" : "false"; }

// One tensor of the program: becomes a host::Array of the harness, with its Draw and Tolerance.
struct Array {
  std::string name;
  const char *type; // of host::Type
  std::vector<int64_t> shape;
  int64_t rows = 1, pitch = 0; // elements; pitch 0: dense
  bool isInput = true;
  int64_t least = 0, bound = 1;
  bool isPositive = false;
  double relative = 0, absolute = 0;

  std::string print() const;
};

struct Launch {
  const plan::Kernel *kernel;
  std::vector<size_t> args; // indices of arrays
};

// The contents of the program, and the printing of its text.
struct Program {
  std::vector<Array> arrays;
  std::vector<Launch> launches;
  std::string constants; // used by the main text
  std::string reference;
  std::string main; // stem of the main text in compiler/extract/text
  std::string options = "-std=c++17 -O2 -fmad=false"; // for nvcc
  double bytes = 0, flops = 0;

  std::string print(const plan::Plan &plan, llvm::StringRef name) const;

private:
  std::string kernels() const;
  std::string tables() const;
};

// Adds the tensors and launches of a command to a program.
class CommandProgram {
public:
  explicit CommandProgram(const plan::Plan &plan) : plan(plan) {}

  // Adds an array. The constant kNAME gets its number, or -1 for an absent slice.
  void add(llvm::StringRef name, int64_t slice, bool isInput, int64_t bound = 1);
  void add(Array array);
  // Returns the program that launches the kernels of `command`.
  llvm::Expected<Program> launching(const plan::Command &command);
  void constant(llvm::StringRef type, llvm::StringRef name, const llvm::Twine &value) {
    program.constants += llvm::formatv("constexpr {0} k{1} = {2};\n", type, name, value.str());
  }

  Program program;

private:
  const plan::Plan &plan;
  llvm::DenseMap<uint32_t, size_t> arrayOf; // by slice
};

// Returns the program of the kernels of `command`, whose body is `op`. Each kind of command with
// template kernels has a specialisation in a file of this folder.
template <typename Body>
llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::Command &command,
                                  const Body &op);

} // namespace lmc::extract
