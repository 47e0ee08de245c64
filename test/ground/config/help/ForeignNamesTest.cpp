// Names of other programs get lmc's key or a reason in an error, and stand in the guide.

#include "ground/config/help/ForeignNames.h"
#include "ground/config/Keys.h"
#include "test/ground/config/ConfigFixture.h"

#include <cstdlib>
#include <set>
#include <sstream>

namespace lmc {
namespace {

class ForeignNamesTest : public ConfigTest {
protected:
  // Returns what follows "unknown key 'NAME' in [SECTION]; " in the error for a key of a section.
  std::string hintOf(const std::string &section, const std::string &name) {
    const std::string errors = errorsOf(kModel + kTraining, {section + "." + name + "=1"});
    const std::string start = "--set: error: unknown key '" + name + "' in [" + section + "]; ";
    EXPECT_EQ(errors.rfind(start, 0), 0u) << errors;
    EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
    return errors.size() > start.size()
               ? errors.substr(start.size(), errors.size() - 1 - start.size())
               : "";
  }
};

TEST_F(ForeignNamesTest, EachKeyExists) {
  const config::KeyTable keys(families);
  for (const config::ForeignKey &foreign : config::foreignKeys()) {
    const std::string_view path = foreign.key;
    const size_t dot = path.rfind('.');
    if (path.empty())
      EXPECT_NE(std::string_view(foreign.remark), "") << foreign.name;
    else
      EXPECT_TRUE(dot != path.npos && keys.find(path.substr(0, dot), path.substr(dot + 1)))
          << foreign.name << ": " << path;
    EXPECT_NE(foreign.programs, 0u) << foreign.name;
  }
}

TEST_F(ForeignNamesTest, NoNameIsThatOfAKeyOrOfASection) {
  for (const config::Key &key : config::KeyTable(families)) {
    for (const config::ForeignKey &foreign : config::foreignKeys()) {
      EXPECT_NE(std::string_view(foreign.name), key.name);
      EXPECT_NE(std::string_view(foreign.name), key.alias);
      EXPECT_NE(foreign.name, key.path());
    }
  }
  for (const config::ForeignSection &foreign : config::foreignSections())
    EXPECT_FALSE(config::findSection(foreign.name)) << foreign.name;
}

TEST_F(ForeignNamesTest, NoNameIsThereTwice) {
  std::set<std::string> names, sections;
  for (const config::ForeignKey &foreign : config::foreignKeys())
    EXPECT_TRUE(names.insert(foreign.name).second) << foreign.name;
  for (const config::ForeignSection &foreign : config::foreignSections())
    EXPECT_TRUE(sections.insert(foreign.name).second) << foreign.name;
}

// A name that the lookup cannot match, such as one with a capital letter, would never be found.
TEST_F(ForeignNamesTest, EachEntryIsFound) {
  for (const config::ForeignKey &foreign : config::foreignKeys()) {
    const std::string name = foreign.name;
    const size_t dot = name.find('.');
    const bool ofSection = dot != name.npos;
    EXPECT_EQ(config::findForeignKey(ofSection ? "outer." + name.substr(0, dot) : "anywhere",
                                     name.substr(ofSection ? dot + 1 : 0), ofSection),
              &foreign)
        << name;
  }
  for (const config::ForeignSection &foreign : config::foreignSections())
    EXPECT_EQ(config::findForeignSection(foreign.name), &foreign) << foreign.name;
}

TEST_F(ForeignNamesTest, KeyOfAnotherProgramIsToldLmcsKey) {
  EXPECT_EQ(hintOf("distributed", "zero_stage"),
            "lmc's key is distributed.strategy: zero_stage = 2 is strategy = \"zero2\"");
  EXPECT_EQ(hintOf("checkpoint", "max_checkpoints"), "lmc's key is checkpoint.keep");
  EXPECT_EQ(hintOf("optimizer", "adam_beta1"), "lmc's key is optimizer.beta1");
  EXPECT_EQ(hintOf("memory", "mlp_recompute_level"),
            "lmc's key is memory.recompute: \"activation\" and \"full\" are the same words, and "
            "\"none\" is \"keep-all\"");
  EXPECT_EQ(hintOf("training", "training_dtype"), "lmc's key is training.compute_dtype");
  EXPECT_EQ(hintOf("training", "seq_len"), "lmc's key is training.sequence_length");
  EXPECT_EQ(hintOf("model", "norm_eps"),
            "lmc's key is model.rms_norm_eps: in gpt2 the key is model.layer_norm_epsilon");
}

// The nearest of lmc's names is wrong for these: it was the hint before there was a table.
TEST_F(ForeignNamesTest, TableGoesBeforeTheNearestName) {
  EXPECT_EQ(hintOf("lr_schedule", "lr_decay_style"),
            "lmc's key is lr_schedule.style: \"inverse-square-root\" is \"inverse_sqrt\"");
  EXPECT_EQ(hintOf("checkpoint", "checkpoint_interval"), "lmc's key is checkpoint.interval");
  EXPECT_EQ(hintOf("distributed", "tensor_parallel")
                .rfind("lmc has no tensor parallelism: each device computes whole layers", 0),
            0u);
}

TEST_F(ForeignNamesTest, KeyThatLmcDoesNotHaveSaysWhy) {
  EXPECT_EQ(hintOf("training", "gradient_accumulation_steps"),
            "lmc computes the number of accumulation steps: training.batch_size / "
            "(training.micro_batch_size x devices)");
}

TEST_F(ForeignNamesTest, LmcsOwnKeysGoBeforeTheTable) {
  EXPECT_EQ(hintOf("optimizer", "n_layer"), "it belongs to [model]");
  EXPECT_EQ(hintOf("training", "interval"), "it belongs to [checkpoint]");
}

TEST_F(ForeignNamesTest, NameOfAListsTableGoesBehindTheTable) {
  const std::string phases = "[[phase]]\nname = \"a\"\nshare = 1.0\n";
  EXPECT_EQ(errorsOf(kModel + kTraining + "steps = 5\n" + phases),
            "job.toml:12:1: error: unknown key 'steps' in [training]; lmc's key is "
            "training.train_iters\n");
}

TEST_F(ForeignNamesTest, FlagsAndCapitalLettersAreRead) {
  EXPECT_EQ(hintOf("model", "--num-layers"), "lmc's key is model.num_hidden_layers");
  EXPECT_EQ(hintOf("distributed", "Zero-Stage"), hintOf("distributed", "zero_stage"));
}

TEST_F(ForeignNamesTest, RequiredKeyUnderAnotherNameIsOneMistakeNotTwo) {
  std::string training = kTraining;
  training.replace(training.find("sequence_length"), 15, "seq_len");
  EXPECT_EQ(errorsOf(kModel + training),
            "job.toml:8:1: error: unknown key 'seq_len' in [training]; lmc's key is "
            "training.sequence_length\n");
}

TEST_F(ForeignNamesTest, KeyOutsideOfSections) {
  EXPECT_EQ(errorsOf("seq_len = 32\n" + kModel + kTraining, {"zero_stage=2", "--num-layers=4"}),
            "job.toml:1:1: error: key 'seq_len' stands outside of any section; lmc's key is "
            "training.sequence_length\n"
            "--set: error: unknown key 'zero_stage'; lmc's key is distributed.strategy: "
            "zero_stage = 2 is strategy = \"zero2\"\n"
            "--set: error: unknown key '--num-layers'; lmc's key is model.num_hidden_layers\n");
}

TEST_F(ForeignNamesTest, SectionOfAnotherProgramAndItsKeys) {
  EXPECT_EQ(errorsOf(kModel + kTraining +
                     "[parallelism]\nexpert_parallel_degree = 2\nzzz = 3\nnodes = 2\n"),
            "job.toml:12:2: error: unknown section [parallelism]; lmc's section is [distributed]\n"
            "job.toml:13:1: error: unknown key 'expert_parallel_degree' in [parallelism]; lmc's "
            "key is distributed.expert_parallel\n"
            "job.toml:15:1: error: unknown key 'nodes' in [parallelism]; it belongs to "
            "[distributed]\n");
  EXPECT_EQ(
      errorsOf(kModel + kTraining, {"parallelism.expert_parallel_degree=2", "parallelism.zzz=3"}),
      "--set: error: unknown key 'expert_parallel_degree' in [parallelism]; lmc's key is "
      "distributed.expert_parallel\n"
      "--set: error: unknown section [parallelism]; lmc's section is [distributed]\n");
}

// Fast-LLM writes optimizer.learning_rate.base; elsewhere `base` means nothing.
TEST_F(ForeignNamesTest, NameThatHoldsInOneSection) {
  EXPECT_EQ(errorsOf(kModel + kTraining,
                     {"optimizer.learning_rate.base=1e-4", "training.logs.interval=10",
                      "training.checkpoint.interval=500"}),
            "--set: error: unknown key 'base' in [optimizer.learning_rate]; lmc's key is "
            "lr_schedule.lr\n"
            "--set: error: unknown key 'interval' in [training.logs]; lmc's key is "
            "monitoring.log_interval\n"
            "--set: error: unknown key 'interval' in [training.checkpoint]; it belongs to "
            "[checkpoint]\n");
  EXPECT_EQ(errorsOf(kModel + kTraining + "base = 1\n").find("lr_schedule.lr"), std::string::npos);
}

TEST_F(ForeignNamesTest, SectionInsideAnother) {
  EXPECT_EQ(errorsOf(kModel + "[model.base_model.transformer]\nnum_layers = 2\n" + kTraining +
                     "[training.optimizer]\nadam_beta1 = 0.9\n"),
            "job.toml:7:8: error: unknown section [model.base_model]; lmc's section is [model]\n"
            "job.toml:8:1: error: unknown key 'num_layers' in [model.base_model.transformer]; "
            "lmc's key is model.num_hidden_layers\n"
            "job.toml:14:11: error: unknown section [training.optimizer]; did you mean "
            "'optimizer'?\n"
            "job.toml:15:1: error: unknown key 'adam_beta1' in [training.optimizer]; lmc's key is "
            "optimizer.beta1\n");
}

// Returns the tables of docs/guides/coming-from.md: one for each program.
std::string foreignNameTables() {
  constexpr std::pair<unsigned, const char *> programs[] = {
      {config::kFastLlm, "Fast-LLM"},      {config::kMegatron, "Megatron-LM"},
      {config::kTorchtitan, "torchtitan"}, {config::kHuggingFace, "Hugging Face's Trainer"},
      {config::kNanoGpt, "nanoGPT"},       {config::kOtherProgram, "Other programs"},
  };
  std::ostringstream text;
  for (const auto &[program, title] : programs) {
    text << "\n## " << title << "\n\n| their name | lmc's key | remark |\n|---|---|---|\n";
    for (const config::ForeignKey &foreign : config::foreignKeys())
      if (foreign.programs & program) {
        const std::string key = foreign.key;
        text << "| `" << foreign.name << "` | " << (key.empty() ? "none" : "`" + key + "`") << " | "
             << foreign.remark << (*foreign.remark ? " |\n" : "|\n");
      }
  }
  return text.str();
}

TEST(ForeignNamesGuide, TablesAreUpToDate) {
  const std::string path = LMC_SOURCE_DIR "/docs/guides/coming-from.md";
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string page = text.str();
  const size_t tables = page.find("\n## Fast-LLM\n");
  ASSERT_NE(tables, std::string::npos) << path << " has no heading ## Fast-LLM";
  if (std::getenv("LMC_UPDATE_DOCS"))
    std::ofstream(path, std::ios::binary) << page.substr(0, tables) << foreignNameTables();
  else
    EXPECT_TRUE(page.substr(tables) == foreignNameTables())
        << "docs/guides/coming-from.md is not what ground/config/help/ForeignNames.cpp says; "
           "refresh "
           "it with\n"
           "  LMC_UPDATE_DOCS=1 build/bin/config-tests --gtest_filter='ForeignNamesGuide.*'";
}

} // namespace
} // namespace lmc
