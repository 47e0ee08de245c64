#include "runtime/data/SampleTokens.h"
#include "test/runtime/data/TokenFiles.h"

#include <algorithm>

using namespace lmc;

namespace {

class SampleTokens : public lmc::test::DataTest {
protected:
  // Writes a bare file of `count` tokens 0, 1, ... 99, 0, ... that `change` may change.
  template <typename Change>
  Result<std::vector<std::string>> sample(size_t count, const Change &change) {
    std::vector<uint16_t> tokens(count);
    for (size_t i = 0; i < count; ++i)
      tokens[i] = static_cast<uint16_t>(i % 100);
    change(tokens);
    auto file = TokenFile::open(
        write("a.bin", {reinterpret_cast<const char *>(tokens.data()), count * sizeof(uint16_t)}));
    LMC_TRY(file);
    return sampleTokens(**file, 100);
  }
};

TEST_F(SampleTokens, SaysNothingOfGoodFiles) {
  for (size_t count : {2u, 1024u, 8192u, 8193u, 100000u}) {
    const auto warnings = sample(count, [](auto &) {});
    ASSERT_TRUE(warnings) << warnings.error().message;
    EXPECT_TRUE(warnings->empty()) << warnings->front();
  }
}

TEST_F(SampleTokens, NamesAnIdBeyondTheVocabularyAtTheStartAtTheEndAndAnywhereInASmallFile) {
  for (const auto &[count, at] :
       {std::pair<size_t, size_t>{100000, 0}, {100000, 99999}, {8192, 4001}}) {
    const auto found = sample(count, [&](auto &tokens) { tokens[at] = 100; });
    ASSERT_FALSE(found);
    EXPECT_NE(found.error().message.find("token " + std::to_string(at) + " is id 100"),
              std::string::npos)
        << found.error().message;
  }
}

TEST_F(SampleTokens, WarnsOfALongPieceOfOneId) {
  const auto warnings = sample(
      100000, [](auto &tokens) { std::fill(tokens.end() - 2000, tokens.end(), uint16_t(7)); });
  ASSERT_TRUE(warnings);
  ASSERT_EQ(warnings->size(), 1u);
  EXPECT_NE(warnings->front().find("all have the id 7"), std::string::npos);
  const auto few = sample(500, [](auto &tokens) { std::ranges::fill(tokens, uint16_t(7)); });
  ASSERT_TRUE(few);
  EXPECT_TRUE(few->empty()); // a test's file may be so
}

} // namespace
