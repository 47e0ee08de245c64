// lmc-data as its user meets it: files in, exit code, stdout and stderr out.

#include "runtime/data/TokenFile.h"
#include "test/runtime/data/TokenFiles.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <random>
#include <set>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

using namespace lmc;
using namespace lmc::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

class LmcDataTest : public DataTest {
protected:
  struct Outcome {
    int exit;
    std::string out, err;
  };

  // Runs the program in the folder.
  Outcome runProgram(const std::string &program, const std::vector<std::string> &words) const {
    std::filesystem::path reports = folder.string() + ".reports";
    std::filesystem::create_directory(reports);
    std::string command = "cd '" + folder.string() + "' && '" + program + "'";
    for (const std::string &word : words)
      command += " '" + word + "'";
    std::string out = reports / "out", err = reports / "err";
    int status = std::system((command + " >" + out + " 2>" + err).c_str());
    Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(out), read(err)};
    std::filesystem::remove_all(reports);
    return outcome;
  }
  Outcome lmcData(const std::vector<std::string> &words) const {
    return runProgram(LMC_DATA, words);
  }

  std::string succeed(const std::vector<std::string> &words) const {
    Outcome outcome = lmcData(words);
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }

  // The one line of a command that fails for the user's mistake and leaves no file.
  std::string fail(const std::vector<std::string> &words) const {
    size_t before = filesInFolder();
    Outcome outcome = lmcData(words);
    EXPECT_EQ(outcome.exit, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("lmc-data: error: "));
    EXPECT_EQ(filesInFolder(), before);
    return outcome.err;
  }

  // Documents of a token file, each with the end that belongs to it.
  std::vector<std::string> documents(const std::string &name) const {
    auto file = TokenFile::open(path(name));
    EXPECT_TRUE(file) << file.error().message;
    if (!file)
      return {};
    EXPECT_TRUE((*file)->verify(0));
    std::vector<int32_t> tokens((*file)->size());
    (*file)->read(0, tokens.size(), tokens.data());
    std::vector<std::string> result;
    const std::vector<uint64_t> starts = *(*file)->documentStarts(0, (*file)->documents());
    for (size_t i = 0; i < starts.size(); ++i)
      result.emplace_back(tokens.begin() + starts[i],
                          i + 1 < starts.size() ? tokens.begin() + starts[i + 1] : tokens.end());
    return result;
  }
};

std::string operator""_s(const char *text, size_t size) { return {text, size}; }

TEST_F(LmcDataTest, PacksTextAsItIs) {
  std::string text;
  for (int i = 0; i < 128; ++i)
    text += static_cast<char>(i);
  // The first and the last character of each length, and those beside the surrogates.
  for (const char *character : {"\u0080", "\u07ff", "\u0800", "\xed\x9f\xbf", "\ue000", "\uffff",
                                "\U00010000", "\U0010ffff"})
    text += character;
  write("a.txt", "x" + text + "y");
  EXPECT_THAT(succeed({"pack", "a.txt", "-o", "a.bin", "--document-separator="}),
              StartsWith("a.bin: " + std::to_string(text.size() + 2) + " tokens, 1 documents\n"));
  EXPECT_THAT(documents("a.bin"), ElementsAre("x" + text + "y"));
}

TEST_F(LmcDataTest, RefusesTextThatIsNotUtf8) {
  // What Unicode 15, table 3-7, leaves out; the position is that of the byte that cannot follow.
  const std::pair<std::string, int> wrong[] = {{"\x80", 0},
                                               {"\xc1\x80", 0},
                                               {"\xe0\x9f\x80", 1},
                                               {"\xed\xa0\x80", 1},
                                               {"\xf0\x8f\x80\x80", 1},
                                               {"\xf4\x90\x80\x80", 1},
                                               {"\xf5\x80\x80\x80", 0},
                                               {"\xe4\xb8 ", 2}};
  for (const auto &[bytes, at] : wrong) {
    write("a.txt", "\xc3\xa9" + bytes);
    EXPECT_THAT(fail({"pack", "a.txt", "-o", "a.bin"}),
                HasSubstr("a.txt: 0x" + fmt::format("{:02x}", uint8_t(bytes[at])) + " at byte " +
                          std::to_string(2 + at) + " of the text is not UTF-8; convert"));
  }
  write("a.txt", "caf\xc3");
  EXPECT_THAT(fail({"pack", "a.txt", "-o", "a.bin"}),
              HasSubstr("a.txt: the end of the file at byte 4 of the text is not UTF-8"));
  // A character on the border of two reads is whole.
  std::string text(1 << 19, 'a');
  text.replace((1 << 18) - 1, 2, "\xc3\xa9");
  write("b.txt", text);
  succeed({"pack", "b.txt", "-o", "b.bin"});
  EXPECT_EQ(documents("b.bin")[0], text);
}

TEST_F(LmcDataTest, RefusesWhatIsNoText) {
  auto message = [&](const std::string &bytes) {
    write("a.txt", bytes);
    return fail({"pack", "a.txt", "-o", "a.bin"});
  };
  EXPECT_THAT(message("PAR1\x15\x04"),
              HasSubstr("a.txt: is Parquet (which --format=parquet reads), expected text or JSON "
                        "lines, as they are or compressed by gzip or zstd"));
  EXPECT_THAT(message("PK\x03\x04"), HasSubstr("is a ZIP archive"));
  EXPECT_THAT(message("BZh9"), HasSubstr("is compressed by bzip2"));
  EXPECT_THAT(message("\xfd"
                      "7zXZ\0"_s),
              HasSubstr("is compressed by xz"));
  EXPECT_THAT(message("\xff\xfe"
                      "a\0"_s),
              HasSubstr("is UTF-16 text"));
  EXPECT_THAT(message(std::string(257, '\0') + "ustar"), HasSubstr("is a tar archive"));
  write("b.txt", "text");
  succeed({"pack", "b.txt", "-o", "b.bin"});
  EXPECT_THAT(fail({"pack", "b.bin", "-o", "a.bin"}), HasSubstr("b.bin: is a token file already"));
}

