#include "runtime/data/DataSource.h"
#include "runtime/data/Permutation.h"

#include "test/Draws.h"
#include "test/runtime/data/TokenFiles.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>

using namespace lmc;
using namespace lmc::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

namespace {

class DataSourceTest : public DataTest {
protected:
  DataOptions options(std::vector<std::string> paths, uint64_t sequenceLength) {
    DataOptions result;
    result.sources = {{.name = "", .key = "data.train", .paths = std::move(paths)}};
    result.baseDirectory = folder.string();
    result.key = "data.train";
    result.sequenceLength = sequenceLength;
    result.vocabSize = 65536;
    result.seed = 5;
    return result;
  }

  // A file whose token at position p is first + p.
  void counting(const std::string &name, uint64_t first, uint64_t count) {
    std::vector<uint64_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    write(name, nanoGptBytes(tokens));
  }

  static std::unique_ptr<DataSource> open(const DataOptions &options) {
    auto source = DataSource::open(options);
    EXPECT_TRUE(source) << source.error().message;
    return source ? std::move(*source) : nullptr;
  }

  static std::string refusal(const DataOptions &options) {
    auto source = DataSource::open(options);
    EXPECT_FALSE(source);
    return source ? "" : source.error().message;
  }

  struct Rows {
    std::vector<int32_t> tokens, targets;
    bool operator==(const Rows &) const = default;
  };
  // Rows [first, first + count) of the stream.
  static Rows fill(const DataSource &source, uint64_t first, uint64_t count) {
    Rows rows;
    rows.tokens.resize(count * source.sequenceLength());
    rows.targets.resize(rows.tokens.size());
    auto filled = source.fill(first * source.sequenceLength(), count, rows.tokens.data(),
                              rows.targets.data());
    EXPECT_TRUE(filled) << filled.error().message;
    return rows;
  }

  // Batches [first, last) of a loader, joined.
  static Rows load(const DataSource &source, uint64_t samples, uint64_t first, uint64_t last,
                   int workers) {
    BatchLoader loader(source, {samples, samples}, first * samples * source.sequenceLength(), workers);
    Rows rows;
    for (uint64_t batch = first; batch < last; ++batch) {
      auto next = loader.next();
      EXPECT_TRUE(next) << next.error().message;
      if (!next)
        break;
      EXPECT_EQ(next->validTargets, samples * source.sequenceLength());
      rows.tokens.insert(rows.tokens.end(), next->tokens.begin(), next->tokens.end());
      rows.targets.insert(rows.targets.end(), next->targets.begin(), next->targets.end());
    }
    return rows;
  }
};

TEST_F(DataSourceTest, ReadsInFileOrderWithoutShuffling) {
  counting("a.bin", 100, 8); // (8 - 1) / 3 = 2 windows; token 107 is left over
  counting("b.bin", 200, 4); // 1 window
  DataOptions wanted = options({"a.bin", "b.bin"}, 3);
  wanted.shuffle = false;
  auto source = open(wanted);
  ASSERT_TRUE(source);
  EXPECT_EQ(source->samplesPerEpoch(), 3u);
  EXPECT_EQ(source->sources()[0].tokens, 12u);
  Rows rows = fill(*source, 0, 4);
  EXPECT_THAT(rows.tokens, ElementsAre(100, 101, 102, 103, 104, 105, 200, 201, 202, 100, 101, 102));
  EXPECT_THAT(rows.targets,
              ElementsAre(101, 102, 103, 104, 105, 106, 201, 202, 203, 101, 102, 103));
  EXPECT_EQ(source->locate(3), (std::pair<std::string, uint64_t>{path("a.bin"), 3}));
  EXPECT_EQ(source->locate(6), (std::pair<std::string, uint64_t>{path("b.bin"), 0}));
}

TEST_F(DataSourceTest, EveryTokenIsATargetOnceInAnEpoch) {
  counting("a.bin", 0, 501);
  counting("b.bin", 1000, 1);  // no sample
  counting("c.bin", 2000, 11); // 1 sample and no rest
  counting("d.bin", 3000, 260);
  auto source = open(options({"a.bin", "b.bin", "c.bin", "d.bin"}, 10));
  ASSERT_TRUE(source);
  ASSERT_EQ(source->samplesPerEpoch(), 50u + 0 + 1 + 25);
  std::vector<Rows> epochs;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    Rows rows = fill(*source, epoch * 76, 76);
    std::multiset<int32_t> targets(rows.targets.begin(), rows.targets.end()), expected;
    for (auto [begin, end] : {std::pair{1, 501}, {2001, 2011}, {3001, 3251}})
      for (int token = begin; token < end; ++token)
        expected.insert(token);
    EXPECT_EQ(targets, expected);
    for (size_t i = 0; i < rows.tokens.size(); ++i)
      ASSERT_EQ(rows.targets[i], rows.tokens[i] + 1);
    epochs.push_back(rows);
  }
  EXPECT_FALSE(epochs[0] == epochs[1]);
  EXPECT_FALSE(epochs[1] == epochs[2]);
}

TEST_F(DataSourceTest, TheOrderDependsOnTheSeed) {
  counting("a.bin", 0, 1001);
  DataOptions wanted = options({"a.bin"}, 10);
  auto one = open(wanted), same = open(wanted);
  wanted.seed = 6;
  auto other = open(wanted);
  EXPECT_TRUE(fill(*one, 0, 100) == fill(*same, 0, 100));
  EXPECT_FALSE(fill(*one, 0, 100) == fill(*other, 0, 100));
}

TEST_F(DataSourceTest, LocateNamesTheWindowThatFillReads) {
  counting("a.bin", 0, 95);
  counting("b.bin", 10000, 333);
  auto source = open(options({"*.bin"}, 7));
  for (uint64_t index = 0; index < 3 * source->samplesPerEpoch(); ++index) {
    auto [file, position] = source->locate(index * 7);
    uint64_t base = file == path("a.bin") ? 0 : 10000;
    EXPECT_EQ(uint64_t(fill(*source, index, 1).tokens[0]), base + position);
  }
}

TEST_F(DataSourceTest, SamplesDoNotDependOnHowTheyAreAskedFor) {
  counting("a.bin", 0, 1000);
  auto source = open(options({"a.bin"}, 8)); // 124 samples: the range below spans epochs
  const Rows whole = fill(*source, 0, 240);
  for (uint64_t samples : {1, 2, 5, 24, 240})
    for (int workers : {0, 1, 2, 7})
      EXPECT_TRUE(load(*source, samples, 0, 240 / samples, workers) == whole)
          << samples << " samples, " << workers << " workers";
  for (uint64_t index = 240; index-- > 0;) {
    Rows row = fill(*source, index, 1);
    EXPECT_TRUE(std::equal(row.tokens.begin(), row.tokens.end(), whole.tokens.begin() + index * 8));
  }
}

