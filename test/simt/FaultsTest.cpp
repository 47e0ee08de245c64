// Mistakes that kernels make, planted one by one: each must be caught, and called by its name.
// Every test first shows that the kernel without the mistake is accepted.
#include "test/simt/Fixture.h"

using namespace lmc::simt;
using namespace lmc::simt::test;
using testing::AllOf;
using testing::HasSubstr;

namespace {

// y[block] = sum of 256 of x.
const char *const kSum = R"(
  float *s = reinterpret_cast<float *>(sharedMemory());
  s[threadIdx.x] = loadOne(x + blockIdx.x * 256 + threadIdx.x);
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      s[threadIdx.x] += s[threadIdx.x + half];
  }
  if (threadIdx.x == 0)
    storeOne(y + blockIdx.x, s[0]);
)";

class Sum : public testing::Test {
protected:
  std::string failureOf(const std::string &body, uint32_t sharedBytes = 1024) {
    Kernel kernel = build("const float *x, float *y", body, 3, 256, sharedBytes);
    std::vector<float> x = randomFloats(768), y(3);
    return runTwice(kernel, {input(x), result(y)}).failure;
  }
};

} // namespace

TEST_F(Sum, isRight) { EXPECT_EQ(failureOf(kSum), ""); }

TEST_F(Sum, aMissingBarrier) {
  EXPECT_THAT(failureOf(replaced(kSum, "__syncthreads();", "")),
              HasSubstr("the order in which threads of a block run: a barrier is missing"));
}

TEST_F(Sum, anUninitialisedSharedWord) {
  // Thread 7 leaves its word as it is.
  EXPECT_THAT(failureOf(replaced(kSum, "s[threadIdx.x] = loadOne",
                                 "if (threadIdx.x != 7)\n s[threadIdx.x] = loadOne")),
              HasSubstr("what memory held before: shared memory, or a result, is read before"));
}

TEST_F(Sum, anUninitialisedVariable) {
  // A pattern, the same in all runs, but never the right number.
  Kernel kernel = build("const float *x, float *y", R"(
    float sum;
    for (int i = 0; i < 4; ++i)
      sum += loadOne(x + i);
    storeOne(y + threadIdx.x, sum);
  )");
  std::vector<float> x = randomFloats(4), y(32);
  EXPECT_EQ(runTwice(kernel, {input(x), result(y)}).failure, "");
  EXPECT_LT(y[0], -1e30f);
}

TEST_F(Sum, aBarrierInDivergentCode) {
  EXPECT_THAT(failureOf(replaced(replaced(kSum, "__syncthreads();",
                                          "if (threadIdx.x < half)\n__syncthreads();"),
                                 "if (threadIdx.x == 0)",
                                 "__syncthreads();\nif (threadIdx.x == 0)")),
              HasSubstr("a barrier in divergent code: threads 0-127 are at line 9"));
  EXPECT_THAT(failureOf(replaced(kSum, "  if (threadIdx.x == 0)\n",
                                 "if (threadIdx.x < 100)\n__syncthreads();\nelse\n"
                                 "__syncthreads();\nif (threadIdx.x == 0)\n")),
              AllOf(HasSubstr("a barrier in divergent code: threads 0-99 are at line"),
                    HasSubstr("threads 100-255 at line")));
  EXPECT_THAT(failureOf(replaced(kSum, "  if (threadIdx.x == 0)\n",
                                 "if (threadIdx.x < 100)\n__syncthreads();\nelse\n"
                                 "__syncwarp();\n__syncwarp();\nif (threadIdx.x == 0)\n")),
              AllOf(HasSubstr("divergent code: block"), HasSubstr("wait at __syncthreads"),
                    HasSubstr("wait at __syncwarp")));
}

