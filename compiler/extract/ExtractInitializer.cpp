// Writes the extracted program for a kernel that writes the initial values of variables.
#include "compiler/extract/Program.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/xxhash.h"

using llvm::Expected;
using llvm::format;
using llvm::formatv;
using llvm::SmallVector;
using llvm::StringRef;

namespace lmc::extract {

// Returns the text of runtime/step/NormalStream.cpp inside a namespace, because the device library
// has functions with the same names.
static std::string cpuNormals() {
  std::string includes = "#include <array>\n", body;
  SmallVector<StringRef> lines;
  std::string text = textOf("NormalStream");
  StringRef(text).split(lines, '\n');
  for (StringRef line : lines)
    if (!isInclude(line))
      body += (line + "\n").str();
    else if (line.contains('<'))
      includes += (line + "\n").str();
  return includes + "\nnamespace cpu {\n" + body + "} // namespace cpu\n\n";
}

// Returns the C++ text of `double expected(int64_t i)`, which computes the unrounded element i as
// runtime/step/Initializer.cpp does.
static std::string expectedValue(const plan::Initializer &how) {
  std::string before, body;
  switch (how.kind()) {
  case plan::InitializerKind::Normal:
    before = cpuNormals();
    body = "  double value;\n"
           "  cpu::lmc::fillNormal(kSeed, kStream, uint64_t(i), 1, kValue, &value);\n"
           "  return value;\n";
    break;
  case plan::InitializerKind::RopeCos:
  case plan::InitializerKind::RopeSin:
    body = "  static const double frequencies[] = {\n";
    for (double frequency : *how.values())
      body += formatv("      {0},\n", format("%.17g", frequency));
    body +=
        formatv("  };\n  const double angle = double(i / {0}) * frequencies[i % {0}];\n"
                "  return std::{1}(angle) * kValue;\n",
                how.values()->size(), how.kind() == plan::InitializerKind::RopeCos ? "cos" : "sin");
    break;
  case plan::InitializerKind::CopyOf:
    body = "  return arrays[kSource].at(i);\n";
    break;
  default: // ones and other constants
    body = "  (void)i;\n  return kValue;\n";
  }
  return "\n" + before + "static double expected(int64_t i) {\n" + body + "}\n";
}

// Returns the allowed relative error of a RoPE table: CPU and CUDA round cos and sin differently.
static double unitOf(plan::DType type) {
  return type == plan::DType::F64 ? 1e-15 : type == plan::DType::F32 ? 0x1p-23 : 0x1p-7;
}

static const plan::Variable *variableOf(const plan::Plan &plan, StringRef name) {
  for (const plan::Variable *variable : *plan.variables())
    if (name == variable->name()->c_str())
      return variable;
  return nullptr;
}

Expected<Program> programOf(const plan::Plan &plan, const plan::Variable &variable) {
  const plan::Initializer &how = *variable.initializer();
  const plan::Kernel &kernel = *plan.kernels()->Get(uint32_t(how.kernel()));
  const bool isCopy = how.kind() == plan::InitializerKind::CopyOf;
  const plan::Variable *source = isCopy ? variableOf(plan, how.source()->c_str()) : nullptr;
  CommandProgram made(plan);
  made.add({"how", "I64", {5}}); // an lmc::InitializerRecord, five 64-bit words
  made.add("source", source ? int64_t(source->slice()) : -1, /*isInput=*/true);
  made.add("out", variable.slice(), /*isInput=*/false);
  Program &program = made.program;
  const plan::Slice &out = *plan.slices()->Get(variable.slice());
  if (how.kind() == plan::InitializerKind::RopeCos || how.kind() == plan::InitializerKind::RopeSin)
    program.arrays.back().relative = unitOf(out.dtype());
  const bool isNormal = how.kind() == plan::InitializerKind::Normal;
  made.constant("double", "Value",
                formatv("{0}", format("%.17g", isNormal ? how.stddev() : how.scale())).str());
  made.constant("uint64_t", "Seed", "1"); // any value is valid
  made.constant("uint64_t", "Stream",
                formatv("{0}ull", llvm::xxHash64(variable.name()->string_view())).str());
  program.reference = expectedValue(how);
  program.main = "initializer";
  // The reference rounds products and sums separately, as the CUDA kernel does.
  program.options = "-std=c++20 -O2 -Xcompiler=-ffp-contract=off -fmad=false";
  program.bytes = double(out.bytes());
  if (source)
    program.bytes += double(plan.slices()->Get(source->slice())->bytes());
  Launch launch{&kernel, {}};
  for (size_t i = 0; i < program.arrays.size(); ++i)
    launch.args.push_back(i);
  program.launches.push_back(std::move(launch));
  return std::move(program);
}

const plan::Variable *initializedBy(const plan::Plan &plan, uint32_t kernel) {
  const plan::Variable *largest = nullptr;
  auto bytes = [&](const plan::Variable &variable) {
    return plan.slices()->Get(variable.slice())->bytes();
  };
  for (const plan::Variable *variable : *plan.variables())
    if (variable->initializer() && variable->initializer()->kernel() == int64_t(kernel) &&
        (!largest || bytes(*variable) > bytes(*largest)))
      largest = variable;
  return largest;
}

} // namespace lmc::extract
