#include "ground/config/Parse.h"

#include "ground/support/Nearest.h"

#include <fmt/format.h>

#include "ground/config/Toml.h"
#include "ground/config/help/ForeignNames.h"

namespace lmc::config {
namespace {

std::vector<std::string> namesIn(const KeyTable &keys, std::string_view section) {
  std::vector<std::string> names;
  for (const Key &key : keys)
    if (key.section == section)
      names.push_back(key.name);
  // Adds the names of nested sections: for [model], "rope_scaling" of [model.rope_scaling].
  const std::string prefix = std::string(section) + ".";
  for (const Section &candidate : sections())
    if (std::string_view(candidate.name).substr(0, prefix.size()) == prefix)
      names.push_back(candidate.name + prefix.size());
  return names;
}

// Returns the first key, in any section, that has this name, else this alias, else nullptr.
const Key *findAnywhere(const KeyTable &keys, std::string_view name) {
  for (const Key &key : keys)
    if (key.name == name)
      return &key;
  for (const Key &key : keys)
    if (*key.alias && key.alias == name)
      return &key;
  return nullptr;
}

// Returns the last part of the name of a section: "checkpoint" for "training.checkpoint".
std::string_view lastPart(std::string_view section) {
  return section.substr(section.rfind('.') + 1);
}

// The error for an unknown name, and the keys that the user probably meant.
struct Unknown {
  std::string message;
  std::vector<std::string> meant; // paths of keys
};

// Returns a hint for a `name` that `section` lacks: the section that has this key, or lmc's key for
// a key of a different program. It ends an error message ("; it belongs to [data]"), or is "".
Unknown hintFor(const KeyTable &keys, std::string_view section, std::string_view name) {
  const auto belongsTo = [](const Key &key) -> Unknown {
    return {fmt::format("; it belongs to {}", headerText(key.section)), {key.path()}};
  };
  const auto foreign = [](const ForeignKey &key) -> Unknown {
    Unknown unknown{"; " + foreignHint(key), {}};
    if (*key.key)
      unknown.meant.push_back(key.key);
    return unknown;
  };
  // The last part of a nested name may be a section of lmc, as in Fast-LLM's [training.checkpoint].
  if (const Key *key = keys.find(lastPart(section), name))
    return belongsTo(*key);
  if (const ForeignKey *key = findForeignKey(section, name, /*ofSection=*/true))
    return foreign(*key);
  // Another program's name wins over a key of a list's table: `steps` probably means torchtitan's
  // name for training.train_iters, and not the key of a [[phase]].
  const Key *key = findAnywhere(keys, name);
  const ForeignKey *foreignKey = findForeignKey(section, name, /*ofSection=*/false);
  if (key && !(foreignKey && listOf(key->section)))
    return belongsTo(*key);
  return foreignKey ? foreign(*foreignKey) : Unknown{};
}

Unknown unknownKey(const KeyTable &keys, std::string_view section, std::string_view name) {
  const std::string what = fmt::format("unknown key '{}' in {}", name, headerText(section));
  if (Unknown hint = hintFor(keys, section, name); !hint.message.empty())
    return {what + hint.message, std::move(hint.meant)};
  if (const std::string here = nearestName(name, namesIn(keys, section)); !here.empty())
    return {what + suggestion(name, namesIn(keys, section)),
            {fmt::format("{}.{}", section, here)}};
  std::vector<std::string> all;
  for (const Key &key : keys)
    all.push_back(key.name);
  if (const std::string elsewhere = nearestName(name, all); !elsewhere.empty()) {
    const Key *key = findAnywhere(keys, elsewhere);
    return {fmt::format("{}; did you mean '{}' of {}?", what, key->name, headerText(key->section)),
            {key->path()}};
  }
  return {what, {}};
}

// Returns the error for `section`, which names a table that `list` does not have.
Unknown unknownTable(const KeyTable &keys, const Section &list, std::string_view section) {
  const std::string_view name = lastPart(section);
  std::vector<std::string> names;
  for (const Key &key : keys)
    if (listOf(key.section) == &list)
      names.push_back(key.section.substr(key.section.rfind('.') + 1));
  return {
      fmt::format("the file has no [[{}]] named '{}'{}", list.name, name, suggestion(name, names)),
      {}};
}

// Returns the section that the user probably meant, or "". Only the last part of the name counts:
// Fast-LLM's [training.checkpoint] stands for [checkpoint].
std::string sectionMeant(std::string_view name) {
  if (lastPart(name) != name && findSection(lastPart(name)))
    return std::string(lastPart(name));
  std::vector<std::string> names;
  for (const Section &section : sections())
    names.push_back(section.name);
  return nearestName(name, names);
}

// Returns true if `section` is probably misspelt: only its name is then reported, not its keys.
bool isMisspelt(std::string_view section) {
  if (listOf(section))
    return true;
  return !findSection(lastPart(section)) && !findForeignSection(section) &&
         !sectionMeant(section).empty();
}

Unknown unknownSection(const KeyTable &keys, std::string_view name) {
  if (const Section *list = listOf(name))
    return unknownTable(keys, *list, name);
  const std::string what = fmt::format("unknown section [{}]", name);
  if (const ForeignSection *foreign = findForeignSection(name))
    return {fmt::format("{}; {}", what, foreign->remark), {}};
  const std::string meant = sectionMeant(name);
  if (meant.empty())
    return {what, {}};
  Unknown unknown{fmt::format("{}; did you mean '{}'?", what, meant), {}};
  for (const Key &key : keys)
    if (key.section == meant)
      unknown.meant.push_back(key.path());
  return unknown;
}

Unknown strayKey(const KeyTable &keys, std::string_view name) {
  Unknown hint = hintFor(keys, "", name);
  return {fmt::format("key '{}' stands outside of any section{}", name, hint.message),
          std::move(hint.meant)};
}

Value toValue(const toml::node &node) {
  if (const auto flag = node.value_exact<bool>())
    return *flag;
  if (const auto number = node.value_exact<int64_t>())
    return *number;
  if (const auto number = node.value_exact<double>())
    return *number;
  if (auto text = node.value_exact<std::string>())
    return std::move(*text);
  if (const toml::array *array = node.as_array()) {
    std::vector<int64_t> numbers;
    for (const toml::node &element : *array)
      if (const auto number = element.value_exact<int64_t>())
        numbers.push_back(*number);
    if (!numbers.empty() && numbers.size() == array->size())
      return numbers;
    std::vector<std::string> list;
    for (const toml::node &element : *array) {
      auto text = element.value_exact<std::string>();
      if (!text)
        return OtherValue{"a list of other things"};
      list.push_back(std::move(*text));
    }
    return list;
  }
  return OtherValue{node.is_table() ? "a table" : "a date or time"};
}

// The key that names a table of a list, and the characters of such a name (a TOML bare key).
constexpr const char *kTableName = "name";
constexpr const char *kNameLetters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

class TomlReader {
public:
  TomlReader(const std::string &path, KeyTable &keys, ParsedFile &parsed, Diagnostics &diagnostics)
      : path(path), keys(keys), parsed(parsed), diagnostics(diagnostics) {}

