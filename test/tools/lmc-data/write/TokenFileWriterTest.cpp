#include "tools/lmc-data/write/TokenFileWriter.h"

#include "ground/support/File.h"
#include "runtime/data/TokenFile.h"
#include "test/runtime/data/TokenFiles.h"

#include <gmock/gmock.h>
#include <xxhash.h>

#include <csignal>
#include <sys/resource.h>

using namespace lmc;
using namespace lmc::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

Result<std::unique_ptr<TokenFileWriter>> createAt(const std::string &path,
                                                  const TokenFileWriter::Options &options) {
  auto folder = PartialFolder::lock(path);
  LMC_TRY(folder);
  return TokenFileWriter::create(std::move(*folder), options);
}

// Finishes the file, gives it its name and removes the folder.
Result<void> commit(TokenFileWriter &writer) {
  auto renames = writer.release();
  LMC_TRY(renames);
  LMC_TRY(publish(*renames));
  return removeTree(partialFolder(renames->back().to));
}

class TokenFileWriterTest : public DataTest {
protected:
  std::unique_ptr<TokenFileWriter> create(const std::string &name, uint32_t vocabulary,
                                          int32_t endOfDocument = -1) {
    auto writer = createAt(path(name), {vocabulary, endOfDocument});
    EXPECT_TRUE(writer) << writer.error().message;
    return std::move(*writer);
  }
  static void add(TokenFileWriter &writer, std::vector<uint32_t> ids) {
    auto added = writer.append(ids);
    EXPECT_TRUE(added) << added.error().message;
  }
};

TEST_F(TokenFileWriterTest, WritesTheBytesOfTheFormat) {
  for (auto [vocabulary, width] : {std::pair{256u, 1}, {257u, 2}, {65536u, 2}, {65537u, 4}}) {
    auto writer = create("a.bin", vocabulary, 0);
    add(*writer, {5, 0});
    writer->beginDocument();
    add(*writer, {7, 255});
    add(*writer, {9});
    EXPECT_EQ(writer->tokens(), 5u);
    EXPECT_EQ(writer->documents(), 2u);
    auto committed = commit(*writer);
    ASSERT_TRUE(committed) << committed.error().message;
    std::string expected = lmcBytes({5, 0, 7, 255, 9}, width, vocabulary, {0, 2});
    std::string hashed = expected.substr(64) + expected.substr(0, 40);
    expected.replace(40, 8, integers({XXH64(hashed.data(), hashed.size(), 0)}, 8));
    EXPECT_EQ(read(path("a.bin")), expected);
    auto file = TokenFile::open(path("a.bin"));
    ASSERT_TRUE(file);
    EXPECT_TRUE((*file)->verify(vocabulary));
  }
}

TEST_F(TokenFileWriterTest, VerifyFindsEveryFlippedBit) {
  auto writer = create("a.bin", 256);
  add(*writer, {1, 2, 3});
  ASSERT_TRUE(commit(*writer));
  const std::string good = read(path("a.bin"));
  for (size_t byte = 0; byte < good.size(); ++byte) {
    if (byte >= 48 && byte < 64)
      continue; // reserved, not looked at
    std::string bad = good;
    bad[byte] ^= 4;
    auto file = TokenFile::open(write("bad", bad));
    EXPECT_FALSE(file && (*file)->verify(0)) << byte;
  }
}

TEST_F(TokenFileWriterTest, KeepsNoEmptyDocuments) {
  auto writer = create("a.bin", 256);
  writer->beginDocument();
  add(*writer, {});
  writer->beginDocument();
  add(*writer, {1});
  writer->beginDocument();
  writer->beginDocument();
  add(*writer, {2});
  writer->beginDocument();
  ASSERT_TRUE(commit(*writer));
  auto file = TokenFile::open(path("a.bin"));
  ASSERT_TRUE(file);
  EXPECT_THAT(*(*file)->documentStarts(0, (*file)->documents()), ElementsAre(0, 1));
}

TEST_F(TokenFileWriterTest, LeavesTheOldFileUntilCommit) {
  write("a.bin", "old");
  {
    auto writer = create("a.bin", 256);
    add(*writer, {1});
    EXPECT_EQ(read(path("a.bin")), "old");
  }
  EXPECT_EQ(read(path("a.bin")), "old");
  auto empty = create("a.bin", 256);
  EXPECT_FALSE(commit(*empty));
  EXPECT_EQ(read(path("a.bin")), "old");
  EXPECT_EQ(filesInFolder(), 1u);
}

