// docs/config.md is what the table of keys says.

#include "ground/config/Config.h"
#include "ground/config/Keys.h"
#include "models/families/Families.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace lmc {
namespace {

TEST(Reference, PageIsUpToDate) {
  const std::string path = LMC_SOURCE_DIR "/docs/config.md";
  if (std::getenv("LMC_UPDATE_DOCS"))
    std::ofstream(path, std::ios::binary) << configReference(modelFamilies());
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == configReference(modelFamilies()))
      << "docs/config.md is not what ground/config/keys and models/families say; refresh it "
         "with\n"
         "  LMC_UPDATE_DOCS=1 build/bin/config-tests --gtest_filter='Reference.*'";
}

// All keys, with those of two tables of each list.
config::KeyTable allKeys() {
  config::KeyTable keys(modelFamilies());
  for (const config::Section &section : config::sections())
    for (const char *name : {"a", "b"})
      if (section.keysOf)
        keys.addTable(section, name);
  return keys;
}

TEST(Reference, EveryKeyIsDocumentedOnceInAKnownSection) {
  std::set<std::string> paths;
  for (const config::Key &key : allKeys()) {
    EXPECT_TRUE(config::findSection(key.section) || config::listOf(key.section)) << key.path();
    EXPECT_TRUE(paths.insert(key.path()).second) << key.path();
    EXPECT_NE(std::string(key.doc), "") << key.path();
    EXPECT_NE(configReference(modelFamilies()).find("| `" + std::string(key.name) + "` |"),
              std::string::npos);
  }
}

// Two keys with one field would silently overwrite each other.
TEST(Reference, EveryKeyHasItsOwnField) {
  Config config;
  std::set<const void *> fields;
  for (const config::Key &key : allKeys()) {
    const void *place =
        std::visit([](auto *field) -> const void * { return field; }, key.field(config));
    EXPECT_TRUE(fields.insert(place).second) << key.path();
  }
}

// A default that is out of its own key's range could not be written down.
TEST(Reference, DefaultsAreInRange) {
  Config config;
  for (const config::Key &key : allKeys()) {
    if (key.required || *key.defaultText || !key.derived.key.empty())
      continue;
    const config::Field field = key.field(config);
    double value = key.minimum;
    if (const auto *number = std::get_if<int64_t *>(&field))
      value = static_cast<double>(**number);
    else if (const auto *number = std::get_if<double *>(&field))
      value = **number;
    EXPECT_GE(value, key.minimum) << key.path();
    EXPECT_LE(value, key.maximum) << key.path();
  }
}

} // namespace
} // namespace lmc
