// Compiles kernel text in memory and calls it: what the tests and measurements of
// the code generator share.
#pragma once

#include "compiler/targets/cpu/CpuObject.h"
#include "dialects/kern/Kern.h"
#include "compiler/kernels/Hero.h"

#include "mlir/IR/BuiltinOps.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lmc::codegen::test {

struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float value);
  operator float() const {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
};

// Replaces every `$key` of `text`.
std::string substitute(std::string text, const std::map<std::string, std::string> &values);

class Kernel {
public:
  using Entry = void (*)(void *const *, int64_t, int64_t);

  // `text` is a module's content with one kern.kernel. A failure to parse, verify or
  // compile it is in error().
  explicit Kernel(const std::string &text, CpuTarget target = {});
  ~Kernel();
  Kernel(const Kernel &) = delete;

  const std::string &error() const { return message; }
  const CpuImage &image() const { return compiled; }
  const KernelShape &shape() const { return kernelShape; }
  bool mayShare(unsigned result, unsigned input);
  mlir::Block &body();
  kern::Hero hero();

  void run(const std::vector<void *> &args) const { run(args, 0, kernelShape.items); }
  void run(const std::vector<void *> &args, int64_t begin, int64_t end) const {
    entry(args.data(), begin, end);
  }

private:
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string message;
  CpuImage compiled;
  KernelShape kernelShape;
  void *library = nullptr;
  Entry entry = nullptr;
};

// Parses without compiling: for analyses that are to refuse.
mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text, std::string &error);

} // namespace lmc::codegen::test
