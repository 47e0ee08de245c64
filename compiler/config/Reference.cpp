// Prints the reference page of the configuration from the table of keys.

#include "compiler/config/Keys.h"
#include "compiler/config/ModelFamily.h"
#include "compiler/config/Values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lmc {
namespace {

using namespace lmc::config;

std::string typeCell(const Key &key) {
  const ResolvedSetting::Type type = [&] {
    Config config;
    return resolvedSetting(key, config).type;
  }();
  std::string cell;
  switch (type) {
  case ResolvedSetting::Type::Integer:
    cell = key.isSize() ? "size" : "integer";
    break;
  case ResolvedSetting::Type::Float:
    cell = "number";
    break;
  case ResolvedSetting::Type::Boolean:
    cell = "boolean";
    break;
  case ResolvedSetting::Type::String:
    cell = "string";
    break;
  case ResolvedSetting::Type::StringList:
    cell = "string or list";
    break;
  }
  if (cell == "integer" && !key.choices.empty())
    cell += fmt::format(" or `\"{}\"`", key.choices.front().name);
  if (*key.unit && !key.isSize())
    cell += fmt::format(", {}", key.unit);
  return cell;
}

std::string rangeCell(const Key &key) {
  if (!rangeText(key).empty())
    return rangeText(key);
  const std::vector<std::string> names = choiceNames(key);
  return names.empty() ? "" : fmt::format("`{}`", fmt::join(names, "`, `"));
}

std::string defaultCell(const Key &key) {
  if (key.required)
    return "**required**";
  if (*key.defaultText)
    return key.defaultText;
  Config config;
  return fmt::format("`{}`", resolvedSetting(key, config).value);
}

std::string docCell(const Key &key) {
  std::vector<std::string> names;
  for (const ModelFamily *family : key.families)
    names.push_back(fmt::format("`{}`", family->name));
  return names.empty() ? key.doc : fmt::format("{} Only of {}.", key.doc, listed(names, "and"));
}

} // namespace

std::string configReference(const ModelFamilies &families) {
  const KeyTable keys(families);
  std::string page = R"(# The configuration

<!-- Generated from compiler/config/Keys.cpp and models/families; refresh with
     LMC_UPDATE_DOCS=1 build/bin/config-tests --gtest_filter='Reference.*' -->

A job is one TOML file. Every key is listed here with its type, default and range; a key that is not
here is an error. `--set section.key=value` overrides a key with a TOML value, or with a bare word as a
string (`--set lr_schedule.lr=1e-4`, `--set memory.budget=76GiB`).

* A *size* is a number of bytes, or text with a unit: B, KB, MB, GB, TB (powers of 1000) or KiB, MiB,
  GiB, TiB (powers of 1024), as in `"76GiB"`.
* Paths are relative to the TOML file.
* Words such as `"bf16"` may be written in either case.
* Keys marked *run* may also be changed by `lmc-run --set`; all others are compiled into the plan.
)";
  for (const Section &section : sections()) {
    page += fmt::format("\n## [{}]\n\n{}\n\n", section.name, section.doc);
    page += "| key | type | default | range | | meaning |\n|---|---|---|---|---|---|\n";
    for (const Key &key : keys)
      if (key.section == std::string_view(section.name))
        page += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", key.name, typeCell(key),
                            defaultCell(key), rangeCell(key), key.runTime ? "*run*" : "", docCell(key));
  }
  return page;
}

} // namespace lmc