// Returns `text` as one member of a gzip file.
std::string gzip(const std::string &text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef *>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string &text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST_F(LmcDataTest, ReadsCompressedText) {
  std::mt19937 random(5);
  std::string text; // larger than the buffers, and no repetition of itself
  while (text.size() < 3'000'000)
    text += std::to_string(random()) + (random() % 50 ? " " : "\f");
  write("a.txt", text);
  succeed({"pack", "a.txt", "-o", "a.bin"});
  const std::vector<std::string> expected = documents("a.bin");
  const size_t half = text.size() / 2;
  const std::pair<const char *, std::string> files[] = {
      {"a.txt.gz", gzip(text)},
      {"b.txt.gz", gzip(text.substr(0, half)) + gzip(text.substr(half))},
      {"a.txt.zst", zstd(text)},
      {"b.txt.zst", zstd(text.substr(0, half)) + zstd(text.substr(half))}};
  for (const auto &[name, bytes] : files) {
    write(name, bytes);
    succeed({"pack", name, "-o", "b.bin", "--validation=v.bin"}); // reads it twice
    succeed({"pack", name, "-o", "b.bin"});
    EXPECT_EQ(documents("b.bin"), expected) << name;
    for (size_t cut : {bytes.size() - 1, bytes.size() - 9, bytes.size() / 3, size_t(12)}) {
      write("cut", bytes.substr(0, cut));
      EXPECT_THAT(fail({"pack", "cut", "-o", "c.bin"}),
                  HasSubstr(fmt::format("cut: is cut short: its compressed data has no end up to "
                                        "byte {}, the last",
                                        cut)))
          << name << " " << cut;
    }
    std::string damaged = bytes;
    damaged[bytes.size() / 4] ^= 8;
    write("damaged", damaged);
    EXPECT_THAT(fail({"pack", "damaged", "-o", "c.bin"}),
                HasSubstr("damaged: cannot be decompressed after byte "));
  }
  write("a.jsonl.gz", gzip("{\"text\": \"one\"}\n{\"text\": \"two\"}\n"));
  succeed({"pack", "a.jsonl.gz", "-o", "j.bin"});
  EXPECT_THAT(documents("j.bin"), ElementsAre("one\0"_s, "two"));
  write("p.gz", gzip("PAR1"));
  EXPECT_THAT(fail({"pack", "p.gz", "-o", "c.bin"}), HasSubstr("p.gz: is Parquet"));
}

TEST_F(LmcDataTest, ReadsFoldersAndPatternsInTheOrderOfTheirNames) {
  std::filesystem::create_directories(path("in/b"));
  std::filesystem::create_directories(path("in/_old"));
  std::filesystem::create_directories(path("in/.git"));
  write("in/c.txt", "c");
  write("in/a.jsonl", R"({"text": "a"})");
  write("in/b/2.txt.gz", gzip("b2"));
  write("in/b/10.ndjson.zst", zstd(R"({"text": "b10"})"));
  write("in/_old/x.txt", "x");
  write("in/.git/x.txt", "x");
  succeed({"pack", "in", "-o", "a.bin", "--eod=none"});
  EXPECT_THAT(documents("a.bin"), ElementsAre("a", "b10", "b2", "c"));
  succeed({"pack", "in/b/*", "in/[ac].*", "-o", "a.bin", "--eod=none"});
  EXPECT_THAT(documents("a.bin"), ElementsAre("b10", "b2", "a", "c"));
  write("[ac].txt", "itself");
  succeed({"pack", "[ac].txt", "-o", "a.bin"});
  EXPECT_THAT(documents("a.bin"), ElementsAre("itself"));
  // What no format is known of is left out, and named.
  write("in/README.md", "x");
  const Outcome outcome = lmcData({"pack", "in", "-o", "a.bin", "--eod=none"});
  EXPECT_EQ(outcome.exit, 0);
  EXPECT_EQ(outcome.err, "note: in: 1 files are left out because their names say no format: "
                         "in/README.md; give their own paths to read them\n");
  EXPECT_THAT(documents("a.bin"), ElementsAre("a", "b10", "b2", "c"));
  std::filesystem::create_directories(path("none"));
  EXPECT_THAT(fail({"pack", "none", "-o", "b.bin"}), HasSubstr("none: no file there has a name"));
  EXPECT_THAT(fail({"pack", "in", "in/b/../c.txt", "-o", "b.bin"}),
              HasSubstr("in/b/../c.txt: is given twice"));
}

// Before anything is written.
TEST_F(LmcDataTest, FindsWhatInAFolderCannotBeRead) {
  std::filesystem::create_directories(path("in/b"));
  write("in/a.txt", "a");
  std::filesystem::create_directory_symlink(path("in"), path("in/b/back"));
  EXPECT_THAT(
      fail({"pack", "in", "-o", "a.bin"}),
      HasSubstr("in/b/back: this link leads back to in, so that the files below have no end"));
  std::filesystem::remove(path("in/b/back"));
  std::filesystem::create_symlink("nowhere", path("in/b/z.txt"));
  EXPECT_THAT(fail({"pack", "in", "-o", "a.bin"}), HasSubstr("in/b/z.txt: No such file"));
  std::filesystem::remove(path("in/b/z.txt"));
  ASSERT_EQ(mkfifo(path("in/b/z.txt").c_str(), 0666), 0);
  EXPECT_THAT(fail({"pack", "in", "-o", "a.bin"}),
              HasSubstr("in/b/z.txt: is a pipe, expected a file; a pipe is read if its own path"));
  std::filesystem::remove(path("in/b/z.txt"));
  const int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{AF_UNIX, {}};
  path("in/b/z.txt").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(descriptor, reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0);
  close(descriptor);
  EXPECT_THAT(fail({"pack", "in", "-o", "a.bin"}), HasSubstr("in/b/z.txt: is a socket, expected"));
  EXPECT_THAT(fail({"pack", "in/b/z.txt", "-o", "a.bin"}), HasSubstr("in/b/z.txt: is a socket"));
  std::filesystem::remove(path("in/b/z.txt"));
  write("in/b/z.txt", "z");
  std::filesystem::permissions(path("in/b/z.txt"), std::filesystem::perms::none);
  if (access(path("in/b/z.txt").c_str(), R_OK) != 0) { // root may read it
    EXPECT_THAT(fail({"pack", "in", "-o", "a.bin"}), HasSubstr("in/b/z.txt: Permission denied"));
  }
}

// lmc-data waits at a pipe while the test goes on.
class WaitingTest : public LmcDataTest {
protected:
  Outcome outcome;
  std::thread program;

  // Starts the program and returns when it has opened `pipe`, to whose other end `feed` writes.
  void start(std::vector<std::string> words) {
    ASSERT_EQ(mkfifo(path("pipe").c_str(), 0666), 0);
    program = std::thread([this, words] { outcome = lmcData(words); });
    feed.open(path("pipe"));
  }
  void finish(const std::string &text) {
    feed << text;
    feed.close();
    program.join();
  }
  std::ofstream feed;
};

TEST_F(WaitingTest, AnInputThatChangesWhileItIsReadIsAnError) {
  write("a.txt", "before");
  start({"pack", "pipe", "a.txt", "-o", "a.bin"});
  write("a.txt", "longer than before");
  finish("piped");
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_EQ(outcome.err,
            "lmc-data: error: a.txt: has changed while it was read (it has 18 bytes, and "
            "had 6); start again when nothing writes to it\n");
  EXPECT_FALSE(std::filesystem::exists(path("a.bin")));
  EXPECT_FALSE(std::filesystem::exists(path("a.bin.partial")));
}

TEST_F(WaitingTest, TwoPacksDoNotWriteOneFile) {
  write("b.txt", "other");
  start({"pack", "pipe", "-o", "a.bin"});
  EXPECT_THAT(fail({"pack", "b.txt", "-o", "a.bin"}),
              HasSubstr("a.bin: another lmc-data writes it"));
  EXPECT_THAT(fail({"pack", "b.txt", "-o", "b.bin", "--validation=a.bin"}),
              HasSubstr("a.bin: another lmc-data writes it"));
  finish("piped");
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_THAT(documents("a.bin"), ElementsAre("piped"));
}

TEST_F(LmcDataTest, ReadsNoJsonAsText) {
  write("a.json", R"({"text": "a"})");
  EXPECT_THAT(fail({"pack", "a.json", "-o", "a.bin"}),
              HasSubstr("a.json: a name in .json does not say how documents are read; give "
                        "--format=jsonl"));
  write("a.csv.gz", gzip("text\na\n"));
  EXPECT_THAT(fail({"pack", "a.csv.gz", "-o", "a.bin"}), HasSubstr("a.csv.gz: a name in .csv "));
  succeed({"pack", "a.json", "-o", "a.bin", "--format=jsonl"});
  EXPECT_THAT(documents("a.bin"), ElementsAre("a"));
}

TEST_F(LmcDataTest, ReadsStandardInput) {
  const auto pipe = [&](const std::string &file, const std::string &options) {
    return runProgram("/bin/sh", {"-c", "cat " + file + " | " LMC_DATA " pack " + options});
  };
  write("a", R"({"body": "one"})"
             "\n"
             R"({"body": "two"})");
  write("a.gz", gzip(read(path("a"))));
  for (const char *file : {"a", "a.gz"}) {
    const Outcome outcome = pipe(file, "- -o a.bin --format=jsonl --field=body");
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    EXPECT_THAT(documents("a.bin"), ElementsAre("one\0"_s, "two"));
  }
  EXPECT_THAT(
      pipe("a", "- -o b.bin").err,
      HasSubstr("error: -: standard input has no name that says its format; give --format"));
  EXPECT_THAT(pipe("a", "- -o b.bin --format=jsonl").err,
              HasSubstr("error: standard input:1: no field \"text\""));
  EXPECT_THAT(pipe("a", "- -o b.bin --format=text --validation=v.bin").err,
              HasSubstr("error: standard input: cannot be read twice, as --validation needs to "
                        "split it"));
  EXPECT_THAT(pipe("a", "- - -o b.bin --format=text").err,
              HasSubstr("standard input: is given twice"));
  EXPECT_EQ(filesInFolder(), 4u); // a.bin.audit.json too
}

TEST_F(LmcDataTest, PutsOneEndBetweenDocuments) {
  write("a.txt", "one\ftwo\n\fthree");
  write("b.txt", "four");
  EXPECT_THAT(succeed({"pack", "a.txt", "b.txt", "-o", "a.bin"}),
              HasSubstr("end of document: id 0, one between documents\n"));
  EXPECT_THAT(documents("a.bin"), ElementsAre("one\0"_s, "two\n\0"_s, "three\0"_s, "four"));
}

TEST_F(LmcDataTest, MergesEndsThatTheTextHas) {
  write("a.txt", "\0one\0\ftwo\0\0\f\0three\0four\f\0\0\f\fend\0"_s);
  std::string report = succeed({"pack", "a.txt", "-o", "a.bin"});
  EXPECT_THAT(report, StartsWith("a.bin: 22 tokens, 4 documents\n"));
  EXPECT_THAT(report, HasSubstr("has id 0 at the edges of documents, 8 times; merged into the one "
                                "between documents, such as a.txt: byte 0 of the text\n"));
  EXPECT_THAT(report, HasSubstr("inside documents too, 1 times, such as a.txt: byte 12 of"));
  EXPECT_THAT(report,
              HasSubstr("2 empty documents left out, such as a.txt: byte 24 of the text\n"));
  EXPECT_THAT(documents("a.bin"), ElementsAre("one\0"_s, "two\0"_s, "three\0four\0"_s, "end"));
  EXPECT_THAT(succeed({"inspect", "a.bin"}), HasSubstr("id 0, 4 times, none doubled"));
}

TEST_F(LmcDataTest, WritesTheEndThatIsAskedFor) {
  write("a.txt", "one\0\ftwo"_s);
  succeed({"pack", "a.txt", "-o", "none.bin", "--eod=none"});
  EXPECT_THAT(documents("none.bin"), ElementsAre("one\0"_s, "two"));
  succeed({"pack", "a.txt", "-o", "e.bin", "--eod=101"}); // 'e'
  EXPECT_THAT(documents("e.bin"), ElementsAre("one\0e"_s, "two"));
  // Beyond the bytes: the vocabulary widens and tokens take two bytes.
  succeed({"pack", "a.txt", "-o", "wide.bin", "--eod=256"});
  auto wide = TokenFile::open(path("wide.bin"));
  ASSERT_TRUE(wide);
  EXPECT_EQ((*wide)->vocabulary(), 257u);
  EXPECT_EQ((*wide)->endOfDocument(), 256);
  std::vector<int32_t> tokens(8);
  ASSERT_EQ((*wide)->size(), tokens.size());
  (*wide)->read(0, 8, tokens.data());
  EXPECT_THAT(tokens, ElementsAre('o', 'n', 'e', 0, 256, 't', 'w', 'o'));
}

TEST_F(LmcDataTest, SplitsAtAnySeparator) {
  write("a.txt", "one<|end|>two<|end<|end|>three");
  succeed({"pack", "a.txt", "-o", "a.bin", "--document-separator=<|end|>"});
  EXPECT_THAT(documents("a.bin"), ElementsAre("one\0"_s, "two<|end\0"_s, "three"));
  write("b.txt", "one\n\ttwo");
  succeed({"pack", "b.txt", "-o", "b.bin", R"(--document-separator=\n\x09)"});
  EXPECT_THAT(documents("b.bin"), ElementsAre("one\0"_s, "two"));
}

// Text is read in pieces of 1 MiB; here separators and ends lie across their borders.
TEST_F(LmcDataTest, DoesNotSeeTheBordersOfItsBuffers) {
  for (size_t size = (1 << 20) - 5; size <= (1 << 20) + 1; ++size) {
    std::string one(size, 'a');
    write("a.txt", one + "\0--\0b"_s);
    succeed({"pack", "a.txt", "-o", "a.bin", "--document-separator=--"});
    EXPECT_TRUE(documents("a.bin") == (std::vector<std::string>{one + '\0', "b"})) << size;
    write("a.txt", one + "\0\0-b"_s);
    succeed({"pack", "a.txt", "-o", "a.bin", "--document-separator=--"});
    EXPECT_TRUE(documents("a.bin") == (std::vector<std::string>{one + "\0\0-b"_s})) << size;
  }
}

TEST_F(LmcDataTest, ASeparatorAtTheEndOfAFileBeginsNoDocument) {
  write("a.txt", "one\ftwo\f");
  EXPECT_THAT(succeed({"pack", "a.txt", "-o", "a.bin", "--strict"}), HasSubstr(" 2 documents\n"));
}

TEST_F(LmcDataTest, AuditsWhatItPacks) {
  write("a.jsonl", R"({"text": "same"}
{"text": "a\u0001\u0085 \u00e9\t\r\n"}

{"text": ""}
{"text": "lost \ufffd"}
{"text": "\u0000in\u0000side"}
)");
  write("b.txt", "new\fsame\fsame\f\x7f");
  std::string report = succeed({"pack", "a.jsonl", "b.txt", "-o", "a.bin"});
  EXPECT_THAT(report,
              HasSubstr("note: 1 empty documents left out, such as a.jsonl:4\n"
                        "note: 2 documents have the text of an earlier one, 19 % of all text, such "
                        "as b.txt: byte 4 of the text repeats a.jsonl:1\n"
                        "note: 5 control characters in 3 documents, such as a.jsonl:2\n"
                        "note: 1 replacement characters (U+FFFD) in 1 documents, such as "
                        "a.jsonl:5\n"));
  auto json = nlohmann::json::parse(read(path("a.bin.audit.json")));
  EXPECT_EQ(json["documents_read"], 9);
  EXPECT_EQ(json["bytes_of_text"], 4 + 10 + 8 + 8 + 3 + 4 + 4 + 1);
  EXPECT_THAT(json["inputs"], ElementsAre("a.jsonl", "b.txt"));
  EXPECT_EQ(json["files"][0]["documents"], 8);
  for (const char *kind : {"end_of_document_at_edges", "end_of_document_inside"}) {
    EXPECT_EQ(json["audit"][kind]["count"], 1);
    EXPECT_EQ(json["audit"][kind]["documents"], 1);
    EXPECT_THAT(json["audit"][kind]["first"], ElementsAre("a.jsonl:6"));
  }
  EXPECT_THAT(json["audit"]["repeated_documents"]["first"],
              ElementsAre("b.txt: byte 4 of the text repeats a.jsonl:1",
                          "b.txt: byte 9 of the text repeats a.jsonl:1"));
  EXPECT_EQ(json["audit"]["repeated_documents"]["bytes_of_text"], 8);
  EXPECT_EQ(json["audit"]["control_characters"]["documents"], 3);
  EXPECT_EQ(json["audit"]["unknown_tokens"]["count"], 0);
}

// A character of several bytes may lie in two pieces of the text.
TEST_F(LmcDataTest, AuditsCharactersThatLieInTwoReads) {
  for (const char *character : {"\xc2\x85", "\xef\xbf\xbd"})
    for (size_t before = 1; before <= 3; ++before) {
      write("a.txt", std::string((1 << 18) - before, 'a') + character + std::string(3, 'b'));
      EXPECT_THAT(succeed({"pack", "a.txt", "-o", "a.bin"}), HasSubstr("note: 1 "));
    }
}

TEST_F(LmcDataTest, StrictWritesNothingWhereTheAuditFindsSomething) {
  write("a.txt", "one\ftwo");
  succeed({"pack", "a.txt", "-o", "a.bin", "--strict"});
  const auto message = [&](const std::string &text) {
    write("a.txt", text);
    return fail({"pack", "a.txt", "-o", "b.bin", "--strict"});
  };
  EXPECT_THAT(message("one\f\f"),
              HasSubstr("b.bin: not written, because of --strict: 1 empty "
                        "documents left out, such as a.txt: byte 4 of the "
                        "text; mend or remove these documents, or pack without "
                        "--strict, which lists more of them in b.bin.audit.json"));
  EXPECT_THAT(message("one\fone"), HasSubstr("1 documents have the text of an earlier one, 50 %"));
  EXPECT_THAT(message("\0one\ftwo"_s), HasSubstr("has id 0 at the edges of documents, 1 times"));
  EXPECT_THAT(message("o\0ne\ftwo"_s), HasSubstr("has id 0 inside documents too, 1 times"));
  EXPECT_THAT(message("\x1b[0m\ftwo\ftwo"), AllOf(HasSubstr("; 1 control characters in 1"),
                                                  HasSubstr("strict: 1 documents have")));
}

// Of training and validation data alike, in the order of the documents.
TEST_F(LmcDataTest, NamesTheDocumentsOfATokenizersFindings) {
  std::string text;
  for (int i = 1; i <= 40; ++i)
    text += fmt::format("{{\"text\": \"line {}{}\"}}\n", i, i % 5 == 0 ? " <|endoftext|>" : "");
  write("a.jsonl", text);
  succeed({"tokenizer", "train", "a.jsonl", "-o", "tokenizer", "--vocab-size=300"});
  const std::vector<std::string> pack = {"pack",
                                         "a.jsonl",
                                         "-o",
                                         "a.bin",
                                         "--tokenizer=tokenizer",
                                         "--validation=v.bin",
                                         "--validation-fraction=0.4"};
  EXPECT_THAT(succeed(pack), HasSubstr("note: the text spells special tokens in 8 places, which "
                                       "became text, such as a.jsonl:5\n"));
  auto json = nlohmann::json::parse(read(path("a.bin.audit.json")))["audit"];
  EXPECT_EQ(json["special_tokens_in_text"]["documents"], 8);
  EXPECT_THAT(json["special_tokens_in_text"]["first"],
              ElementsAre("a.jsonl:5", "a.jsonl:10", "a.jsonl:15", "a.jsonl:20", "a.jsonl:25"));
  auto parsed = pack;
  parsed.push_back("--special-tokens=parse");
  succeed(parsed);
  json = nlohmann::json::parse(read(path("a.bin.audit.json")))["audit"];
  EXPECT_THAT(json["end_of_document_at_edges"]["first"],
              ElementsAre("a.jsonl:5", "a.jsonl:10", "a.jsonl:15", "a.jsonl:20", "a.jsonl:25"));
}

class KilledTest : public LmcDataTest {
protected:
  using Files = std::map<std::string, std::string>;

  // Runs lmc-data, which is killed at a call that renames or removes a file. Returns false if there
  // are fewer calls.
  bool kill(int call, std::vector<std::string> words) const {
    words.insert(words.begin(),
                 {"LD_PRELOAD=" LMC_KILLER, fmt::format("LMC_KILL_AT={}", call), LMC_DATA});
    return runProgram("env", words).exit != 0;
  }
  // The contents of all files that belong to a.bin and v.bin, by name.
  Files set() const {
    Files files;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string name = std::filesystem::relative(entry.path(), folder);
      if (entry.is_regular_file() &&
          (name.starts_with("a.bin") || name.starts_with("v.bin") || name == "a.idx" ||
           name == "v.idx") &&
          name.find(".partial") == name.npos)
        files[name] = read(entry.path());
    }
    return files;
  }
  static bool isPart(const Files &part, const Files &whole) {
    return std::ranges::all_of(part, [&](const auto &file) {
      const auto found = whole.find(file.first);
      return found != whole.end() && found->second == file.second;
    });
  }
  size_t unfinished() const {
    size_t count = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
      count += entry.path().string().ends_with(".partial");
    return count;
  }
};

