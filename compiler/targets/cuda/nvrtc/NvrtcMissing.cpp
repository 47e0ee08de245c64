// Replaces Nvrtc.cpp if the build found no nvrtc.h.
#include "compiler/targets/cuda/nvrtc/Nvrtc.h"

using llvm::createStringError;
using llvm::Expected;
using llvm::SmallVector;
using llvm::StringRef;

namespace lmc::codegen {

struct Nvrtc::Functions {};

Nvrtc::Nvrtc() = default;
Nvrtc::~Nvrtc() = default;

static llvm::Error leftOut() {
  return createStringError("this build of lmc has no CUDA code generator, as it found no nvrtc.h: "
                           "run './dev setup', which installs NVRTC, and build again");
}

Expected<const Nvrtc *> Nvrtc::get() { return leftOut(); }
Expected<std::unique_ptr<Nvrtc>> Nvrtc::open(const std::string &) { return leftOut(); }
SmallVector<const char *> Nvrtc::options(const CudaKernel &) { return {}; }
Expected<Cubin> Nvrtc::compile(const CudaKernel &, StringRef) const { return leftOut(); }

} // namespace lmc::codegen
