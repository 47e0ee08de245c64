#include "runtime/data/SampleTokens.h"
#include "runtime/data/Separators.h"
#include "test/runtime/data/TokenFiles.h"

#include <algorithm>

using namespace lmc;

namespace {

class SampleTokens : public lmc::test::DataTest {
protected:
  // Writes a bare file of `count` tokens 0, 1, ... 99, 0, ... that `change` may change, and samples
  // it. `endOfDocument`: the id that data.end_of_document gives.
  template <typename Change>
  Result<std::vector<std::string>> sample(size_t count, const Change &change,
                                          int32_t endOfDocument = -1, uint64_t vocabSize = 100) {
    std::vector<uint16_t> tokens(count);
    for (size_t i = 0; i < count; ++i)
      tokens[i] = static_cast<uint16_t>(i % 100);
    change(tokens);
    auto file = TokenFile::open(
        write("a.bin", {reinterpret_cast<const char *>(tokens.data()), count * sizeof(uint16_t)}));
    LMC_TRY(file);
    return sampleTokens(**file, vocabSize, endOfDocument);
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

TEST_F(SampleTokens, WarnsOfDoubledSeparators) {
  const auto of = [&](size_t count, int32_t id, const auto &change) {
    const auto warnings = sample(count, change, id);
    EXPECT_TRUE(warnings);
    return *warnings;
  };
  const auto doubled = [](auto &tokens) {
    for (size_t i = 0; i + 1 < tokens.size(); i += 50)
      tokens[i] = tokens[i + 1] = 99;
  };
  for (const size_t count : {2000u, 100000u}) {
    ASSERT_EQ(of(count, 99, doubled).size(), 1u) << count;
    EXPECT_NE(of(count, 99, doubled)[0].find("(id 99) stand directly behind another one, the first "
                                             "at token 1, in "),
              std::string::npos);
    EXPECT_TRUE(of(count, -1, doubled).empty()) << "no id is given";
    EXPECT_TRUE(of(count, 98, doubled).empty()) << "another id";
    EXPECT_TRUE(of(count, 99, [](auto &) {}).empty()) << "one between two documents";
  }
}

TEST_F(SampleTokens, WarnsOfIdsFarBelowTheVocabulary) {
  const auto of = [&](uint64_t vocabSize) {
    return *sample(
        5000, [](auto &) {}, -1, vocabSize);
  };
  ASSERT_EQ(of(50257).size(), 1u);
  EXPECT_NE(of(50257)[0].find("the largest id of 5000 sampled tokens is 99, and model.vocab_size "
                              "is 50257"),
            std::string::npos)
      << of(50257)[0];
  EXPECT_TRUE(of(257).empty()) << "a small vocabulary";
}

TEST(SeparatorCount, SeesADoubledOneAcrossTwoPieces) {
  SeparatorCount count(3);
  count.add(0, std::vector<int32_t>{1, 3});
  count.add(2, std::vector<int32_t>{3, 1});
  EXPECT_EQ(count.doubled(), 1u);
  EXPECT_EQ(count.firstDoubled(), 2u);
  count.add(10, std::vector<int32_t>{3}); // another place
  count.add(20, std::vector<int32_t>{3});
  EXPECT_EQ(count.doubled(), 1u);
  EXPECT_EQ(count.separators(), 4u);
  EXPECT_EQ(count.tokens(), 6u);
}

} // namespace
