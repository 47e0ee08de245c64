// An extracted kernel's program, compiled for the host, with what it needs of the CUDA runtime
// (CudaOnTheHost.h). A program can also be built as a library, which a test opens.
#pragma once

#include "compiler/driver/Registration.h"
#include "compiler/extract/ExtractKernel.h"
#include "test/ground/plan/PlanBuilder.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <filesystem>
#include <sys/wait.h>

namespace lmc::test {

// A plan for CUDA.
class CudaPlan : public PlanBuilder {
public:
  CudaPlan() { plan.target = "cuda:sm_90a"; }

  uint32_t kernel(const std::string &name, const std::string &source,
                  const std::string &region = "") {
    auto kernel = std::make_unique<plan::KernelT>();
    kernel->name = kernel->entry = name;
    kernel->source = source;
    kernel->region = region;
    kernel->grid = {1, 1, 1};
    kernel->threads = 32;
    plan.kernels.push_back(std::move(kernel));
    return uint32_t(plan.kernels.size() - 1);
  }

  llvm::Expected<std::string> extract(const std::string &name,
                                      llvm::ArrayRef<cost::KernelCost> costs = {}) const {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
    std::string data = bytes();
    return extractKernel(*plan::GetPlan(data.data()), name, costs, context);
  }
};

// A folder, and a program in it.
class HostProgram {
public:
  HostProgram() {
    llvm::SmallString<128> made;
    llvm::sys::fs::createUniqueDirectory("lmc-host-program", made);
    folder = made.str().str();
  }
  ~HostProgram() { std::filesystem::remove_all(folder); }

  // The exit code of the program; -1: it does not compile.
  int run(const std::string &text) { return build(text) ? start() : -1; }

  // True if the program compiles.
  bool build(const std::string &text, const std::string &options = "") {
    write("program.cpp", text);
    const std::string program = folder + "/program";
    return std::system((LMC_HOST_COMPILER " -std=c++20 -w -include " LMC_CUDA_ON_THE_HOST
                                          " " LMC_FAST_LINKER " " +
                        options + " -o " + program + " " + program + ".cpp -ldl")
                           .c_str()) == 0;
  }

  // Compiles the text as a library and opens it; null: it does not compile.
  void *open(const std::string &text) {
    return build(text, "-O1 -fPIC -shared") ? dlopen((folder + "/program").c_str(), RTLD_NOW)
                                            : nullptr;
  }

  // The exit code of the program that was built.
  int start() {
    const std::string program = folder + "/program";
    return WEXITSTATUS(std::system((program + " > " + program + ".log").c_str()));
  }

  // What it printed.
  std::string log() const {
    auto file = llvm::MemoryBuffer::getFile(folder + "/program.log");
    return file ? (*file)->getBuffer().str() : "";
  }

  // The path of a new file.
  std::string write(const std::string &name, llvm::StringRef bytes) const {
    std::error_code error;
    llvm::raw_fd_ostream(folder + "/" + name, error) << bytes;
    return folder + "/" + name;
  }

private:
  std::string folder;
};

} // namespace lmc::test
