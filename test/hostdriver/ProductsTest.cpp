// Products: the results, and what is refused.
#include "test/hostdriver/LtFixture.h"

#include "ground/plan/FloatConvert.h"

#include <cmath>
#include <set>

using namespace lmc;
using namespace lmc::hostdriver;

namespace {
class Products : public LtDriver {};
} // namespace

TEST_F(Products, AreThoseOfThePlan) {
  writeOperands();
  const std::vector<float> left = read(a), right = read(b), before = read(d);
  ASSERT_EQ(multiply(algorithms()[0].algo, usual()), CUBLAS_STATUS_SUCCESS);
  const std::vector<float> after = read(d);
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 5; ++j) {
      double sum = before[i * 5 + j];
      for (size_t t = 0; t < 6; ++t)
        sum += double(left[i * 6 + t]) * right[j * 6 + t];
      EXPECT_NEAR(after[i * 5 + j], sum, 1e-4);
    }
  close();
  release();
  const auto all = report();
  EXPECT_EQ(all["violations"].size(), 0u) << all.dump(2);
  for (const auto &[kind, count] : all["leaks"].items())
    EXPECT_EQ(count, 0) << kind;
}

// A program that runs another algorithm than the one that it chose gets other bits.
TEST_F(Products, DependOnTheAlgorithm) {
  const auto all = algorithms();
  EXPECT_EQ(all.size(), 8u);
  std::set<std::vector<float>> results;
  for (const auto &result : all)
    for (int again = 0; again < 2; ++again) {
      writeOperands();
      ASSERT_EQ(multiply(result.algo, usual()), CUBLAS_STATUS_SUCCESS);
      results.insert(read(d));
    }
  EXPECT_GT(results.size(), 2u);
  EXPECT_LE(results.size(), all.size());
}

TEST_F(Products, RespectTheMaskOfReductions) {
  prefer(64, CUBLASLT_REDUCTION_SCHEME_MASK);
  EXPECT_EQ(algorithms().size(), 10u);
  prefer(64, CUBLASLT_REDUCTION_SCHEME_NONE);
  for (const auto &result : algorithms()) {
    EXPECT_EQ(result.workspaceSize, 0u);
    uint32_t split = 0;
    size_t written = 0;
    EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                   &split, sizeof(split), &written),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(split, 1u);
  }
}

TEST_F(Products, NeedTheirWorkspace) {
  Call call = usual();
  call.workspace = 0;
  EXPECT_NE(multiply(splitting(), call), CUBLAS_STATUS_SUCCESS) << "cuBLASLt would allocate some";
  call = usual();
  call.workspaceBytes = 64;
  EXPECT_NE(multiply(splitting(), call), CUBLAS_STATUS_SUCCESS);
  call = usual();
  call.workspace = at(y);
  call.workspaceBytes = 256;
  EXPECT_NE(multiply(splitting(), call), CUBLAS_STATUS_SUCCESS) << "another slice of the plan";
  EXPECT_EQ(multiply(splitting(), usual()), CUBLAS_STATUS_SUCCESS);
}

TEST_F(Products, NeedTheAlignmentThatThePreferencePromised) {
  prefer(256, CUBLASLT_REDUCTION_SCHEME_NONE);
  EXPECT_NE(multiply(algorithms()[0].algo, usual()), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(violations().find("promised an alignment of 256"), std::string::npos);
}

TEST_F(Products, AreRefusedIfThePlanHasNone) {
  writeOperands();
  ASSERT_EQ(multiply(algorithms()[0].algo, usual()), CUBLAS_STATUS_SUCCESS);
  Call call = usual();
  call.beta = 0;
  EXPECT_NE(multiply(algorithms()[0].algo, call), CUBLAS_STATUS_SUCCESS) << "it adds";
  call = usual();
  std::swap(call.a, call.b);
  EXPECT_NE(multiply(algorithms()[0].algo, call), CUBLAS_STATUS_SUCCESS) << "other operands";
  // A gradient in memory of its own, for example in memory that belongs to a graph.
  call = usual();
  check(cuMemAlloc(&call.d, 4096));
  EXPECT_NE(multiply(algorithms()[0].algo, call), CUBLAS_STATUS_SUCCESS);
  check(cuMemFree(call.d));
  const cublasOperation_t plain = CUBLAS_OP_N;
  cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &plain, sizeof(plain));
  int found = 0;
  cublasLtMatmulHeuristicResult_t result;
  EXPECT_NE(cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, dLayout, dLayout,
                                           preference, 1, &result, &found),
            CUBLAS_STATUS_SUCCESS)
      << "the extents do not fit together";
}