TEST_F(TokenFileWriterTest, RefusesWhatCannotBeWritten) {
  auto noFolder = createAt(path("none/a.bin"), {256, -1});
  ASSERT_FALSE(noFolder);
  EXPECT_EQ(noFolder.error().message,
            path("none/a.bin") + ": cannot create: No such file or directory");
  auto device = createAt("/dev/null", {256, -1});
  ASSERT_FALSE(device);
  EXPECT_THAT(device.error().message, HasSubstr("not a regular file"));
  auto writer = create("a.bin", 256);
  add(*writer, {1, 2});
  std::vector<uint32_t> ids{3, 256};
  auto beyond = writer->append(ids);
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message, HasSubstr("token 3 is id 256, beyond the vocabulary of 256"));
}

TEST_F(TokenFileWriterTest, WritesMegatronsFormat) {
  for (auto [vocabulary, width, code] :
       {std::tuple{65499u, 2, kUInt16}, {65500u, 4, kInt32}, {200000u, 4, kInt32}}) {
    auto created = createAt(path("m.bin"), {vocabulary, 0, true});
    ASSERT_TRUE(created) << created.error().message;
    TokenFileWriter &writer = **created;
    add(writer, {5, 6, 0});
    writer.beginDocument();
    add(writer, {7});
    writer.beginDocument();
    add(writer, {vocabulary - 1, 0});
    ASSERT_TRUE(commit(writer));
    EXPECT_EQ(read(path("m.bin")), integers({5, 6, 0, 7, vocabulary - 1, 0}, width));
    EXPECT_EQ(read(path("m.idx")), megatronIndexBytes(code, width, {3, 1, 2}, {0, 1, 2, 3}));
    auto file = TokenFile::open(path("m.bin"));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->format(), TokenFormat::Megatron);
    EXPECT_TRUE((*file)->verify(vocabulary));
    EXPECT_EQ(filesInFolder(), 2u);
  }
  auto unnamed = createAt(path("m.tokens"), {256, 0, true});
  ASSERT_FALSE(unnamed);
  EXPECT_THAT(unnamed.error().message, HasSubstr("m.tokens: the name of a Megatron data set must"));
  EXPECT_EQ(filesInFolder(), 2u);
}

// What an interrupted process leaves: the folder as it was after save() and some more tokens.
TEST_F(TokenFileWriterTest, GoesOnAfterWhatWasSaved) {
  const auto write = [&](bool megatron, bool interrupted) {
    const TokenFileWriter::Options options{256, 0, megatron};
    auto writer = createAt(path("a.bin"), options);
    EXPECT_TRUE(writer);
    for (uint32_t document = 0; document < 50; ++document) {
      (*writer)->beginDocument();
      add(**writer, std::vector<uint32_t>(1 + 7 * document, document));
      if (!interrupted || document != 30)
        continue;
      auto saved = (*writer)->save();
      EXPECT_TRUE(saved);
      (*writer)->beginDocument();
      add(**writer, {1, 2, 3});
      EXPECT_TRUE((*writer)->save());
      writer->reset();
      writer = TokenFileWriter::create(*PartialFolder::lock(path("a.bin")), options, &*saved);
      EXPECT_TRUE(writer) << writer.error().message;
      EXPECT_EQ((*writer)->documents(), 31u);
    }
    EXPECT_TRUE(commit(**writer));
    writer->reset();
    EXPECT_EQ(filesInFolder(), megatron ? 2u : 1u);
    return read(path("a.bin")) + (megatron ? read(path("a.idx")) : "");
  };
  for (bool megatron : {false, true})
    EXPECT_EQ(write(megatron, true), write(megatron, false));
}

TEST_F(TokenFileWriterTest, RefusesToGoOnWithLessThanWasSaved) {
  auto writer = create("a.bin", 256);
  add(*writer, {1, 2, 3});
  auto saved = writer->save();
  ASSERT_TRUE(saved);
  writer.reset();
  std::filesystem::resize_file(path("a.bin.partial/tokens"), 66);
  auto resumed = TokenFileWriter::create(*PartialFolder::lock(path("a.bin")), {256}, &*saved);
  ASSERT_FALSE(resumed);
  EXPECT_THAT(resumed.error().message, HasSubstr("a.bin.partial: has less than was saved"));
}