  Location at(const toml::source_region &source) const {
    return {path, static_cast<unsigned>(source.begin.line),
            static_cast<unsigned>(source.begin.column)};
  }

  // Reads the entries of `table`, which is the section `section` ("" for the top level).
  void read(const std::string &section, const toml::table &table) {
    for (const auto &[name, node] : table) {
      const std::string_view word = name.str();
      const std::string full =
          section.empty() ? std::string(word) : fmt::format("{}.{}", section, word);
      if (const Section *known = findSection(full))
        known->keysOf ? readList(*known, name, node) : readSection(full, name, node);
      else if (listOf(section) && word == kTableName)
        continue;
      else if (const Key *key = keys.find(section, word))
        readKey(*key, name, node);
      else if (node.is_table() || node.is_array_of_tables())
        readUnknownSection(full, name, node);
      else
        report(name, section.empty() ? strayKey(keys, word) : unknownKey(keys, section, word));
    }
  }

private:
  void readSection(const std::string &section, const toml::key &name, const toml::node &node) {
    const toml::table *table = node.as_table();
    if (!table)
      return diagnostics.error(at(name.source()), "'{}' is a section; write [{}]", section,
                               section);
    parsed.sections[section] = at(node.source());
    read(section, *table);
  }

  void readUnknownSection(const std::string &section, const toml::key &name,
                          const toml::node &node) {
    report(name, unknownSection(keys, section));
    if (const toml::table *table = node.as_table(); table && !isMisspelt(section))
      readUnknownKeys(section, *table);
  }

  // Reports each key of an unknown section if hintFor() has a hint for the key.
  void readUnknownKeys(const std::string &section, const toml::table &table) {
    for (const auto &[name, node] : table) {
      if (const toml::table *inner = node.as_table())
        readUnknownKeys(fmt::format("{}.{}", section, name.str()), *inner);
      else if (!hintFor(keys, section, name.str()).message.empty())
        report(name, unknownKey(keys, section, name.str()));
    }
  }

  void readList(const Section &list, const toml::key &name, const toml::node &node) {
    if (!node.is_array_of_tables())
      return diagnostics.error(at(name.source()), "'{0}' is a list of tables; write [[{0}]]",
                               list.name);
    for (const toml::node &table : *node.as_array())
      readTable(list, *table.as_table());
  }

  void readTable(const Section &list, const toml::table &table) {
    const toml::node *given = table.get(kTableName);
    const auto name = given ? given->value_exact<std::string>() : std::nullopt;
    const Location location = at(given ? given->source() : table.source());
    if (!name || name->empty() || name->find_first_not_of(kNameLetters) != std::string::npos)
      return diagnostics.error(location,
                               "a [[{}]] {}; give it a name of letters, digits, _ and -, such as "
                               "name = \"web\"",
                               list.name, given ? "cannot have this name" : "has no name");
    const std::string section = fmt::format("{}.{}", list.name, *name);
    if (const auto [other, isNew] = parsed.sections.emplace(section, location); !isNew)
      return diagnostics.error(location, "two [[{}]] have the name '{}'; the other is in line {}",
                               list.name, *name, other->second.line);
    keys.addTable(list, *name);
    read(section, table);
  }