// A wrong leading dimension reads other elements than the plan's product does.
TEST_F(Products, AreRefusedWithAWrongPitch) {
  const int64_t wide = 7;
  cublasLtMatrixLayoutSetAttribute(aLayout, CUBLASLT_MATRIX_LAYOUT_LD, &wide, sizeof(wide));
  EXPECT_NE(multiply(algorithms()[0].algo, usual()), CUBLAS_STATUS_SUCCESS);
}

// Candidates are timed on memory of their own.
TEST_F(Products, MayBeTimedOnScratchMemory) {
  writeOperands();
  ASSERT_EQ(multiply(algorithms()[0].algo, usual()), CUBLAS_STATUS_SUCCESS);
  CUdeviceptr scratch;
  check(cuMemAlloc(&scratch, 16384));
  check(cuMemsetD8Async(scratch, 0, 16384, stream));
  CUevent start, end;
  check(cuEventCreate(&start, 0));
  check(cuEventCreate(&end, 0));
  std::set<float> times;
  for (const auto &result : algorithms()) {
    check(cuEventRecord(start, stream));
    ASSERT_EQ(multiply(result.algo,
                       {scratch, scratch + 1024, scratch + 2048, scratch + 4096, 1024, 1, stream}),
              CUBLAS_STATUS_SUCCESS);
    check(cuEventRecord(end, stream));
    check(cuEventSynchronize(end));
    float milliseconds = 0;
    check(cuEventElapsedTime(&milliseconds, start, end));
    times.insert(milliseconds);
  }
  EXPECT_GT(times.size(), 4u);
}

TEST_F(Products, RefuseBytesThatAreNoAlgorithm) {
  cublasLtMatmulAlgo_t algo = algorithms()[0].algo, copy;
  std::memcpy(&copy, &algo, sizeof(algo));
  EXPECT_EQ(multiply(copy, usual()), CUBLAS_STATUS_SUCCESS);
  copy.data[1] ^= 1;
  EXPECT_NE(multiply(copy, usual()), CUBLAS_STATUS_SUCCESS);
  const cublasOperation_t plain = CUBLAS_OP_T;
  cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &plain, sizeof(plain));
  cublasLtMatmulHeuristicResult_t checked = {};
  EXPECT_EQ(
      cublasLtMatmulAlgoCheck(handle, desc, bLayout, aLayout, dLayout, dLayout, &algo, &checked),
      CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(
      cublasLtMatmulAlgoCheck(handle, desc, bLayout, aLayout, dLayout, dLayout, &copy, &checked),
      CUBLAS_STATUS_SUCCESS);
}

TEST_F(Products, SharedWorkspaceNeedsAnOrder) {
  writeOperands();
  CUdeviceptr scratch;
  check(cuMemAlloc(&scratch, 16384));
  check(cuMemsetD8Async(scratch, 0, 16384, stream));
  check(cuStreamSynchronize(stream));
  ASSERT_EQ(multiply(splitting(), usual()), CUBLAS_STATUS_SUCCESS);
  // The same workspace, operands of their own, another stream.
  Call call = {scratch, scratch + 1024, scratch + 2048, at(workspace), 1024, 1, other};
  EXPECT_NE(multiply(splitting(), call), CUBLAS_STATUS_SUCCESS);
  const std::string text = violations();
  EXPECT_NE(text.find("race: nothing orders 'gemm ()'"), std::string::npos) << text;
}