TEST_F(KilledTest, APackLeavesNoMixOfOldAndNewAndTheNextOneCompletesIt) {
  write("old.txt", "one old text\fanother old text\fa third");
  write("new.txt", "one new text\fanother text\fsomething\fmore");
  succeed({"tokenizer", "train", "old.txt", "-o", "old", "--vocab-size=260"});
  succeed({"tokenizer", "train", "new.txt", "-o", "new", "--vocab-size=270"});
  for (const char *format : {"--write=lmc", "--write=megatron"}) {
    const auto pack = [&](const std::string &text) -> std::vector<std::string> {
      return {"pack",
              text + ".txt",
              "-o",
              "a.bin",
              "--validation=v.bin",
              "--tokenizer=" + text,
              format,
              "--validation-fraction=0.4"};
    };
    succeed(pack("new"));
    const Files fresh = set();
    succeed(pack("old"));
    const Files old = set();
    ASSERT_EQ(old.size(), fresh.size());
    ASSERT_FALSE(isPart(old, fresh));
    int calls = 1;
    for (; kill(calls, pack("new")); ++calls) {
      const Files left = set();
      EXPECT_TRUE(isPart(left, old) || isPart(left, fresh)) << format << calls;
      // The same command, or another one.
      if (calls % 2 == 0) {
        EXPECT_EQ(lmcData(pack("old")).exit, 0);
      }
      EXPECT_EQ(lmcData(pack("new")).exit, 0) << format << calls;
      EXPECT_EQ(set(), fresh) << format << calls;
      EXPECT_EQ(unfinished(), 0u) << format << calls;
      succeed(pack("old"));
    }
    EXPECT_GT(calls, 8) << format;
    EXPECT_EQ(set(), fresh);
  }
}

