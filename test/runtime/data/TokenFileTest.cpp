#include "runtime/data/TokenFile.h"

#include "test/runtime/data/TokenFiles.h"

#include <gmock/gmock.h>

#include <random>

using namespace lmc;
using namespace lmc::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

class TokenFileTest : public DataTest {
protected:
  static std::vector<int32_t> all(const TokenFile &file) {
    std::vector<int32_t> tokens(file.size());
    EXPECT_TRUE(file.read(0, file.size(), tokens.data()));
    return tokens;
  }

  // The message of opening `bytes` under `name`, which must fail and be the user's.
  std::string refusal(const std::string &bytes, const std::string &name = "a.bin",
                      DataFormat format = DataFormat::Auto) {
    auto file = TokenFile::open(write(name, bytes), format);
    EXPECT_FALSE(file);
    if (file)
      return "";
    EXPECT_EQ(file.error().code, ExitCode::UserError);
    EXPECT_THAT(file.error().message, StartsWith(path(name) + ": "));
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
    return file.error().message;
  }
};

TEST_F(TokenFileTest, ReadsBareUInt16AsNanoGptWritesIt) {
  auto file = TokenFile::open(write("a.bin", nanoGptBytes({1, 50256, 65535})));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->format(), TokenFormat::Bare);
  EXPECT_EQ((*file)->vocabulary(), 0u);
  EXPECT_THAT(*(*file)->documentStarts(0, (*file)->documents()), ElementsAre(0));
  EXPECT_THAT(all(**file), ElementsAre(1, 50256, 65535));
}

TEST_F(TokenFileTest, ReadsLlmCOfBothWidths) {
  auto gpt2 = TokenFile::open(write("a.bin", llmCBytes(20240520, 1, {50256, 7}, 2)));
  ASSERT_TRUE(gpt2) << gpt2.error().message;
  EXPECT_EQ((*gpt2)->format(), TokenFormat::LlmC);
  EXPECT_THAT(all(**gpt2), ElementsAre(50256, 7));
  // The magic decides, not the name.
  auto llama3 = TokenFile::open(write("shard", llmCBytes(20240801, 7, {128000, 9, 3}, 4)));
  ASSERT_TRUE(llama3) << llama3.error().message;
  EXPECT_EQ((*llama3)->tokenBytes(), 4u);
  EXPECT_THAT(all(**llama3), ElementsAre(128000, 9, 3));
}

TEST_F(TokenFileTest, ReadsLmcOfEveryWidth) {
  for (int width : {1, 2, 4}) {
    auto file = TokenFile::open(write("a.bin", lmcBytes({5, 0, 7, 255, 9}, width, 256, {0, 2})));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->format(), TokenFormat::Lmc);
    EXPECT_EQ((*file)->vocabulary(), 256u);
    EXPECT_EQ((*file)->endOfDocument(), 0);
    EXPECT_THAT(*(*file)->documentStarts(0, (*file)->documents()), ElementsAre(0, 2));
    EXPECT_THAT(all(**file), ElementsAre(5, 0, 7, 255, 9));
    std::vector<int32_t> part(2);
    EXPECT_TRUE((*file)->read(2, 2, part.data()));
    EXPECT_THAT(part, ElementsAre(7, 255));
  }
}

TEST_F(TokenFileTest, RefusesWhatIsNoFile) {
  auto missing = TokenFile::open(path("none.bin"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, path("none.bin") + ": missing: no such token file");
  auto directory = TokenFile::open(folder.string());
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().message, HasSubstr("not a regular file"));
}

TEST_F(TokenFileTest, RefusesEmptyAndOddSized) {
  EXPECT_THAT(refusal(""), HasSubstr("empty: 0 bytes"));
  EXPECT_THAT(refusal("abc"), HasSubstr("odd-sized: 3 bytes"));
}

TEST_F(TokenFileTest, RefusesBadMagicOutsideBin) {
  EXPECT_THAT(refusal("Once upon a time.", "story.txt"), HasSubstr("bad magic at byte 0"));
}

TEST_F(TokenFileTest, RefusesEveryTruncationOfAHeaderedFile) {
  for (const std::string &bytes :
       {lmcBytes({1, 2, 3}, 2, 256, {0}), llmCBytes(20240520, 1, {1, 2, 3}, 2),
        llmCBytes(20240801, 7, {1, 2, 3}, 4)}) {
    for (size_t size = 8; size < bytes.size(); ++size)
      ASSERT_THAT(refusal(bytes.substr(0, size)), HasSubstr("truncated")) << size;
    EXPECT_THAT(refusal(bytes + "x"), HasSubstr(" 1 bytes after the end"));
  }
}

