// What is extracted for kernels that no region describes: those of first values, whose programs
// are compiled for the host and must agree with the runtime, and plans that are not sound.
#include "runtime/step/Initializer.h"
#include "test/compiler/extract/HostProgram.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"

#include <gmock/gmock.h>

#include <cmath>

using namespace lmc;
using namespace lmc::test;
using plan::DType;
using plan::InitializerKind;
using testing::HasSubstr;

namespace {

constexpr uint64_t kRows = 40, kColumns = 6, kElements = kRows * kColumns;

// A variable, and a kernel whose values for it are written by the runtime's own code.
struct FirstValues {
  InitializerKind kind;
  DType type;
  double value; // deviation or scale
  const char *name;
};

const FirstValues kFirstValues[] = {
    {InitializerKind::Normal, DType::F32, 0.02, "normal_f32"},
    {InitializerKind::Normal, DType::F64, 0.02, "normal_f64"},
    {InitializerKind::Normal, DType::BF16, 0.02, "normal_bf16"},
    {InitializerKind::Ones, DType::F32, 1, "ones_f32"},
    {InitializerKind::Constant, DType::BF16, 0.3, "constant_bf16"},
    {InitializerKind::RopeCos, DType::F32, 1.5, "rope_cos_f32"},
    {InitializerKind::RopeSin, DType::F64, 1, "rope_sin_f64"},
};

void PrintTo(const FirstValues &values, std::ostream *os) { *os << values.name; }

// Stands in for a kernel: copies FILE to the result if the record says what it must.
std::string copyingKernel(const std::string &name, const std::string &file,
                          const FirstValues &values, uint64_t bytes) {
  return llvm::formatv("#include <cstdint>\n#include <cstdio>\n#include <cstring>\n"
                       "extern \"C\" void {0}(void **arguments) {{\n"
                       "  auto *how = *static_cast<uint64_t **>(arguments[0]);\n"
                       "  double value;\n"
                       "  std::memcpy(&value, how + 4, 8);\n"
                       "  if (how[0] != 0 || how[1] != {1} || how[3] != {2}ull || value != {3})\n"
                       "    return;\n"
                       "  FILE *file = std::fopen(\"{4}\", \"rb\");\n"
                       "  std::fread(*static_cast<void **>(arguments[1]), 1, {5}, file);\n"
                       "  std::fclose(file);\n"
                       "}\n",
                       name, kElements, llvm::xxHash64("weight"),
                       llvm::format("%.17g", values.value), file, bytes);
}

class InitializerProgram : public testing::TestWithParam<FirstValues> {};

} // namespace

TEST_P(InitializerProgram, AgreesWithTheRuntimeAlone) {
  const FirstValues &values = GetParam();
  HostProgram program;
  CudaPlan plan;
  plan::VariableT &variable = plan.variable("weight", plan::VariableKind::Parameter,
                                            plan.slice(values.type, {kRows, kColumns}));
  variable.initializer = std::make_unique<plan::InitializerT>();
  variable.initializer->kind = values.kind;
  variable.initializer->kernel = 0;
  (values.kind == InitializerKind::Normal ? variable.initializer->stddev
                                          : variable.initializer->scale) = values.value;
  if (values.kind == InitializerKind::RopeCos || values.kind == InitializerKind::RopeSin)
    for (uint64_t i = 0; i < kColumns; ++i)
      variable.initializer->values.push_back(std::pow(1e4, -double(i) / kColumns));

  std::string made(kElements * byteWidth(values.type), '\0');
  {
    std::string data = plan.bytes();
    const plan::Plan &read = *plan::GetPlan(data.data());
    auto wrote = initialElements(*read.variables()->Get(0), *read.slices()->Get(0), /*seed=*/1, 0,
                                 kElements, made.data());
    ASSERT_TRUE(bool(wrote)) << wrote.error().message;
  }
  std::string file = program.write("values", made);
  plan.kernel(values.name, copyingKernel(values.name, file, values, made.size()));
  auto text = plan.extract(values.name);
  ASSERT_TRUE(bool(text)) << llvm::toString(text.takeError());
  EXPECT_EQ(program.run(*text), 0) << program.log();
  EXPECT_THAT(program.log(), HasSubstr("check: 0 of 240 elements wrong"));

  // The sign of one element, in its last byte, is told.
  made.back() = char(made.back() ^ 0x80);
  program.write("values", made);
  EXPECT_EQ(program.run(*text), 1) << program.log();
  EXPECT_THAT(program.log(), HasSubstr("check: 1 of 240 elements wrong"));
  EXPECT_THAT(program.log(), HasSubstr("out[239] is "));
}