TEST_F(KilledTest, APackIsNotGoneOnWithByAnotherProgramOrTokenizer) {
  write("a.txt", "one\ftwo\fthree\ffour");
  const std::vector<std::string> pack = {"pack", "a.txt", "-o", "a.bin", "--save-interval=0"};
  const auto stop = [&] {
    ASSERT_TRUE(kill(3, pack)); // at the third document
    ASSERT_TRUE(std::filesystem::exists(path("a.bin.partial/state.json")));
  };
  const auto notes = [&](std::vector<std::string> options) {
    options.insert(options.begin(), pack.begin(), pack.end());
    const Outcome outcome = lmcData(options);
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    return outcome.err;
  };
  stop();
  EXPECT_THAT(notes({}), HasSubstr("goes on after"));
  stop();
  auto state = nlohmann::json::parse(read(path("a.bin.partial/state.json")));
  state["identity"]["release"][1] = "another";
  write("a.bin.partial/state.json", state.dump());
  EXPECT_THAT(notes({}), HasSubstr("not gone on with: it was of other inputs or options"));
  // A tokenizer of the same name, size and time.
  succeed({"tokenizer", "train", "a.txt", "-o", "tokenizer", "--vocab-size=260"});
  const std::string file = path("tokenizer/tokenizer.json");
  const auto time = std::filesystem::last_write_time(file);
  auto packed = pack;
  packed.push_back("--tokenizer=tokenizer");
  ASSERT_TRUE(kill(3, packed));
  std::string text = read(file);
  text[text.find('\n')] = ' ';
  write("tokenizer/tokenizer.json", text);
  std::filesystem::last_write_time(file, time);
  EXPECT_THAT(notes({"--tokenizer=tokenizer"}), HasSubstr("it was of other inputs or options"));
}