TEST_F(DataSourceTest, ManyThreadsReadTheSameSamples) {
  counting("a.bin", 0, 2000);
  auto source = open(options({"a.bin"}, 8));
  const Rows whole = fill(*source, 0, 500);
  std::vector<Rows> read(4);
  std::vector<std::thread> threads;
  for (Rows &rows : read)
    threads.emplace_back([&] { rows = fill(*source, 0, 500); });
  for (std::thread &thread : threads)
    thread.join();
  for (const Rows &rows : read)
    EXPECT_TRUE(rows == whole);
}

TEST_F(DataSourceTest, ResumingIsContinuing) {
  counting("a.bin", 0, 1000);
  auto source = open(options({"a.bin"}, 8));
  Rows whole = load(*source, 4, 0, 50, 2);
  Rows before = load(*source, 4, 0, 17, 2);
  // 33 batches of 4 go on as 66 batches of 2.
  Rows after = load(*source, 2, 34, 100, 3);
  before.tokens.insert(before.tokens.end(), after.tokens.begin(), after.tokens.end());
  before.targets.insert(before.targets.end(), after.targets.begin(), after.targets.end());
  EXPECT_TRUE(before == whole);
}

TEST_F(DataSourceTest, ALoaderIsDroppedInTheMiddle) {
  counting("a.bin", 0, 1000);
  auto source = open(options({"a.bin"}, 8));
  for (int i = 0; i < 50; ++i) {
    BatchLoader loader(*source, {3, 3}, 24 * i, 4);
    if (i % 2) {
      EXPECT_TRUE(loader.next());
    }
  }
}

TEST_F(DataSourceTest, NamesFileAndPositionOfATokenBeyondTheVocabulary) {
  for (uint64_t position : {0, 5, 6, 9}) { // window starts and ends, and the last target
    std::vector<uint64_t> tokens(10, 7);
    tokens[position] = 50000;
    write("a.bin", nanoGptBytes(tokens));
    DataOptions wanted = options({"a.bin"}, 3);
    wanted.vocabSize = 50000;
    wanted.shuffle = false;
    auto source = open(wanted);
    std::vector<int32_t> out(9), targets(9);
    auto filled = source->fill(0, 3, out.data(), targets.data());
    ASSERT_FALSE(filled) << position;
    EXPECT_EQ(filled.error().code, ExitCode::UserError);
    EXPECT_THAT(filled.error().message,
                HasSubstr("data.train: " + path("a.bin") + ": token " + std::to_string(position) +
                          " is id 50000, beyond the vocabulary of 50000 (model.vocab_size)"));
  }
}

TEST_F(DataSourceTest, NamesAFileThatIsCutShortWhileItIsRead) {
  for (bool table : {false, true}) {
    std::vector<uint64_t> tokens(9000, 7);
    write("a.bin", table ? lmcBytes(tokens, 2, 10, {0, 50}) : nanoGptBytes(tokens));
    DataOptions wanted = options({"a.bin"}, 100);
    wanted.vocabSize = 10;
    wanted.shuffle = false;
    wanted.documentMask = table;
    auto source = open(wanted);
    std::vector<int32_t> out(100), targets(100), starts(100);
    ASSERT_TRUE(source->fill(0, 1, out.data(), targets.data(), starts.data()));
    std::filesystem::resize_file(path("a.bin"), 5000); // a mapped page behind it would be SIGBUS
    auto filled = source->fill(8000, 1, out.data(), targets.data(), starts.data());
    ASSERT_FALSE(filled);
    EXPECT_THAT(filled.error().message,
                HasSubstr("data.train: " + path("a.bin") + ": has 5000 bytes, but had "));
    if (table) { // the table of documents is behind the tokens
      EXPECT_FALSE(source->fill(0, 1, out.data(), targets.data(), starts.data()));
    }
  }
}

TEST_F(DataSourceTest, RefusesAFileOfALargerVocabulary) {
  write("a.bin", lmcBytes({1, 2, 3, 4, 5}, 1, 11, {0}));
  DataOptions wanted = options({"a.bin"}, 2);
  wanted.vocabSize = 10;
  EXPECT_EQ(refusal(wanted), "data.train: " + path("a.bin") +
                                 " was made for a vocabulary of 11 tokens, beyond the 10 of the "
                                 "model (model.vocab_size); is this file of another tokenizer?");
  wanted.vocabSize = 11;
  open(wanted);
}

TEST_F(DataSourceTest, RefusesABareFileThatCannotHoldTheVocabulary) {
  counting("a.bin", 0, 20);
  DataOptions wanted = options({"a.bin"}, 3);
  wanted.vocabSize = 65537;
  const std::string cannot =
      path("a.bin") + " has uint16 tokens, which cannot hold every id of a vocabulary of 65537 "
                      "(model.vocab_size); ";
  EXPECT_EQ(refusal(wanted), "data.train: " + cannot +
                                 "without a header it may be of another type: set data.format to "
                                 "uint16 or uint32");
  wanted.format = DataFormat::UInt16;
  EXPECT_EQ(open(wanted)->sources()[0].tokens, 20u);
  wanted.format = DataFormat::UInt32;
  EXPECT_EQ(open(wanted)->sources()[0].tokens, 10u);
  wanted.format = DataFormat::Auto;
  write("a.bin", llmCBytes(20240520, 1, {1, 2, 3, 4, 5}, 2));
  EXPECT_THAT(open(wanted)->warnings(), ElementsAre(cannot + "is this file of another tokenizer?"));
  wanted.vocabSize = 65536;
  EXPECT_THAT(open(wanted)->warnings(), IsEmpty());
}

TEST_F(DataSourceTest, WarnsOfFilesOfDifferentTokenizers) {
  write("a.bin", lmcBytes({1, 2, 3, 4, 5}, 1, 11, {0}));
  write("b.bin", llmCBytes(20240520, 1, {1, 2, 3, 4, 5}, 2));
  write("c.bin", lmcBytes({5, 4, 3, 2, 1}, 1, 11, {0}));
  EXPECT_THAT(open(options({"*.bin"}, 4))->warnings(), IsEmpty());
  write("c.bin", lmcBytes({5, 4, 3, 2, 1}, 1, 12, {0}));
  EXPECT_THAT(open(options({"*.bin"}, 4))->warnings(),
              ElementsAre(path("a.bin") + " (vocabulary 11) and " + path("c.bin") +
                          " (vocabulary 12) seem to be of different tokenizers"));
  write("c.bin", llmCBytes(20240801, 7, {1, 2, 3, 4, 5}, 4));
  EXPECT_THAT(open(options({"*.bin"}, 4))->warnings(),
              ElementsAre(path("b.bin") + " (uint16) and " + path("c.bin") +
                          " (uint32) seem to be of different tokenizers"));
}

