// Prints the reference page of the configuration from the table of keys.

#include "ground/config/Keys.h"
#include "ground/config/ModelFamily.h"
#include "ground/config/Values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lmc {
namespace {

using namespace lmc::config;

std::string typeCell(const Key &key) {
  // The names are in the order of plan::SettingType.
  constexpr const char *kNames[] = {"integer", "number", "boolean", "string", "string or list"};
  Config config;
  std::string cell = key.isSize() ? "size" : kNames[size_t(resolvedSetting(key, config).type)];
  if (typeText(key) == "a list of integers")
    cell = "list of integers";
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
  return key.required ? "**required**" : defaultMarkdown(key);
}

std::string marksCell(const Key &key) {
  const bool isRunTime = key.runTime || key.runTimeIfGiven;
  return fmt::format("{}{}{}", key.identity ? "*identity*" : "",
                     key.identity && isRunTime ? ", " : "", isRunTime ? "*run*" : "");
}

// Returns a table of the keys whose defaults derive from another key.
std::string derivedDefaults(const KeyTable &keys) {
  std::string table = "| key | default |\n|---|---|\n";
  for (const Key &key : keys)
    if (!key.derived.key.empty())
      table +=
          fmt::format("| `{}` | `{}`{} |\n", key.path(), key.derived.key,
                      key.derived.divisor == 1 ? "" : fmt::format(" / {}", key.derived.divisor));
  return table;
}

} // namespace

std::string configReference(const ModelFamilies &families) {
  const KeyTable keys(families);
  std::string page = R"(# The configuration

<!-- Generated from ground/config/keys and models/families; refresh with
     LMC_UPDATE_DOCS=1 build/bin/config-tests --gtest_filter='Reference.*' -->

A job is one TOML file. Every key is listed here with its type, default and range; a key that is not
here is an error. `--set section.key=value` overrides a key with a TOML value, or with a bare word as a
string (`--set lr_schedule.lr=1e-4`, `--set memory.budget=76GiB`); [several values](sweeps.md) make a plan
for each. `lmc config` prints this page, and `lmc config --json-schema` a schema with which
[editors](editors.md) complete and check the file.

* A *size* is a number of bytes, or text with a unit: B, KB, MB, GB, TB (powers of 1000) or KiB, MiB,
  GiB, TiB (powers of 1024), as in `"76GiB"`.
* Paths are relative to the TOML file.
* Words such as `"bf16"` may be written in either case.
* Keys marked *run* may also be changed by `lmc-run --set`; all others are compiled into the plan.
* Keys marked *identity* say what is trained. A run that goes on from a checkpoint with another value
  is refused unless the change is declared (`lmc-run --change=section.key`).
)";
  for (const Section &section : sections()) {
    const std::string header =
        section.keysOf ? fmt::format("[[{}]]", section.name) : fmt::format("[{}]", section.name);
    page += fmt::format("\n## {}\n\n{}\n\n", header, section.doc);
    page += "| key | type | default | range | | meaning |\n|---|---|---|---|---|---|\n";
    auto addRow = [&](const Key &key) {
      page += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", key.name, typeCell(key),
                          defaultCell(key), rangeCell(key), marksCell(key), docText(key));
    };
    if (section.keysOf) {
      const std::vector<Key> own = section.keysOf("");
      page +=
          fmt::format("| `name` | string | **required** | letters, digits, `_`, `-` | {} "
                      "| Name of the table. `--set {}.NAME.KEY=VALUE` changes one of its "
                      "keys. |\n",
                      std::ranges::any_of(own, &Key::identity) ? "*identity*" : "", section.name);
      std::ranges::for_each(own, addRow);
    }
    for (const Key &key : keys)
      if (key.section == section.name)
        addRow(key);
  }
  page += R"(
## Defaults that follow another key

If such a key is not given, its value is computed from the other key's, wherever that is set: in the
TOML file, by `lmc compile --set`, or by `lmc-run --set`.

)" + derivedDefaults(keys);
  return page;
}

} // namespace lmc