TEST_F(LmcDataTest, PacksJsonLines) {
  write("a.jsonl", R"({"text": "one \"\\\/\b\f\n\r\t", "url": "x"})"
                   "\n\r\n"
                   R"({"id": 7, "text": "\u00e9 \ud83d\ude00 é"})"
                   "\r\n"
                   R"({"text": ""})"
                   "\n"
                   R"({"text": "last\u0000"})");
  std::string report = succeed({"pack", "a.jsonl", "-o", "a.bin"});
  EXPECT_THAT(report, HasSubstr(" 3 documents\n"));
  EXPECT_THAT(report, HasSubstr("1 empty documents left out, such as a.jsonl:4\n"));
  EXPECT_THAT(documents("a.bin"), ElementsAre("one \"\\/\b\f\n\r\t\0"_s,
                                              "\xc3\xa9 \xf0\x9f\x98\x80 \xc3\xa9\0"_s, "last"));
  write("b.data", R"({"body": {"text": 1}, "content": "hello"})");
  succeed({"pack", "b.data", "-o", "b.bin", "--format=jsonl", "--field=content"});
  EXPECT_THAT(documents("b.bin"), ElementsAre("hello"));
}

// A download that broke off at once must not become text.
TEST_F(LmcDataTest, RefusesACompressedNameWithoutCompression) {
  for (const char *name : {"a.txt.gz", "a.txt.zst"})
    for (const char *text : {"", "\x1f", "<html>"}) {
      write(name, text);
      EXPECT_THAT(fail({"pack", name, "-o", "a.bin"}),
                  HasSubstr(std::string(name) + ": byte 0: not compressed by "));
    }
}

