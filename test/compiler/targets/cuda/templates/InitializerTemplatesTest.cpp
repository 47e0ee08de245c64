#include "compiler/targets/cuda/templates/InitializerTemplates.h"

#include <gtest/gtest.h>

using namespace lmc;
using namespace lmc::codegen;

namespace {

void expectText(const InitializerShape &shape, const std::string &text) {
  CudaKernel kernel = initializerKernel(shape, "initialize");
  EXPECT_EQ(kernel.hero, "initializer");
  EXPECT_EQ(kernel.source, text);
}

} // namespace

TEST(InitializerTemplates, TellWhatTheyMake) {
  expectText(
      {lm::InitKind::Normal},
      R"(// First values of a variable: out[j] = value * z(first + j), z standard normal, a function of seed, stream and place.
#include "lmc/initialize.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) initialize(
    const lmc::InitializerRecord *how, float *out) {
  lmc::initializeNormal<float>(how, out);
}
)");
  expectText({lm::InitKind::Constant, DataType::BF16},
             R"(// First values of a variable: out[j] = value.
#include "lmc/initialize.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) initialize(
    const lmc::InitializerRecord *how, lmc::bf16 *out) {
  lmc::initializeConstant<lmc::bf16>(how, out);
}
)");
  expectText(
      {lm::InitKind::RopeCos, DataType::F32, DataType::F32, {1, 0.1, 0.01}},
      R"(// First values of a variable: out[p, c] = cos(p * frequencies[c]) * value; columns: 3.
#include "lmc/initialize.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) initialize(
    const lmc::InitializerRecord *how, float *out) {
  static constexpr double frequencies[3] = {
      0x1p+0,
      0x1.999999999999ap-4,
      0x1.47ae147ae147bp-7,
  };
  lmc::initializeRope<float, false, 3>(how, frequencies, out);
}
)");
  expectText({lm::InitKind::CopyOf, DataType::BF16, DataType::F32},
             R"(// First values of a variable: out[j] = source[j], rounded.
#include "lmc/initialize.cuh"

extern "C" __global__ void __launch_bounds__(256, 1) initialize(
    const lmc::InitializerRecord *how, const float *source, lmc::bf16 *out) {
  lmc::initializeCopy<float, lmc::bf16>(how, source, out);
}
)");
}

TEST(InitializerTemplates, TablesOfSinesDifferFromThoseOfCosines) {
  std::string sines =
      initializerKernel({lm::InitKind::RopeSin, DataType::F32, DataType::F32, {1}}, "initialize")
          .source;
  EXPECT_NE(sines.find("out[p, c] = sin("), std::string::npos);
  EXPECT_NE(sines.find("lmc::initializeRope<float, true, 1>"), std::string::npos);
}