// The folder of an unfinished file is emptied, so it must be the writer's own.
TEST_F(TokenFileWriterTest, EmptiesNoFolderOfOthers) {
  std::filesystem::create_directory(path("thesis"));
  write("thesis/chapter", "text");
  std::filesystem::create_directory_symlink(path("thesis"), path("a.bin.partial"));
  EXPECT_FALSE(createAt(path("a.bin"), {256}));
  std::filesystem::remove(path("a.bin.partial"));
  std::filesystem::rename(path("thesis"), path("a.bin.partial"));
  auto writer = createAt(path("a.bin"), {256});
  ASSERT_FALSE(writer);
  EXPECT_THAT(writer.error().message, HasSubstr("holds 'chapter'"));
  EXPECT_EQ(read(path("a.bin.partial/chapter")), "text");
}

TEST_F(TokenFileWriterTest, RefusesAnIndexThatIsNoFile) {
  std::filesystem::create_directory(path("a.idx"));
  auto writer = createAt(path("a.bin"), {256, 0, true});
  ASSERT_FALSE(writer);
  EXPECT_THAT(writer.error().message, HasSubstr("a.idx: not a regular file"));
}

TEST_F(TokenFileWriterTest, KeepsTheBytesOfTokens) {
  std::vector<uint16_t> bytes(300, 1);
  bytes[299] = kUnknownBytes;
  auto writer = createAt(path("a.bin"), {300, -1, false, bytes});
  ASSERT_TRUE(writer);
  add(**writer, {1, 299});
  ASSERT_TRUE(commit(**writer));
  auto file = TokenFile::open(path("a.bin"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE((*file)->verify(300));
  auto read = (*file)->bytesOfTokens();
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, bytes);
}

TEST_F(TokenFileWriterTest, NamesTheTokenizerUnderTheChecksum) {
  const std::vector<uint16_t> bytes(256, 1);
  auto writer = createAt(path("a.bin"), {256, -1, false, bytes, 0x123456789abcdef});
  ASSERT_TRUE(writer);
  add(**writer, {1, 2, 3});
  ASSERT_TRUE(commit(**writer));
  const std::string good = read(path("a.bin"));
  std::string expected =
      lmcBytes({1, 2, 3}, 1, 256, {0}, -1) + integers({bytes.begin(), bytes.end()}, 2);
  expected[8] = 3;
  expected.replace(48, 8, integers({0x123456789abcdef}, 8));
  const std::string hashed = expected.substr(64) + expected.substr(0, 40) + expected.substr(48, 16);
  expected.replace(40, 8, integers({XXH64(hashed.data(), hashed.size(), 0)}, 8));
  EXPECT_EQ(good, expected);
  auto file = TokenFile::open(path("a.bin"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->tokenizer(), 0x123456789abcdefu);
  EXPECT_TRUE((*file)->verify(0));
  for (size_t byte = 0; byte < good.size(); ++byte) {
    std::string bad = good;
    bad[byte] ^= 4;
    auto opened = TokenFile::open(write("bad", bad));
    EXPECT_FALSE(opened && (*opened)->verify(0)) << byte;
  }
  // A file of version 2 has no such field.
  std::string old = expected;
  old[8] = 2;
  EXPECT_EQ((*TokenFile::open(write("old", old)))->tokenizer(), 0u);
}

TEST_F(TokenFileWriterTest, LetsNoTwoWriteOneFile) {
  auto writer = create("a.bin", 256);
  auto second = createAt(path("a.bin"), {256});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, path("a.bin") + ": another lmc-data writes it");
  add(*writer, {1});
  ASSERT_TRUE(commit(*writer));
}

// A file size limit fails a write in the middle, as a full disk does.
TEST_F(TokenFileWriterTest, AFailedWriteLeavesNothingBehind) {
  write("a.bin", "old");
  rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  rlimit small{1500000, limit.rlim_max};
  auto oldHandler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  auto writer = create("a.bin", 256);
  std::vector<uint32_t> ids(1 << 20, 7);
  bool failed = false;
  for (int i = 0; i < 3 && !failed; ++i)
    if (auto added = writer->append(ids); !added) {
      failed = true;
      EXPECT_EQ(added.error().code, ExitCode::Failure);
      EXPECT_EQ(added.error().message, path("a.bin") + ": cannot write: File too large; 1500000 "
                                                       "bytes were written and have been removed");
    }
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, oldHandler);
  EXPECT_TRUE(failed);
  EXPECT_EQ(read(path("a.bin")), "old");
  EXPECT_EQ(filesInFolder(), 1u);
}

} // namespace
