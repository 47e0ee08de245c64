// Megatron's format, written byte by byte from its description in MegatronIndex.h.

#include "runtime/data/DataSource.h"
#include "runtime/data/TokenFile.h"

#include "test/Draws.h"
#include "test/runtime/data/TokenFiles.h"

#include <gmock/gmock.h>

#include <random>

using namespace lmc;
using namespace lmc::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

class MegatronIndexTest : public DataTest {
protected:
  struct Type {
    MegatronCode code;
    int width;
    TokenType type;
  };
  static constexpr Type kTypes[] = {
      {kUInt8, 1, TokenType::UInt8}, {kInt8, 1, TokenType::Int8},   {kInt16, 2, TokenType::Int16},
      {kInt32, 4, TokenType::Int32}, {kInt64, 8, TokenType::Int64}, {kUInt16, 2, TokenType::UInt16},
  };

  // Writes a.bin and a.idx: documents of one sequence each.
  std::string writeSet(const std::vector<uint64_t> &tokens, const Type &type,
                       const std::vector<uint64_t> &lengths,
                       const std::vector<uint64_t> &documents) {
    write("a.idx", megatronIndexBytes(type.code, type.width, lengths, documents));
    return write("a.bin", integers(tokens, type.width));
  }

  static std::vector<int32_t> all(const TokenFile &file) {
    std::vector<int32_t> tokens(file.size());
    auto read = file.read(0, file.size(), tokens.data());
    EXPECT_TRUE(read) << read.error().message;
    return tokens;
  }

  // The message of opening 7 int32 tokens with this index, which must fail and be the user's.
  std::string refusal(const std::string &index, const std::string &at = "a.idx") {
    write("a.idx", index);
    auto file = TokenFile::open(write("a.bin", integers({5, 0, 7, 9, 1, 2, 3}, 4)));
    EXPECT_FALSE(file);
    if (file)
      return "";
    EXPECT_EQ(file.error().code, ExitCode::UserError);
    EXPECT_THAT(file.error().message, StartsWith(path(at) + ": "));
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
    return file.error().message;
  }
  static std::string goodIndex() { return megatronIndexBytes(kInt32, 4, {2, 1, 4}, {0, 1, 3}); }
};

TEST_F(MegatronIndexTest, ReadsEveryTypeOfTokens) {
  for (const Type &type : kTypes) {
    auto file = TokenFile::open(writeSet({5, 0, 7, 120, 9}, type, {2, 3}, {0, 1, 2}));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->format(), TokenFormat::Megatron);
    EXPECT_EQ((*file)->type(), type.type);
    EXPECT_EQ((*file)->vocabulary(), 0u);
    EXPECT_EQ((*file)->endOfDocument(), -1);
    EXPECT_TRUE((*file)->hasDocuments());
    EXPECT_THAT(*(*file)->documentStarts(0, (*file)->documents()), ElementsAre(0, 2));
    EXPECT_THAT(all(**file), ElementsAre(5, 0, 7, 120, 9));
    std::vector<int32_t> part(2);
    ASSERT_TRUE((*file)->read(2, 2, part.data()));
    EXPECT_THAT(part, ElementsAre(7, 120));
    EXPECT_TRUE((*file)->verify(121));
    EXPECT_THAT((*file)->verify(120).error().message,
                HasSubstr("token 3 is id 120, beyond the vocabulary of 120"));
  }
}

// The trap: int32 ids below 65536, read as uint16, are the ids with a 0 after each.
TEST_F(MegatronIndexTest, TheIndexGoesBeforeBareUInt16) {
  writeSet({5, 1, 7, 9}, kTypes[3], {4}, {0, 1});
  EXPECT_THAT(all(**TokenFile::open(path("a.bin"))), ElementsAre(5, 1, 7, 9));
  EXPECT_THAT(all(**TokenFile::open(path("a.bin"), DataFormat::Megatron)), ElementsAre(5, 1, 7, 9));
  EXPECT_THAT(all(**TokenFile::open(path("a.bin"), DataFormat::UInt16)),
              ElementsAre(5, 0, 1, 0, 7, 0, 9, 0));
  EXPECT_THAT(all(**TokenFile::open(path("a.bin"), DataFormat::UInt32)), ElementsAre(5, 1, 7, 9));
  std::filesystem::remove(path("a.idx"));
  auto alone = TokenFile::open(path("a.bin"), DataFormat::Megatron);
  ASSERT_FALSE(alone);
  EXPECT_THAT(alone.error().message, HasSubstr("a.idx is missing"));
}

