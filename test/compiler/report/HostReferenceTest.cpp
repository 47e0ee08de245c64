// The program around an extracted kernel, compiled for the host: the CPU's code is launched in the
// kernel's place, and must agree with the reference that is printed from the region.
#include "compiler/report/HostReference.h"
#include "test/passes/codegen/KernelRunner.h"
#include "test/passes/codegen/KernelTexts.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sys/wait.h>

using namespace lmc;
using namespace lmc::codegen;
using namespace lmc::codegen::test;
using namespace mlir;

namespace {

// What the harness needs of the CUDA runtime.
const char *kCudaOnTheHost = R"(
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
typedef int cudaError_t;
typedef int cudaEvent_t;
constexpr int cudaSuccess = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2;
inline const char *cudaGetErrorString(int) { return ""; }
inline int cudaMalloc(void **p, size_t n) { *p = std::aligned_alloc(64, (n + 63) / 64 * 64); return 0; }
inline int cudaMemcpy(void *to, const void *from, size_t n, int) { std::memcpy(to, from, n); return 0; }
inline int cudaDeviceSynchronize() { return 0; }
inline int cudaEventCreate(int *) { return 0; }
inline int cudaEventRecord(int) { return 0; }
inline int cudaEventSynchronize(int) { return 0; }
inline int cudaEventElapsedTime(float *time, int, int) { *time = 1; return 0; }
)";

std::string read(const std::string &path) {
  auto file = llvm::MemoryBuffer::getFile(path);
  return file ? (*file)->getBuffer().str() : "";
}

void write(const std::string &path, llvm::StringRef bytes) {
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << bytes;
}

const char *hostType(Type type) {
  return type.isBF16() ? "BF16" : type.isF64() ? "F64" : type.isInteger(32) ? "I32" : "F32";
}

// `Kernel` with its region's reference, as the extracted program would be, in a folder.
class HostProgram {
public:
  explicit HostProgram(const std::string &text) : kernel(text) {
    llvm::SmallString<128> made;
    llvm::sys::fs::createUniqueDirectory("lmc-host-reference", made);
    folder = made.str().str();
  }
  ~HostProgram() { std::filesystem::remove_all(folder); }

  // The exit code of the program, whose reference is of `referenceText`; -1: it does not compile.
  int run(const std::string &referenceText) {
    std::string error;
    OwningOpRef<ModuleOp> module = parse(referenceText, error);
    if (!module)
      return -1;
    kern::KernelOp op = *module->getOps<kern::KernelOp>().begin();
    auto reference = hostReference(op);
    if (!reference) {
      ADD_FAILURE() << llvm::toString(reference.takeError());
      return -1;
    }
    write(folder + "/kernel.so",
          llvm::StringRef(reinterpret_cast<const char *>(kernel.image().object.data()),
                          kernel.image().object.size()));
    const std::string texts = std::string(LMC_SOURCE_DIR) + "/compiler/report/extract/";
    write(folder + "/program.cpp", kCudaOnTheHost + read(texts + "harness.cu") + arrays(op) +
                                       launch() + *reference + read(texts + "region.cu"));
    const std::string program = folder + "/program";
    if (std::system(("c++ -std=c++17 -w -o " + program + " " + program + ".cpp -ldl").c_str()) != 0)
      return -1;
    return WEXITSTATUS(std::system((program + " > " + program + ".log").c_str()));
  }

  std::string log() const { return read(folder + "/program.log"); }

  Kernel kernel;

private:
  std::string arrays(kern::KernelOp op) {
    Block &body = op.getBody().front();
    std::string text = "static std::vector<host::Array> arrays = {\n";
    auto add = [&](Value value, bool isInput) {
      auto type = cast<RankedTensorType>(value.getType());
      text += llvm::formatv("{{\"a\", host::Type::{0}, {{", hostType(type.getElementType()));
      for (int64_t extent : type.getShape())
        text += std::to_string(extent) + ", ";
      text += llvm::formatv("}, 1, 0, {0}, {1}, {{}},\n", isInput ? "true" : "false",
                            integerBound(op));
    };
    for (BlockArgument argument : body.getArguments())
      add(argument, true);
    for (Value value : body.getTerminator()->getOperands())
      add(value, false);
    text += "};\nconstexpr double kBytes = 1, kFlops = 1;\n";
    return text + (roundsToBf16(op) ? "constexpr double kRelative = 0.016, kAbsolute = 0.016;\n"
                                    : "constexpr double kRelative = 1e-4, kAbsolute = 1e-5;\n");
  }

  std::string launch() {
    return llvm::formatv(
        "static void launchAll() {{\n"
        "  static void *library = dlopen(\"{0}/kernel.so\", RTLD_NOW);\n"
        "  auto *entry = reinterpret_cast<void (*)(void *const *, int64_t, int64_t)>(\n"
        "      dlsym(library, \"kernel\"));\n"
        "  std::vector<void *> arguments;\n"
        "  for (host::Array &array : arrays)\n    arguments.push_back(array.device);\n"
        "  entry(arguments.data(), 0, {1});\n}\n",
        folder, kernel.shape().items);
  }

  std::string folder;
};

std::string text(const char *form) {
  std::string sums = substitute(
      form, {{"after", ""}, {"yield", "%sums : tensor<$Rx$Cxf32>, tensor<$Bx$Cxf32>"}});
  return substitute(sums, {{"R", "24"}, {"C", "96"}, {"T", "bf16"}, {"S", "6"}, {"P", "2"}, {"B", "12"}});
}

class HostReference : public testing::TestWithParam<const char *> {};

} // namespace

TEST_P(HostReference, AgreesWithTheCpusCode) {
  std::string given = text(GetParam());
  HostProgram program(given);
  ASSERT_EQ(program.kernel.error(), "");
  EXPECT_EQ(program.run(given), 0) << program.log();
  EXPECT_NE(program.log().find("check: 0 of "), std::string::npos) << program.log();
}

INSTANTIATE_TEST_SUITE_P(Kernels, HostReference,
                         testing::Values(kResidualRmsNorm, kBlockSums, kCrossEntropy, kRope,
                                         kGather, kColumnSum, kAdamW));

TEST(HostReference, TellsAWrongKernel) {
  std::string right = text(kResidualRmsNorm), wrong = right;
  wrong.replace(wrong.find("1.0e-5"), 6, "1.0e-1"); // another epsilon
  HostProgram program(right);
  ASSERT_EQ(program.kernel.error(), "");
  EXPECT_EQ(program.run(wrong), 1) << program.log();
  EXPECT_NE(program.log().find(", not "), std::string::npos) << program.log();
}
