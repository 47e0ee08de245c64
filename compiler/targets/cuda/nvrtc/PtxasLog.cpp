#include "compiler/targets/cuda/nvrtc/Nvrtc.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

using llvm::StringRef;

namespace lmc::codegen {

static uint32_t number(StringRef digits) {
  uint32_t value = 0;
  digits.getAsInteger(10, value);
  return value;
}

std::optional<KernelResources> parsePtxasLog(StringRef log) {
  static const llvm::Regex stack("([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, "
                                 "([0-9]+) bytes spill loads");
  static const llvm::Regex used("Used ([0-9]+) registers");
  static const llvm::Regex shared("[ ,]([0-9]+) bytes smem");
  KernelResources resources;
  bool hasStack = false, hasRegisters = false;
  for (StringRef line : llvm::split(log, '\n')) {
    llvm::SmallVector<StringRef, 4> match;
    if (stack.match(line, &match)) {
      hasStack = true;
      resources.stackBytes += number(match[1]);
      resources.spillBytes += number(match[2]) + number(match[3]);
    }
    if (used.match(line, &match)) {
      hasRegisters = true;
      resources.registers = std::max(resources.registers, number(match[1]));
      if (shared.match(line, &match))
        resources.sharedBytes += number(match[1]);
    }
  }
  if (!hasStack || !hasRegisters)
    return std::nullopt;
  return resources;
}

std::optional<std::string> findPtxasRefusal(StringRef log) {
  static const llvm::Regex refusal("wgmma.* serialized|C7510|C7517|setmaxnreg.* ignored|C7508|"
                                   "(minnctapersm|maxntid|maxnreg|registers?)[^\n]* ignored");
  for (StringRef line : llvm::split(log, '\n'))
    if (refusal.match(line))
      return line.trim().str();
  return std::nullopt;
}

} // namespace lmc::codegen
