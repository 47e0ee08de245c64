#include "compiler/targets/cuda/nvrtc/Nvrtc.h"
#include "test/compiler/targets/cuda/CudaFixture.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gmock/gmock.h>

using namespace lmc::codegen;
using testing::HasSubstr;

static std::string messageOf(llvm::Error error) { return llvm::toString(std::move(error)); }

TEST(PtxasLog, GivesRegistersSharedMemoryAndSpills) {
  auto resources =
      parsePtxasLog("ptxas info    : 0 bytes gmem\n"
                    "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
                    "ptxas info    : Function properties for k\n"
                    "ptxas         .     24 bytes stack frame, 12 bytes spill stores, "
                    "20 bytes spill loads\n"
                    "ptxas info    : Used 42 registers, used 1 barriers, 4112 bytes smem\n");
  ASSERT_TRUE(resources);
  EXPECT_EQ(resources->registers, 42u);
  EXPECT_EQ(resources->sharedBytes, 4112u);
  EXPECT_EQ(resources->stackBytes, 24u);
  EXPECT_EQ(resources->spillBytes, 32u);
}

TEST(PtxasLog, WithoutAResourceLineTellsNothing) {
  EXPECT_FALSE(parsePtxasLog(""));
  EXPECT_FALSE(parsePtxasLog("ptxas info    : Used 42 registers, used 1 barriers\n"));
  EXPECT_FALSE(parsePtxasLog("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"));
}

TEST(PtxasLog, NamesWhatIsSlowerThanItWasWritten) {
  EXPECT_EQ(
      findPtxasRefusal("ptxas info    : (C7519) warpgroup.arrive is injected in around line 9\n"
                       "ptxas info    : Used 42 registers, used 1 barriers\n"),
      std::nullopt);
  for (const char *line :
       {"ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized "
        "due to insufficient register resources for the wgmma pipeline in function 'k'",
        "ptxas info    : (C7517) warpgroup.wait is injected in around line 81 by compiler to allow "
        "use of "
        "registers defined by GMMA in function 'k'",
        "ptxas info    : (C7508) Setmaxnreg ignored; unable to determine register count at entry",
        "ptxas warning : Value of threads per SM for entry k is out of range. .minnctapersm will "
        "be ignored"})
    EXPECT_EQ(findPtxasRefusal("ptxas info    : 0 bytes gmem\n" + std::string(line) + "\nmore\n"),
              line);
}

// d is read while a product that adds to it is in flight: ptxas adds a wait, and only says so.
TEST(Nvrtc, RefusesProductsThatPtxasSerializes) {
  LMC_REQUIRE_NVRTC();
  CudaKernel kernel = scaleKernel("early", 2);
  kernel.threads = 128;
  auto source = [](const char *before) {
    return std::string("#include \"lmc/vector_io.cuh\"\nusing namespace lmc;\n"
                       "extern \"C\" __global__ void __launch_bounds__(128) early(float *y) {\n"
                       "  const u32 tile = (sharedAddress(sharedMemory()) + 1023) / 1024 * 1024;\n"
                       "  float d[32];\n"
                       "  for (int i = 0; i < 32; ++i) d[i] = 0;\n"
                       "  GroupProducts products;\n"
                       "  for (int k = 0; k < 4; ++k) {\n"
                       "    products.begin();\n"
                       "    products.add<64, false, false>(d, tile, tile + 8192);\n"
                       "    products.commit();\n") +
           before +
           "    for (int i = 0; i < 32; ++i) d[i] *= 0.5f;\n  }\n"
           "  for (int i = 0; i < 32; ++i) storeOne(y + threadIdx.x * 32 + i, d[i]);\n}\n";
  };
  kernel.source = source("    products.finish(d);\n");
  auto right = (*Nvrtc::get())->compile(kernel, "sm_90a");
  EXPECT_TRUE(bool(right)) << messageOf(right.takeError());
  kernel.source = source("");
  auto wrong = (*Nvrtc::get())->compile(kernel, "sm_90a");
  ASSERT_FALSE(bool(wrong));
  EXPECT_THAT(messageOf(wrong.takeError()), HasSubstr("warpgroup.wait is injected"));
}

TEST(Nvrtc, MakesACubinOfWhatTheArchitectureNeeds) {
  LMC_REQUIRE_NVRTC();
  for (const char *arch : {"sm_80", "sm_90a", "sm_100"}) {
    auto cubin = (*Nvrtc::get())->compile(scaleKernel("scale", 2), arch);
    ASSERT_TRUE(bool(cubin)) << messageOf(cubin.takeError());
    ASSERT_GT(cubin->image.size(), 4u);
    EXPECT_EQ(std::string(cubin->image.begin(), cubin->image.begin() + 4), "\177ELF");
    EXPECT_GT(cubin->resources.registers, 0u);
    EXPECT_EQ(cubin->resources.spillBytes, 0u);
  }
}