TEST_F(LmcDataTest, NamesTheLineOfBadJson) {
  auto message = [&](const std::string &line) {
    write("a.jsonl", "{\"text\": \"fine\"}\n\n" + line + "\n");
    return fail({"pack", "a.jsonl", "-o", "a.bin"});
  };
  EXPECT_THAT(
      message(R"({"text": "open)"),
      HasSubstr("a.jsonl:3:15: not JSON: syntax error while parsing value - invalid string"));
  EXPECT_THAT(message("{\"text\": \"\xff\"}"), HasSubstr("a.jsonl:3:11: not JSON: "));
  EXPECT_THAT(message(R"(["text"])"), HasSubstr("a.jsonl:3: expected an object with the field "
                                                "\"text\", found array"));
  EXPECT_THAT(message(R"({"text": "a", "score": 1e400})"),
              HasSubstr("a.jsonl:3: number overflow parsing '1e400'"));
  EXPECT_THAT(message(R"({"body": "x"})"), HasSubstr("a.jsonl:3: no field \"text\"; name the one"));
  EXPECT_THAT(message(R"({"text": 7})"), HasSubstr("a.jsonl:3: the field \"text\" is number, "
                                                   "expected a string"));
}

TEST_F(LmcDataTest, ValidationTakesWholeDocuments) {
  std::string text;
  std::multiset<std::string> expected;
  for (int i = 0; i < 1000; ++i) {
    std::string document = "document " + std::to_string(i) + std::string(i % 50, '.');
    text += (i ? "\f" : "") + document;
    expected.insert(document);
  }
  write("a.txt", text);
  std::string report =
      succeed({"pack", "a.txt", "-o", "a.bin", "--validation=v.bin", "--validation-fraction=0.1"});
  EXPECT_THAT(report, HasSubstr("(whole documents)"));
  std::multiset<std::string> found;
  size_t bytes[2] = {0, 0};
  for (int file : {0, 1})
    for (std::string document : documents(file ? "v.bin" : "a.bin")) {
      if (document.back() == '\0')
        document.pop_back();
      bytes[file] += document.size();
      found.insert(document);
    }
  EXPECT_EQ(found, expected);
  EXPECT_NEAR(double(bytes[1]) / (bytes[0] + bytes[1]), 0.1, 0.001);
  // From all over the text, not from one place.
  std::string first = documents("v.bin").front(), last = documents("v.bin").back();
  EXPECT_LT(std::stoi(first.substr(9)), 100);
  EXPECT_GT(std::stoi(last.substr(9)), 900);
}

TEST_F(LmcDataTest, ValidationTakesTheEndOfOneLongText) {
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += static_cast<char>('a' + i % 26);
  write("a.txt", text);
  std::string report = succeed({"pack", "a.txt", "-o", "a.bin", "--validation", "v.bin"});
  EXPECT_THAT(report, HasSubstr("v.bin: 50 tokens, 1 documents (the end of the text)"));
  EXPECT_THAT(documents("a.bin"), ElementsAre(text.substr(0, 950)));
  EXPECT_THAT(documents("v.bin"), ElementsAre(text.substr(950)));
  // The cut falls into the second of three documents.
  write("b.txt", text.substr(0, 10) + "\f" + text.substr(10, 980) + "\f" + text.substr(990));
  succeed({"pack", "b.txt", "-o", "b.bin", "--validation", "v.bin"});
  EXPECT_THAT(documents("b.bin"), ElementsAre(text.substr(0, 10) + '\0', text.substr(10, 940)));
  EXPECT_THAT(documents("v.bin"), ElementsAre(text.substr(950, 40) + '\0', text.substr(990)));
}

TEST_F(LmcDataTest, WritesMegatronsFormat) {
  write("a.txt", "one\f\ftwo");
  EXPECT_THAT(succeed({"pack", "a.txt", "-o", "m.bin", "--write=megatron"}),
              StartsWith("m.bin: 8 tokens, 2 documents\n"));
  EXPECT_EQ(read(path("m.bin")), integers({'o', 'n', 'e', 0, 't', 'w', 'o', 0}, 2));
  EXPECT_EQ(read(path("m.idx")), megatronIndexBytes(kUInt16, 2, {4, 4}, {0, 1, 2}));
  succeed({"verify", "m.bin", "--vocab-size=256"});
  // Without an end of document, and with ids that need more than 16 bits.
  succeed({"pack", "a.txt", "-o", "m.bin", "--write=megatron", "--eod=none"});
  EXPECT_EQ(read(path("m.idx")), megatronIndexBytes(kUInt16, 2, {3, 3}, {0, 1, 2}));
  succeed({"pack", "a.txt", "-o", "m.bin", "--write=megatron", "--eod=65535"});
  EXPECT_EQ(read(path("m.bin")), integers({'o', 'n', 'e', 65535, 't', 'w', 'o', 65535}, 4));
  EXPECT_THAT(fail({"pack", "a.txt", "-o", "m.tok", "--write=megatron"}),
              HasSubstr("must end in .bin"));
  EXPECT_THAT(fail({"pack", "a.txt", "-o", "m.bin", "--write=nanogpt"}),
              HasSubstr("--write=nanogpt: expected lmc or megatron"));
}

TEST_F(LmcDataTest, InspectCountsWhatThereIs) {
  write("a.txt", "aaab\fab");
  succeed({"pack", "a.txt", "-o", "a.bin"});
  auto json = nlohmann::json::parse(succeed({"inspect", "--json", "a.bin"}));
  EXPECT_EQ(json["format"], "lmc");
  EXPECT_EQ(json["tokens"], 7);
  EXPECT_EQ(json["documents"], 2);
  EXPECT_EQ(json["vocabulary"], 256);
  EXPECT_EQ(json["document_lengths"],
            nlohmann::json::parse(R"([{"from": 2, "to": 3, "documents": 1},
                                      {"from": 4, "to": 7, "documents": 1}])"));
  EXPECT_EQ(json["most_frequent"],
            nlohmann::json::parse(
                R"([{"id": 97, "count": 4}, {"id": 98, "count": 2}, {"id": 0, "count": 1}])"));
  double entropy =
      -(4. / 7 * std::log(4. / 7) + 2. / 7 * std::log(2. / 7) + 1. / 7 * std::log(1. / 7));
  EXPECT_NEAR(json["unigram_entropy_nats"].get<double>(), entropy, 1e-12);
  std::string text = succeed({"inspect", "a.bin"});
  EXPECT_THAT(text, HasSubstr("unigram entropy  0.9557 nats per token"));
  EXPECT_THAT(text, HasSubstr("97 'a'             4   57.14 %"));
}

