// A damaged tokenizer file is refused in one line, or gives a tokenizer that reads no memory but
// its own. `./dev test asan` runs these tests under the sanitizers.
#include "test/Draws.h"
#include "test/corpus/tokenizer/TokenizerFiles.h"

#include <random>

using namespace lmc;
using namespace lmc::test;

namespace {

// A table of replacements that makes "a" of "A" (corpus/tokenizer/unicode/Charsmap.h): the root's
// children begin at unit 256, and that for 'A' has the unit 0x1c1 as its value.
std::string table() {
  std::vector<uint32_t> units(512);
  units[0] = 256 << 10;
  units[0x141] = 0x80 << 10 | 1 << 8 | 'A';
  units[0x1c1] = 1u << 31;
  const auto bytes = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string result(reinterpret_cast<const char *>(&bytes), sizeof(bytes));
  result.append(reinterpret_cast<const char *>(units.data()), bytes);
  return result + std::string("a\0", 2);
}

std::string base64(const std::string &bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t bits = 0;
  int count = 0;
  for (unsigned char byte : bytes + std::string((3 - bytes.size() % 3) % 3, '\0')) {
    bits = bits << 8 | byte;
    for (count += 8; count >= 6; count -= 6)
      text += kDigits[bits >> (count - 6) & 63];
  }
  for (size_t i = 0; i < (3 - bytes.size() % 3) % 3; ++i)
    text[text.size() - 1 - i] = '=';
  return text;
}

nlohmann::json wholeFile(bool unigram) {
  nlohmann::json file = nlohmann::json::parse(R"json({
    "version": "1.0", "truncation": null, "padding": null,
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "_"},
      {"type": "Prepend", "prepend": "_"}, {"type": "Strip", "strip_left": true, "strip_right": true}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "(?i:x|[yz])\\p{L}*[^\\s]{1,3}|\\s+(?!\\S)"},
       "behavior": "Isolated", "invert": false},
      {"type": "Digits", "individual_digits": true},
      {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": true}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})json");
  file["normalizer"]["normalizers"].push_back(
      {{"type", "Precompiled"}, {"precompiled_charsmap", base64(table())}});
  file["added_tokens"] = {addedToken(4, "<s>"), addedToken(5, "b")};
  if (unigram)
    file["model"] = nlohmann::json::parse(R"({"type": "Unigram", "unk_id": 0, "byte_fallback": true,
      "vocab": [["<unk>", 0.0], ["_", -1.5], ["a", -2.5], ["_a", -2.0]]})");
  else
    file["model"] = nlohmann::json::parse(R"({"type": "BPE", "unk_token": "<unk>", "fuse_unk": true,
      "byte_fallback": true, "ignore_merges": false, "dropout": null,
      "vocab": {"<unk>": 0, "_": 1, "a": 2, "_a": 3}, "merges": [["_", "a"]]})");
  return file;
}

class DamagedFilesTest : public TokenizerTest {
protected:
  // Uses a tokenizer, if the file was good enough to give one.
  void use(const Result<std::shared_ptr<const Tokenizer>> &tokenizer) {
    if (!tokenizer) {
      EXPECT_EQ(tokenizer.error().code, ExitCode::UserError);
      EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
      EXPECT_EQ(tokenizer.error().message.find(folder.path), 0u) << tokenizer.error().message;
      ++refused;
      return;
    }
    for (const char *text :
         {"a A<s>b  x12\n", "\u00e9\u2581a\u2581\u2581a<end>", "AAAA \U0001f600"})
      for (SpecialTokens mode : {SpecialTokens::Text, SpecialTokens::Parse}) {
        auto encoded = encode(**tokenizer, text, mode, {0});
        for (uint32_t id : encoded ? encoded->ids : std::vector<uint32_t>())
          EXPECT_LT(id, (*tokenizer)->vocabulary());
      }
    std::vector<uint32_t> ids((*tokenizer)->vocabulary() + 2);
    for (uint32_t i = 0; i < ids.size(); ++i)
      ids[i] = i;
    (void)(*tokenizer)->decode(ids);
    ++used;
  }
  std::mt19937_64 random{1};
  int refused = 0, used = 0;
};

TEST_F(DamagedFilesTest, DrawnValuesInATokenizerJson) {
  const std::vector<nlohmann::json> values = {nullptr,
                                              true,
                                              -1,
                                              0,
                                              5,
                                              4000000000u,
                                              1e300,
                                              "",
                                              "a",
                                              "_a",
                                              "\u00e9",
                                              "Sequence",
                                              "BPE",
                                              "(a",
                                              "[^",
                                              "Fuse",
                                              nlohmann::json::array(),
                                              nlohmann::json::object(),
                                              {{"type", "NFC"}}};
  use(open(wholeFile(false)));
  use(open(wholeFile(true)));
  ASSERT_EQ(used, 2) << open(wholeFile(false)).error().message;
  const int64_t draws = drawCount(300);
  for (int64_t i = 0; i < draws; ++i) {
    nlohmann::json file = wholeFile(random() % 2);
    for (int changes = 1 + random() % 2; changes > 0; --changes) {
      const nlohmann::json flat = file.flatten();
      auto place = flat.begin();
      std::advance(place, random() % flat.size());
      nlohmann::json::json_pointer pointer(place.key());
      for (int up = random() % 3; up > 0 && !pointer.parent_pointer().empty(); --up)
        pointer = pointer.parent_pointer();
      file[pointer] = values[random() % values.size()];
    }
    use(open(file));
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(used, 2);
}

TEST_F(DamagedFilesTest, DrawnFlipsOfAModel) {
  const int64_t draws = drawCount(1500);
  for (ModelType type : {Bpe, Unigram}) {
    ModelFile file(type);
    file.replacements(table()).piece("<unk>", 0, Unknown).piece("<s>", 0, Control);
    file.piece("<end>", 0, UserDefined).piece("\u2581a", -1).piece("a", -2).piece("\u2581", -3);
    const std::string good = file.bytes();
    for (int64_t i = 0; i < draws; ++i) {
      std::string bytes = good;
      // The table is most of the file; half of the draws leave it alone.
      const size_t front = good.find(table().substr(0, 4)) - 8;
      for (int changes = 1 + random() % 3; changes > 0; --changes) {
        const size_t at = random() % 2 ? random() % good.size() : random() % front;
        bytes[at] ^= static_cast<char>(1 << random() % 8);
      }
      if (random() % 8 == 0)
        bytes.resize(random() % bytes.size());
      use(open(bytes));
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(used, 0);
}

} // namespace