TEST_F(TokenFileTest, RefusesDamagedHeaders) {
  const std::string good = lmcBytes({1, 2, 3}, 2, 256, {0});
  auto with = [&](size_t byte, const std::string &bytes) {
    return std::string(good).replace(byte, bytes.size(), bytes);
  };
  EXPECT_THAT(refusal(with(8, "\x04")), HasSubstr("byte 8: version 4"));
  for (const char *version : {"\x02", "\x03"}) // without the bytes of tokens
    EXPECT_THAT(refusal(with(8, version)), HasSubstr("truncated"));
  EXPECT_THAT(refusal(with(12, "\x03")), HasSubstr("byte 12: tokens of 3 bytes"));
  EXPECT_THAT(refusal(with(24, std::string(8, '\0'))), HasSubstr("byte 24: "));
  EXPECT_THAT(refusal(with(32, std::string(8, '\0'))), HasSubstr("byte 32: "));
  // Counts whose sum of bytes wraps around to the size of the file.
  EXPECT_THAT(refusal(with(24, std::string(8, '\xff'))), HasSubstr("truncated"));
  EXPECT_THAT(refusal(with(32, integers({(uint64_t(1) << 61) + 1}, 8))), HasSubstr("truncated"));
  EXPECT_THAT(refusal(llmCBytes(20240520, 7, {1}, 2)), HasSubstr("byte 4: version 7"));
  EXPECT_THAT(refusal(llmCBytes(20240801, 1, {1}, 4)), HasSubstr("byte 4: version 1"));
  EXPECT_THAT(refusal(llmCBytes(20240520, 1, {}, 2)), HasSubstr("byte 8: "));
}

TEST_F(TokenFileTest, RefusesABareFileThatIsNotUInt16) {
  std::mt19937 random(3);
  auto drawn = [&](uint64_t vocabulary, uint64_t count) {
    std::vector<uint64_t> ids(count);
    for (uint64_t &id : ids)
      id = random() % vocabulary;
    return ids;
  };
  // Small vocabularies leave the high half 0; those of more than 65536 ids leave it small. The
  // second file is larger than its sample.
  for (auto [vocabulary, count] : {std::pair{2, 200}, {50257, 300000}, {128256, 1000}}) {
    const std::vector<uint64_t> ids = drawn(vocabulary, count);
    EXPECT_THAT(refusal(integers(ids, 4)),
                AllOf(HasSubstr("these seem to be 32-bit ids; set data.format (lmc-data: --format) "
                                "to uint32, or to uint16 if they are not"),
                      HasSubstr("those at odd places are ")))
        << vocabulary;
    EXPECT_THAT(refusal(integers(ids, 8)), HasSubstr("ids")) << vocabulary;
    auto asked = TokenFile::open(write("a.bin", integers(ids, 4)), DataFormat::UInt32);
    ASSERT_TRUE(asked) << asked.error().message;
    EXPECT_EQ((*asked)->type(), TokenType::UInt32);
    EXPECT_EQ(all(**asked), std::vector<int32_t>(ids.begin(), ids.end()));
    auto narrow = TokenFile::open(path("a.bin"), DataFormat::UInt16);
    ASSERT_TRUE(narrow) << narrow.error().message;
    EXPECT_EQ((*narrow)->size(), 2 * ids.size());
  }
  EXPECT_THAT(refusal(integers(drawn(5000, 1000), 8)), HasSubstr("these seem to be 64-bit ids"));
  std::string big;
  for (uint64_t id : drawn(5000, 1000))
    for (int shift : {24, 16, 8, 0})
      big += static_cast<char>(id >> shift);
  EXPECT_THAT(refusal(big), HasSubstr("these seem to be big-endian ids"));
}