TEST_F(MegatronIndexTest, NamesNegativeIdsAndIdsTooLarge) {
  for (const Type &type : kTypes) {
    if (!infoOf(type.type).isSigned)
      continue;
    auto file = TokenFile::open(writeSet({5, 1, uint64_t(-2), 9}, type, {4}, {0, 1}));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->verify(0).error().message, path("a.bin") + ": token 2 is id -2, negative");
    DataOptions options;
    options.sources = {{.name = "", .key = "", .paths = {path("a.bin")}}};
    options.sequenceLength = 3;
    options.vocabSize = 100;
    auto source = DataSource::open(options);
    ASSERT_TRUE(source) << source.error().message;
    std::vector<int32_t> tokens(3), targets(3);
    EXPECT_EQ((*source)->fill(0, 1, tokens.data(), targets.data()).error().message,
              path("a.bin") + ": token 2 is id -2, negative");
  }
  auto file = TokenFile::open(writeSet({5, uint64_t(1) << 32}, kTypes[4], {2}, {0, 1}));
  EXPECT_THAT((*file)->verify(100).error().message,
              HasSubstr("token 1 is id 4294967296, beyond the vocabulary of 100"));
}

TEST_F(MegatronIndexTest, FindsDrawnDocumentsOfSeveralSequencesAndOfNone) {
  const int64_t count = test::drawCount(20);
  std::mt19937 random(7);
  for (int64_t round = 0; round < count; ++round) {
    std::vector<uint64_t> lengths, documents = {0}, starts = {0}, tokens;
    const uint64_t most = round % 2 ? 3 : 40; // sequences per document
    while (documents.size() < 120) {
      for (uint64_t i = random() % most; i-- > 0;) {
        lengths.push_back(random() % 9);
        tokens.insert(tokens.end(), lengths.back(), 1);
      }
      documents.push_back(lengths.size());
      starts.push_back(tokens.size());
    }
    auto file = TokenFile::open(writeSet(tokens, kTypes[random() % 6], lengths, documents));
    ASSERT_TRUE(file) << file.error().message;
    starts.pop_back(); // the end of the last document
    ASSERT_EQ((*file)->documents(), starts.size());
    EXPECT_EQ(*(*file)->documentStarts(0, starts.size()), starts);
    for (int draw = 0; draw < 50; ++draw) {
      uint64_t begin = random() % tokens.size(), end = begin + random() % (tokens.size() - begin);
      std::vector<uint64_t> expected;
      for (uint64_t start : starts)
        if (start > begin && start < end)
          expected.push_back(start);
      EXPECT_EQ((*file)->documentsBetween(begin, end)->tokens, expected);
    }
  }
}

TEST_F(MegatronIndexTest, TheDocumentMaskTakesTheDocumentsOfTheIndex) {
  // The second document has no tokens, the third has two sequences.
  writeSet({1, 2, 3, 4, 5, 6, 7}, kTypes[3], {2, 1, 3, 1}, {0, 1, 1, 3, 4});
  DataOptions options;
  options.sources = {{.name = "", .key = "", .paths = {path("a.bin")}}};
  options.sequenceLength = 6;
  options.vocabSize = 10;
  options.documentMask = true;
  auto source = DataSource::open(options);
  ASSERT_TRUE(source) << source.error().message;
  std::vector<int32_t> tokens(6), targets(6), starts(6);
  auto filled = (*source)->fill(0, 1, tokens.data(), targets.data(), starts.data());
  ASSERT_TRUE(filled) << filled.error().message;
  EXPECT_THAT(starts, ElementsAre(0, 0, 2, 2, 2, 2));
  EXPECT_THAT(targets, ElementsAre(2, 3, 4, 5, 6, 7));
}

TEST_F(MegatronIndexTest, RefusesEveryTruncation) {
  const std::string good = goodIndex();
  for (size_t size = 9; size < good.size(); ++size)
    ASSERT_THAT(refusal(good.substr(0, size)), HasSubstr("truncated")) << size;
  EXPECT_THAT(refusal(good + "x"), HasSubstr(" 1 bytes after the end"));
  EXPECT_THAT(refusal(""), HasSubstr("empty: 0 bytes"));
  EXPECT_THAT(refusal(good + std::string(3, '\1')), HasSubstr("has a mode for each sequence"));
}

