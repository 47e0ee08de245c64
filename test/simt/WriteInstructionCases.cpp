// Prints a CUDA program that runs the cases of InstructionCases.h on a GPU and compares the results
// with those that the SIMT executor computes here. `./dev gpu pack` takes it along.
//
//   nvcc -std=c++17 -O2 -arch=native -I INC FILE     INC/lmc: compiler/targets/cuda/device
#include "test/simt/InstructionCases.h"
#include "test/simt/SimtKernel.h"

#include <cstdio>
#include <fmt/format.h>

using namespace lmc::simt;
using namespace lmc::simt::test;

namespace {

const char *const kStart =
    R"(// Instructions of a warp or a warpgroup, compared with the results of lmc's SIMT executor. Written by
// test/simt/WriteInstructionCases.cpp.
#include "lmc/vector_io.cuh"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace lmc;

static bool good = true;

static void check(cudaError_t result) {
  if (result == cudaSuccess)
    return;
  std::fprintf(stderr, "instructions: error: %s\n", cudaGetErrorString(result));
  std::exit(2);
}

static float real(unsigned word) {
  float x;
  std::memcpy(&x, &word, 4);
  return x;
}

// Runs a kernel with one block. The result starts as 0xff bytes. `relative` is the allowed error of
// results that are f32; 0: equal bits. A kernel that `needsSm90a` is left out on other devices.
static void run(const char *name, const void *kernel, int sharedBytes, int threads, bool needsSm90a,
                std::vector<std::vector<unsigned>> inputs, const std::vector<unsigned> &expected,
                double relative) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  if (needsSm90a && (major != 9 || minor != 0)) {
    std::printf("%s: left out, it needs compute capability 9.0\n", name);
    return;
  }
  std::vector<void *> memory(inputs.size() + 1), arguments;
  std::vector<unsigned> got(expected.size());
  for (size_t i = 0; i < memory.size(); ++i) {
    const size_t bytes = 4 * (i < inputs.size() ? inputs[i].size() : got.size());
    check(cudaMalloc(&memory[i], bytes));
    check(cudaMemset(memory[i], 0xff, bytes));
    if (i < inputs.size())
      check(cudaMemcpy(memory[i], inputs[i].data(), bytes, cudaMemcpyHostToDevice));
    arguments.push_back(&memory[i]);
  }
  check(cudaLaunchKernel(kernel, dim3(1), dim3(threads), arguments.data(), sharedBytes, nullptr));
  check(cudaDeviceSynchronize());
  check(cudaMemcpy(got.data(), memory.back(), 4 * got.size(), cudaMemcpyDeviceToHost));
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double a = real(got[i]), b = real(expected[i]);
    if (relative == 0 ? got[i] != expected[i] : !(std::fabs(a - b) <= relative * std::fabs(b))) {
      if (wrong++ < 3)
        std::printf("  %s[%zu] is %08x, not %08x\n", name, i, got[i], expected[i]);
    }
  }
  std::printf("%s: %zu of %zu words wrong\n", name, wrong, got.size());
  good = good && wrong == 0;
}
)";

void printWords(const std::vector<uint32_t> &words) {
  std::printf("{");
  for (size_t i = 0; i < words.size(); ++i)
    std::printf("%s0x%08xu,", i % 8 == 0 ? "\n        " : " ", words[i]);
  std::printf("}");
}

// Returns what the executor computes, or ends the program.
std::vector<uint32_t> computed(const InstructionCase &given) {
  Source source{given.name,
                fmt::format("#include \"lmc/vector_io.cuh\"\nusing namespace lmc;\n"
                            "extern \"C\" __global__ void {}({}) {{\n{}\n}}\n",
                            given.name, given.parameters, given.body),
                {1, 1, 1},
                given.threads,
                given.sharedBytes};
  auto kernel = compile(source);
  std::vector<uint32_t> y(given.expected.size());
  std::vector<Argument> arguments;
  for (const std::vector<uint32_t> &x : given.inputs)
    arguments.push_back({const_cast<uint32_t *>(x.data()), 4 * x.size(), Access::Read});
  arguments.push_back({y.data(), 4 * y.size(), Access::Write});
  const std::string failure =
      kernel ? runTwice(*kernel, arguments).failure : kernel.error().message;
  if (failure.empty())
    return y;
  std::fprintf(stderr, "instruction-cases: error: %s: %s\n", given.name.c_str(), failure.c_str());
  std::exit(1);
}

} // namespace

int main() {
  const std::vector<InstructionCase> cases = instructionCases();
  std::fputs(kStart, stdout);
  for (const InstructionCase &given : cases)
    std::printf("\nextern \"C\" __global__ void __launch_bounds__(%u) %s(%s) {\n%s%s\n%s}\n",
                given.threads, given.name.c_str(), given.parameters.c_str(),
                given.needsSm90a ? "#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n" : "", given.body.c_str(),
                given.needsSm90a ? "#endif\n" : "");
  std::printf("\nint main() {\n");
  for (const InstructionCase &given : cases) {
    std::printf("  run(\"%s\", (const void *)%s, %u, %u, %s, {", given.name.c_str(),
                given.name.c_str(), given.sharedBytes, given.threads,
                given.needsSm90a ? "true" : "false");
    for (const std::vector<uint32_t> &words : given.inputs) {
      printWords(words);
      std::printf(", ");
    }
    std::printf("}, ");
    printWords(computed(given));
    std::printf(", %g);\n", given.relative);
  }
  std::printf("  return good ? 0 : 1;\n}\n");
  return 0;
}
