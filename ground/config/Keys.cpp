#include "ground/config/Keys.h"

#include "ground/config/ModelFamily.h"
#include "ground/config/keys/Rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <type_traits>

namespace lmc::config {

keys::Rows::Rows(const ModelFamilies &families) {
  model(families);
  training();
  devices();
  data();
  list("phase",
       "A part of the run, with another sequence length, batch, mixture or learning rate: a table "
       "for each, in the order in which they are trained ([phases](running.md#phases)).",
       &Rows::phase, identity);
  list("validation",
       "Validation with several sets, in the place of `validation` of `[data]`: a table for each "
       "set ([validation sets](data.md#validation-sets)).",
       &Rows::validation, runTime);
  run();
  target();
}

void keys::Rows::list(const char *name, const char *doc, void (Rows::*table)(const std::string &),
                      void (*ofAll)(Key &)) {
  sections.push_back({name, doc, [=](const std::string &own) {
                        Rows rows;
                        rows.current = fmt::format("{}.{}", name, own);
                        rows.ofAll = ofAll;
                        (rows.*table)(own);
                        return rows.keys;
                      }});
}

const std::vector<Section> &sections() {
  static const std::vector<Section> table = keys::Rows(ModelFamilies()).sections;
  return table;
}

KeyTable::KeyTable(const ModelFamilies &families) : families(families) {
  std::ranges::move(keys::Rows(families).keys, std::back_inserter(keys));
  for (const ModelFamily *family : families)
    for (const Key &own : family->keys) {
      auto key = std::ranges::find(keys, own.path(), &Key::path);
      if (key == keys.end()) {
        key = keys.insert(keys.end(), own);
        key->identity = true; // the key describes the model: another value trains another model
      }
      key->families.push_back(family);
    }
  sort();
  for (Key &key : keys) {
    const auto isAbsent = [&](const ModelFamily *family) {
      return std::ranges::any_of(family->absent, [&](const std::string &name) {
        return key.path() == "model." + name || key.section == "model." + name;
      });
    };
    if (!key.families.empty() || std::ranges::none_of(families, isAbsent))
      continue;
    std::ranges::remove_copy_if(families, std::back_inserter(key.families), isAbsent);
  }
}

void KeyTable::sort() {
  const auto placeOf = [](const Key &key) {
    const Section *list = listOf(key.section);
    return list ? list : findSection(key.section);
  };
  keys.sort([&](const Key &a, const Key &b) { return placeOf(a) < placeOf(b); });
}

void KeyTable::addTable(const Section &list, const std::string &name) {
  std::ranges::move(list.keysOf(name), std::back_inserter(keys));
  sort();
}

bool Key::isOf(const ModelFamily &family) const {
  return families.empty() || std::find(families.begin(), families.end(), &family) != families.end();
}

std::string listed(const std::vector<std::string> &names, const char *word) {
  if (names.size() < 2)
    return fmt::format("{}", fmt::join(names, ""));
  return fmt::format("{} {} {}", fmt::join(names.begin(), names.end() - 1, ", "), word,
                     names.back());
}

const Section *findSection(std::string_view name) {
  const auto found = std::ranges::find(sections(), name, &Section::name);
  return found == sections().end() ? nullptr : &*found;
}

const Section *listOf(std::string_view section) {
  const size_t dot = section.rfind('.');
  const Section *list =
      dot == std::string_view::npos ? nullptr : findSection(section.substr(0, dot));
  return list && list->keysOf ? list : nullptr;
}

std::string headerText(std::string_view section) {
  const Section *list = listOf(section);
  return list ? fmt::format("[[{}]] {}", list->name, section.substr(section.rfind('.') + 1))
              : fmt::format("[{}]", section);
}

bool KeyTable::hasSection(std::string_view section) const {
  return std::ranges::any_of(keys, [&](const Key &key) { return key.section == section; });
}

const Key *KeyTable::find(std::string_view section, std::string_view name) const {
  for (const Key &key : keys)
    if (key.section == section && (key.name == name || (*key.alias && key.alias == name)))
      return &key;
  return nullptr;
}

const Key *KeyTable::reach(std::string_view path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string_view::npos)
    return nullptr;
  const std::string_view section = path.substr(0, dot);
  if (const Section *list = listOf(section); list && !hasSection(section))
    addTable(*list, std::string(section.substr(section.rfind('.') + 1)));
  return find(section, path.substr(dot + 1));
}

std::vector<std::string> choiceNames(const Key &key) {
  Config config;
  const bool words = std::holds_alternative<std::string *>(key.field(config));
  std::vector<std::string> names;
  int last = -1;
  for (const Choice &choice : key.choices) {
    if (words || choice.value != last)
      names.push_back(choice.name);
    last = choice.value;
  }
  return names;
}

std::string typeText(const Key &key) {
  Config config;
  const auto name = []<typename T>(T *) {
    return std::is_same_v<T, bool>                       ? "true or false"
           : std::is_integral_v<T>                       ? "an integer"
           : std::is_floating_point_v<T>                 ? "a number"
           : std::is_same_v<T, std::vector<std::string>> ? "a string or a list of strings"
           : std::is_same_v<T, std::vector<int64_t>>     ? "a list of integers"
                                                         : "a string";
  };
  std::string text = key.isSize() ? "a size in bytes or with a unit, such as \"76GiB\""
                                  : std::visit(name, key.field(config));
  if (text == "an integer" && !key.choices.empty())
    text += fmt::format(" or \"{}\"", key.choices.front().name);
  return text;
}

std::string docText(const Key &key) {
  std::vector<std::string> names;
  for (const ModelFamily *family : key.families)
    names.push_back(fmt::format("`{}`", family->name));
  return names.empty() ? key.doc : fmt::format("{} Only of {}.", key.doc, listed(names, "and"));
}

std::string rangeText(const Key &key) {
  if (std::isinf(key.minimum))
    return "";
  if (std::isinf(key.maximum))
    return fmt::format("at least {}", key.minimum);
  return fmt::format("from {} to {}", key.minimum, key.maximum);
}

} // namespace lmc::config
