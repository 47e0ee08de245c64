#include "ground/config/ParameterGroups.h"

#include "test/ground/config/ConfigFixture.h"

#include <algorithm>

namespace lmc {
namespace {

TEST(ParameterPatterns, MatchWholeNames) {
  const char *name = "model.layers.3.mlp.down_proj.weight";
  for (const char *pattern : {"model.layers.3.mlp.down_proj.weight", "*", "*_proj.weight", "model*",
                              "*mlp*", "**.?.*weight*", "model.layers.?.mlp.????_proj.weight"})
    EXPECT_TRUE(matchesPattern(pattern, name)) << pattern;
  for (const char *pattern : {"", "model", "mlp", "*_proj", "layers.3*", "model.layers.??.*",
                              "*.weight?", "[a-z]*", "*down_proj.Weight"})
    EXPECT_FALSE(matchesPattern(pattern, name)) << pattern;
  EXPECT_TRUE(matchesPattern("", ""));
  EXPECT_TRUE(matchesPattern("*", ""));
  EXPECT_FALSE(matchesPattern("?", ""));
}

TEST(ParameterPatterns, HaveNearestNames) {
  const std::vector<std::string> names = {
      "model.embed_tokens.weight", "model.layers.0.q_proj.weight", "model.layers.0.q_proj.bias",
      "model.layers.1.q_proj.weight", "model.norm.weight"};
  EXPECT_EQ(nearestParameters("*.q_prj.weight", names, 1),
            std::vector<std::string>{"model.layers.0.q_proj.weight"});
  EXPECT_EQ(nearestParameters("model.nrm.weight", names, 1),
            std::vector<std::string>{"model.norm.weight"});
  EXPECT_EQ(nearestParameters("*", names, 9).size(), 4U) << "layers count once";
}

class ParameterGroupsTest : public ConfigTest {
protected:
  ParameterGroupsTest() {
    listParameters = [](const Config &) {
      return std::vector<std::string>{"model.embed_tokens.weight", "model.layers.0.q_proj.weight",
                                      "model.layers.0.q_proj.bias", "model.norm.weight"};
    };
  }
  static std::string group(const std::string &keys) {
    return "[[optimizer.group]]\n" + keys + "\n";
  }
  const Setting *find(const std::string &key) {
    const auto found = std::ranges::find(config.settings, key, &Setting::key);
    return found == config.settings.end() ? nullptr : &*found;
  }
  const std::string base = kModel + kTraining;
  const std::string embeddings = group("name = \"embeddings\"\n"
                                       "parameters = [\"model.embed_tokens.weight\", \"*.bias\"]\n"
                                       "weight_decay = 0\nlr_mult = 0.5");
  const std::string norms = group("name = \"norms\"\nparameters = \"*norm*\"");
};

TEST_F(ParameterGroupsTest, AreReadAndSetByName) {
  ASSERT_EQ(errorsOf(base + embeddings + norms, {"optimizer.group.norms.lr_mult=2"}), "");
  ASSERT_EQ(config.optimizer.groups.size(), 2U);
  const ParameterGroup &first = config.optimizer.groups["embeddings"];
  EXPECT_EQ(first.parameters, (std::vector<std::string>{"model.embed_tokens.weight", "*.bias"}));
  EXPECT_TRUE(first.ownDecay);
  EXPECT_EQ(first.weightDecay, 0);
  EXPECT_EQ(first.lrMult, 0.5);
  EXPECT_EQ(first.optimBits, 32);
  const ParameterGroup &second = config.optimizer.groups["norms"];
  EXPECT_FALSE(second.ownDecay);
  EXPECT_EQ(second.weightDecay, 0.1) << "that of [optimizer]";
  EXPECT_EQ(second.lrMult, 2);
  EXPECT_EQ(groupOf(config.optimizer, "model.layers.7.q_proj.bias"),
            &config.optimizer.groups["embeddings"]);
  EXPECT_EQ(groupOf(config.optimizer, "model.layers.7.q_proj.weight"), nullptr);
}

TEST_F(ParameterGroupsTest, ChangeAtRunTimeWhatThePlanReads) {
  ASSERT_EQ(errorsOf(base + embeddings + norms), "");
  std::vector<std::string> changeable;
  for (const Setting &setting : config.settings)
    if (setting.key.starts_with("optimizer.group.")) {
      EXPECT_TRUE(setting.identity) << setting.key;
      if (setting.runTime)
        changeable.push_back(setting.key);
    }
  // The norms decay as the optimizer's key says: a decay of their own needs another plan.
  EXPECT_EQ(changeable, (std::vector<std::string>{"optimizer.group.embeddings.weight_decay",
                                                  "optimizer.group.embeddings.lr_mult",
                                                  "optimizer.group.norms.lr_mult"}));
  EXPECT_EQ(find("optimizer.group.norms.weight_decay")->derivedFrom, "optimizer.weight_decay");
  EXPECT_EQ(find("optimizer.group.norms.weight_decay")->value, "0.1");
}

TEST_F(ParameterGroupsTest, BitsFollowTheOptimizer) {
  const std::string eight = group("name = \"a\"\nparameters = \"*\"\noptim_bits = 8");
  EXPECT_EQ(errorsOf(base + eight),
            "job.toml:15:14: error: optim_bits = 8 needs optimizer.type = \"adamw8bit\", and it is "
            "\"adamw\"; leave optim_bits out, or give adamw8bit and optim_bits = 32 in the groups "
            "that keep f32 moments\n");
  EXPECT_EQ(errorsOf(base + eight, {"optimizer.type=adamw8bit"}), "");
  EXPECT_EQ(errorsOf(base + norms, {"optimizer.type=adamw8bit"}), "");
  EXPECT_EQ(config.optimizer.groups["norms"].optimBits, 8);
  EXPECT_EQ(errorsOf(base + eight, {"optimizer.group.a.optim_bits=32", "optimizer.type=muon"}), "");
  EXPECT_EQ(errorsOf(base + eight, {"optimizer.group.a.optim_bits=16"}),
            "--set: error: optim_bits = 16 is neither 8 nor 32\n");
}

TEST_F(ParameterGroupsTest, MistakesAreNamed) {
  EXPECT_EQ(errorsOf(base + group("parameters = \"*\"")),
            "job.toml:12:1: error: a [[optimizer.group]] has no name; give it a name of letters, "
            "digits, _ and -, such as name = \"web\"\n");
  EXPECT_EQ(errorsOf(base + group("name = \"a\"")),
            "job.toml:13:8: error: missing required key 'parameters' in [[optimizer.group]] a\n");
  EXPECT_EQ(errorsOf(base + group("name = \"a\"\nparameters = []")),
            "job.toml:14:14: error: [[optimizer.group]] a has an empty list of parameters; give it "
            "patterns of their names, or leave it out\n");
  EXPECT_EQ(errorsOf(base + group("name = \"a\"\nparameters = \"*\"\nlr_mul = 2")),
            "job.toml:15:1: error: unknown key 'lr_mul' in [[optimizer.group]] a; did you mean "
            "'lr_mult'?\n");
  EXPECT_EQ(errorsOf(base + group("name = \"a\"\nparameters = \"*\"\nlr_mult = -1")),
            "job.toml:15:11: error: optimizer.group.a.lr_mult is -1; it must be from 0 to 10000\n");
}

TEST_F(ParameterGroupsTest, APatternThatNamesNoParameterIsAnError) {
  EXPECT_EQ(errorsOf(base + group("name = \"a\"\nparameters = [\"*.bias\", \"*.q_prj.weight\"]")),
            "job.toml:14:14: error: '*.q_prj.weight' names no parameter of the model; the nearest "
            "are model.layers.0.q_proj.weight, model.norm.weight and model.embed_tokens.weight\n");
  // Other mistakes come first: without a sound model there are no names.
  EXPECT_EQ(errorsOf(base + group("name = \"a\"\nparameters = \"x\"\nlr_mult = -1")),
            "job.toml:15:11: error: optimizer.group.a.lr_mult is -1; it must be from 0 to 10000\n");
}

TEST_F(ParameterGroupsTest, AParameterOfTwoGroupsIsAnError) {
  EXPECT_EQ(errorsOf(base + embeddings +
                     group("name = \"other\"\nparameters = [\"*norm.weight\", \"*.q_proj.*\"]")),
            "job.toml:19:14: error: model.layers.0.q_proj.bias is of both [[optimizer.group]] "
            "embeddings and [[optimizer.group]] other; change the patterns so that each parameter "
            "is of one group\n");
  EXPECT_EQ(errorsOf(base + embeddings + group("name = \"other\"\nparameters = \"*\"")),
            "job.toml:19:14: error: model.embed_tokens.weight (and 1 more) is of both "
            "[[optimizer.group]] embeddings and [[optimizer.group]] other; change the patterns so "
            "that each parameter is of one group\n");
  EXPECT_EQ(errorsOf(base + group("name = \"a\"\nparameters = [\"*\", \"*.bias\"]")), "")
      << "two patterns of one group";
}

} // namespace
} // namespace lmc
