#include "ground/config/Values.h"

#include "ground/config/ModelFamily.h"
#include "ground/support/Nearest.h"
#include "ground/support/Number.h"
#include "ground/support/Size.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <concepts>
#include <type_traits>

namespace lmc::config {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

// Describes a value that the user wrote, for the error "must be ..., not ...".
std::string describe(const Value &value) {
  struct {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(const std::string &text) const { return fmt::format("\"{}\"", text); }
    std::string operator()(const std::vector<std::string> &) const { return "a list"; }
    std::string operator()(const std::vector<int64_t> &) const { return "a list of integers"; }
    std::string operator()(const OtherValue &other) const { return other.what; }
  } visitor;
  return std::visit(visitor, value);
}

struct Assigner {
  const Key &key;
  const Value &value;

  Error wrongType() const {
    // In TOML, 5e5 is a float. The error shows the integer that the user meant.
    const double *number = std::get_if<double>(&value);
    const bool whole = number && *number == std::floor(*number) && std::abs(*number) < 9e15;
    return userError("{} must be {}, not {}", key.path(), typeText(key),
                     whole ? fmt::format("a float; write {}", static_cast<int64_t>(*number))
                           : describe(value));
  }

  Error outOfRange() const {
    return userError("{} is {}; it must be {}{}", key.path(), describe(value), rangeText(key),
                     key.choices.empty() ? "" : fmt::format(", or \"{}\"", key.choices[0].name));
  }

  bool isInRange(double number) const {
    return std::isfinite(number) && number >= key.minimum && number <= key.maximum;
  }

  const Choice *findChoice(const std::string &text) const {
    const auto found = std::ranges::find(key.choices, lower(text), &Choice::name);
    return found == key.choices.end() ? nullptr : &*found;
  }

  Result<const Choice *> choice(const std::string &text) const {
    if (const Choice *found = findChoice(text))
      return found;
    const std::vector<std::string> names = choiceNames(key);
    return userError("{} is \"{}\"; it must be {}{}{}", key.path(), text,
                     names.size() > 1 ? "one of " : "", fmt::join(names, ", "),
                     suggestion(lower(text), names));
  }

  template <std::integral Integer> Result<void> operator()(Integer *field) const {
    if (const auto *text = std::get_if<std::string>(&value)) {
      if (key.isSize()) {
        const Result<uint64_t> bytes = parseSize(*text);
        if (!bytes)
          return userError("{}: {}", key.path(), bytes.error().message);
        *field = static_cast<Integer>(*bytes);
        return {};
      }
      if (const Choice *choice = findChoice(*text)) {
        *field = choice->value;
        return {};
      }
    }
    const auto *number = std::get_if<int64_t>(&value);
    if (!number)
      return wrongType();
    if (!isInRange(static_cast<double>(*number)))
      return outOfRange();
    *field = static_cast<Integer>(*number);
    return {};
  }

  Result<void> operator()(double *field) const {
    double number = 0;
    if (const auto *whole = std::get_if<int64_t>(&value))
      number = static_cast<double>(*whole);
    else if (const auto *real = std::get_if<double>(&value))
      number = *real;
    else
      return wrongType();
    if (!isInRange(number))
      return outOfRange();
    *field = number;
    return {};
  }

  Result<void> operator()(bool *field) const {
    const auto *flag = std::get_if<bool>(&value);
    if (!flag)
      return wrongType();
    *field = *flag;
    return {};
  }

  Result<void> operator()(std::string *field) const {
    const auto *text = std::get_if<std::string>(&value);
    if (!text)
      return wrongType();
    Config initial;
    if (text->empty() && (!key.choices.empty() ||
                          !std::get<std::string *>(key.field(initial))->empty() || key.required))
      return userError("{} must not be empty", key.path());
    if (key.choices.empty()) {
      *field = *text;
      return {};
    }
    LMC_LET(chosen, choice(*text));
    *field = (*chosen)->name;
    return {};
  }

  Result<void> operator()(std::vector<std::string> *field) const {
    std::vector<std::string> list;
    if (const auto *text = std::get_if<std::string>(&value))
      list = {*text};
    else if (const auto *texts = std::get_if<std::vector<std::string>>(&value))
      list = *texts;
    else
      return wrongType();
    if (std::find(list.begin(), list.end(), "") != list.end())
      return userError("{} must not contain an empty string", key.path());
    *field = std::move(list);
    return {};
  }