TEST_F(MegatronIndexTest, RefusesDamagedHeaders) {
  auto with = [&](size_t byte, const std::string &bytes) {
    return goodIndex().replace(byte, bytes.size(), bytes);
  };
  EXPECT_THAT(refusal(with(0, "x")),
              HasSubstr("bad magic at byte 0: not the index of a Megatron data set; if it does not "
                        "belong to the .bin of this name, set data.format"));
  EXPECT_THAT(refusal("TNTIDX" + std::string(100, '\0')), HasSubstr("older format"));
  EXPECT_THAT(refusal(with(9, "\x02")), HasSubstr("byte 9: version 2"));
  EXPECT_THAT(refusal(with(17, "\x06")), HasSubstr("byte 17: the data are float64"));
  EXPECT_THAT(refusal(with(17, "\x07")), HasSubstr("byte 17: the data are float32"));
  EXPECT_THAT(refusal(with(17, "\x09")), HasSubstr("byte 17: unknown code 9"));
  EXPECT_THAT(refusal(with(18, integers({0}, 8))), HasSubstr("0 sequences"));
  EXPECT_THAT(refusal(with(18, std::string(8, '\xff'))), HasSubstr("truncated"));
  EXPECT_THAT(refusal(with(26, integers({(uint64_t(1) << 61) + 1}, 8))), HasSubstr("truncated"));
}

TEST_F(MegatronIndexTest, RefusesAnIndexThatDoesNotDescribeTheTokens) {
  auto index = [](const std::vector<uint64_t> &lengths, const std::vector<uint64_t> &documents) {
    return megatronIndexBytes(kInt32, 4, lengths, documents);
  };
  EXPECT_THAT(
      refusal(index({2, 1, 5}, {0, 1, 3})),
      HasSubstr("the index describes 8 tokens of type int32, 32 bytes, but the .bin has 28"));
  EXPECT_THAT(refusal(index({2, 1, 3}, {0, 1, 3})), HasSubstr("describes 6 tokens"));
  // The type decides how many bytes the tokens have.
  EXPECT_THAT(refusal(megatronIndexBytes(kUInt16, 2, {2, 1, 4}, {0, 1, 3})),
              HasSubstr("describes 7 tokens of type uint16, 14 bytes, but the .bin has 28"));
  std::string negative = goodIndex();
  negative.replace(34, 4, std::string(4, '\xff'));
  EXPECT_THAT(refusal(negative), HasSubstr("sequence 0 has -1 tokens"));
  std::string swapped = goodIndex(); // sequences 1 and 2 change places in the .bin
  swapped.replace(34 + 12 + 8, 16, integers({24, 8}, 8));
  EXPECT_THAT(refusal(swapped),
              HasSubstr("sequence 1 starts at byte 24 of the .bin, but the sequence before it ends "
                        "at byte 8"));
  EXPECT_THAT(refusal(index({2, 1, 4}, {0, 2, 1, 3})),
              HasSubstr("document 2 starts at sequence 1"));
  EXPECT_THAT(refusal(index({2, 1, 4}, {1, 3})), HasSubstr("document 0 starts at sequence 1"));
  EXPECT_THAT(refusal(index({2, 1, 4}, {0, 4})), HasSubstr("document 1 starts at sequence 4"));
  EXPECT_THAT(refusal(index({2, 1, 4}, {0, 2})), HasSubstr("documents end at sequence 2 of 3"));
}

TEST_F(MegatronIndexTest, TheIndexIsNoTokenFile) {
  auto file = TokenFile::open(write("a.idx", goodIndex()));
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("give the .bin beside it"));
}

TEST_F(MegatronIndexTest, NamesTheIndexThatIsCutShortWhileItIsRead) {
  auto file = TokenFile::open(writeSet({5, 0, 7, 9, 1}, kTypes[3], {2, 3}, {0, 1, 2}));
  ASSERT_TRUE(file) << file.error().message;
  std::filesystem::resize_file(path("a.idx"), 40);
  auto starts = (*file)->documentStarts(0, 2);
  ASSERT_FALSE(starts);
  EXPECT_THAT(starts.error().message, StartsWith(path("a.idx") + ": has 40 bytes, but had "));
}

} // namespace