namespace {

// d = a b^T + bias, everything in one type.
class BiasProducts : public LtDriver, public testing::WithParamInterface<plan::DType> {
protected:
  void SetUp() override {
    HostDriver::SetUp();
    a = builder.slice(GetParam(), {4, 6}, 1);
    b = builder.slice(GetParam(), {5, 6}, 1);
    d = builder.slice(GetParam(), {4, 5});
    bias = builder.slice(GetParam(), {5});
    another = builder.slice(GetParam(), {5});
    plan::GemmT gemm;
    gemm.a = a;
    gemm.b = b;
    gemm.d = d;
    gemm.bias = int(bias);
    gemm.m = 4;
    gemm.n = 5;
    gemm.k = 6;
    gemm.transpose_b = true;
    builder.command(gemm);
    builder.plan.functions[0]->commands.back()->workspace = int(workspace);
    start({});
    open(GetParam() == plan::DType::BF16  ? CUDA_R_16BF
         : GetParam() == plan::DType::F64 ? CUDA_R_64F
                                          : CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at(bias));
  }

  template <typename T> void set(cublasLtMatmulDescAttributes_t which, const T &value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, which, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }

  void put(uint32_t slice, const std::vector<double> &values) {
    std::vector<char> bytes(values.size() * byteWidth(GetParam()));
    convertFloats(plan::DType::F64, values.data(), GetParam(), bytes.data(), values.size());
    write(slice, bytes);
  }

  std::vector<double> get(uint32_t slice) {
    const std::vector<char> bytes = read<char>(slice);
    std::vector<double> values(bytes.size() / byteWidth(GetParam()));
    convertFloats(GetParam(), bytes.data(), plan::DType::F64, values.data(), values.size());
    return values;
  }

  cublasStatus_t multiplyOnce(const cublasLtMatmulAlgo_t &algorithm) {
    Call call = usual();
    call.beta = 0;
    return multiply(algorithm, call);
  }

  uint32_t bias, another;
};

} // namespace

// All sums are exact in every type, but for the first in bf16: 257 is no bf16, and 257 + 1 is. It
// shows that the bias is added before the sum is rounded. The last bits of the biases show that f32
// and f64 are computed as such.
TEST_P(BiasProducts, AddTheBiasBeforeTheyRound) {
  const double bits = GetParam() == plan::DType::F64   ? std::ldexp(1, -40)
                      : GetParam() == plan::DType::F32 ? std::ldexp(1, -12)
                                                       : 0;
  std::vector<double> left = {16, 1, 0, 0, 0, 0}, right = left, biases, expected;
  for (int i = 6; i < 24; ++i)
    left.push_back(i * 5 % 7 - 3);
  for (int i = 6; i < 30; ++i)
    right.push_back(i * 3 % 5 - 2);
  for (int j = 0; j < 5; ++j)
    biases.push_back(j + 1 + bits);
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 5; ++j) {
      expected.push_back(biases[j]);
      for (size_t t = 0; t < 6; ++t)
        expected.back() += left[i * 6 + t] * right[j * 6 + t];
    }
  EXPECT_EQ(expected[0], 258 + bits);
  put(a, left);
  put(b, right);
  put(bias, biases);
  for (const auto &algorithm : algorithms()) {
    put(d, std::vector<double>(20, -1));
    ASSERT_EQ(multiplyOnce(algorithm.algo), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(get(d), expected);
  }
}

TEST_P(BiasProducts, HaveTheBiasOfThePlan) {
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUdeviceptr(64)); // the alignment of both vectors
  const cublasLtMatmulAlgo_t algorithm = algorithms()[0].algo;
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at(bias));
  ASSERT_EQ(multiplyOnce(algorithm), CUBLAS_STATUS_SUCCESS);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at(another));
  EXPECT_NE(multiplyOnce(algorithm), CUBLAS_STATUS_SUCCESS) << "another vector";
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_NE(multiplyOnce(algorithm), CUBLAS_STATUS_SUCCESS) << "an algorithm for biases";
  EXPECT_NE(multiplyOnce(algorithms()[0].algo), CUBLAS_STATUS_SUCCESS) << "no bias";
}

