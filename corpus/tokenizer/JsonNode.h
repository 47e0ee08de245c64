// Reads a JSON file of which every key must be known: a key that the program does not know is an
// error that names its path in the file.
#pragma once

#include "ground/support/Result.h"

#include <nlohmann/json_fwd.hpp>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// A value and its path in the file, such as "pre_tokenizer.pretokenizers[1].behavior". Functions
// return an empty value after a mistake; the first mistake stays in `fault`.
class JsonNode {
public:
  JsonNode(const nlohmann::json &value, std::string path, std::optional<std::string> &fault)
      : value(&value), path(std::move(path)), fault(&fault) {}

  // Records the mistake `what` at this place as "PATH: WHAT"; only the first mistake is kept.
  void fail(const std::string &what) const;
  bool failed() const { return fault->has_value(); }

  // Fails unless the value is an object that has only these keys.
  void onlyKeys(std::initializer_list<std::string_view> keys) const;
  // Returns a member of an object; fails if there is none.
  JsonNode at(const std::string &key) const;
  // Returns a member of an object; nothing if it is absent or null.
  std::optional<JsonNode> find(const std::string &key) const;
  // The elements of an array.
  std::vector<JsonNode> elements() const;
  // Returns an element of an array; fails if there is none.
  JsonNode at(size_t index) const;
  size_t size() const;

  std::string text() const;
  bool boolean() const;
  uint32_t number() const;
  double real() const;
  // Returns the index of the value, a text, in `names`; fails for a text that is not supported.
  size_t oneOf(std::initializer_list<std::string_view> names) const;
  const nlohmann::json &json() const { return *value; }

private:
  const nlohmann::json *value;
  std::string path;
  std::optional<std::string> *fault;
};

// Parses JSON with the real numbers that Rust's serde_json reads: it multiplies or divides the
// digits, as an integer, by a power of ten, so that the last bit may differ from the nearest
// number. Returns nothing if the text is not JSON.
std::optional<nlohmann::json> parseLikeSerde(std::string_view text);

} // namespace lmc