TEST_F(Sum, aShuffleInDivergentCode) {
  EXPECT_THAT(failureOf(replaced(kSum, "  if (threadIdx.x == 0)\n",
                                 "float z = threadIdx.x < 7 ? __shfl_xor_sync(~0u, s[0], 1)\n"
                                 ": __shfl_sync(~0u, s[0], 3);\n if (threadIdx.x == 0)\n")),
              AllOf(HasSubstr("a collective in divergent code: threads 0-6 are at __shfl_sync"),
                    HasSubstr("threads 7-31 at __shfl_sync")));
  EXPECT_THAT(failureOf(replaced(kSum, "  if (threadIdx.x == 0)\n",
                                 "if (threadIdx.x < 7)\n__syncwarp(0x7f);\nif (threadIdx.x == 0)")),
              HasSubstr("__syncwarp with the mask 0x7f"));
}

TEST_F(Sum, sharedMemoryPastItsEnd) {
  // By a word: into the bytes behind, or into the page that faults.
  const std::string body = replaced(kSum, "__syncthreads();", "__syncthreads();\ns[256] = 1;");
  EXPECT_THAT(failureOf(body), AllOf(HasSubstr("out of bounds"), HasSubstr("shared memory"),
                                     HasSubstr("line 9: `s[256] = 1;`")));
  EXPECT_THAT(failureOf(body, 1028), "");
  EXPECT_THAT(failureOf(replaced(kSum, "__syncthreads();", "__syncthreads();\ns[257] = 1;"), 1028),
              AllOf(HasSubstr("out of bounds"), HasSubstr("byte 1028 of its 1028")));
  EXPECT_THAT(failureOf(replaced(kSum, "__syncthreads();", "__syncthreads();\ns[-1] = 1;")),
              AllOf(HasSubstr("out of bounds"), HasSubstr("byte -")));
}

TEST_F(Sum, aPlainPointerToGlobalMemory) {
  EXPECT_THAT(failureOf(replaced(kSum, "loadOne(x + blockIdx.x * 256 + threadIdx.x)",
                                 "x[blockIdx.x * 256 + threadIdx.x]")),
              AllOf(HasSubstr("a pointer is dereferenced"), HasSubstr("line 6: `s[threadIdx.x] =")));
}

// Rows of 50, by 64 threads: the end of each row must be left out.
TEST(Faults, anOffByOneAtARowEnd) {
  const char *const body = R"(
    int i = threadIdx.x;
    if (i < 50)
      storeOne(y + blockIdx.x * 50 + i, 2 * loadOne(x + blockIdx.x * 50 + i));
  )";
  std::vector<float> x = randomFloats(200), y(200);
  auto failureOf = [&](const std::string &text) {
    return runTwice(build("const float *x, float *y", text, 4, 64), {input(x), result(y)}).failure;
  };
  EXPECT_EQ(failureOf(body), "");
  // One too many is the next row's, or no one's.
  EXPECT_THAT(failureOf(replaced(body, "i < 50", "i <= 50")),
              testing::AnyOf(HasSubstr("out of bounds: a load of 4 bytes at offset 800 of argument "
                                       "0 (800 bytes)"),
                             HasSubstr("race between blocks")));
  EXPECT_THAT(failureOf(replaced(body, "i < 50", "i < 49")),
              HasSubstr("argument 1 is not written at offset 196 of 800"));
  // In rows that lie apart, one too many is nobody's.
  std::vector<float> wide(4 * 56);
  Argument rows = result(wide);
  rows.bytes = 800;
  rows.rows = 4;
  rows.pitch = 224;
  Kernel kernel = build("const float *x, float *y",
                        replaced(replaced(body, "y + blockIdx.x * 50", "y + blockIdx.x * 56"),
                                 "loadOne(x + blockIdx.x * 50 + i)", "loadOne(x)"),
                        4, 64);
  EXPECT_EQ(runTwice(kernel, {input(x), rows}).failure, "");
  kernel = build("const float *x, float *y",
                 replaced(replaced(replaced(body, "y + blockIdx.x * 50", "y + blockIdx.x * 56"),
                                   "loadOne(x + blockIdx.x * 50 + i)", "loadOne(x)"),
                          "i < 50", "i <= 50"),
                 4, 64);
  EXPECT_THAT(runTwice(kernel, {input(x), rows}).failure, HasSubstr("between two rows"));
}