// 64 sums that are all live at once, in 32 registers.
TEST(Nvrtc, ReportsSpills) {
  LMC_REQUIRE_NVRTC();
  CudaKernel kernel;
  kernel.name = "spills";
  kernel.source = "extern \"C\" __global__ void __launch_bounds__(1024, 2) spills(float *x) {\n"
                  "  float a[64];\n"
                  "  for (int i = 0; i < 64; ++i) a[i] = x[i * 1024 + threadIdx.x];\n"
                  "  __syncthreads();\n"
                  "  for (int i = 0; i < 64; ++i) x[i * 1024 + threadIdx.x] = a[63 - i] * a[i];\n"
                  "}\n";
  auto cubin = (*Nvrtc::get())->compile(kernel, "sm_90a");
  ASSERT_TRUE(bool(cubin)) << messageOf(cubin.takeError());
  EXPECT_GT(cubin->resources.spillBytes, 0u);
}

TEST(Nvrtc, ReportsStaticSharedMemory) {
  LMC_REQUIRE_NVRTC();
  CudaKernel kernel;
  kernel.name = "shared";
  kernel.source = "extern \"C\" __global__ void shared(float *x) {\n"
                  "  __shared__ float a[96];\n"
                  "  a[threadIdx.x] = x[threadIdx.x];\n"
                  "  __syncthreads();\n"
                  "  x[threadIdx.x] = a[95 - threadIdx.x];\n"
                  "}\n";
  auto cubin = (*Nvrtc::get())->compile(kernel, "sm_80");
  ASSERT_TRUE(bool(cubin)) << messageOf(cubin.takeError());
  EXPECT_EQ(cubin->resources.sharedBytes, 384u);
}

TEST(Nvrtc, AnErrorIsOneLineThatNamesTheKernelAndItsFile) {
  LMC_REQUIRE_NVRTC();
  CudaKernel kernel = scaleKernel("broken", 2);
  kernel.source += "int nonsense = undeclared;\n";
  auto cubin = (*Nvrtc::get())->compile(kernel, "sm_90a");
  ASSERT_FALSE(bool(cubin));
  std::string message = messageOf(cubin.takeError());
  EXPECT_THAT(message,
              HasSubstr("kernel 'broken' does not compile for sm_90a: broken.cu(5): error"));
  EXPECT_THAT(message, HasSubstr("\"undeclared\" is undefined"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  std::string place = message.substr(message.rfind(' ') + 1);
  auto kept = llvm::MemoryBuffer::getFile(place);
  ASSERT_TRUE(bool(kept)) << place;
  EXPECT_TRUE((*kept)->getBuffer().starts_with(kernel.source));
  EXPECT_TRUE((*kept)->getBuffer().contains("// broken.cu(5): error"));
  llvm::sys::fs::remove(place);
}

TEST(Nvrtc, RefusesAnArchitectureThatItDoesNotKnow) {
  LMC_REQUIRE_NVRTC();
  auto cubin = (*Nvrtc::get())->compile(scaleKernel("scale", 2), "sm_999");
  ASSERT_FALSE(bool(cubin));
  std::string message = messageOf(cubin.takeError());
  EXPECT_THAT(message, HasSubstr("kernel 'scale' does not compile for sm_999: "));
  llvm::sys::fs::remove(message.substr(message.rfind(' ') + 1));
}

TEST(Nvrtc, AVirtualArchitectureHasNoCode) {
  LMC_REQUIRE_NVRTC();
  auto cubin = (*Nvrtc::get())->compile(scaleKernel("scale", 2), "compute_90");
  ASSERT_FALSE(bool(cubin));
  std::string message = messageOf(cubin.takeError());
  EXPECT_THAT(message, HasSubstr("for compute_90: NVRTC made no code"));
  llvm::sys::fs::remove(message.substr(message.rfind(' ') + 1));
}

TEST(Nvrtc, OtherLibrariesAndMissingOnesAreErrors) {
  LMC_REQUIRE_NVRTC();
  auto other = Nvrtc::open("libm.so.6");
  ASSERT_FALSE(bool(other));
  EXPECT_THAT(messageOf(other.takeError()), HasSubstr("it is no NVRTC"));
  auto none = Nvrtc::open("/nowhere/libnvrtc.so");
  ASSERT_FALSE(bool(none));
  EXPECT_THAT(messageOf(none.takeError()), HasSubstr("/nowhere/libnvrtc.so"));
}
