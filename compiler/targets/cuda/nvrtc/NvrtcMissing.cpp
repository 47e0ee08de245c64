// Replaces Nvrtc.cpp if the build found no nvrtc.h.
#include "compiler/targets/cuda/nvrtc/Nvrtc.h"

using llvm::Expected;

namespace lmc::codegen {

struct Nvrtc::Functions {};

Nvrtc::Nvrtc() = default;
Nvrtc::~Nvrtc() = default;

static llvm::Error leftOut() {
  return llvm::createStringError(
      "this build of lmc has no CUDA code generator, as it found no nvrtc.h: "
      "run './dev setup', which installs NVRTC, and build again");
}

Expected<const Nvrtc *> Nvrtc::get() { return leftOut(); }
Expected<std::unique_ptr<Nvrtc>> Nvrtc::open(const std::string &) { return leftOut(); }
llvm::SmallVector<const char *> Nvrtc::options(const CudaKernel &) { return {}; }
Expected<Cubin> Nvrtc::compile(const CudaKernel &, llvm::StringRef) const { return leftOut(); }

} // namespace lmc::codegen