TEST_F(LmcDataTest, InspectSaysHowDocumentsFillWindows) {
  // With their ends: 6, 5, 4, 4 and 19 tokens; the last has none. Windows of 8: 19 is 8 + 8 + 3.
  write("a.txt", "aaaaa\fbbbb\fccc\fddd\feeeeeeeeeeeeeeeeeee");
  succeed({"pack", "a.txt", "-o", "a.bin"});
  // [8] [8] [6] [5 3] [4 4]
  EXPECT_THAT(succeed({"inspect", "a.bin", "--best-fit=8"}),
              HasSubstr("best fit         5 windows of 8 tokens, 2 tokens of padding (5.00 %), 1 "
                        "documents are longer\n"));
  const auto json = nlohmann::json::parse(succeed({"inspect", "a.bin", "--best-fit=8", "--json"}));
  EXPECT_EQ(json["best_fit"]["windows"], 5);
  EXPECT_EQ(json["best_fit"]["padding"], 2);
  EXPECT_EQ(json["best_fit"]["longer_documents"], 1);
  write("bare.bin", std::string(64, '\1'));
  EXPECT_THAT(fail({"inspect", "bare.bin", "--best-fit=8"}), HasSubstr("which --best-fit needs"));
}

TEST_F(LmcDataTest, InspectFindsDoubledEndsInEveryFormat) {
  // The token before each document, as GPT-2 shards have it; one is doubled.
  write("gpt2.bin", llmCBytes(20240520, 1, {50256, 1, 2, 50256, 50256, 3}, 2));
  EXPECT_THAT(succeed({"inspect", "gpt2.bin"}),
              HasSubstr("id 50256, 3 times, 1 DOUBLED, the first at token 4\n"));
  auto json = nlohmann::json::parse(succeed({"inspect", "gpt2.bin", "--json"}));
  EXPECT_EQ(json["format"], "llm.c");
  EXPECT_EQ(json["doubled_end_of_document"], 1);
  write("nano.bin", nanoGptBytes({7, 7, 7, 1}));
  json = nlohmann::json::parse(succeed({"inspect", "nano.bin", "--json", "--eod=7"}));
  EXPECT_EQ(json["format"], "bare");
  EXPECT_EQ(json["token_type"], "uint16");
  EXPECT_EQ(json["doubled_end_of_document"], 2);
  write("wide.bin", llmCBytes(20240801, 7, {128000, 4294967295, 128000, 5}, 4));
  json = nlohmann::json::parse(succeed({"inspect", "wide.bin", "--json"}));
  EXPECT_EQ(json["doubled_end_of_document"], 0);
  EXPECT_EQ(json["documents"], 2);
  EXPECT_EQ(json["distinct_ids"], 3);
}

TEST_F(LmcDataTest, VerifyFindsDamage) {
  write("a.txt", "one\ftwo");
  succeed({"pack", "a.txt", "-o", "a.bin"});
  EXPECT_EQ(succeed({"verify", "a.bin"}),
            "a.bin: 7 uint8 tokens, lmc, all right: size, checksum, 2 documents, ids below 256, "
            "1 separators (id 0), none doubled\n");
  succeed({"verify", "a.bin", "--vocab-size=120"});
  EXPECT_THAT(fail({"verify", "a.bin", "--vocab-size=119"}),
              HasSubstr("a.bin: token 5 is id 119, beyond the vocabulary of 119"));
  std::string bytes = read(path("a.bin"));
  bytes[66] ^= 1;
  write("a.bin", bytes);
  EXPECT_THAT(fail({"verify", "a.bin"}), HasSubstr("a.bin: bad checksum"));
  write("odd.bin", "abc");
  EXPECT_THAT(fail({"verify", "odd.bin"}), HasSubstr("odd.bin: odd-sized: 3 bytes"));
}

TEST_F(LmcDataTest, VerifyAndInspectLookAtSeparators) {
  std::vector<uint64_t> ids;
  for (int document = 0; document < 400; ++document) {
    ids.insert(ids.end(), {5, 6, 7, 8});
    ids.insert(ids.end(), 2, 0); // as a converter writes it that adds one to those of the text
  }
  write("twice.bin", integers(ids, 2));
  const Outcome twice = lmcData({"verify", "twice.bin", "--eod=0"});
  EXPECT_EQ(twice.exit, 0);
  EXPECT_THAT(twice.err,
              HasSubstr("lmc-data: warning: twice.bin: 400 of 800 tokens that end documents (id 0) "
                        "stand directly behind another one, the first at token 5, in 2400 tokens"));
  EXPECT_THAT(lmcData({"verify", "twice.bin", "--eod=9"}).err,
              HasSubstr("no token is 9, which would end a document"));
  // Without the id nothing is known, and nothing is said.
  EXPECT_EQ(lmcData({"verify", "twice.bin"}).err, "");
  EXPECT_THAT(succeed({"inspect", "twice.bin"}),
              HasSubstr("end of document  not known: 50256, the usual id, never occurs; give "
                        "--eod=ID\n"));
  EXPECT_THAT(succeed({"inspect", "twice.bin", "--eod=0"}), HasSubstr("400 DOUBLED"));
}