TEST_F(DataSourceTest, WarnsOfTokenizersWithVocabulariesOfOneSize) {
  const auto writeFile = [&](const std::string &name, uint64_t tokenizer) {
    std::string bytes = lmcBytes({1, 2, 3, name.front() % 10u, 5}, 1, 11, {0}) +
                        integers(std::vector<uint64_t>(11, 1), 2);
    bytes[8] = 3;
    write(name, bytes.replace(48, 8, integers({tokenizer}, 8)));
  };
  writeFile("a.bin", 0); // not known
  writeFile("b.bin", 7);
  writeFile("c.bin", 7);
  EXPECT_THAT(open(options({"*.bin"}, 4))->warnings(), IsEmpty());
  writeFile("c.bin", 8);
  EXPECT_THAT(open(options({"*.bin"}, 4))->warnings(),
              ElementsAre(path("b.bin") + " and " + path("c.bin") +
                          " were made by different tokenizers, so that an id means another text in "
                          "each; pack both with one --tokenizer"));
}

TEST_F(DataSourceTest, RefusesIdsThatAreNegativeAsInt32) {
  write("a.bin", llmCBytes(20240801, 7, {1, 2, 0xffffffff, 4}, 4));
  auto source = open(options({"a.bin"}, 3));
  std::vector<int32_t> out(3), targets(3);
  auto filled = source->fill(0, 1, out.data(), targets.data());
  ASSERT_FALSE(filled);
  EXPECT_THAT(filled.error().message, HasSubstr("token 2 is id 4294967295"));
}

TEST_F(DataSourceTest, AnErrorComesInThePlaceOfItsBatch) {
  std::vector<uint64_t> tokens(101, 7);
  tokens[55] = 9; // samples of 10: in sample 5
  write("a.bin", nanoGptBytes(tokens));
  DataOptions wanted = options({"a.bin"}, 10);
  wanted.vocabSize = 9;
  wanted.shuffle = false;
  auto source = open(wanted);
  for (int workers : {0, 1, 4}) {
    BatchLoader loader(*source, {1, 1}, 0, workers);
    for (int batch = 0; batch < 5; ++batch)
      EXPECT_TRUE(loader.next());
    for (int again = 0; again < 3; ++again) {
      auto next = loader.next();
      ASSERT_FALSE(next);
      EXPECT_THAT(next.error().message, HasSubstr("token 55 is id 9"));
    }
  }
}

TEST_F(DataSourceTest, GlobsExpandInTheOrderOfTheirBytes) {
  for (const char *name : {"b.bin", "a.bin", "B.bin", "a10.bin", "other.txt"})
    counting(name, 0, 5);
  DataOptions wanted = options({"*.bin"}, 4);
  wanted.shuffle = false;
  auto source = open(wanted);
  std::vector<std::string> order;
  for (uint64_t i = 0; i < source->samplesPerEpoch(); ++i)
    order.push_back(std::filesystem::path(source->locate(4 * i).first).filename());
  EXPECT_THAT(order, ElementsAre("B.bin", "a.bin", "a10.bin", "b.bin"));
}

TEST_F(DataSourceTest, TakesAbsolutePathsAndNamesWithBrackets) {
  counting("a[1].bin", 0, 5);
  DataOptions wanted = options({path("a[1].bin")}, 4);
  wanted.baseDirectory = "/nowhere";
  EXPECT_TRUE(open(wanted));
}

TEST_F(DataSourceTest, RefusesAFileThatIsGivenTwice) {
  counting("a.bin", 0, 20);
  counting("b.bin", 100, 20);
  std::filesystem::create_symlink("a.bin", path("c.bin"));
  std::filesystem::create_hard_link(path("a.bin"), path("d.bin"));
  for (const std::string &again : {path("a.bin"), std::string("c.bin"), std::string("d.bin")}) {
    DataOptions wanted = options({"[ab].bin", again}, 4);
    EXPECT_EQ(refusal(wanted), "data.train: " + path("a.bin") + " and " + path("") +
                                   std::filesystem::path(again).filename().string() +
                                   " are the same file, so an epoch would read its tokens twice; "
                                   "give it once, or set data.allow_repeats = true");
    wanted.allowRepeats = true;
    EXPECT_EQ(open(wanted)->sources()[0].tokens, 60u);
  }
}

TEST_F(DataSourceTest, WarnsOfACopy) {
  counting("a.bin", 0, 20);
  counting("b.bin", 100, 20);
  std::filesystem::copy_file(path("a.bin"), path("c.bin"));
  DataOptions wanted = options({"*.bin"}, 4);
  EXPECT_THAT(open(wanted)->warnings(),
              ElementsAre(path("a.bin") + " and " + path("c.bin") +
                          " have the same tokens, which an epoch reads twice"));
  wanted.allowRepeats = true;
  EXPECT_THAT(open(wanted)->warnings(), IsEmpty());
}

TEST_F(DataSourceTest, RefusesWhatGivesNoSample) {
  EXPECT_THAT(refusal(options({}, 4)), HasSubstr("data.train: no token files are given"));
  EXPECT_EQ(refusal(options({"none.bin"}, 4)),
            "data.train: " + path("none.bin") + ": missing: no such token file");
  EXPECT_EQ(refusal(options({"none*.bin"}, 4)),
            "data.train: no file matches '" + path("none*.bin") + "'");
  counting("a.bin", 0, 4);
  EXPECT_THAT(
      refusal(options({"a.bin"}, 4)),
      HasSubstr(
          "a.bin has 4 tokens, too few for one sample of 5 (training.sequence_length 4 + 1)"));
  EXPECT_TRUE(open(options({"a.bin"}, 3)));
}

// Rows of `starts` of samples [first, first + count).
std::vector<int32_t> startsOf(const DataSource &source, uint64_t first, uint64_t count) {
  std::vector<int32_t> tokens(count * source.sequenceLength()), targets(tokens.size()),
      starts(tokens.size());
  auto filled = source.fill(first * source.sequenceLength(), count, tokens.data(), targets.data(),
                            starts.data());
  EXPECT_TRUE(filled) << filled.error().message;
  return starts;
}

// Documents are tokens 0-3, 4, 5-12 and 13-18 (the end belongs to what it ends).
TEST_F(DataSourceTest, GivesWhereDocumentsStart) {
  const std::vector<uint64_t> tokens = {1, 2, 3, 0, 0, 4, 5, 6, 7, 8, 9, 1, 0, 2, 3, 4, 5, 6, 7};
  write("table.bin", lmcBytes(tokens, 1, 10, {0, 4, 5, 13}));
  write("ids.bin", nanoGptBytes(tokens));
  for (const char *name : {"table.bin", "ids.bin"}) {
    DataOptions wanted = options({name}, 6);
    wanted.shuffle = false;
    wanted.documentMask = true;
    wanted.endOfDocument = 0;
    auto source = open(wanted);
    ASSERT_TRUE(source);
    EXPECT_TRUE(source->hasDocumentMask());
    EXPECT_THAT(startsOf(*source, 0, 3),
                ElementsAre(0, 0, 0, 0, 4, 5, /**/ 0, 0, 0, 0, 0, 0, /**/ 0, 1, 1, 1, 1, 1))
        << name;
    EXPECT_THAT(fill(*source, 0, 1).targets, ElementsAre(2, 3, 0, 0, 4, 5)) << "also behind an end";
  }
}

