#include "runtime/data/Fingerprint.h"
#include "runtime/data/DataSource.h"

#include "test/runtime/data/TokenFiles.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <numeric>

using namespace lmc;
using namespace lmc::test;
using testing::HasSubstr;

namespace {

class FingerprintTest : public DataTest {
protected:
  FileFingerprint of(const std::string &path, DataFormat format = DataFormat::Auto) {
    auto file = TokenFile::open(path, format);
    EXPECT_TRUE(file) << file.error().message;
    auto fingerprint = (*file)->fingerprint();
    EXPECT_TRUE(fingerprint) << fingerprint.error().message;
    return *fingerprint;
  }
  static std::vector<uint64_t> ids(uint64_t count) {
    std::vector<uint64_t> tokens(count);
    for (uint64_t i = 0; i < count; ++i)
      tokens[i] = i * i % 50021;
    return tokens;
  }
};

TEST_F(FingerprintTest, SaysWhatAFileIs) {
  FileFingerprint bare = of(write("a.bin", nanoGptBytes(ids(1000))));
  EXPECT_EQ(bare.path, path("a.bin"));
  EXPECT_EQ(bare.format, "bare");
  EXPECT_EQ(bare.tokenType, "uint16");
  EXPECT_EQ(bare.bytes, 2000u);
  EXPECT_EQ(bare.tokens, 1000u);
  EXPECT_EQ(bare.headerHash, 0u);
  FileFingerprint packed = of(write("b.bin", lmcBytes(ids(1000), 2, 50021, {0})));
  EXPECT_EQ(packed.format, "lmc");
  EXPECT_EQ(packed.tokens, 1000u);
  EXPECT_EQ(packed.sampleHash, bare.sampleHash) << "of the tokens alone";
}

TEST_F(FingerprintTest, FollowsAFileThatMoves) {
  const FileFingerprint was = of(write("a.bin", nanoGptBytes(ids(400000))));
  std::filesystem::rename(path("a.bin"), path("b.bin"));
  const FileFingerprint is = of(path("b.bin"));
  EXPECT_EQ(difference(was, is), std::nullopt);
  EXPECT_FALSE(was == is) << "the path is another";
}

TEST_F(FingerprintTest, DiffersIfTheFileDoes) {
  // More bytes than the sample has.
  const std::vector<uint64_t> tokens = ids(400000);
  const FileFingerprint was = of(write("a.bin", nanoGptBytes(tokens)));
  auto changed = [&](const std::vector<uint64_t> &other) {
    return difference(was, of(write("a.bin", nanoGptBytes(other)))).value_or("nothing");
  };
  EXPECT_EQ(changed(tokens), "nothing");
  // The first token, the last, and one in a piece in between: pieces start at multiples of
  // (800000 - 4096) / 63 bytes.
  for (uint64_t at :
       {uint64_t(0), tokens.size() - 1, uint64_t(10 * (800000 - 4096) / 63 / 2 + 5)}) {
    std::vector<uint64_t> other = tokens;
    other[at] ^= 1;
    EXPECT_EQ(changed(other), "other tokens, as many as before") << at;
  }
  std::vector<uint64_t> swapped = tokens;
  std::swap_ranges(swapped.begin(), swapped.begin() + 2048, swapped.end() - 2048);
  EXPECT_EQ(changed(swapped), "other tokens, as many as before");
  std::vector<uint64_t> longer = tokens;
  longer.push_back(1);
  EXPECT_EQ(changed(longer), "400001 tokens, were 400000");
  EXPECT_EQ(difference(was, of(path("a.bin"), DataFormat::UInt16)),
            difference(was, of(path("a.bin"))));
  write("a.bin", nanoGptBytes(tokens));
  EXPECT_EQ(*difference(was, of(path("a.bin"), DataFormat::UInt32)),
            "bare uint32 tokens, were bare uint16");
  EXPECT_EQ(*difference(was, of(write("a.bin", lmcBytes(tokens, 2, 50021, {0})))),
            "lmc uint16 tokens, were bare uint16");
}

TEST_F(FingerprintTest, HasTheHeaderAndTheIndex) {
  const FileFingerprint was = of(write("a.bin", lmcBytes(ids(1000), 2, 50021, {0, 500})));
  EXPECT_EQ(*difference(was, of(write("a.bin", lmcBytes(ids(1000), 2, 50022, {0, 500})))),
            "another header or index of the same size");
  write("m.bin", nanoGptBytes(ids(1000)));
  write("m.idx", megatronIndexBytes(kUInt16, 2, {400, 600}, {0, 1, 2}));
  const FileFingerprint indexed = of(path("m.bin"));
  EXPECT_EQ(indexed.format, "megatron");
  write("m.idx", megatronIndexBytes(kUInt16, 2, {500, 500}, {0, 1, 2}));
  EXPECT_EQ(*difference(indexed, of(path("m.bin"))), "another header or index of the same size");
}

TEST_F(FingerprintTest, NamesAnotherTokenizer) {
  FileFingerprint was = of(write("a.bin", lmcBytes(ids(1000), 2, 50021, {0})));
  FileFingerprint is = was;
  is.tokenizer = 7;
  EXPECT_EQ(difference(was, is), std::nullopt) << "the first does not say which";
  was.tokenizer = 8;
  EXPECT_EQ(*difference(was, is), "made by another tokenizer");
  // Of an earlier release.
  nlohmann::json json = toJson(is);
  json.erase("tokenizer_hash");
  EXPECT_EQ(fingerprintFromJson(json)->tokenizer, 0u);
}

TEST_F(FingerprintTest, IsTheSameAfterJson) {
  FileFingerprint was = of(write("a.bin", lmcBytes(ids(1000), 2, 50021, {0})));
  was.tokenizer = 0xfedcba9876543210;
  const nlohmann::json json = nlohmann::json::parse(toJson(was).dump());
  auto is = fingerprintFromJson(json);
  ASSERT_TRUE(is) << is.error().message;
  EXPECT_TRUE(was == *is);
  for (const auto &[name, value] : json.items())
    for (const nlohmann::json &wrong :
         {nlohmann::json(), nlohmann::json(-1), nlohmann::json("x")}) {
      nlohmann::json damaged = json;
      damaged[name] = wrong;
      auto read = fingerprintFromJson(damaged);
      if (wrong == "x" && !name.ends_with("hash") && json[name].is_string())
        continue; // a path or name
      ASSERT_FALSE(read) << name;
      EXPECT_THAT(read.error().message, HasSubstr(name));
    }
  EXPECT_FALSE(fingerprintFromJson(nlohmann::json::array()));
}

TEST_F(FingerprintTest, ADataSourceHasOneOfEachFile) {
  write("a.bin", nanoGptBytes(ids(100)));
  write("b.bin", nanoGptBytes(ids(200)));
  DataOptions options;
  options.sources = {{.name = "", .key = "data.train", .paths = {path("b.bin"), path("a.bin")}}};
  options.sequenceLength = 10;
  options.vocabSize = 50021;
  auto fingerprints = (*DataSource::open(options))->fingerprints();
  ASSERT_TRUE(fingerprints);
  const std::vector<FileFingerprint> &files = fingerprints->at("data.train");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_TRUE(files[0] == of(path("b.bin")));
  EXPECT_TRUE(files[1] == of(path("a.bin")));
}

} // namespace
