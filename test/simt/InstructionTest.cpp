// The executor's ldmatrix, mma, wgmma, cp.async, cvt and ex2 against the PTX ISA.
#include "test/simt/Fixture.h"
#include "test/simt/InstructionCases.h"

using namespace lmc::simt;
using namespace lmc::simt::test;

namespace {
class Instruction : public testing::TestWithParam<InstructionCase> {};

void PrintTo(const InstructionCase &given, std::ostream *os) { *os << given.name; }
} // namespace

TEST_P(Instruction, computesWhatThePtxIsaSays) {
  const InstructionCase &given = GetParam();
  Kernel kernel = build(given.parameters, given.body, 1, given.threads, given.sharedBytes);
  std::vector<uint32_t> y(given.expected.size());
  std::vector<Argument> arguments;
  for (const std::vector<uint32_t> &words : given.inputs)
    arguments.push_back(input(words));
  arguments.push_back(result(y));
  for (uint64_t seed = 1; seed < 4; ++seed) {
    ASSERT_EQ(runTwice(kernel, arguments, seed).failure, "");
    for (size_t i = 0; i < y.size(); ++i)
      if (given.relative == 0)
        EXPECT_EQ(y[i], given.expected[i]) << "word " << i;
      else {
        const float want = std::bit_cast<float>(given.expected[i]);
        EXPECT_NEAR(std::bit_cast<float>(y[i]), want, want * given.relative) << "word " << i;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Instruction, testing::ValuesIn(instructionCases()),
                         [](const auto &info) { return info.param.name; });