// Documents as above: 1 2 3 0 | 0 | 4 5 6 7 8 9 1 0 | 2 3 4 5 6 7.
TEST_F(DataSourceTest, WithALossMaskLastTokensHaveNoTarget) {
  const std::vector<uint64_t> tokens = {1, 2, 3, 0, 0, 4, 5, 6, 7, 8, 9, 1, 0, 2, 3, 4, 5, 6, 7};
  write("table.bin", lmcBytes(tokens, 1, 10, {0, 4, 5, 13}));
  write("ids.bin", nanoGptBytes(tokens));
  const int32_t none = kIgnoredTarget;
  for (const char *name : {"table.bin", "ids.bin"}) {
    DataOptions wanted = options({name}, 6);
    wanted.shuffle = false;
    wanted.documentLossMask = true;
    wanted.endOfDocument = 0;
    auto source = open(wanted);
    ASSERT_TRUE(source);
    EXPECT_FALSE(source->hasDocumentMask());
    EXPECT_THAT(fill(*source, 0, 3).targets, ElementsAre(2, 3, 0, none, none, 5, /**/ 6, 7, 8, 9, 1,
                                                         0, /**/ none, 3, 4, 5, 6, 7))
        << name;
    // Also where the document ends with the row.
    wanted.sequenceLength = wanted.shuffleBlock = 4;
    auto shorter = open(wanted);
    ASSERT_TRUE(shorter);
    EXPECT_THAT(fill(*shorter, 0, 1).targets, ElementsAre(2, 3, 0, none)) << name;
    EXPECT_THAT(fill(*shorter, 1, 1).targets, ElementsAre(none, 5, 6, 7)) << name;
    wanted.documentLossMask = false;
    EXPECT_THAT(fill(*open(wanted), 0, 1).targets, ElementsAre(2, 3, 0, 0)) << name;
  }
}

TEST_F(DataSourceTest, ALossMaskMasksTheEndsOfTheWholeFile) {
  std::mt19937 random(9);
  std::vector<uint64_t> tokens(5000), table = {0};
  std::set<uint64_t> lasts;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] = 1 + random() % 16; random() % 9 == 0 && i + 1 < tokens.size()) {
      table.push_back(i + 1);
      lasts.insert(i);
    }
  write("a.bin", lmcBytes(tokens, 2, 17, table));
  DataOptions wanted = options({"a.bin"}, 37);
  wanted.documentLossMask = true;
  auto source = open(wanted);
  ASSERT_TRUE(source);
  for (uint64_t index = 0; index < source->samplesPerEpoch(); ++index) {
    const uint64_t begin = source->locate(37 * index).second;
    std::vector<int32_t> expected;
    for (uint64_t t = begin; t < begin + 37; ++t)
      expected.push_back(lasts.contains(t) ? kIgnoredTarget : int32_t(tokens[t + 1]));
    ASSERT_EQ(fill(*source, index, 1).targets, expected) << "at " << begin;
  }
}

TEST_F(DataSourceTest, ALossMaskNeedsDocumentsAndNamesItself) {
  counting("a.bin", 0, 20);
  DataOptions wanted = options({"a.bin"}, 4);
  wanted.documentLossMask = true;
  wanted.documentKey = "training.document_loss_mask";
  EXPECT_THAT(refusal(wanted), HasSubstr("which training.document_loss_mask needs"));
}

// A table needs no end-of-document tokens, and what is no document's end is not one.
TEST_F(DataSourceTest, ATableOfDocumentsGoesBeforeTheId) {
  write("a.bin", lmcBytes({1, 0, 2, 3, 4, 5, 6}, 1, 10, {0, 3}, uint32_t(-1)));
  DataOptions wanted = options({"a.bin"}, 6);
  wanted.documentMask = true;
  auto source = open(wanted);
  ASSERT_TRUE(source);
  EXPECT_THAT(startsOf(*source, 0, 1), ElementsAre(0, 0, 0, 3, 3, 3));
}

TEST_F(DataSourceTest, StartsAreThoseOfTheWholeFile) {
  std::mt19937 random(8);
  std::vector<uint64_t> tokens(5000), table = {0};
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = random() % 17;
    if (tokens[i] == 0 && i + 1 < tokens.size())
      table.push_back(i + 1);
  }
  write("table.bin", lmcBytes(tokens, 2, 17, table));
  write("ids.bin", nanoGptBytes(tokens));
  for (const char *name : {"table.bin", "ids.bin"}) {
    DataOptions wanted = options({name}, 37);
    wanted.documentMask = true;
    wanted.endOfDocument = 0;
    auto source = open(wanted);
    ASSERT_TRUE(source);
    for (uint64_t index = 0; index < source->samplesPerEpoch(); ++index) {
      uint64_t begin = source->locate(37 * index).second;
      std::vector<int32_t> starts = startsOf(*source, index, 1), expected;
      for (uint64_t t = 0; t < 37; ++t) {
        uint64_t document = *(std::upper_bound(table.begin(), table.end(), begin + t) - 1);
        expected.push_back(document > begin ? int32_t(document - begin) : 0);
      }
      ASSERT_EQ(starts, expected) << name << " at " << begin;
    }
  }
}

TEST_F(DataSourceTest, LoadersGiveStartsToo) {
  write("a.bin", lmcBytes({1, 0, 2, 3, 4, 0, 6, 7, 8}, 1, 10, {0, 2, 6}));
  DataOptions wanted = options({"a.bin"}, 4);
  wanted.documentMask = true;
  auto masked = open(wanted);
  wanted.documentMask = false;
  auto plain = open(wanted);
  for (int workers : {0, 2}) {
    EXPECT_EQ(BatchLoader(*masked, {2, 2}, 8, workers).next()->starts, startsOf(*masked, 2, 2));
    EXPECT_TRUE(BatchLoader(*plain, {2, 2}, 8, workers).next()->starts.empty());
  }
}

TEST_F(DataSourceTest, RefusesFilesThatDoNotTellDocumentsApart) {
  counting("a.bin", 0, 20);
  write("b.bin", llmCBytes(20240520, 1, {1, 2, 3, 4, 5}, 2));
  for (const char *name : {"a.bin", "b.bin"}) {
    DataOptions wanted = options({name}, 4);
    wanted.documentMask = true;
    EXPECT_EQ(refusal(wanted), "data.train: " + path(name) +
                                   " does not say where its documents end, which "
                                   "training.document_mask needs; give the id of its "
                                   "end-of-document token (data.end_of_document), or make the "
                                   "file with: lmc-data pack");
    wanted.endOfDocument = 65536;
    EXPECT_EQ(refusal(wanted),
              "data.train: data.end_of_document is 65536, beyond the vocabulary of 65536 "
              "(model.vocab_size)");
    wanted.endOfDocument = 3;
    EXPECT_TRUE(open(wanted));
  }
}

