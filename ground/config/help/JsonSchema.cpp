// Prints a JSON Schema of a job's TOML file from the table of keys, for editors.
//
// The schema checks each key alone. Only loadConfig() checks rules between keys and values that
// depend on other files. The schema accepts choices in lower case only.
//
// The version is draft-07: the TOML editor Taplo does not check the conditions (if, then, else) of
// later versions. Taplo completes no keys in `allOf`, `then` or `else`, so the schema uses these
// only to say which keys are required.

#include "ground/config/Keys.h"
#include "ground/config/ModelFamily.h"
#include "ground/config/Values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lmc {
namespace {

using namespace lmc::config;

// Returns markdown without links, which an editor cannot follow: "[mixtures](data.md#mixtures)"
// becomes "mixtures: docs/data.md#mixtures".
std::string withoutLinks(const std::string &markdown) {
  std::string text;
  size_t done = 0;
  for (;;) {
    const size_t middle = markdown.find("](", done);
    const size_t end = markdown.find(')', middle);
    if (end == std::string::npos)
      return text + markdown.substr(done);
    const size_t begin = markdown.rfind('[', middle);
    const std::string target = markdown.substr(middle + 2, end - middle - 2);
    text += fmt::format("{}{}: {}{}", markdown.substr(done, begin - done),
                        markdown.substr(begin + 1, middle - begin - 1),
                        target.find("://") == std::string::npos ? "docs/" : "", target);
    done = end + 1;
  }
}

// Returns a bound of a range as the shortest JSON number: 1 and not 1.0.
Json numberJson(double value) {
  return value == std::floor(value) && std::abs(value) < 9e15 ? Json(static_cast<int64_t>(value))
                                                              : Json(value);
}

void addRange(const Key &key, Json &schema) {
  if (std::isfinite(key.minimum))
    schema["minimum"] = numberJson(key.minimum);
  if (std::isfinite(key.maximum))
    schema["maximum"] = numberJson(key.maximum);
}

Json choicesJson(const Key &key) {
  Json names = Json::array();
  for (const Choice &choice : key.choices)
    names.push_back(choice.name);
  return names;
}

Json integerType(const Key &key) {
  Json schema = {{"type", "integer"}};
  if (key.isSize()) { // accepts the texts that parseSize() reads
    schema["type"] = {"integer", "string"};
    schema["pattern"] = R"(^([0-9]+\.?[0-9]*|\.[0-9]+) *(B|[KMGT]i?B)?$)";
  } else if (!key.choices.empty()) {
    // If the range were inside `anyOf`, the error about it would not name the bound.
    schema["anyOf"] = Json::array({schema, Json::object({{"enum", choicesJson(key)}})});
    schema["type"] = {"integer", "string"};
  }
  addRange(key, schema);
  return schema;
}

Json typeOf(const Key &key) {
  Config config;
  struct {
    const Key &key;
    Json operator()(int64_t *) const { return integerType(key); }
    Json operator()(uint64_t *) const { return integerType(key); }
    Json operator()(double *) const {
      Json schema = {{"type", "number"}};
      addRange(key, schema);
      return schema;
    }
    Json operator()(bool *) const { return Json::object({{"type", "boolean"}}); }
    Json operator()(std::string *field) const {
      Json schema = {{"type", "string"}};
      if (!key.choices.empty())
        schema["enum"] = choicesJson(key);
      else if (key.required || !field->empty())
        schema["minLength"] = 1;
      return schema;
    }
    Json operator()(std::vector<std::string> *) const {
      return {{"type", {"string", "array"}},
              {"minLength", 1},
              {"items", {{"type", "string"}, {"minLength", 1}}}};
    }
    Json operator()(std::vector<int64_t> *) const {
      Json items = {{"type", "integer"}};
      addRange(key, items);
      return {{"type", "array"}, {"items", std::move(items)}};
    }
    Json operator()(void *) const { return {{"type", "string"}, {"enum", choicesJson(key)}}; }
  } type{key};
  return std::visit(type, key.field(config));
}

// Returns the default as a TOML value; null if the default is not one fixed value that the schema
// can state.
Json defaultOf(const Key &key) {
  if (key.required || !key.derived.key.empty())
    return nullptr;
  if (*key.defaultText) { // quoted text ("auto") is a value, other text is a description
    Json value = Json::parse(key.defaultText, nullptr, /*allow_exceptions=*/false);
    return value.is_string() ? value : Json();
  }
  if (!otherDefaults(key).empty())
    return nullptr;
  Config config;
  const Setting setting = resolvedSetting(key, config);
  if (setting.type == plan::SettingType::String)
    return setting.value;
  if (setting.type == plan::SettingType::StringList)
    return setting.values.empty() ? Json::array() : Json();
  return Json::parse(setting.value, nullptr, /*allow_exceptions=*/false);
}

std::string description(const Key &key) {
  std::string text = withoutLinks(docText(key));
  if (*key.unit && !key.isSize())
    text += fmt::format(" Unit: {}.", key.unit);
  if (!key.required)
    text += fmt::format(" Default: {}.", defaultMarkdown(key));
  if (key.runTime || key.runTimeIfGiven)
    text += " `lmc-run --set` may change it.";
  if (key.identity)
    text += " A run that goes on with another value must declare it (`lmc-run --change`).";
  return text;
}

// Returns a schema that requires all of these keys and allows any others.
Json having(const std::vector<std::string> &names) { return Json::object({{"required", names}}); }

// Returns a schema that accepts a table [model] whose `architecture` is one of `names`.
Json isArchitecture(const std::vector<std::string> &names) {
  Json schema = having({"architecture"});
  schema["properties"]["architecture"]["enum"] = names;
  return schema;
}

// Returns a schema that accepts tables that match the schema `condition` or the schema `other`.
Json unless(Json condition, Json other) {
  return Json::object({{"if", std::move(condition)}, {"else", std::move(other)}});
}

class Table {
public:
  explicit Table(const std::string &doc) {
    schema["description"] = withoutLinks(doc);
    schema["type"] = "object";
    schema["properties"] = Json::object();
    schema["additionalProperties"] = false;
  }

