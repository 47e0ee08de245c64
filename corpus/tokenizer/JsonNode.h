// Reads a JSON file. A key that the program does not know is an error with the key's path.
#pragma once

#include "ground/support/Result.h"

#include <nlohmann/json_fwd.hpp>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// A value and its path in the file, such as "pre_tokenizer.pretokenizers[1].behavior". After a
// mistake, functions return an empty value.
class JsonNode {
public:
  JsonNode(const nlohmann::json &value, std::string path, std::optional<std::string> &fault)
      : value(&value), path(std::move(path)), fault(&fault) {}

  // Records the mistake `what` at this place as "PATH: WHAT"; only the first mistake is kept.
  void fail(const std::string &what) const;
  bool failed() const { return fault->has_value(); }

  // Fails if the value is not an object, or has a key that is not in `keys`.
  void onlyKeys(std::initializer_list<std::string_view> keys) const;
  // Returns a member of an object; fails if there is none.
  JsonNode at(const std::string &key) const;
  // Returns a member of an object; nothing if it is absent or null.
  std::optional<JsonNode> find(const std::string &key) const;
  std::vector<JsonNode> elements() const;
  JsonNode at(size_t index) const;
  size_t size() const;

  std::string text() const;
  bool boolean() const;
  uint32_t number() const;
  double real() const;
  // Returns the index of the node's text in `names`. Fails if `names` does not have the text.
  size_t oneOf(std::initializer_list<std::string_view> names) const;
  const nlohmann::json &json() const { return *value; }

private:
  const nlohmann::json *value;
  std::string path;
  std::optional<std::string> *fault;
};

// Parses JSON; returns nothing if `text` is not JSON. Reads real numbers as Rust's serde_json does,
// so the last bit may differ from that of the nearest double.
std::optional<nlohmann::json> parseLikeSerde(std::string_view text);

} // namespace lmc
