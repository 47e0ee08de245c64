// The JSON Schema of a job says what the table of keys says. test/parity/test_config_schema.py
// checks jobs with it, and compares what it refuses with what the compiler refuses.

#include "ground/config/Config.h"
#include "ground/config/ModelFamily.h"
#include "ground/config/Values.h"
#include "models/families/Families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace lmc {
namespace {

config::Json schema() { return config::Json::parse(configSchema(modelFamilies())); }

// Returns the schema of the table that has the keys of `section`, which may be a table of a list.
config::Json tableOf(const std::string &section) {
  config::Json table = schema();
  size_t begin = 0;
  while (begin < section.size()) {
    const size_t end = std::min(section.find('.', begin), section.size());
    if (table.contains("items")) // this part of the section is the name of a list's table
      table = config::Json(table["items"]);
    else
      table = config::Json(table["properties"][section.substr(begin, end - begin)]);
    begin = end + 1;
  }
  return table;
}

// All keys, with those of a table "a" of each list.
config::KeyTable keysWithTables() {
  config::KeyTable keys(modelFamilies());
  for (const config::Section &section : config::sections())
    if (section.keysOf)
      keys.addTable(section, "a");
  return keys;
}

// Returns a value of a schema's default, as the TOML file would give it.
config::Value valueOf(const config::Json &json) {
  if (json.is_boolean())
    return json.get<bool>();
  if (json.is_number_integer())
    return json.get<int64_t>();
  if (json.is_number())
    return json.get<double>();
  if (json.is_string())
    return json.get<std::string>();
  return std::vector<std::string>();
}

TEST(JsonSchema, HasEveryKeyByAllItsNamesAndNoOther) {
  std::map<std::string, std::set<std::string>> names;
  for (const config::Key &key : keysWithTables()) {
    const config::Json properties = tableOf(key.section)["properties"];
    names[key.section].insert(key.name);
    if (*key.alias)
      names[key.section].insert(key.alias);
    for (const std::string &name : names[key.section]) {
      ASSERT_TRUE(properties.contains(name)) << key.section << "." << name;
      EXPECT_NE(properties[name].value("description", ""), "") << key.section << "." << name;
      EXPECT_TRUE(properties[name].contains("type")) << key.section << "." << name;
    }
  }
  for (const auto &[section, known] : names)
    for (const auto &[name, property] : tableOf(section)["properties"].items()) {
      const bool isName = name == "name" && config::listOf(section);
      const bool isSection = config::findSection(section + "." + name) != nullptr;
      EXPECT_TRUE(known.count(name) || isName || isSection) << section << "." << name;
    }
}

TEST(JsonSchema, EveryTableRefusesUnknownKeys) {
  EXPECT_EQ(schema()["additionalProperties"], false);
  for (const config::Key &key : keysWithTables())
    EXPECT_EQ(tableOf(key.section)["additionalProperties"], false) << key.section;
}

TEST(JsonSchema, DefaultsAreWhatTheKeyIsWithoutAValue) {
  int count = 0;
  for (const config::Key &key : keysWithTables()) {
    const config::Json property = tableOf(key.section)["properties"][key.name];
    EXPECT_FALSE(key.required && property.contains("default")) << key.path();
    if (!property.contains("default"))
      continue;
    Config initial, assigned;
    const Result<void> done = config::assign(key, valueOf(property["default"]), assigned);
    // "" is the default of some texts, which a job cannot give.
    EXPECT_TRUE(done || property["default"] == "") << key.path();
    EXPECT_EQ(config::resolvedSetting(key, assigned).value,
              config::resolvedSetting(key, initial).value)
        << key.path();
    ++count;
  }
  EXPECT_GT(count, 50);
}

TEST(JsonSchema, KeysHaveTheirTypesRangesAndChoices) {
  const auto property = [](const std::string &section, const char *name) {
    config::Json json = tableOf(section)["properties"][name];
    json.erase("description");
    return json.dump();
  };
  EXPECT_EQ(property("training", "sequence_length"),
            R"({"type":"integer","minimum":1,"maximum":67108864})");
  EXPECT_EQ(property("training", "micro_batch_size"),
            R"({"type":["integer","string"],"anyOf":[{"type":"integer"},{"enum":["auto"]}],)"
            R"("minimum":1,"maximum":1048576,"default":"auto"})");
  EXPECT_EQ(property("optimizer", "weight_decay"),
            R"({"type":"number","minimum":0,"maximum":10,"default":0.1})");
  EXPECT_EQ(property("checkpoint", "background"), R"({"type":"boolean","default":true})");
  EXPECT_EQ(property("model.rope_scaling", "rope_type"),
            R"({"type":"string","enum":["none","default","linear","llama3","dynamic","yarn"],)"
            R"("default":"none"})");
  EXPECT_EQ(property("data", "train"), R"({"type":["string","array"],"minLength":1,)"
                                       R"("items":{"type":"string","minLength":1}})");
  EXPECT_EQ(property("model", "mlp_only_layers"),
            R"({"type":"array","items":{"type":"integer","minimum":0,"maximum":4095}})");
  EXPECT_EQ(property("data.source.a", "name"), R"({"type":"string","pattern":"^[A-Za-z0-9_-]+$"})");
}

TEST(JsonSchema, DescriptionsSayFamiliesUnitsAndDefaults) {
  const auto description = [](const std::string &section, const char *name) {
    return tableOf(section)["properties"][name]["description"].get<std::string>();
  };
  EXPECT_NE(description("model", "layer_norm_epsilon").find("Only of `gpt2`."), std::string::npos);
  EXPECT_NE(description("model", "n_embd").find("Another name of `hidden_size`."),
            std::string::npos);
  EXPECT_NE(description("lr_schedule", "min_lr").find("Default: lr / 10."), std::string::npos);
  EXPECT_NE(description("training", "train_iters").find("Unit: steps."), std::string::npos);
  EXPECT_NE(description("lr_schedule", "lr").find("`lmc-run --set` may change it."),
            std::string::npos);
}

// The pages of docs/ link each other by relative paths, which an editor cannot follow.
TEST(JsonSchema, DescriptionsHaveNoLinks) {
  const std::string text = configSchema(modelFamilies());
  EXPECT_EQ(text.find("]("), std::string::npos);
  EXPECT_NE(text.find("mixtures: docs/data.md#mixtures"), std::string::npos);
}

} // namespace
} // namespace lmc