TEST_F(DataSourceTest, WarnsOfFilesThatAreTooShort) {
  counting("a.bin", 0, 8);
  counting("b.bin", 0, 9);
  counting("c.bin", 0, 3);
  EXPECT_THAT(open(options({"b.bin"}, 8))->warnings(), IsEmpty());
  EXPECT_THAT(open(options({"*.bin"}, 8))->warnings(),
              ElementsAre("2 of 3 files are not read, because they have fewer than 9 tokens "
                          "(training.sequence_length + 1); the first is " +
                          path("a.bin")));
}

TEST_F(DataSourceTest, WarnsOfAnEndOfDocumentThatIsNowhere) {
  std::vector<uint64_t> tokens(300000, 7); // more than the sample has
  DataOptions wanted = options({"a.bin"}, 100);
  wanted.documentMask = true;
  wanted.endOfDocument = 3;
  for (int width : {2, 4}) {
    auto warnings = [&] {
      write("a.bin",
            llmCBytes(width == 2 ? 20240520 : 20240801, width == 2 ? 1 : 7, tokens, width));
      return open(wanted)->warnings();
    };
    tokens.back() = 7;
    EXPECT_THAT(warnings(),
                ElementsAre(path("a.bin") + ": no token of a sample of it is 3 "
                                            "(data.end_of_document); if this is the wrong id, "
                                            "training.document_mask has no effect on this file"));
    tokens.back() = 3;
    EXPECT_THAT(warnings(), IsEmpty());
    // The bytes of 3, but in two tokens.
    tokens[tokens.size() - 2] = 0x0300;
    tokens.back() = 0x0700;
    EXPECT_THAT(warnings(), SizeIs(1));
    tokens[tokens.size() - 2] = 7;
  }
}

TEST_F(DataSourceTest, NamesADamagedTableOfDocuments) {
  write("a.bin", lmcBytes({1, 2, 3, 4, 5, 6, 7, 8, 9}, 1, 10, {0, 5, 3, 7}));
  DataOptions wanted = options({"a.bin"}, 8);
  wanted.documentMask = true;
  auto source = open(wanted);
  ASSERT_TRUE(source);
  std::vector<int32_t> tokens(8), targets(8), starts(8);
  auto filled = source->fill(0, 1, tokens.data(), targets.data(), starts.data());
  ASSERT_FALSE(filled);
  EXPECT_EQ(filled.error().message, "data.train: " + path("a.bin") +
                                        ": document 2 starts at token 3, before the one that it "
                                        "follows; the file is damaged, pack or copy it again");
}

// The order of windows that a release before blocks of tokens read, so that its runs go on.
TEST_F(DataSourceTest, ABlockOfOneRowIsTheOrderOfWindows) {
  counting("a.bin", 0, 95);
  counting("b.bin", 1000, 333);
  auto source = open(options({"a.bin", "b.bin"}, 7));
  ASSERT_EQ(source->samplesPerEpoch(), 60u);
  // First tokens of windows in two epochs, computed with an implementation of Permutation.h's
  // method in another language.
  const std::pair<uint64_t, std::vector<int32_t>> epochs[] = {
      {0, {1315, 84, 1105, 1140, 1168, 14}}, {60, {1056, 0, 1126, 1070, 35, 1133}}};
  for (const auto &[first, expected] : epochs)
    for (uint64_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(fill(*source, first + i, 1).tokens[0], expected[i]) << first + i;
}

TEST_F(DataSourceTest, RefusesALengthThatDoesNotDivideTheBlock) {
  counting("a.bin", 0, 100);
  DataOptions wanted = options({"a.bin"}, 8);
  wanted.shuffleBlock = 20;
  EXPECT_EQ(refusal(wanted),
            "training.sequence_length (8) does not divide data.shuffle_block (20), the block in which "
            "the run shuffles; to read the data from its beginning in another order, give --set "
            "data.shuffle_block=8 --change=data.shuffle_block");
  wanted.shuffleBlock = 104;
  EXPECT_THAT(refusal(wanted),
              HasSubstr("a.bin has 100 tokens, too few for one block of 105 "
                        "(data.shuffle_block 104 + 1); give more text or a smaller "
                        "data.shuffle_block"));
  wanted.shuffleBlock = 40;
  auto source = open(wanted);
  EXPECT_EQ(source->sources()[0].tokens, 100u);
  EXPECT_EQ(source->sources()[0].tokensPerEpoch, 80u);
  EXPECT_EQ(source->samplesPerEpoch(), 10u);
}

// Drawn files, blocks and lengths of rows. The stream that they must read is a list that is made
// here with nothing but the permutation.
class StreamTest : public DataSourceTest {
protected:
  struct Token {
    int32_t id, successor;
    uint64_t block; // number in the stream
  };

  // Writes files f0.bin, f1.bin ... of `sizes` tokens. Ids count up through all files, but every
  // fifth is 0, which ends a document. Returns the stream of `epochs` epochs.
  std::vector<Token> make(const std::vector<uint64_t> &sizes, bool tables, uint64_t block,
                          uint64_t seed, uint64_t epochs) {
    std::vector<std::vector<Token>> blocks;
    uint64_t next = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::vector<uint64_t> ids(sizes[i]), table = {0};
      for (uint64_t t = 0; t < ids.size(); ++t, ++next) {
        ids[t] = next % 5 == 0 ? 0 : next;
        if (ids[t] == 0 && t + 1 < ids.size())
          table.push_back(t + 1);
      }
      write("f" + std::to_string(i) + ".bin",
            tables ? lmcBytes(ids, 4, kVocabulary, table) : llmCBytes(20240801, 7, ids, 4));
      for (uint64_t at = 0; at + block < ids.size(); at += block) {
        blocks.emplace_back();
        for (uint64_t t = at; t < at + block; ++t)
          blocks.back().push_back({int32_t(ids[t]), int32_t(ids[t + 1]), 0});
      }
    }
    std::vector<Token> stream;
    for (uint64_t epoch = 0; epoch < epochs; ++epoch)
      for (uint64_t i = 0; i < blocks.size(); ++i)
        for (Token token : blocks[Permutation(blocks.size(), seed, epoch)(i)]) {
          token.block = epoch * blocks.size() + i;
          stream.push_back(token);
        }
    return stream;
  }

  // Where the document of each token of a row begins, in the row.
  static std::vector<int32_t> startsOfRow(const Token *row, uint64_t length) {
    std::vector<int32_t> starts(length, 0);
    for (uint64_t t = 1; t < length; ++t) {
      bool begins = row[t].block != row[t - 1].block || row[t - 1].id == 0;
      starts[t] = begins ? int32_t(t) : starts[t - 1];
    }
    return starts;
  }

  static constexpr uint32_t kVocabulary = 100000;
};