TEST_P(BiasProducts, NeedABiasOfTheResultsType) {
  set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
      GetParam() == plan::DType::F32 ? CUDA_R_16BF : CUDA_R_32F);
  int found = 0;
  cublasLtMatmulHeuristicResult_t result;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, dLayout, dLayout,
                                           preference, 1, &result, &found),
            CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_P(BiasProducts, NeedABiasAsAlignedAsTheHeuristicSawIt) {
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUdeviceptr(1) << 20);
  const cublasLtMatmulAlgo_t algorithm = algorithms()[0].algo;
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at(bias));
  EXPECT_NE(multiplyOnce(algorithm), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(violations().find("bias of a product is at"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(, BiasProducts,
                         testing::Values(plan::DType::BF16, plan::DType::F32, plan::DType::F64),
                         [](const auto &info) { return plan::EnumNameDType(info.param); });

namespace {

// d += scales (a b^T), where a and b hold 8-bit floats and d f32.
class EightBitProducts : public LtDriver,
                         public testing::WithParamInterface<std::pair<plan::DType, plan::DType>> {
protected:
  static constexpr int64_t kM = 16, kN = 32, kK = 48;

  void SetUp() override {
    HostDriver::SetUp();
    a = builder.slice(GetParam().first, {kM, kK}, 1);
    b = builder.slice(GetParam().second, {kN, kK}, 1);
    d = builder.slice(plan::DType::F32, {kM, kN});
    scaleA = builder.slice(plan::DType::F32, {});
    scaleB = builder.slice(plan::DType::F32, {});
    plan::GemmT gemm;
    gemm.a = a;
    gemm.b = b;
    gemm.d = d;
    gemm.scale_a = int(scaleA);
    gemm.scale_b = int(scaleB);
    gemm.m = kM;
    gemm.n = kN;
    gemm.k = kK;
    gemm.transpose_b = true;
    gemm.c = int(d);
    builder.command(gemm);
    builder.plan.functions[0]->commands.back()->workspace = int(workspace);
    start({});
    open();
    for (cublasLtMatrixLayout_t layout : {aLayout, bLayout, dLayout})
      cublasLtMatrixLayoutDestroy(layout);
    aLayout = layoutOf(typeOf(GetParam().first), kK, kM);
    bLayout = layoutOf(typeOf(GetParam().second), kK, kN);
    dLayout = layoutOf(CUDA_R_32F, kN, kM);
    // b is cuBLASLt's first matrix.
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at(scaleB));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, at(scaleA));
  }

  static cudaDataType_t typeOf(plan::DType dtype) {
    return dtype == plan::DType::F8E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
  }
  static cublasLtMatrixLayout_t layoutOf(cudaDataType_t type, uint64_t rows, uint64_t columns) {
    cublasLtMatrixLayout_t layout = nullptr;
    cublasLtMatrixLayoutCreate(&layout, type, rows, columns, int64_t(rows));
    return layout;
  }
  template <typename T> void set(cublasLtMatmulDescAttributes_t which, const T &value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, which, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  // Returns the answer to a question for one algorithm.
  cublasStatus_t ask() {
    int found = 0;
    cublasLtMatmulHeuristicResult_t result;
    return cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, dLayout, dLayout,
                                          preference, 1, &result, &found);
  }

  uint32_t scaleA, scaleB;
};

} // namespace

TEST_P(EightBitProducts, AreMultipliedByBothScales) {
  std::vector<double> left, right;
  for (int i = 0; i < kM * kK; ++i)
    left.push_back(i * 5 % 15 - 7);
  for (int i = 0; i < kN * kK; ++i)
    right.push_back((i * 3 % 7 - 3) * 0.5);
  std::vector<uint8_t> leftCodes(left.size()), rightCodes(right.size());
  convertFloats(plan::DType::F64, left.data(), GetParam().first, leftCodes.data(), left.size());
  convertFloats(plan::DType::F64, right.data(), GetParam().second, rightCodes.data(), right.size());
  convertFloats(GetParam().first, leftCodes.data(), plan::DType::F64, left.data(), left.size());
  write(a, leftCodes);
  write(b, rightCodes);
  write(scaleA, std::vector<float>{0.25f});
  write(scaleB, std::vector<float>{8.0f});
  std::vector<float> expected = counted(kM * kN);
  for (const auto &algorithm : algorithms()) {
    write(d, counted(kM * kN));
    ASSERT_EQ(multiply(algorithm.algo, usual()), CUBLAS_STATUS_SUCCESS);
    const std::vector<float> found = read(d);
    for (size_t i = 0; i < kM; ++i)
      for (size_t j = 0; j < kN; ++j) {
        double sum = 0;
        for (size_t t = 0; t < kK; ++t)
          sum += left[i * kK + t] * right[j * kK + t];
        EXPECT_EQ(found[i * kN + j], float(2 * sum + expected[i * kN + j]));
      }
  }
}

TEST_P(EightBitProducts, HaveTheScalesOfThePlan) {
  const cublasLtMatmulAlgo_t algorithm = algorithms()[0].algo;
  ASSERT_EQ(multiply(algorithm, usual()), CUBLAS_STATUS_SUCCESS);
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at(scaleA));
  EXPECT_NE(multiply(algorithm, usual()), CUBLAS_STATUS_SUCCESS) << "the other factor's scale";
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUdeviceptr(0));
  EXPECT_NE(multiply(algorithm, usual()), CUBLAS_STATUS_SUCCESS) << "an algorithm for two scales";
  EXPECT_NE(multiply(algorithms()[0].algo, usual()), CUBLAS_STATUS_SUCCESS) << "one scale";
}

