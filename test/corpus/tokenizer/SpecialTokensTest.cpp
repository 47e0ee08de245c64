// No text becomes a special token, or a token that stands around documents.
#include "test/corpus/tokenizer/TokenizerFiles.h"

using namespace lmc;
using namespace lmc::test;
using testing::ElementsAre;

namespace {

class SpecialTokensTest : public TokenizerTest {
protected:
  // Expects that `text` becomes `ids` without the token `border`, which it spells in `spelled`
  // places, and that these places are an error if the user asks for one.
  void expectText(const Tokenizer &tokenizer, const std::string &text, uint32_t border,
                  const std::vector<uint32_t> &ids, uint64_t spelled) {
    auto encoded = encode(tokenizer, text, SpecialTokens::Text, {border});
    ASSERT_OK(encoded);
    EXPECT_EQ(encoded->ids, ids);
    EXPECT_EQ(encoded->spelled, spelled);
    auto refused = encode(tokenizer, text, SpecialTokens::Error, {border});
    EXPECT_EQ(bool(refused), spelled == 0);
    if (spelled > 0)
      EXPECT_ERROR(refused, "spells a special token");
  }
};

// Gemma ends a turn with a piece that its own library finds in every text.
TEST_F(SpecialTokensTest, AUserDefinedPieceAroundDocumentsIsText) {
  for (ModelType type : {Bpe, Unigram}) {
    ModelFile file(type);
    file.piece("<unk>", 0, Unknown).piece("<end>", 0, UserDefined).piece("<use>", 0, UserDefined);
    for (const char *letter : {"<", "e", "n", "d", ">", "a"})
      file.piece(letter, -1);
    auto tokenizer = open(file);
    ASSERT_OK(tokenizer);
    EXPECT_THAT(encode(**tokenizer, "a<end><use>")->ids, ElementsAre(8, 1, 2));
    expectText(**tokenizer, "a<end><use>", 1, {8, 3, 4, 5, 6, 7, 2}, 1);
    expectText(**tokenizer, "a<use>", 1, {8, 2}, 0);
  }
}

TEST_F(SpecialTokensTest, APieceOfAModelAroundDocumentsIsText) {
  for (ModelType type : {Bpe, Unigram}) {
    ModelFile file(type);
    file.piece("<unk>", 0, Unknown).piece("ab", -1).piece("a", -2).piece("b", -3);
    auto tokenizer = open(file);
    ASSERT_OK(tokenizer);
    EXPECT_THAT(encode(**tokenizer, "abb")->ids, ElementsAre(1, 3));
    expectText(**tokenizer, "abb", 1, {2, 3, 3}, 1);
  }
}

// Nothing else can stand for these characters.
TEST_F(SpecialTokensTest, ABorderThatUnknownTextBecomesIsAnError) {
  ModelFile file(Unigram);
  file.piece("<unk>", 0, Unknown).piece("a", -1);
  auto tokenizer = open(file);
  ASSERT_OK(tokenizer);
  EXPECT_THAT(encode(**tokenizer, "ab")->ids, ElementsAre(1, 0));
  EXPECT_ERROR(encode(**tokenizer, "ab", SpecialTokens::Text, {0}), "whose only token is id 0");
  EXPECT_TRUE(encode(**tokenizer, "a", SpecialTokens::Text, {0}));
}

TEST_F(SpecialTokensTest, ASpecialTokenOfOneCharacterIsUnknownText) {
  nlohmann::json file = bpeFile({{"|", 0}, {"a", 1}, {"b", 2}, {"?", 3}, {"<0x7C>", 4}});
  file["added_tokens"].push_back(addedToken(0, "|"));
  auto refusing = open(file);
  ASSERT_OK(refusing);
  EXPECT_ERROR(encode(**refusing, "a|b"),
               "the text has '|', whose only token is the special token");
  EXPECT_THAT(encode(**refusing, "a|b", SpecialTokens::Parse)->ids, ElementsAre(1, 0, 2));
  file["model"]["unk_token"] = "?";
  auto unknown = open(file);
  ASSERT_OK(unknown);
  expectText(**unknown, "a|b|", 0, {1, 3, 2, 3}, 2);
  file["model"]["byte_fallback"] = true;
  auto bytes = open(file);
  ASSERT_OK(bytes);
  expectText(**bytes, "a|b|", 0, {1, 4, 2, 4}, 2);
}

TEST_F(SpecialTokensTest, AMergedPieceAroundDocumentsIsCountedEachTime) {
  nlohmann::json file = bpeFile({{"a", 0}, {"b", 1}, {"ab", 2}});
  file["model"]["merges"].push_back(nlohmann::json::array({"a", "b"}));
  file["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  auto tokenizer = open(file);
  ASSERT_OK(tokenizer);
  EXPECT_THAT(encode(**tokenizer, "ab a ab")->ids, ElementsAre(2, 0, 2));
  expectText(**tokenizer, "ab a ab ab", 2, {0, 1, 0, 0, 1, 0, 1}, 3);
  expectText(**tokenizer, "a b", 2, {0, 1}, 0);
}

} // namespace