  void readKey(const Key &key, const toml::key &name, const toml::node &node) {
    for (const Assignment &earlier : parsed.assignments)
      if (earlier.key == &key) // given by name and by alias: TOML itself rejects equal names
        return diagnostics.error(at(name.source()), "{} is given twice, as '{}' and as '{}'",
                                 key.path(), key.name, key.alias);
    parsed.assignments.push_back({&key, toValue(node), at(node.source())});
  }

  void report(const toml::key &name, const Unknown &unknown) {
    diagnostics.error(at(name.source()), "{}", unknown.message);
    parsed.misspelt.insert(unknown.meant.begin(), unknown.meant.end());
  }

  const std::string &path;
  KeyTable &keys;
  ParsedFile &parsed;
  Diagnostics &diagnostics;
};

// Returns the error for an override whose key `path` has no section.
std::string withoutSection(const KeyTable &keys, const std::string &path) {
  const Key *key = findAnywhere(keys, path);
  if (const Unknown hint = key ? Unknown{} : hintFor(keys, "", path); !hint.message.empty())
    return fmt::format("unknown key '{}'{}", path, hint.message);
  return fmt::format("'{}' names no section; write {}.{}=...", path, key ? key->section : "section",
                     path);
}

// Returns the error for an override of a key that is not in the table.
Unknown unknownOverride(const KeyTable &keys, std::string_view section, std::string_view name) {
  const bool hasHint = !isMisspelt(section) && !hintFor(keys, section, name).message.empty();
  return keys.hasSection(section) || hasHint ? unknownKey(keys, section, name)
                                             : unknownSection(keys, section);
}

// Returns the value of an override: the text parsed as a TOML value or, if it is none, as a string.
Result<Value> overrideValue(const Key &key, const std::string &text) {
  Config config;
  const Field field = key.field(config);
  // An empty text removes the file's value of a string key.
  if (text.empty() && std::holds_alternative<std::string *>(field))
    return Value(text);
  if (text.empty())
    return userError("{} has no value; write {}=VALUE", key.path(), key.path());
  const toml::parse_result result = toml::parse("value = " + text);
  const bool oneValue = result && result.table().size() == 1;
  // A bracket does not open a list if the key is a string: a shell command may begin with "[".
  const bool isString = std::holds_alternative<std::string *>(field);
  const bool quoted =
      std::string_view(isString ? "\"'" : "\"'[{").find(text.front()) != std::string_view::npos;
  if (!oneValue && quoted)
    return userError("{}: {} is no TOML value", key.path(), text);
  Value value = oneValue ? toValue(*result.table().get("value")) : Value(text);
  // A key of string type takes an unquoted text as a string, even 2024 or 2024-01-01.
  const bool wantsText = std::holds_alternative<std::string *>(field) ||
                         std::holds_alternative<std::vector<std::string> *>(field);
  if (wantsText && !quoted)
    value = text;
  return value;
}

} // namespace

std::string trimmed(const std::string &text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

ParsedFile parseToml(const std::string &text, const std::string &path, KeyTable &keys,
                     Diagnostics &diagnostics) {
  ParsedFile parsed;
  const toml::parse_result result = toml::parse(text);
  TomlReader reader(path, keys, parsed, diagnostics);
  parsed.valid = static_cast<bool>(result);
  if (parsed.valid)
    reader.read("", result.table());
  else
    diagnostics.error(reader.at(result.error().source()), "{}", result.error().description());
  return parsed;
}

std::vector<Assignment> parseOverrides(const std::vector<std::string> &overrides,
                                       const KeyTable &keys, Diagnostics &diagnostics) {
  std::vector<Assignment> assignments;
  const Location location{kOverrides};
  for (const std::string &text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      diagnostics.error(location, "'{}' is not of the form section.key=value", text);
      continue;
    }
    const std::string path = trimmed(text.substr(0, equals));
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) {
      diagnostics.error(location, "{}", withoutSection(keys, path));
      continue;
    }
    if (const Section *list = findSection(path); list && list->keysOf) {
      diagnostics.error(location,
                        "{0} is a list of tables; set one key of one of them, as in "
                        "{0}.NAME.{1}=...",
                        path, list->keysOf("")[0].name);
      continue;
    }
    const std::string section = path.substr(0, dot), name = path.substr(dot + 1);
    const Key *key = keys.find(section, name);
    if (!key) {
      diagnostics.error(location, "{}", unknownOverride(keys, section, name).message);
      continue;
    }
    Result<Value> value = overrideValue(*key, trimmed(text.substr(equals + 1)));
    if (!value)
      diagnostics.error(location, "{}", value.error().message);
    else
      assignments.push_back({key, std::move(*value), location});
  }
  return assignments;
}

} // namespace lmc::config