TEST(Faults, aRaceBetweenBlocks) {
  const char *const body = R"(
    int i = blockIdx.x * 32 + threadIdx.x;
    storeOne(y + i, 1.0f);
  )";
  std::vector<float> y(128);
  auto failureOf = [&](const std::string &text) {
    return runTwice(build("float *y", text, 4), {result(y)}).failure;
  };
  EXPECT_EQ(failureOf(body), "");
  // Both write the same, and still may not.
  EXPECT_THAT(failureOf(std::string(body) + "storeOne(y + 5, 1.0f);"),
              AllOf(HasSubstr("race between blocks: block"), HasSubstr("wrote"),
                    HasSubstr("offset 20 of argument 0")));
  // One reads what another writes, in whatever order they come.
  for (uint64_t seed = 1; seed < 9; ++seed) {
    std::vector<float> x(128);
    Kernel kernel = build("float *x", R"(
      int i = blockIdx.x * 32 + threadIdx.x;
      storeOne(x + i, 1 + loadOne(x + (i + 1) % 128));
    )",
                          4);
    EXPECT_THAT(runTwice(kernel, {updated(x)}, seed).failure, HasSubstr("race between blocks"));
  }
}

TEST(Faults, aReductionInNoFixedOrder) {
  std::vector<float> x = randomFloats(1024), y(1);
  // Within a block, and between blocks.
  for (uint32_t blocks : {1, 16}) {
    Kernel kernel = build("const float *x, float *y",
                          "for (int i = blockIdx.x * 64 + threadIdx.x; i < 1024; i += 64 * gridDim.x)"
                          "\n atomicAdd(y, loadOne(x + i));",
                          blocks, 64);
    EXPECT_THAT(runTwice(kernel, {input(x), updated(y)}).failure,
                AllOf(HasSubstr("in no fixed order"), HasSubstr("it uses atomic operations")));
  }
  // Sums of integers do not depend on the order.
  std::vector<int> n(1);
  Kernel kernel = build("int *y", "atomicAdd(y, int(threadIdx.x));", 4);
  EXPECT_EQ(runTwice(kernel, {updated(n)}).failure, "");
  EXPECT_EQ(n[0], 4 * 31 * 16);
}

TEST(Faults, aMissingWaitForCopies) {
  const char *const body = R"(
    float *s = reinterpret_cast<float *>(sharedMemory());
    copyAsync16(sharedAddress(s + 4 * threadIdx.x), x + 4 * threadIdx.x, true);
    copyAsyncCommit();
    copyAsyncWait<0>();
    __syncthreads();
    storeOne(y + threadIdx.x, s[127 - threadIdx.x]);
  )";
  std::vector<float> x = randomFloats(512), y(128);
  auto failureOf = [&](const std::string &text) {
    return runTwice(build("const float *x, float *y", text, 1, 128, 2048), {input(x), result(y)})
        .failure;
  };
  EXPECT_EQ(failureOf(body), "");
  const char *const missing = "when asynchronous copies arrive: a copyAsyncWait is missing";
  EXPECT_THAT(failureOf(replaced(body, "copyAsyncWait<0>();", "")), HasSubstr(missing));
  EXPECT_THAT(failureOf(replaced(body, "copyAsyncWait<0>();", "copyAsyncWait<1>();")),
              HasSubstr(missing));
  EXPECT_THAT(failureOf(replaced(body, "copyAsyncCommit();", "")), HasSubstr(missing));
  EXPECT_THAT(failureOf(replaced(body, "__syncthreads();", "")),
              HasSubstr("a barrier is missing"));
}

