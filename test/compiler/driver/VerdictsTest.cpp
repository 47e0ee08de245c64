// `lmc compile --set` and `lmc-run --set` judge a setting alike: what a machine with GPUs would
// refuse is refused where the plan is made, and the other way round.
#include "compiler/driver/Compile.h"
#include "compiler/driver/Registration.h"
#include "plan_generated.h"
#include "runtime/settings/Settings.h"
#include "test/Draws.h"
#include "test/ground/config/ConfigFixture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <random>

using namespace lmc;

namespace {

const std::string kJob = kModel + kTraining + R"(
[data]
train = ["a.bin", "b.bin"]
validation = "v.bin"
[monitoring]
validation_interval = 10
[checkpoint]
interval = 10
export_interval = 20
)";
const std::string kMixture = kModel + R"(
[training]
sequence_length = 32
batch_size = 8
micro_batch_size = 2
[optimizer]
type = "muon"
[[data.source]]
name = "web"
paths = ["a.bin", "b.bin"]
weight = 0.7
[[data.source]]
name = "code"
paths = "c.bin"
weight = 0.3
[[validation]]
name = "web"
paths = "v.bin"
[[validation]]
name = "code"
paths = "w.bin"
[[phase]]
name = "long"
steps = 90
[[phase]]
name = "anneal"
steps = 10
sequence_length = 16
lr_style = "linear"
sources = ["code=2"]
)";

class VerdictsTest : public ConfigTest {
protected:
  VerdictsTest() : context(registry()) {}

  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  // Makes the plan of `text`, whose settings the draws change.
  void plan(const std::string &text) {
    job = text;
    ASSERT_EQ(errorsOf(text), "");
    CompileOptions options;
    options.withCode = false;
    auto result = lmc::compile(config, options, context);
    ASSERT_TRUE(mlir::succeeded(result));
    bytes = result->plan;
    base = config;
  }

  std::string ofCompile(const std::vector<std::string> &changes) { return errorsOf(job, changes); }

  std::string ofRun(const std::vector<std::string> &changes) {
    auto table = RunSettings::read(*plan::GetPlan(bytes.data()), changes);
    if (!table)
      return table.error().message;
    uint64_t first = 0;
    std::vector<PlanFile::Phase> phases;
    for (const PhaseConfig &phase : base.phases) {
      phases.push_back({phase.name, first, uint64_t(phase.steps)});
      first += uint64_t(phase.steps);
    }
    for (const PlanFile::Phase &phase : phases)
      if (auto settings = TrainSettings::make(*table, &phase); !settings)
        return settings.error().message;
    if (auto settings = TrainSettings::make(*table); !settings)
      return settings.error().message;
    return "";
  }

  // Returns a value for the setting, sound or not, as a user writes it.
  std::string draw(const Setting &setting) {
    const auto pick = [&](const std::vector<std::string> &values) {
      return values[random() % values.size()];
    };
    const std::string low = fmt::format("{}", setting.minimum),
                      high = fmt::format("{}", setting.maximum);
    switch (setting.type) {
    case plan::SettingType::Integer:
      return pick({"0", "1", "5", "16", "32", "48", "64", "90", "100", "150", "-1", "1.5", "many",
                   fmt::format("{}", int64_t(std::max(setting.minimum, -1e6)))});
    case plan::SettingType::Float:
      return pick({"0", "1e-3", "0.5", "1", "2", "11", "-1", "nan", "inf", "few", low, high});
    case plan::SettingType::Boolean:
      return pick({"true", "false", "yes", "1"});
    case plan::SettingType::String: {
      std::vector<std::string> values = {"",  "\"\"",  "web", "data.validation",
                                         "5", "5-7,9", "7-5", "a command"};
      for (int i = 0; i < 3; ++i)
        values.insert(values.end(), setting.choices.begin(), setting.choices.end());
      for (const std::string &choice : setting.choices) {
        std::string upper = choice;
        upper[0] = char(std::toupper(upper[0]));
        values.push_back(upper);
      }
      return pick(values);
    }
    case plan::SettingType::StringList:
      return pick({"[]", "a.bin", "[\"a.bin\", \"c.bin\"]", "[\"\"]", "", "[1, 2]", "3",
                   "[\"0:0\", \"50:1e-3\"]", "[\"50:1e-3\", \"0:1\"]", "[\"web\", \"code=0.5\"]",
                   "[\"web\", \"web\"]", "[\"cod\"]"});
    }
    return "";
  }

