#include "tools/support/CommandLine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace lmc {
namespace {

// `tool pack IN... [-o FILE] [--count N] [--set KEY] [--kinds A,B] [--quiet]` and `tool verify`.
struct Tool {
  CommandLine line{"tool", "1.2", "does things"};
  std::string output;
  uint64_t count = 7;
  std::vector<std::string> inputs, sets, kinds;
  bool quiet = false;
  Command &pack = line.command("pack", "packs"), &verify = line.command("verify", "verifies");
  std::string out, errors;

  Tool() {
    pack.arguments("IN", inputs, "files");
    pack.option("-o,--output", "FILE", output, "the result");
    pack.number("--count", "N", 1, 9, count, "how many");
    pack.list("--set", "KEY", sets, "keys");
    pack.group("");
    pack.list("--kinds", "KIND", kinds, "kinds", true);
    pack.flag("--quiet", quiet, "no report");
  }

  std::optional<int> parse(std::vector<std::string> words) {
    words.insert(words.begin(), "tool");
    std::vector<char *> argv;
    for (std::string &word : words)
      argv.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    std::optional<int> done = line.parse(int(argv.size()), argv.data());
    fflush(stdout);
    out = testing::internal::GetCapturedStdout();
    errors = testing::internal::GetCapturedStderr();
    return done;
  }
};

std::string errorOf(const std::vector<std::string> &words) {
  Tool tool;
  EXPECT_EQ(tool.parse(words), int(ExitCode::UserError));
  EXPECT_EQ(tool.out, "");
  EXPECT_EQ(std::count(tool.errors.begin(), tool.errors.end(), '\n'), 1) << tool.errors;
  return tool.errors;
}

TEST(CommandLine, TakesValuesInEitherSpelling) {
  Tool tool;
  EXPECT_EQ(tool.parse({"pack", "--count=3", "a", "--set", "x=1", "-o", "first", "--output=last",
                        "b", "--set=y=", "--kinds=k,l", "--kinds", "m", "--quiet"}),
            std::nullopt)
      << tool.errors;
  EXPECT_TRUE(tool.pack.chosen());
  EXPECT_FALSE(tool.verify.chosen());
  EXPECT_THAT(tool.inputs, ElementsAre("a", "b"));
  EXPECT_THAT(tool.sets, ElementsAre("x=1", "y="));
  EXPECT_THAT(tool.kinds, ElementsAre("k", "l", "m"));
  EXPECT_EQ(tool.output, "last");
  EXPECT_EQ(tool.count, 3u);
  EXPECT_TRUE(tool.quiet);
}

TEST(CommandLine, TakesShortOptionsWithOrWithoutSpace) {
  for (std::vector<std::string> words : {std::vector<std::string>{"-o", "x"}, {"-ox"}, {"-o=x"}}) {
    Tool tool;
    words.insert(words.begin(), {"pack", "a"});
    EXPECT_EQ(tool.parse(words), std::nullopt) << tool.errors;
    EXPECT_EQ(tool.output, "x");
  }
}

TEST(CommandLine, EndsOptionsAtTwoDashes) {
  Tool tool;
  EXPECT_EQ(tool.parse({"pack", "--", "--quiet", "-o"}), std::nullopt) << tool.errors;
  EXPECT_THAT(tool.inputs, ElementsAre("--quiet", "-o"));
}

TEST(CommandLine, ComplainsInOneLine) {
  EXPECT_EQ(errorOf({}), "tool: error: no command given; see: tool --help\n");
  EXPECT_EQ(errorOf({"pakc"}), "tool: error: unknown command 'pakc'; did you mean 'pack'?\n");
  EXPECT_EQ(errorOf({"unzip"}), "tool: error: unknown command 'unzip'; see: tool --help\n");
  EXPECT_EQ(errorOf({"pack"}), "tool: error: no IN given; see: tool pack --help\n");
  EXPECT_EQ(errorOf({"pack", "a", "--ouput=b"}),
            "tool: error: unknown option --ouput=b; did you mean '--output'?\n");
  EXPECT_EQ(errorOf({"pack", "--xyz"}),
            "tool: error: unknown option --xyz; see: tool pack --help\n");
  EXPECT_EQ(errorOf({"pack", "a", "-o"}),
            "tool: error: option -o needs a value; see: tool pack --help\n");
  EXPECT_EQ(errorOf({"pack", "a", "--output="}),
            "tool: error: --output needs a value; see: tool pack --help\n");
  EXPECT_EQ(errorOf({"pack", "a", "--quiet=1"}),
            "tool: error: option --quiet=1 takes no value; see: tool pack --help\n");
  EXPECT_EQ(errorOf({"verify", "a"}),
            "tool: error: 'a' is one argument too many; see: tool verify --help\n");
  for (const char *count : {"0", "10", "x", "", "1x", "-1"})
    EXPECT_THAT(
        errorOf({"pack", "a", std::string("--count=") + count}),
        HasSubstr(std::string("--count=") + count + ": expected a whole number from 1 to 9"));
}

TEST(CommandLine, PrintsHelpAndVersion) {
  Tool tool;
  EXPECT_EQ(tool.parse({"--version"}), 0);
  EXPECT_EQ(tool.out, "tool 1.2\n");
  Tool whole;
  EXPECT_EQ(whole.parse({"--help"}), 0);
  EXPECT_EQ(whole.out, R"(tool COMMAND [options]

does things

Options:
  -h, --help                print this help
  --version                 print the version

Commands:
  pack                      packs
  verify                    verifies
)");
  Tool pack;
  EXPECT_EQ(pack.parse({"pack", "--help"}), 0);
  EXPECT_EQ(pack.out, R"(tool pack IN... [options]

packs

Arguments:
  IN...                     files

Options:
  -h, --help                print this help
  -o, --output=FILE         the result
  --count=N                 how many
  --set=KEY                 keys
)");
  EXPECT_THAT(pack.errors, IsEmpty());
}

} // namespace
} // namespace lmc