TEST_F(StreamTest, IsReadOnceInRowsOfDrawnLengths) {
  const int64_t count = test::drawCount(60);
  std::mt19937 random(11);
  for (int64_t round = 0; round < count; ++round) {
    const uint64_t block = std::vector<uint64_t>{1, 6, 8, 12, 24, 60}[random() % 6];
    std::vector<uint64_t> sizes(1 + random() % 5);
    for (uint64_t &size : sizes)
      size = 1 + random() % 150; // also files without a block
    sizes.push_back(block + 1 + random() % 100);
    const std::vector<Token> stream = make(sizes, round % 2, block, round, 3);

    DataOptions wanted = options({}, 1);
    for (size_t i = 0; i < sizes.size(); ++i)
      wanted.sources[0].paths.push_back("f" + std::to_string(i) + ".bin");
    wanted.vocabSize = kVocabulary;
    wanted.seed = round;
    wanted.shuffleBlock = block;
    wanted.documentMask = true;
    wanted.endOfDocument = 0;
    std::vector<std::unique_ptr<DataSource>> sources; // one of each length
    for (uint64_t length = 1; length <= block; ++length) {
      if (block % length != 0)
        continue;
      wanted.sequenceLength = length;
      sources.push_back(open(wanted));
      ASSERT_EQ(sources.back()->sources()[0].tokensPerEpoch * 3, stream.size());
    }
    // A run that changes its length and the number of its rows at drawn positions.
    for (uint64_t position = 0; position < stream.size();) {
      const DataSource &source = *sources[random() % sources.size()];
      const uint64_t length = source.sequenceLength(), rows = 1 + random() % 4;
      if (position + rows * length > stream.size())
        break;
      std::vector<int32_t> tokens(rows * length), targets(tokens), starts(tokens);
      auto filled = source.fill(position, rows, tokens.data(), targets.data(), starts.data());
      ASSERT_TRUE(filled) << filled.error().message;
      for (uint64_t t = 0; t < tokens.size(); ++t) {
        ASSERT_EQ(tokens[t], stream[position + t].id)
            << "round " << round << " at " << position + t;
        ASSERT_EQ(targets[t], stream[position + t].successor);
      }
      for (uint64_t row = 0; row < rows; ++row) {
        const auto begin = starts.begin() + row * length;
        ASSERT_EQ(std::vector<int32_t>(begin, begin + length),
                  startsOfRow(&stream[position + row * length], length));
      }
      position += rows * length;
    }
  }
}

// The batches of a loader are the stream from any position on, in batches of any size.
TEST_F(StreamTest, LoadersGoOnAtAnyPosition) {
  const std::vector<Token> stream = make({100, 333}, true, 24, 5, 2);
  DataOptions wanted = options({"f*.bin"}, 8);
  wanted.vocabSize = kVocabulary;
  wanted.shuffleBlock = 24;
  auto source = open(wanted);
  for (uint64_t rows : {1, 4, 6})
    for (uint64_t position : {0, 8, 20, 72, 401})
      for (int workers : {0, 2}) {
        BatchLoader loader(*source, {rows, rows}, position, workers);
        for (uint64_t at = position; at < position + 3 * rows * 8;) {
          auto batch = loader.next();
          ASSERT_TRUE(batch) << batch.error().message;
          ASSERT_EQ(batch->tokens.size(), rows * 8);
          EXPECT_EQ(batch->validTargets, rows * 8);
          for (uint64_t t = 0; t < batch->tokens.size(); ++t, ++at) {
            ASSERT_EQ(batch->tokens[t], stream[at].id);
            ASSERT_EQ(batch->targets[t], stream[at].successor);
          }
        }
      }
}

// Several sources, each a chain of ids of its own: the token at position p of source i is
// i * kIds + p of its files, one after the other.
class MixedTest : public DataSourceTest {
protected:
  static constexpr int32_t kIds = 6000; // more than a source has tokens

  // Writes the files of source `number`, of `sizes` tokens, and adds it to `wanted`.
  void addSource(DataOptions &wanted, uint64_t number, const std::string &name, double weight,
                 const std::vector<uint64_t> &sizes) {
    SourceOptions source{.name = name, .key = "data.source." + name, .paths = {}, .weight = weight};
    uint64_t next = number * kIds;
    for (uint64_t size : sizes) {
      source.paths.push_back(name + std::to_string(next) + ".bin");
      counting(source.paths.back(), next, size);
      next += size;
    }
    wanted.sources.push_back(std::move(source));
  }

  DataOptions mixed(uint64_t length) {
    DataOptions wanted = options({}, length);
    wanted.sources.clear();
    wanted.key = "data.source";
    return wanted;
  }

  // Returns the tokens [begin, end) of the stream; both are multiples of the row.
  static std::vector<int32_t> read(const DataSource &source, uint64_t begin, uint64_t end) {
    const uint64_t length = source.sequenceLength();
    return fill(source, begin / length, (end - begin) / length).tokens;
  }

  // Expects rows that begin at `position`, which need be no multiple of the row, to have what the
  // stream from 0 on has there.
  static void expectFrom(const DataSource &source, uint64_t position,
                         const std::vector<int32_t> &tokens, const std::vector<int32_t> &targets) {
    const uint64_t length = source.sequenceLength(), rows = (tokens.size() - position) / length;
    std::vector<int32_t> ids(rows * length), next(ids);
    ASSERT_TRUE(source.fill(position, rows, ids.data(), next.data()));
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), tokens.begin() + position));
    EXPECT_TRUE(std::equal(next.begin(), next.end(), targets.begin() + position));
  }

  // Returns the tokens of source `number` among `tokens`.
  static std::vector<int32_t> of(uint64_t number, const std::vector<int32_t> &tokens) {
    std::vector<int32_t> own;
    for (int32_t token : tokens)
      if (token / kIds == int32_t(number))
        own.push_back(token);
    return own;
  }
};

TEST_F(MixedTest, SharesOfDrawnSourcesAreExactAndEachIsReadAsIfItWereAlone) {
  std::mt19937 random(7);
  const int64_t rounds = test::drawCount(30);
  for (int64_t round = 0; round < rounds; ++round) {
    const uint64_t length = std::vector<uint64_t>{2, 5, 8}[random() % 3];
    DataOptions wanted = mixed(length);
    wanted.seed = round;
    wanted.shuffle = round % 5 != 0;
    wanted.shuffleBlock = length * (1 + random() % 4);
    const uint64_t block = wanted.shuffleBlock, count = 2 + random() % 4;
    double sum = 0;
    for (uint64_t i = 0; i < count; ++i) {
      std::vector<uint64_t> sizes = {block + 1 + random() % 300, 1 + random() % 200};
      const double weight = double(1 + random() % 40) / 10;
      sum += weight;
      addSource(wanted, i, fmt::format("s{}r{}", i, round), weight, sizes);
    }
    auto source = open(wanted);
    const uint64_t blocks = 150;
    const auto [tokens, targets] = fill(*source, 0, blocks * block / length);
    expectFrom(*source, 1, tokens, targets);
    std::vector<uint64_t> counts(count);
    for (uint64_t b = 0; b < blocks; ++b) {
      const uint64_t number = uint64_t(tokens[b * block] / kIds);
      ++counts[number];
      for (uint64_t i = 0; i < count; ++i) {
        ASSERT_LT(std::abs(double(counts[i]) - double(b + 1) * wanted.sources[i].weight / sum), 1);
        ASSERT_EQ(source->tokensRead(i, (b + 1) * block), counts[i] * block);
      }
      ASSERT_EQ(source->tokensRead(number, b * block + 1), (counts[number] - 1) * block + 1);
    }
    for (uint64_t i = 0; i < count; ++i) {
      const std::vector<int32_t> own = of(i, tokens);
      ASSERT_EQ(own.size(), counts[i] * block);
      // A source with other weights and other neighbours has the same order.
      DataOptions one = wanted;
      one.sources = {wanted.sources[i]};
      one.sources[0].weight = 3;
      auto alone = open(one);
      ASSERT_EQ(own, read(*alone, 0, own.size())) << "source " << i << " in round " << round;
      // An epoch has each token of the whole blocks once.
      const uint64_t epoch = alone->sources()[0].tokensPerEpoch;
      for (uint64_t begin = 0; begin + epoch <= own.size(); begin += epoch)
        ASSERT_EQ(std::set<int32_t>(own.begin() + begin, own.begin() + begin + epoch).size(),
                  epoch);
    }
  }
}