TEST_P(EightBitProducts, NeedRowsOfK) {
  EXPECT_EQ(ask(), CUBLAS_STATUS_SUCCESS);
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
  bLayout = layoutOf(typeOf(GetParam().second), kN, kK);
  EXPECT_EQ(ask(), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_NE(violations().find("not of a transposed and a plain matrix"), std::string::npos);
}

TEST_P(EightBitProducts, NeedMultiplesOf16) {
  bLayout = layoutOf(typeOf(GetParam().second), kK, 24);
  dLayout = layoutOf(CUDA_R_32F, 24, kM);
  EXPECT_EQ(ask(), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_NE(violations().find("multiples of 16 are needed"), std::string::npos);
}

// A product of two factors of E5M2 does not exist, nor one with a factor of bf16.
TEST_P(EightBitProducts, NeedTypesThatFitTogether) {
  bLayout = layoutOf(CUDA_R_16BF, kK, kN);
  EXPECT_EQ(ask(), CUBLAS_STATUS_NOT_SUPPORTED);
  aLayout = layoutOf(CUDA_R_8F_E5M2, kK, kM);
  bLayout = layoutOf(CUDA_R_8F_E5M2, kK, kN);
  EXPECT_EQ(ask(), CUBLAS_STATUS_NOT_SUPPORTED);
  aLayout = layoutOf(CUDA_R_16BF, kK, kM);
  bLayout = layoutOf(CUDA_R_16BF, kK, kN);
  EXPECT_NE(ask(), CUBLAS_STATUS_SUCCESS) << "scales of bf16";
}

INSTANTIATE_TEST_SUITE_P(, EightBitProducts,
                         testing::Values(std::pair(plan::DType::F8E4M3, plan::DType::F8E4M3),
                                         std::pair(plan::DType::F8E5M2, plan::DType::F8E4M3),
                                         std::pair(plan::DType::F8E4M3, plan::DType::F8E5M2)),
                         [](const auto &info) {
                           return std::string(plan::EnumNameDType(info.param.first)) + "By" +
                                  plan::EnumNameDType(info.param.second);
                         });

namespace {

// d = a b^T, where a and b hold 8-bit floats with scales for blocks of 128 elements.
class BlockProducts : public LtDriver, public testing::WithParamInterface<plan::Scaling> {
protected:
  static constexpr int64_t kM = 16, kN = 256, kK = 384, kPitch = 4;

  void SetUp() override {
    HostDriver::SetUp();
    a = builder.slice(plan::DType::F8E4M3, {kM, kK}, 1);
    b = builder.slice(plan::DType::F8E4M3, {kN, kK}, 1);
    d = builder.slice(plan::DType::F32, {kM, kN});
    scaleA = builder.slice(plan::DType::F32, {kK / 128, kM}, 1);
    scaleB = tiles() ? builder.slice(plan::DType::F32, {kN / 128, kPitch}, 1)
                     : builder.slice(plan::DType::F32, {kK / 128, kN}, 1);
    plan::GemmT gemm;
    gemm.a = a;
    gemm.b = b;
    gemm.d = d;
    gemm.scale_a = int(scaleA);
    gemm.scale_b = int(scaleB);
    gemm.scaling = GetParam();
    gemm.m = kM;
    gemm.n = kN;
    gemm.k = kK;
    gemm.transpose_b = true;
    builder.command(gemm);
    builder.plan.functions[0]->commands.back()->workspace = int(workspace);
    start({});
    open();
    for (cublasLtMatrixLayout_t layout : {aLayout, bLayout, dLayout})
      cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatrixLayoutCreate(&aLayout, CUDA_R_8F_E4M3, kK, kM, kK);
    cublasLtMatrixLayoutCreate(&bLayout, CUDA_R_8F_E4M3, kK, kN, kK);
    cublasLtMatrixLayoutCreate(&dLayout, CUDA_R_32F, kN, kM, kN);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at(scaleB)); // b is cuBLASLt's first matrix
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, at(scaleA));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, tiles() ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                                                   : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
  }

  bool tiles() const { return GetParam() == plan::Scaling::Tiles; }
  template <typename T> void set(cublasLtMatmulDescAttributes_t which, const T &value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, which, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }

  uint32_t scaleA, scaleB;
};

} // namespace