  void addProperty(const std::string &name, Json property) {
    schema["properties"][name] = std::move(property);
  }
  void require(const std::string &name) { required.push_back(name); }

  void addKey(const Key &key, const ModelFamilies &families) {
    Json property = Json::object({{"description", description(key)}});
    property.update(typeOf(key));
    if (Json value = defaultOf(key); !value.is_null())
      property["default"] = std::move(value);
    if (*key.alias) {
      Json other = property;
      other["description"] = fmt::format("Another name of `{}`. {}", key.name, description(key));
      other["x-taplo"]["hidden"] = true; // Taplo then completes key.name, but not the alias
      addProperty(key.name, std::move(property));
      addProperty(key.alias, std::move(other));
      dependencies[key.alias]["not"] = having({key.name});
    } else {
      addProperty(key.name, std::move(property));
    }
    if (key.required)
      requireKey(key, families);
  }

  // Returns the schema. If a table has the key `standIn`, the schema requires no other key.
  Json finish(const char *standIn = nullptr) {
    Json needs = Json::object();
    if (!required.empty())
      needs["required"] = required;
    if (!conditions.empty())
      needs["allOf"] = conditions;
    if (standIn)
      needs = unless(having({standIn}), std::move(needs));
    schema.update(needs);
    if (!dependencies.empty())
      schema["dependencies"] = dependencies;
    return std::move(schema);
  }

private:
  void requireKey(const Key &key, const ModelFamilies &families) {
    // The names of the families whose jobs must set the key.
    std::vector<std::string> names;
    for (const ModelFamily *family : families)
      if (key.isOf(*family) &&
          !(family->intermediateRatio && key.path() == "model.intermediate_size"))
        names.push_back(family->name);
    const bool ofAll = names.size() == families.size();
    if (ofAll && !*key.alias)
      return require(key.name);
    Json need = having({key.name});
    if (*key.alias)
      need = unless(having({key.alias}), std::move(need));
    if (!ofAll) { // a job without an architecture is of the first family
      std::vector<std::string> others;
      for (const ModelFamily *family : families)
        if (std::ranges::find(names, family->name) == names.end())
          others.push_back(family->name);
      const bool ofFirst = names.front() == std::string_view(families.front()->name);
      need = ofFirst ? unless(isArchitecture(others), std::move(need))
                     : Json::object({{"if", isArchitecture(names)}, {"then", std::move(need)}});
    }
    conditions.push_back(std::move(need));
  }

  Json schema;
  std::vector<std::string> required;
  Json conditions = Json::array();    // require keys with an alias or not required in all families
  Json dependencies = Json::object(); // these forbid a table to have both a key and its alias
};

// Returns the schema of a section. It contains the schemas of the sections inside.
Json sectionSchema(const Section &section, const KeyTable &keys) {
  Table table(section.doc);
  if (section.keysOf) {
    table.addProperty("name", {{"description", "Name of the table: letters, digits, `_`, `-`."},
                               {"type", "string"},
                               {"pattern", "^[A-Za-z0-9_-]+$"}});
    table.require("name");
    for (const Key &key : section.keysOf(""))
      table.addKey(key, keys.families);
    return {{"description", withoutLinks(section.doc)},
            {"type", "array"},
            {"minItems", 1},
            {"items", table.finish()}};
  }
  for (const Key &key : keys)
    if (key.section == section.name)
      table.addKey(key, keys.families);
  const std::string prefix = fmt::format("{}.", section.name);
  for (const Section &inner : sections())
    if (std::string_view(inner.name).starts_with(prefix))
      table.addProperty(inner.name + prefix.size(), sectionSchema(inner, keys));
  // If `config` is given, [model] needs no other key, because that config.json has all values.
  return table.finish(keys.find(section.name, "config") ? "config" : nullptr);
}

} // namespace

std::string configSchema(const ModelFamilies &families) {
  const KeyTable keys(families);
  Table root("A training job of lmc.");
  for (const Section &section : sections()) {
    if (std::string_view(section.name).find('.') != std::string_view::npos)
      continue; // the schema of the outer section contains this section
    root.addProperty(section.name, sectionSchema(section, keys));
    if (std::ranges::any_of(
            keys, [&](const Key &key) { return key.section == section.name && key.required; }))
      root.require(section.name);
  }
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "lmc"}};
  schema.update(root.finish());
  return schema.dump(2) + "\n";
}

} // namespace lmc