INSTANTIATE_TEST_SUITE_P(Kinds, InitializerProgram, testing::ValuesIn(kFirstValues),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(ExtractKernel, ACopyIsTheSourcesValuesRounded) {
  CudaPlan plan;
  plan.variable("weight", plan::VariableKind::Parameter, plan.slice(DType::F32, {kRows, kColumns}));
  plan::VariableT &copy = plan.variable("weight.compute", plan::VariableKind::ComputeCopy,
                                        plan.slice(DType::BF16, {kRows, kColumns}));
  copy.initializer = std::make_unique<plan::InitializerT>();
  copy.initializer->kind = InitializerKind::CopyOf;
  copy.initializer->source = "weight";
  copy.initializer->kernel = 0;
  // Rounds to the nearest, or cuts off.
  auto extracted = [&](bool rounds) {
    plan.plan.kernels.clear();
    plan.kernel("copy", llvm::formatv("#include <cstdint>\n"
                                      "extern \"C\" void copy(void **arguments) {{\n"
                                      "  auto *from = *static_cast<uint32_t **>(arguments[1]);\n"
                                      "  auto *to = *static_cast<uint16_t **>(arguments[2]);\n"
                                      "  for (int i = 0; i < {0}; ++i)\n"
                                      "    to[i] = uint16_t((from[i] + {1}) >> 16);\n"
                                      "}\n",
                                      kElements, rounds ? "0x7fff + (from[i] >> 16 & 1)" : "0"));
    return plan.extract("copy");
  };
  HostProgram program;
  auto right = extracted(true), wrong = extracted(false);
  ASSERT_TRUE(bool(right)) << llvm::toString(right.takeError());
  ASSERT_TRUE(bool(wrong)) << llvm::toString(wrong.takeError());
  EXPECT_EQ(program.run(*right), 0) << program.log();
  EXPECT_EQ(program.run(*wrong), 1) << program.log();
}

TEST(ExtractKernel, ThePredictedTimeStandsBesideTheMeasuredOne) {
  CudaPlan plan;
  plan::VariableT &variable =
      plan.variable("w", plan::VariableKind::Parameter, plan.slice(DType::F32, {kRows, kColumns}));
  variable.initializer = std::make_unique<plan::InitializerT>();
  variable.initializer->kind = InitializerKind::Ones;
  variable.initializer->scale = 1;
  variable.initializer->kernel = 1;
  plan.kernel("other", "extern \"C\" void other(void **) {}\n");
  plan.kernel("ones", llvm::formatv("extern \"C\" void ones(void **arguments) {{\n"
                                    "  for (int i = 0; i < {0}; ++i)\n"
                                    "    (*static_cast<float **>(arguments[1]))[i] = 1;\n"
                                    "}\n",
                                    kElements));
  std::vector<cost::KernelCost> costs(2);
  costs[0].launch.seconds = 1;
  costs[1].launch.seconds = 0.0125;
  HostProgram program;
  auto predicted = plan.extract("ones", costs), alone = plan.extract("ones");
  ASSERT_TRUE(predicted && alone);
  EXPECT_EQ(program.run(*predicted), 0) << program.log();
  EXPECT_THAT(program.log(), HasSubstr("bench: 1.0000 ms, predicted 12.5000 ms, "));
  EXPECT_EQ(program.run(*alone), 0) << program.log();
  EXPECT_THAT(program.log(), HasSubstr("bench: 1.0000 ms, 0.0 GB/s"));
}

TEST(ExtractKernel, TheLargestVariableOfAKernelIsMade) {
  CudaPlan plan;
  for (uint64_t rows : {3, 17, 5}) {
    plan::VariableT &variable =
        plan.variable("w" + std::to_string(rows), plan::VariableKind::Parameter,
                      plan.slice(DType::F32, {rows, 4}));
    variable.initializer = std::make_unique<plan::InitializerT>();
    variable.initializer->kind = InitializerKind::Ones;
    variable.initializer->kernel = 0;
  }
  plan.kernel("ones", "extern \"C\" void ones(void **) {}\n");
  auto text = plan.extract("ones");
  ASSERT_TRUE(bool(text)) << llvm::toString(text.takeError());
  EXPECT_THAT(*text, HasSubstr("{\"out\", host::Type::F32, {17, 4}"));
}

TEST(ExtractKernel, AnArgumentThatItsCommandDoesNotNameIsAnError) {
  CudaPlan plan;
  plan::ScatterAddT scatter;
  scatter.ids = plan.slice(DType::I32, {8});
  scatter.x = plan.slice(DType::F32, {8, 4});
  scatter.d = plan.slice(DType::F32, {16, 4});
  uint32_t other = plan.slice(DType::F32, {16, 4});
  scatter.rows = 8;
  scatter.columns = 4;
  scatter.vocabulary = 16;
  auto launch = std::make_unique<plan::LaunchT>();
  launch->kernel = plan.kernel("sum", "extern \"C\" void sum(void **) {}\n");
  launch->args = {scatter.ids, scatter.x, scatter.d};
  launch->inputs = 2;
  plan.command(scatter);
  plan.plan.functions[0]->commands[0]->launches.push_back(std::move(launch));
  auto sound = plan.extract("sum");
  EXPECT_TRUE(bool(sound)) << llvm::toString(sound.takeError());

  plan.plan.functions[0]->commands[0]->launches[0]->args[1] = other;
  auto text = plan.extract("sum");
  ASSERT_FALSE(bool(text));
  EXPECT_EQ(llvm::toString(text.takeError()), "kernel 'sum': argument 1 is slice 3, which is no "
                                              "operand of its command");
}

TEST(ExtractKernel, AKernelThatNothingNeedsIsAnError) {
  CudaPlan plan;
  plan.kernel("alone", "extern \"C\" void alone(void **) {}\n");
  auto text = plan.extract("alone");
  ASSERT_FALSE(bool(text));
  EXPECT_THAT(llvm::toString(text.takeError()), HasSubstr("no command or variable needs it"));
}