TEST_P(BlockProducts, AreSumsOfScaledBlocks) {
  auto code = [](int value) { return toE4M3(float(value)); };
  std::vector<uint8_t> left, right;
  for (int i = 0; i < kM * kK; ++i)
    left.push_back(code(i * 5 % 15 - 7));
  for (int i = 0; i < kN * kK; ++i)
    right.push_back(code(i * 3 % 7 - 3));
  std::vector<float> ofLeft(kK / 128 * kM), ofRight(tiles() ? kN / 128 * kPitch : kK / 128 * kN);
  for (size_t i = 0; i < ofLeft.size(); ++i)
    ofLeft[i] = std::ldexp(1.0f, int(i * 7 % 5) - 2);
  for (size_t i = 0; i < ofRight.size(); ++i)
    ofRight[i] = std::ldexp(1.0f, int(i * 5 % 7) - 3);
  write(a, left);
  write(b, right);
  write(scaleA, ofLeft);
  write(scaleB, ofRight);
  Call call = usual();
  call.beta = 0;
  for (const auto &algorithm : algorithms()) {
    ASSERT_EQ(multiply(algorithm.algo, call), CUBLAS_STATUS_SUCCESS);
    const std::vector<float> found = read(d);
    for (size_t i = 0; i < kM; ++i)
      for (size_t j = 0; j < kN; ++j) {
        double sum = 0;
        for (size_t t = 0; t < kK; ++t) {
          const size_t block = t / 128;
          sum += double(fromE4M3(left[i * kK + t])) * ofLeft[block * kM + i] *
                 fromE4M3(right[j * kK + t]) *
                 (tiles() ? ofRight[j / 128 * kPitch + block] : ofRight[block * kN + j]);
        }
        ASSERT_EQ(found[i * kN + j], float(sum)) << i << " " << j; // exact: small numbers
      }
  }
}

TEST_P(BlockProducts, HaveTheScalesOfThePlan) {
  Call call = usual();
  call.beta = 0;
  const cublasLtMatmulAlgo_t algorithm = algorithms()[0].algo;
  ASSERT_EQ(multiply(algorithm, call), CUBLAS_STATUS_SUCCESS);
  set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, tiles() ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                                 : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
  EXPECT_NE(multiply(algorithm, call), CUBLAS_STATUS_SUCCESS) << "an algorithm of another mode";
  EXPECT_NE(multiply(algorithms()[0].algo, call), CUBLAS_STATUS_SUCCESS) << "another mode";
  set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
  int count = 0;
  cublasLtMatmulHeuristicResult_t result;
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, dLayout, dLayout,
                                           preference, 1, &result, &count),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_NE(violations().find("scale modes"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(, BlockProducts,
                         testing::Values(plan::Scaling::Rows, plan::Scaling::Tiles),
                         [](const auto &info) { return plan::EnumNameScaling(info.param); });