  Result<void> operator()(std::vector<int64_t> *field) const {
    std::vector<int64_t> list;
    const auto *texts = std::get_if<std::vector<std::string>>(&value);
    if (const auto *numbers = std::get_if<std::vector<int64_t>>(&value))
      list = *numbers;
    else if (!texts || !texts->empty())
      return wrongType();
    for (int64_t number : list)
      if (!isInRange(static_cast<double>(number)))
        return userError("{} has {}; its numbers must be {}", key.path(), number, rangeText(key));
    *field = std::move(list);
    return {};
  }

  template <typename Enum>
  requires std::is_enum_v<Enum> Result<void>
  operator()(Enum *field) const {
    const auto *text = std::get_if<std::string>(&value);
    if (!text)
      return wrongType();
    LMC_LET(chosen, choice(*text));
    *field = static_cast<Enum>((*chosen)->value);
    return {};
  }
};

} // namespace

Result<void> assign(const Key &key, const Value &value, Config &config) {
  return std::visit(Assigner{key, value}, key.field(config));
}

Setting resolvedSetting(const Key &key, Config &config) {
  Setting setting;
  setting.key = key.path();
  setting.doc = key.doc;
  setting.runTime = key.runTime || key.runTimeIfGiven;
  setting.identity = key.identity;
  setting.derivedFrom = key.derived.key;
  setting.derivedDivisor = key.derived.divisor;
  std::visit(
      [&](auto *field) {
        using T = std::remove_pointer_t<decltype(field)>;
        using Type = plan::SettingType;
        if constexpr (std::is_same_v<T, bool>) {
          setting.type = Type::Boolean;
          setting.value = *field ? "true" : "false";
        } else if constexpr (std::is_arithmetic_v<T>) {
          setting.type = std::is_integral_v<T> ? Type::Integer : Type::Float;
          setting.value = fmt::format("{}", *field); // shortest text that parses to the same number
          setting.minimum = key.minimum;
          setting.maximum = key.maximum;
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          setting.type = Type::StringList;
          setting.values = *field;
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          setting.type = Type::StringList;
          for (int64_t number : *field)
            setting.values.push_back(fmt::format("{}", number));
        } else {
          setting.type = Type::String;
          setting.choices = choiceNames(key);
          if constexpr (std::is_enum_v<T>) {
            for (auto choice = key.choices.rbegin(); choice != key.choices.rend(); ++choice)
              if (choice->value == static_cast<int>(*field))
                setting.value = choice->name;
          } else {
            setting.value = *field;
          }
        }
      },
      key.field(config));
  return setting;
}

std::vector<std::pair<const ModelFamily *, std::string>> otherDefaults(const Key &key) {
  const auto valueOf = [](const Key &own) {
    Config config;
    return resolvedSetting(own, config).value;
  };
  std::vector<std::pair<const ModelFamily *, std::string>> others;
  for (const ModelFamily *family : key.families)
    for (const Key &own : family->keys)
      if (own.path() == key.path() && valueOf(own) != valueOf(key))
        others.emplace_back(family, valueOf(own));
  return others;
}

std::string defaultMarkdown(const Key &key) {
  const DerivedDefault &derived = key.derived;
  if (!derived.key.empty()) {
    // Shows the last part of derived.key, or all of it if the last part is also the name of `key`.
    const std::string last = derived.key.substr(derived.key.rfind('.') + 1);
    const std::string &name = last == key.name ? derived.key : last;
    return derived.divisor == 1 ? name : fmt::format("{} / {}", name, derived.divisor);
  }
  if (*key.defaultText)
    return key.defaultText;
  Config config;
  std::string text = fmt::format("`{}`", resolvedSetting(key, config).value);
  for (const auto &[family, value] : otherDefaults(key))
    text += fmt::format("; of `{}` `{}`", family->name, value);
  return text;
}

Result<Value> planValue(const Setting &setting) {
  const auto wrong = [&](const char *what) {
    return userError("setting '{}' is '{}', not {}", setting.key, setting.value, what);
  };
  const std::string &text = setting.value;
  switch (setting.type) {
  case plan::SettingType::Integer: {
    const auto number = parseWhole<int64_t>(text);
    return number ? Result<Value>(Value(*number)) : wrong("an integer");
  }
  case plan::SettingType::Float: {
    const auto number = parseDouble(text);
    return number ? Result<Value>(Value(*number)) : wrong("a number");
  }
  case plan::SettingType::Boolean:
    return Value(text == "true");
  case plan::SettingType::String:
    return Value(text);
  case plan::SettingType::StringList:
    return Value(setting.values);
  }
  return wrong("of a known type");
}

} // namespace lmc::config