// The rows of all ranks together are the stream, whatever the ranks, the micro-batch and the step.
TEST_F(MixedTest, RanksAndBatchesDivideOneStream) {
  DataOptions wanted = mixed(4);
  wanted.shuffleBlock = 8;
  addSource(wanted, 0, "web", 0.7, {400});
  addSource(wanted, 1, "code", 0.3, {90, 200});
  auto source = open(wanted);
  const std::vector<int32_t> stream = read(*source, 0, 96 * 4);
  struct Shape {
    uint64_t perStep, perMicroStep, ranks;
  };
  for (auto [perStep, perMicroStep, ranks] :
       {Shape{12, 12, 1}, {12, 3, 1}, {12, 3, 2}, {12, 1, 4}, {24, 2, 3}, {96, 8, 4}})
    for (uint64_t position : {0, 48 * 4}) { // a start, and a resumed one
      std::vector<int32_t> seen(stream.begin(), stream.begin() + position);
      seen.resize(stream.size(), -1);
      for (uint64_t rank = 0; rank < ranks; ++rank) {
        BatchLoader loader(*source, {perStep, perMicroStep, ranks, rank}, position, rank % 3);
        for (uint64_t at = position; at + perStep * 4 <= stream.size(); at += perStep * 4) {
          auto batch = loader.next();
          ASSERT_TRUE(batch) << batch.error().message;
          const auto &tokens = batch->tokens;
          for (uint64_t t = 0; t < tokens.size(); ++t) {
            const uint64_t micro = t / (perMicroStep * 4), in = t % (perMicroStep * 4);
            seen[at + (micro * ranks + rank) * perMicroStep * 4 + in] = tokens[t];
          }
        }
      }
      if (position + perStep * 4 <= stream.size()) {
        EXPECT_EQ(seen, stream) << perStep << " " << perMicroStep << " " << ranks;
      }
    }
}

// With a block of 4 rows, rows of 1, 2 and 4 times the length visit each token of an epoch once,
// also when the length changes on the way.
TEST_F(MixedTest, EachTokenIsVisitedOnceInRowsOfAnyLength) {
  DataOptions wanted = mixed(4);
  wanted.shuffleBlock = 16;
  addSource(wanted, 0, "web", 0.5, {16 * 9 + 1});
  addSource(wanted, 1, "code", 0.5, {16 * 4 + 5, 16 * 5 + 1});
  const uint64_t epoch = 2 * 16 * 9;
  for (std::vector<uint64_t> lengths :
       {std::vector<uint64_t>{4}, {8}, {16}, {4, 8, 16}, {16, 4}, {8, 4, 16, 4}}) {
    std::map<int32_t, int> visits;
    uint64_t position = 0;
    for (size_t i = 0; position < epoch; ++i) {
      wanted.sequenceLength = lengths[i % lengths.size()];
      const uint64_t next = std::min(position + 16 * (1 + i % 3), epoch);
      for (int32_t token : read(*open(wanted), position, next))
        ++visits[token];
      position = next;
    }
    EXPECT_EQ(visits.size(), epoch);
    for (auto [token, count] : visits)
      EXPECT_EQ(count, 1) << token;
  }
}

// Other weights, and a source more, from a position inside a block on.
TEST_F(MixedTest, ASourceGoesOnInAnotherMixture) {
  DataOptions wanted = mixed(2);
  wanted.shuffleBlock = 8;
  addSource(wanted, 0, "web", 0.6, {500});
  addSource(wanted, 1, "code", 0.4, {300});
  for (uint64_t position : {0, 2, 80, 86, 242}) {
    auto before = open(wanted);
    DataOptions other = wanted;
    other.sources[0].weight = 0.1;
    addSource(other, 2, "books", 0.5, {200});
    auto after = open(other);
    std::vector<uint64_t> starts = {before->tokensRead(0, position),
                                    before->tokensRead(1, position), 0};
    after->startAt(starts);
    const std::vector<int32_t> first = read(*before, 0, position);
    const auto [second, targets] = fill(*after, 0, 120);
    expectFrom(*after, 1, second, targets);
    for (uint64_t i = 0; i < 3; ++i) {
      std::vector<int32_t> own = of(i, first);
      ASSERT_EQ(own.size(), starts[i]);
      EXPECT_EQ(after->tokensRead(i, 0), starts[i]);
      std::ranges::copy(of(i, second), std::back_inserter(own));
      EXPECT_EQ(after->tokensRead(i, 240), own.size());
      DataOptions one = other;
      one.sources = {other.sources[i]};
      const std::vector<int32_t> alone = read(*open(one), 0, (own.size() + 7) / 8 * 8);
      EXPECT_TRUE(std::equal(own.begin(), own.end(), alone.begin()))
          << "source " << i << " from position " << position;
    }
  }
}

// By the XXH64 of the name with the run's seed; a source without a name has the run's seed.
TEST_F(MixedTest, TheNameDecidesTheOrderOfASource) {
  DataOptions wanted = mixed(4);
  addSource(wanted, 0, "web", 0.5, {201});
  addSource(wanted, 1, "code", 0.5, {201});
  const std::vector<int32_t> tokens = read(*open(wanted), 0, 400);
  // XXH64 of "web" and of "code" with the seed 5.
  for (auto [number, seed] : {std::pair{0, 0x582e3f93a8f412a9u}, {1, 0xb23d279e64787a7au}}) {
    const std::vector<int32_t> own = of(number, tokens);
    ASSERT_EQ(own.size(), 200u);
    for (uint64_t block = 0; block < 50; ++block)
      EXPECT_EQ(own[block * 4], number * kIds + int32_t(Permutation(50, seed, 0)(block)) * 4);
  }
  wanted.sources.pop_back();
  wanted.sources[0].name.clear();
  const std::vector<int32_t> unnamed = read(*open(wanted), 0, 200);
  for (uint64_t block = 0; block < 50; ++block)
    EXPECT_EQ(unnamed[block * 4], int32_t(Permutation(50, 5, 0)(block)) * 4);
}