TEST_F(LmcDataTest, TellsTheTruthOfMegatronsFiles) {
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 300; ++i)
    ids.push_back(i % 7 + 1);
  write("m.bin", integers(ids, 4));
  write("m.idx", megatronIndexBytes(kInt32, 4, {100, 150, 50}, {0, 1, 3}));
  EXPECT_EQ(succeed({"verify", "m.bin", "--vocab-size=8"}),
            "m.bin: 300 int32 tokens, megatron, all right: size, index, 2 documents, no negative "
            "id, ids below 8\n");
  EXPECT_THAT(fail({"verify", "m.bin", "--vocab-size=7"}), HasSubstr("m.bin: token 6 is id 7"));
  EXPECT_THAT(succeed({"inspect", "m.bin"}),
              AllOf(HasSubstr("format           megatron, int32 tokens\ntokens           300\n"
                              "documents        2\ndocument length  shortest 100, median 200"),
                    HasSubstr("end of document  none\n"), HasSubstr("different ids    7,")));
  auto json = nlohmann::json::parse(succeed({"inspect", "m.bin", "--json"}));
  EXPECT_EQ(json["format"], "megatron");
  EXPECT_EQ(json["token_type"], "int32");
  EXPECT_EQ(json["documents"], 2);
  // Without its index the file is refused, unless the user says what it is.
  std::filesystem::remove(path("m.idx"));
  for (const char *command : {"inspect", "verify"}) {
    EXPECT_THAT(fail({command, "m.bin"}), HasSubstr("m.bin: of 600 sampled uint16 those at odd "));
    EXPECT_THAT(fail({command, "m.bin", "--format=megatron"}), HasSubstr("m.idx is missing"));
    EXPECT_THAT(succeed({command, "m.bin", "--format=uint32"}), HasSubstr("300"));
    EXPECT_THAT(succeed({command, "m.bin", "--format=uint16"}), HasSubstr("600"));
    EXPECT_THAT(fail({command, "m.bin", "--format=int32"}),
                HasSubstr("--format=int32: 'int32' is none of auto, uint16, uint32, megatron"));
  }
}

TEST_F(LmcDataTest, RefusesMistakesOfTheUser) {
  write("a.txt", "text");
  write("empty.txt", "");
  EXPECT_THAT(fail({}), HasSubstr("no command given"));
  EXPECT_THAT(fail({"unpack"}), HasSubstr("unknown command 'unpack'"));
  EXPECT_THAT(fail({"pack"}), HasSubstr("no IN given; see: lmc-data pack --help"));
  EXPECT_THAT(fail({"pack", "a.txt"}), HasSubstr("no --output given"));
  EXPECT_THAT(fail({"pack", "a.txt", "-o"}), HasSubstr("option -o needs a value"));
  EXPECT_THAT(fail({"pack", "a.txt", "--outptu=a.bin"}),
              HasSubstr("unknown option --outptu=a.bin"));
  EXPECT_THAT(fail({"inspect", "a.txt", "--json=1"}), HasSubstr("option --json=1 takes no value"));
  EXPECT_THAT(fail({"inspect"}), HasSubstr("no PATH given"));
  EXPECT_THAT(fail({"inspect", "a.txt"}), HasSubstr("a.txt: bad magic at byte 0"));
  EXPECT_THAT(fail({"verify", "none.bin"}), HasSubstr("none.bin: missing"));
  EXPECT_THAT(fail({"pack", "none.txt", "-o", "a.bin"}),
              HasSubstr("none.txt: cannot open: No such file or directory"));
  EXPECT_THAT(fail({"pack", "none*.txt", "-o", "a.bin"}), HasSubstr("no file matches 'none*.txt'"));
  EXPECT_THAT(fail({"pack", "empty.txt", "-o", "a.bin"}), HasSubstr("a.bin: not written"));
  EXPECT_THAT(fail({"pack", "a.txt", "-o", "./a.txt"}), HasSubstr("both input and output"));
  EXPECT_THAT(fail({"pack", "a.txt", "-o", "a.bin", "--validation=a.bin"}),
              HasSubstr("--output and --validation are the same file"));
  EXPECT_THAT(fail({"pack", "empty.txt", "-o", "a.bin", "--validation=v.bin"}),
              HasSubstr("empty.txt: 0 bytes of text, nothing to share"));
  EXPECT_THAT(fail({"pack", "/dev/null", "-o", "a.bin", "--validation=v.bin"}),
              HasSubstr("/dev/null: cannot be read twice"));
  EXPECT_THAT(fail({"pack", "a.txt", "-o", "a.bin", "--format=csv"}), HasSubstr("--format=csv"));
  EXPECT_THAT(fail({"pack", "a.txt", "-o", "a.bin", "--eod=-1"}),
              HasSubstr("--eod=-1: expected a whole number from 0 to 65535, or none"));
  EXPECT_THAT(fail({"pack", "a.txt", "-o", "a.bin", "--document-separator=\\q"}),
              HasSubstr("unknown escape at character 1"));
  EXPECT_THAT(fail({"pack", "a.txt", "-o", "a.bin", "--document-separator=\\xc3"}),
              HasSubstr("--document-separator=\\xc3: is not UTF-8"));
  EXPECT_THAT(fail({"pack", "a.txt", "-o", "a.bin", "--validation-fraction=0.1"}),
              HasSubstr("--validation-fraction needs --validation"));
  for (const char *fraction : {"0", "1", "nan", "x", ""})
    EXPECT_THAT(fail({"pack", "a.txt", "-o", "a.bin", "--validation=v.bin",
                      "--validation-fraction=" + std::string(fraction)}),
                HasSubstr("expected a number between 0 and 1"));
  EXPECT_EQ(read(path("a.txt")), "text");
}

TEST_F(LmcDataTest, HelpIsNoMistake) {
  EXPECT_THAT(succeed({"--help"}), HasSubstr("lmc-data COMMAND --help"));
  for (const char *command : {"pack", "inspect", "verify"})
    EXPECT_THAT(succeed({command, "--help"}), StartsWith("lmc-data " + std::string(command) + " "));
}

// The script behind the demo, where the text's package is installed.
TEST_F(LmcDataTest, PacksTheDemoText) {
  if (!std::filesystem::exists("/usr/lib/bible.data"))
    GTEST_SKIP() << "bible-kjv-text is not installed";
  Outcome made = runProgram(LMC_SOURCE_DIR "/test/data/make-demo-text.sh", {"demo.txt"});
  ASSERT_EQ(made.exit, 0) << made.err;
  std::string text = read(path("demo.txt"));
  EXPECT_THAT(text.substr(0, 64), StartsWith("Ge 1\n\nIn the beginning God created the heaven"));
  EXPECT_TRUE(text.ends_with("be with you all. Amen.\n"));
  succeed({"pack", "demo.txt", "-o", "demo.bin", "--validation=validation.bin"});
  EXPECT_EQ(documents("demo.bin").size() + documents("validation.bin").size(), 1189u);
  // A damaged package gives a message and no file.
  write("short", read("/usr/lib/bible.data").substr(0, 1000000));
  Outcome damaged = runProgram(LMC_SOURCE_DIR "/test/data/make-demo-text.sh", {"x.txt", "short"});
  EXPECT_EQ(damaged.exit, 2);
  EXPECT_THAT(damaged.err, HasSubstr("damaged file or full disk"));
  EXPECT_FALSE(std::filesystem::exists(path("x.txt")));
}

} // namespace
