#include "tools/lmc-run/monitors/Prometheus.h"

#include "test/runtime/checkpoint/TestFolder.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

namespace lmc {
namespace {

using test::TestFolder;
using ::testing::HasSubstr;
using ::testing::Not;

StepRecord shownStep(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 2.5;
  record.tokens = 4096;
  record.mfuFull = std::numeric_limits<double>::quiet_NaN();
  record.gradNorm = std::numeric_limits<double>::infinity();
  return record;
}

TEST(Prometheus, TheTextHasEachMetricOnceWithItsHelpAndTypeBeforeItsValues) {
  PrometheusFile file("unused", "a\\b\"c\nd");
  StepRecord record = shownStep(12);
  record.validations = {{"", 1.5, {}}, {"web", 1.25, {}}};
  record.sources = {{"books", 64, 0.125}};
  file.step(record);
  file.event("checkpoint", {{"step", 10}});
  file.event("checkpoint", {{"step", 12}});
  std::istringstream text(file.text());
  std::set<std::string> described;
  std::string current;
  // The value of the label has its backslash, quote and newline escaped.
  const std::regex sample(R"re(([a-z_]+)\{run="a\\\\b\\"c\\nd"(,[a-z]+="[a-z]*")?\} (\S+))re");
  for (std::string line; std::getline(text, line);) {
    std::smatch match;
    if (line.starts_with("# HELP ")) {
      current = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(described.insert(current).second) << line;
      ASSERT_TRUE(std::getline(text, line));
      EXPECT_TRUE(line == "# TYPE " + current + " gauge" ||
                  line == "# TYPE " + current + " counter")
          << line;
    } else if (std::regex_match(line, match, sample)) {
      EXPECT_EQ(match[1], current);
    } else {
      ADD_FAILURE() << line;
    }
  }
  const std::string all = file.text();
  for (const char *line :
       {"lmc_step{run=\"a\\\\b\\\"c\\nd\"} 12\n", "lmc_loss{", "} 2.5\n", "lmc_tokens_total{",
        "lmc_tokens_per_second{", "lmc_step_seconds{", ",set=\"\"} 1.5\n", ",set=\"web\"} 1.25\n",
        ",source=\"books\"} 64\n", ",event=\"checkpoint\"} 2\n"})
    EXPECT_THAT(all, HasSubstr(line));
  EXPECT_TRUE(std::regex_search(all, std::regex("\nlmc_mfu\\{.*\\} NaN\n")));
  EXPECT_TRUE(std::regex_search(all, std::regex("\nlmc_grad_norm\\{.*\\} \\+Inf\n")));
  EXPECT_TRUE(std::regex_search(all, std::regex("\nlmc_last_checkpoint_step\\{.*\\} 12\n")));
  EXPECT_TRUE(std::regex_search(
      all, std::regex("\nlmc_last_checkpoint_timestamp_seconds\\{.*\\} 1[0-9.]+\n")));
}

TEST(Prometheus, AValueThatIsNotKnownHasNoLineAndTheEndIsShown) {
  PrometheusFile file("unused", "a");
  EXPECT_THAT(file.text(), HasSubstr("lmc_running{run=\"a\"} 1\n"));
  EXPECT_THAT(file.text(), Not(HasSubstr("lmc_loss")));
  EXPECT_THAT(file.text(), Not(HasSubstr("checkpoint")));
  file.event("exit", {{"code", 4}});
  EXPECT_THAT(file.text(), HasSubstr("lmc_running{run=\"a\"} 0\n"));
  EXPECT_THAT(file.text(), HasSubstr("lmc_exit_code{run=\"a\"} 4\n"));
}

TEST(Prometheus, TheFileIsReplacedAtOnceAndNothingElseStays) {
  TestFolder folder;
  PrometheusFile file(folder / "lmc.prom", "a");
  ASSERT_OK(file.write());
  file.step(shownStep(3));
  ASSERT_OK(file.write());
  EXPECT_EQ(test::read(folder / "lmc.prom"), file.text());
  auto names = listFolder(folder.path);
  ASSERT_TRUE(bool(names));
  EXPECT_EQ(*names, std::vector<std::string>{"lmc.prom"});
  PrometheusFile nowhere(folder / "none/lmc.prom", "a");
  EXPECT_ERROR(nowhere.write(), folder / "none/lmc.prom");
}

} // namespace
} // namespace lmc