TEST(Faults, storesToInputsAndMisalignedWords) {
  std::vector<float> x = randomFloats(132), y(132);
  auto failureOf = [&](const std::string &text) {
    return runTwice(build("float *x, float *y", text), {input(x), updated(y)}).failure;
  };
  EXPECT_THAT(failureOf("storeOne(x + threadIdx.x, 1.0f);"),
              HasSubstr("a store to an input: a store of 4 bytes at offset"));
  EXPECT_THAT(failureOf("store<4>(y + 4 * threadIdx.x, load<4>(x + 4 * threadIdx.x + 1));"),
              HasSubstr("misaligned: a load of 16 bytes"));
  EXPECT_THAT(failureOf("storeOne(y - 1, 1.0f);"),
              HasSubstr("out of bounds: a store of 4 bytes at offset -4 of argument 1"));
}

TEST(Faults, aResultThatIsReadFirst) {
  std::vector<float> y(32);
  Kernel kernel = build("float *y", "storeOne(y + threadIdx.x, 1 + loadOne(y + threadIdx.x));");
  EXPECT_THAT(runTwice(kernel, {result(y)}).failure,
              HasSubstr("a result is read before it is written"));
  EXPECT_EQ(runTwice(kernel, {updated(y)}).failure, "");
}

TEST(Faults, aFailureNamesThePlace) {
  std::vector<float> x(64), y(64);
  Kernel kernel = build("const float *x, float *y", R"(
    int i = threadIdx.x;
    storeOne(y + i, loadOne(x + i + 8 * (i == 60)));
  )",
                        1, 64);
  EXPECT_THAT(runTwice(kernel, {input(x), result(y)}).failure,
              "kernel: out of bounds: a load of 4 bytes at offset 272 of argument 0 (256 bytes); "
              "block 0, thread 60, at line 6: "
              "`storeOne(y + i, loadOne(x + i + 8 * (i == 60)));`");
}

TEST(Faults, aMatrixLoadedFromWhereItIsNot) {
  std::vector<unsigned> y(32);
  auto failureOf = [&](const std::string &row) {
    return runTwice(build("u32 *y", "u32 words[4];\nu8 *s = sharedMemory();\n"
                                    "for (int i = threadIdx.x; i < 512; i += 32)\ns[i] = 0;\n"
                                    "__syncwarp();\nloadMatrix4(words, sharedAddress(s) + " +
                                        row + ");\nstoreOne(y + threadIdx.x, words[0]);",
                          1, 32, 512),
                    {result(y)})
        .failure;
  };
  EXPECT_EQ(failureOf("16 * threadIdx.x"), "");
  EXPECT_THAT(failureOf("16 * (threadIdx.x + 1)"),
              HasSubstr("out of bounds: loadMatrix4 of 16 bytes at byte 512 of the block's 512"));
  EXPECT_THAT(failureOf("8 * threadIdx.x"), HasSubstr("misaligned: loadMatrix4"));
}

// A thread's own memory is its fiber's stack: only address sanitizer knows where an array ends.
TEST(Faults, aLocalArrayPastItsEnd) {
  Kernel kernel = build("const float *count, const float *x, float *y", R"(
    float terms[4] = {}, sum = 0;
    for (int i = 0; i < int(loadOne(count)); ++i)
      terms[i] = loadOne(x + i);
    for (float term : terms)
      sum += term;
    storeOne(y + threadIdx.x, sum);
  )");
  std::vector<float> x = randomFloats(8), y(32);
  auto failureOf = [&](float count) {
    std::vector<float> counts = {count};
    return runTwice(kernel, {input(counts), input(x), result(y)}).failure;
  };
  EXPECT_EQ(failureOf(4), "");
#ifdef __SANITIZE_ADDRESS__
  EXPECT_DEATH(failureOf(5), "stack-buffer-overflow(.|\n)*WRITE of size 4");
#else
  GTEST_SKIP() << "built without address sanitizer; `./dev test asan` is with it";
#endif
}