TEST_F(MixedTest, DocumentsEndWithTheirBlock) {
  DataOptions wanted = mixed(12);
  wanted.shuffleBlock = 12;
  wanted.documentMask = true;
  wanted.endOfDocument = 3;
  addSource(wanted, 0, "web", 1, {100});
  addSource(wanted, 1, "code", 1, {100});
  auto source = open(wanted);
  source->startAt({6, 6}); // so that a row has two blocks of its source
  const uint64_t rows = 10;
  std::vector<int32_t> tokens(rows * 12), targets(tokens), starts(tokens);
  ASSERT_TRUE(source->fill(0, rows, tokens.data(), targets.data(), starts.data()));
  for (uint64_t t = 0; t < tokens.size(); ++t) {
    EXPECT_EQ(targets[t], tokens[t] + 1);
    const uint64_t at = t % 12;
    const bool begins = at == 6 || (at > 0 && tokens[t - 1] == 3);
    EXPECT_EQ(starts[t], begins ? int32_t(at) : at == 0 ? 0 : starts[t - 1]) << t;
  }
}

// Documents of drawn lengths in rows of whole documents, from several files.
TEST_F(MixedTest, RowsOfDrawnDocumentsHaveThemWhole) {
  std::mt19937 random(5);
  const int64_t rounds = test::drawCount(20);
  for (int64_t round = 0; round < rounds; ++round) {
    const uint64_t length = 6 + random() % 30;
    DataOptions wanted = options({}, length);
    wanted.bestFit = true;
    wanted.documentMask = true;
    wanted.vocabSize = 100000;
    wanted.seed = round;
    std::vector<int32_t> startOf = {-1}, endOf = {-1}; // of the document of each id, ids from 1
    for (int file = 0; file < 2; ++file) {
      std::vector<uint64_t> ids, table;
      for (uint64_t document = 0; document < 40; ++document) {
        table.push_back(ids.size());
        const int32_t begin = int32_t(startOf.size()), own = 1 + random() % (length * 5 / 4);
        for (int32_t t = 0; t < own; ++t) {
          ids.push_back(startOf.size());
          startOf.push_back(begin);
          endOf.push_back(begin + own);
        }
      }
      const std::string name = fmt::format("r{}f{}.bin", round, file);
      write(name, lmcBytes(ids, 4, 100000, table));
      wanted.sources[0].paths.push_back(name);
    }
    auto source = open(wanted);
    const SourceFacts facts = source->sources()[0];
    EXPECT_EQ(facts.tokens, startOf.size() - 1);
    EXPECT_EQ(facts.tokensPerEpoch, facts.tokens + facts.padding);
    const uint64_t rows = source->samplesPerEpoch();
    std::vector<int32_t> tokens(rows * length), targets(tokens), starts(tokens);
    for (uint64_t epoch : {0, 1}) {
      ASSERT_TRUE(
          source->fill(epoch * rows * length, rows, tokens.data(), targets.data(), starts.data()));
      std::set<int32_t> seen;
      uint64_t padding = 0, cut = 0;
      for (uint64_t t = 0; t < tokens.size(); ++t) {
        const uint64_t row = t / length * length;
        const int32_t id = tokens[t];
        if (id == 0) {
          ++padding;
          EXPECT_EQ(targets[t], kIgnoredTarget);
          EXPECT_EQ(starts[t], starts[(row + length) - 1]);
          continue;
        }
        EXPECT_TRUE(seen.insert(id).second) << id;
        EXPECT_EQ(targets[t], id + 1 == endOf[id] ? kIgnoredTarget : id + 1);
        const uint64_t own = uint64_t(id - tokens[row + starts[t]]); // from its start in the row
        EXPECT_EQ(own, t - row - starts[t]);
        if (endOf[id] - startOf[id] <= int32_t(length)) {
          EXPECT_EQ(tokens[row + starts[t]], startOf[id]) << "a document that fits is cut";
        } else {
          cut += id == startOf[id];
        }
      }
      if (epoch == 0)
        expectFrom(*source, 3, tokens, targets);
      EXPECT_EQ(seen.size(), facts.tokens);
      EXPECT_EQ(padding, facts.padding);
      EXPECT_EQ(cut, facts.cutDocuments);
    }
  }
}

TEST_F(MixedTest, RowsOfWholeDocumentsNeedATable) {
  counting("a.bin", 0, 100);
  DataOptions wanted = options({"a.bin"}, 10);
  wanted.bestFit = true;
  EXPECT_EQ(refusal(wanted), "data.train: " + path("a.bin") +
                                 " does not say where its documents start, which data.packing = "
                                 "\"best_fit\" needs; make the file with: lmc-data pack");
  write("b.bin", lmcBytes({1, 2, 3, 4, 5, 6}, 4, 100, {0, 4, 2}));
  wanted = options({"b.bin"}, 10);
  wanted.bestFit = true;
  EXPECT_NE(refusal(wanted).find("b.bin: document 2 starts at token 2, before the one"),
            std::string::npos)
      << refusal(wanted);
  wanted.shuffleBlock = 20;
  EXPECT_EQ(
      refusal(wanted),
      "data.packing = \"best_fit\" fills rows with whole documents, so data.shuffle_block (20) "
      "must be training.sequence_length (10); to read the data from its beginning in rows of 10 "
      "tokens, give --set data.shuffle_block=10 --change=data.shuffle_block");
}

TEST_F(MixedTest, NamesWhatIsWrongWithASource) {
  DataOptions wanted = mixed(4);
  addSource(wanted, 0, "web", 0.7, {100});
  addSource(wanted, 1, "code", 0.3, {4});
  EXPECT_EQ(refusal(wanted).find("data.source.code: " + path("code6000.bin") + " has 4 tokens"),
            0u);
  wanted.sources[1].paths = {"web0.bin"};
  EXPECT_EQ(refusal(wanted).find("data.source: " + path("web0.bin") + " and "), 0u);
  EXPECT_NE(refusal(wanted).find(" are the same file"), std::string::npos);
  wanted.sources[1].paths = {"none.bin"};
  EXPECT_EQ(refusal(wanted).find("data.source.code: "), 0u);
  wanted.sources[1].paths.clear();
  EXPECT_EQ(refusal(wanted),
            "data.source.code: no token files are given; make one with: lmc-data pack");
  addSource(wanted, 2, "books", 0.123456789, {100});
  wanted.sources.erase(wanted.sources.begin() + 1);
  EXPECT_NE(refusal(wanted).find("data.source: the order of the sources"), std::string::npos);
  wanted.vocabSize = 50;
  wanted.sources.pop_back();
  int32_t row[8];
  auto filled = open(wanted)->fill(0, 1, row, row + 4);
  for (uint64_t position = 0; filled; position += 4)
    filled = open(wanted)->fill(position, 1, row, row + 4);
  EXPECT_EQ(filled.error().message.find("data.source.web: " + path("web0.bin")), 0u);
}

} // namespace
