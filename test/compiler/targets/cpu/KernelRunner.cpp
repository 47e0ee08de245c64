#include "test/compiler/targets/cpu/KernelRunner.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;

namespace lmc::codegen::test {

bf16::bf16(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, 4);
  if (value != value)
    bits = uint16_t(wide >> 16) | 0x40;
  else
    bits = uint16_t((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

std::string substitute(std::string text, const std::map<std::string, std::string> &values) {
  for (auto &[key, value] : values)
    for (size_t at = 0; (at = text.find("$" + key, at)) != std::string::npos; at += value.size())
      text.replace(at, key.size() + 1, value);
  return text;
}

static MLIRContext &context() {
  static MLIRContext *shared = [] {
    auto *c = new MLIRContext(MLIRContext::Threading::DISABLED);
    c->loadDialect<kern::KernDialect, linalg::LinalgDialect, arith::ArithDialect, math::MathDialect,
                   tensor::TensorDialect>();
    return c;
  }();
  return *shared;
}

OwningOpRef<ModuleOp> parse(const std::string &text, std::string &error) {
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    error += diagnostic.str() + "\n";
    return success();
  });
  return parseSourceString<ModuleOp>(text, &context());
}

Kernel::Kernel(const std::string &text, CpuTarget target) : module(parse(text, message)) {
  if (!module)
    return;
  llvm::Expected<KernelShape> analyzed = analyze(hero(), body());
  if (!analyzed) {
    message = llvm::toString(analyzed.takeError());
    return;
  }
  kernelShape = *analyzed;
  llvm::Expected<CpuImage> built = buildCpuImage(*module, target);
  if (!built) {
    message = llvm::toString(built.takeError());
    return;
  }
  compiled = std::move(*built);
  int file = memfd_create("kernel", MFD_CLOEXEC);
  if (write(file, compiled.object.data(), compiled.object.size()) !=
      ssize_t(compiled.object.size()))
    message = "cannot write the image";
  library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  close(file);
  if (!library) {
    message = dlerror();
    return;
  }
  std::string name = (*module->getOps<kern::KernelOp>().begin()).getSymName().str();
  entry = reinterpret_cast<Entry>(dlsym(library, name.c_str()));
  if (!entry)
    message = "the image does not export " + name;
}

Kernel::~Kernel() {
  if (library)
    dlclose(library);
}

Block &Kernel::body() { return (*module->getOps<kern::KernelOp>().begin()).getBody().front(); }
kern::Hero Kernel::hero() { return (*module->getOps<kern::KernelOp>().begin()).getHero(); }

bool Kernel::mayShare(unsigned result, unsigned input) {
  return mayShareBuffer(llvm::cantFail(analyzeRegion(hero(), body())), body(), result, input);
}

} // namespace lmc::codegen::test
