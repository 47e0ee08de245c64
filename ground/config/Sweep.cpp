#include "ground/config/Sweep.h"

#include "ground/config/Diagnostics.h"
#include "ground/config/Keys.h"
#include "ground/config/Parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

namespace lmc {
namespace {

using namespace lmc::config;

// An argument of `--set`: KEY=VALUES.
struct SweepSetting {
  std::string text;
  const Key *key = nullptr;        // null: there is no such key
  std::vector<std::string> values; // more than one if the sweep varies the key
  std::string label;               // label of a varied key in file names: "lr"
};

// Splits `text` at the commas outside of quotes and brackets. If a quote or bracket is not closed,
// returns the whole text; the parser of values then reports the mistake.
std::vector<std::string> splitAtCommas(const std::string &text) {
  std::vector<std::string> parts(1);
  char quote = 0;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!quote && depth == 0 && c == ',') {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
    if (quote == '"' && c == '\\' && i + 1 < text.size())
      parts.back() += text[++i];
    else if (quote)
      quote = c == quote ? 0 : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '[' || c == '{')
      ++depth;
    else if (c == ']' || c == '}')
      --depth;
  }
  if (quote || depth)
    return {text};
  for (std::string &part : parts)
    part = trimmed(part);
  return parts;
}

// Returns true if values of the key may contain commas outside of quotes.
bool mayHaveCommas(const Key &key) {
  Config config;
  const Field field = key.field(config);
  return (std::holds_alternative<std::string *>(field) && key.choices.empty()) ||
         std::holds_alternative<std::vector<std::string> *>(field) ||
         std::holds_alternative<std::vector<int64_t> *>(field);
}

std::vector<std::string> valuesOf(const Key &key, const std::string &text) {
  std::vector<std::string> values = splitAtCommas(text);
  const auto isEnclosed = [](const std::string &value) {
    return !value.empty() && std::string_view("\"'[").find(value[0]) != std::string_view::npos;
  };
  if (mayHaveCommas(key) && !std::ranges::all_of(values, isEnclosed))
    return {text};
  return values;
}

SweepSetting readSetting(const std::string &text, KeyTable &keys) {
  SweepSetting setting{text, nullptr, {}, ""};
  if (const size_t equals = text.find('='); equals != std::string::npos) {
    setting.key = keys.reach(trimmed(text.substr(0, equals)));
    if (setting.key)
      setting.values = valuesOf(*setting.key, trimmed(text.substr(equals + 1)));
  }
  return setting;
}

// Returns a value as a part of a file name, without characters that a shell would treat specially.
std::string fileText(const std::string &value) {
  std::string text;
  for (const char c : value)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '+' || c == '-')
      text += c;
    else if (std::string_view("\"'[]").find(c) == std::string_view::npos && !text.ends_with('-'))
      text += '-';
  return text.empty() ? "none" : text;
}

Error mistake(const std::string &what) { return userError("{}: error: {}", kOverrides, what); }

Result<void> checkValues(const SweepSetting &setting) {
  const std::string path = setting.key->path();
  std::set<std::string> texts;
  for (const std::string &value : setting.values) {
    if (value.empty())
      return mistake(fmt::format("{}: a value is missing beside a comma", path));
    if (!texts.insert(fileText(value)).second)
      return mistake(
          fmt::format("{} has the value {} twice; give each value once", path, fileText(value)));
  }
  return {};
}

// Sets the label of each varied key: its last part, or its path if several have the same last part.
void setLabels(std::vector<SweepSetting> &settings) {
  for (SweepSetting &setting : settings) {
    if (setting.values.size() < 2)
      continue;
    const auto hasSameName = [&](const SweepSetting &other) {
      return other.values.size() > 1 && other.key->name == setting.key->name;
    };
    setting.label =
        std::ranges::count_if(settings, hasSameName) > 1 ? setting.key->path() : setting.key->name;
  }
}

// Returns job `number` (from 0). The values of the last key vary fastest.
SweepJob jobOf(const std::vector<SweepSetting> &settings, size_t number) {
  SweepJob job;
  for (auto setting = settings.rbegin(); setting != settings.rend(); ++setting) {
    const size_t count = setting->values.size();
    if (count < 2) {
      job.settings.push_back(setting->text);
      continue;
    }
    const std::string &value = setting->values[number % count];
    number /= count;
    job.settings.push_back(fmt::format("{}={}", setting->key->path(), value));
    job.varied.push_back(job.settings.back());
    job.name = fmt::format("{}={}{}{}", setting->label, fileText(value),
                           job.name.empty() ? "" : "-", job.name);
  }
  std::ranges::reverse(job.settings);
  std::ranges::reverse(job.varied);
  return job;
}

} // namespace

Result<std::vector<SweepJob>> expandSettings(const std::vector<std::string> &texts,
                                             const ModelFamilies &families) {
  KeyTable keys(families);
  std::vector<SweepSetting> settings;
  for (const std::string &text : texts)
    settings.push_back(readSetting(text, keys));
  size_t count = 1;
  for (const SweepSetting &setting : settings) {
    if (setting.values.size() < 2)
      continue;
    LMC_TRY(checkValues(setting));
    if (std::ranges::count(settings, setting.key, &SweepSetting::key) > 1)
      return mistake(fmt::format("{} has several values, and is given again; give it once",
                                 setting.key->path()));
    count *= setting.values.size();
    if (count > kMaxSweepJobs)
      return mistake(fmt::format("the values of all keys make more than {} combinations; give "
                                 "fewer values at a time",
                                 kMaxSweepJobs));
  }
  setLabels(settings);
  std::vector<SweepJob> jobs;
  for (size_t number = 0; number < count; ++number) {
    jobs.push_back(jobOf(settings, number));
    if (const size_t length = jobs.back().name.size(); length > kMaxSweepName)
      return mistake(fmt::format("the name of a plan would have {} letters for its values; give "
                                 "fewer keys several values at a time",
                                 length));
  }
  return jobs;
}

} // namespace lmc