  // Draws changes of settings that a run may change, often of those that rules connect.
  std::vector<std::string> drawChanges() {
    std::vector<const Setting *> all, connected;
    for (const Setting &setting : base.settings) {
      // A run with phases may be made longer, and a plan of it may not.
      if (!setting.runTime || (!base.phases.empty() && setting.key == "training.train_iters"))
        continue;
      all.push_back(&setting);
      for (const char *part : {"checkpoint.", "guard.on_spike", "guard.action", "guard.skip_steps",
                               "lr_schedule.", "data.", "validation", "phase.", "generation."})
        if (setting.key.find(part) != std::string::npos)
          connected.push_back(&setting);
    }
    std::vector<std::string> changes;
    for (size_t count = 1 + random() % 3; count > 0; --count) {
      const auto &from = random() % 4 ? connected : all;
      const Setting &setting = *from[random() % from.size()];
      changes.push_back(fmt::format("{}={}", setting.key, draw(setting)));
    }
    return changes;
  }

  // Counts the draws that both take.
  void compare(const std::string &text, int64_t draws, uint64_t seed) {
    plan(text);
    random.seed(seed);
    int64_t taken = 0, refused = 0;
    for (int64_t i = 0; i < draws; ++i) {
      const std::vector<std::string> changes = drawChanges();
      const std::string compiled = ofCompile(changes), run = ofRun(changes);
      (compiled.empty() && run.empty() ? taken : refused) += 1;
      ASSERT_EQ(compiled.empty(), run.empty()) << fmt::format(
          "--set {}\nlmc compile: {}\nlmc-run: {}\n", fmt::join(changes, " --set "), compiled, run);
    }
    // A test that refuses or takes everything would compare nothing.
    EXPECT_GT(taken, draws / 10);
    EXPECT_GT(refused, draws / 10);
  }

  std::mt19937_64 random;
  mlir::MLIRContext context;
  std::string job;
  std::string bytes;
  Config base; // of the plan
};

TEST_F(VerdictsTest, DrawnSettingsOfAJob) { compare(kJob, test::drawCount(1500), 7); }

TEST_F(VerdictsTest, DrawnSettingsOfAJobWithPhases) { compare(kMixture, test::drawCount(1500), 8); }

TEST_F(VerdictsTest, AreThoseOfEachRule) {
  plan(kJob);
  const std::vector<std::vector<std::string>> refused = {
      {"checkpoint.keep_best=web"},
      {"checkpoint.keep_best=data.validation", "data.validation=[]"},
      {"checkpoint.export_command=evaluate.sh", "checkpoint.export_interval=0"},
      {"guard.on_spike=skip", "guard.action=off"},
      {"guard.skip_steps=7-5"},
      {"lr_schedule.warmup_iters=100"},
      {"data.shuffle_block=48"},
      {"generation.prompts=p.txt", "generation.max_new_tokens=32"},
      {"data.packing=best_fit", "data.shuffle_block=64"},
      {"data.train=[\"\"]"},
      {"data.train="},
      {"monitoring.on_event=\"a"},
      {"guard.on_spike="},
  };
  for (const auto &changes : refused) {
    EXPECT_NE(ofCompile(changes), "") << changes[0];
    EXPECT_NE(ofRun(changes), "") << changes[0];
  }
  const std::vector<std::vector<std::string>> taken = {
      {"checkpoint.keep_best="}, {"checkpoint.keep_best=\"\"", "data.validation=[]"},
      {"guard.skip_steps=7"},    {"guard.on_spike=Skip"},
      {"data.validation=[]"},
  };
  for (const auto &changes : taken) {
    EXPECT_EQ(ofCompile(changes), "") << changes[0];
    EXPECT_EQ(ofRun(changes), "") << changes[0];
  }
  // The place of a mistake in the file.
  EXPECT_EQ(errorsOf(kJob + "keep_best = \"web\"\n"),
            "job.toml:21:13: error: keep_best = \"web\" is no set of validation data; there is "
            "data.validation\n");
  EXPECT_EQ(errorsOf(kJob + "[guard]\naction = \"off\"\non_spike = \"skip\"\n"),
            "job.toml:23:12: error: on_spike is \"skip\", and guard.action = \"off\" looks for no "
            "spikes; set guard.action to \"stop\" or \"warn\"\n");
  EXPECT_EQ(ofRun({"checkpoint.keep_best=web"}),
            "checkpoint.keep_best = \"web\" is no set of validation data; there is "
            "data.validation; --set checkpoint.keep_best=... changes it");
}

} // namespace