TEST_F(TokenFileTest, RefusesAFileWithAHole) {
  for (uint64_t count : {5000, 500000}) { // the second is larger than its sample
    std::vector<uint64_t> ids(count, 7);
    std::fill(ids.begin() + count / 2, ids.end(), 0); // what is not written yet
    EXPECT_THAT(refusal(nanoGptBytes(ids)),
                HasSubstr(" are 0, as where tokens are not written yet"));
    EXPECT_THAT(refusal(llmCBytes(20240520, 1, ids, 2)), HasSubstr("not written yet"));
    EXPECT_TRUE(TokenFile::open(write("a.bin", nanoGptBytes(ids)), DataFormat::UInt16));
  }
  std::vector<uint64_t> few(5000, 7);
  std::fill(few.begin() + 100, few.begin() + 2147, 0); // 2047 tokens
  EXPECT_TRUE(TokenFile::open(write("a.bin", nanoGptBytes(few))));
}

TEST_F(TokenFileTest, RefusesOtherFilesOfThatName) {
  EXPECT_THAT(refusal("\x93NUMPY\x01"), HasSubstr("this is a NumPy array"));
  EXPECT_THAT(refusal("PK\x03\x04 archive/data.pkl"), HasSubstr("this is a ZIP archive"));
}

TEST_F(TokenFileTest, TakesBareUInt16OfAnyVocabulary) {
  std::mt19937 random(4);
  for (uint64_t vocabulary : {1, 2, 3, 30, 300, 5000, 65536})
    for (uint64_t count : {1, 2, 255, 1000, 200000}) {
      std::vector<uint64_t> ids(count);
      for (uint64_t &id : ids)
        id = vocabulary == 1 ? 7 : random() % vocabulary;
      auto file = TokenFile::open(write("a.bin", nanoGptBytes(ids)));
      ASSERT_TRUE(file) << file.error().message;
      EXPECT_EQ((*file)->type(), TokenType::UInt16);
      EXPECT_EQ((*file)->size(), count);
    }
}

TEST_F(TokenFileTest, AHeaderGoesBeforeTheFormatThatIsAsked) {
  write("a.bin", lmcBytes({1, 2, 3}, 2, 256, {0}));
  for (DataFormat format : {DataFormat::UInt16, DataFormat::UInt32, DataFormat::Megatron})
    EXPECT_EQ((*TokenFile::open(path("a.bin"), format))->format(), TokenFormat::Lmc);
  EXPECT_THAT(refusal("abcdef", "b.bin", DataFormat::UInt32),
              HasSubstr("odd-sized: 6 bytes are no whole number of uint32 tokens"));
}

TEST_F(TokenFileTest, KnowsTheNamesOfFormats) {
  EXPECT_EQ(*parseDataFormat("auto"), DataFormat::Auto);
  EXPECT_EQ(*parseDataFormat("uint16"), DataFormat::UInt16);
  EXPECT_EQ(*parseDataFormat("uint32"), DataFormat::UInt32);
  EXPECT_EQ(*parseDataFormat("megatron"), DataFormat::Megatron);
  EXPECT_EQ(parseDataFormat("int32").error().message,
            "'int32' is none of auto, uint16, uint32, megatron");
}

TEST_F(TokenFileTest, VerifyFindsABadChecksum) {
  auto file = TokenFile::open(write("a.bin", lmcBytes({1, 2, 3}, 2, 256, {0})));
  ASSERT_TRUE(file);
  auto verified = (*file)->verify(0);
  ASSERT_FALSE(verified);
  EXPECT_THAT(verified.error().message,
              HasSubstr(path("a.bin") + ": bad checksum: the header says 0000000000000000"));
}

TEST_F(TokenFileTest, VerifyFindsATokenBeyondTheVocabulary) {
  auto file = TokenFile::open(write("a.bin", nanoGptBytes({1, 2, 300, 4})));
  ASSERT_TRUE(file);
  EXPECT_TRUE((*file)->verify(0));
  EXPECT_TRUE((*file)->verify(301));
  auto verified = (*file)->verify(300);
  ASSERT_FALSE(verified);
  EXPECT_THAT(verified.error().message,
              HasSubstr("token 2 is id 300, beyond the vocabulary of 300"));
  // An id that is negative as int32.
  auto wide = TokenFile::open(write("b.bin", llmCBytes(20240801, 7, {1, 0xfffffffe}, 4)));
  ASSERT_TRUE(wide);
  auto wideVerified = (*wide)->verify(128256);
  ASSERT_FALSE(wideVerified);
  EXPECT_THAT(wideVerified.error().message, HasSubstr("token 1 is id 4294967294"));
}

} // namespace
