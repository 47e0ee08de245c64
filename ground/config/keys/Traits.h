// The traits of a key are the facts that its row in the table of keys states. Each trait has the
// name of the member of Key that it sets. A plain text as a trait is the key's documentation:
//
//   makeKey("seed", field, range(0, kUnbounded), runTime, identity, "Seed of all random numbers.")
#pragma once

#include "ground/config/Keys.h"

#include <initializer_list>
#include <span>
#include <type_traits>

namespace lmc::config::keys {

inline auto alias(const char *name) {
  return [=](Key &key) { key.alias = name; };
}

inline auto range(double minimum, double maximum, const char *unit = "") {
  return [=](Key &key) { key.minimum = minimum, key.maximum = maximum, key.unit = unit; };
}

// Adds a word to the choices; `value` is a number or an enumerator.
template <typename T> auto choice(const char *name, T value) {
  return [=](Key &key) { key.choices.push_back({name, static_cast<int>(value)}); };
}

// Adds words to the choices of a key of string type.
inline auto choices(std::span<const char *const> names) {
  return [=](Key &key) {
    for (const char *name : names)
      key.choices.push_back({name});
  };
}
inline auto choices(std::initializer_list<const char *> names) {
  return choices(std::span(names.begin(), names.size()));
}

inline auto defaultText(const char *text) {
  return [=](Key &key) { key.defaultText = text; };
}

inline void optional(Key &key) { key.defaultText = "none"; }

// Adds the word "auto", which is the default and stands for 0.
inline void orAuto(Key &key) {
  key.choices.push_back({"auto", 0});
  key.defaultText = "\"auto\"";
}

inline auto derived(const std::string &from, double divisor = 1) {
  return [=](Key &key) { key.derived = {from, divisor}; };
}

inline void required(Key &key) { key.required = true; }
inline void runTime(Key &key) { key.runTime = true; }
inline void runTimeIfGiven(Key &key) { key.runTimeIfGiven = true; }
inline void identity(Key &key) { key.identity = true; }
// Remove the trait runTime or identity from one key, if its section gives the trait to all keys.
inline void compiled(Key &key) { key.runTime = false; }
inline void sameModel(Key &key) { key.identity = false; }

// Returns a key whose `section` is not set yet: the caller must set it.
template <typename... Traits>
Key makeKey(std::string name, std::function<Field(Config &)> field, const Traits &...traits) {
  Key key{.name = std::move(name), .field = std::move(field)};
  const auto apply = [&](const auto &trait) {
    if constexpr (std::is_invocable_v<decltype(trait), Key &>)
      trait(key);
    else
      key.doc = trait;
  };
  (apply(traits), ...);
  return key;
}

// Returns a key of [model] that only some families have. Its value is stored in
// ModelConfig::familyValues[name]. Each family may have its own `initial` value.
template <typename... Traits>
Key familyKey(const char *name, FamilyValue initial, const Traits &...traits) {
  const auto field = [=](Config &config) {
    auto &value = config.model.familyValues.try_emplace(name, initial).first->second;
    return std::visit([](auto &value) -> Field { return &value; }, value);
  };
  Key key = makeKey(name, field, traits...);
  key.section = "model";
  return key;
}

} // namespace lmc::config::keys
