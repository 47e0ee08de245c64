#include "corpus/tokenizer/JsonNode.h"

#include "ground/support/Number.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace lmc {

using nlohmann::json;

static const json kNull;

void JsonNode::fail(const std::string &what) const {
  if (!failed())
    *fault = path.empty() ? what : path + ": " + what;
}

void JsonNode::onlyKeys(std::initializer_list<std::string_view> keys) const {
  if (!value->is_object())
    return fail(fmt::format("expected an object, found {}", value->type_name()));
  for (const auto &[key, member] : value->items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      JsonNode(member, path.empty() ? key : path + "." + key, *fault).fail("is not supported");
}

std::optional<JsonNode> JsonNode::find(const std::string &key) const {
  auto found = value->is_object() ? value->find(key) : value->end();
  if (!value->is_object() || found == value->end() || found->is_null())
    return std::nullopt;
  return JsonNode(*found, path.empty() ? key : path + "." + key, *fault);
}

JsonNode JsonNode::at(const std::string &key) const {
  if (auto found = find(key))
    return *found;
  if (!value->is_object() || !value->contains(key))
    fail(fmt::format("has no '{}'", key));
  return JsonNode(kNull, path.empty() ? key : path + "." + key, *fault);
}

std::vector<JsonNode> JsonNode::elements() const {
  std::vector<JsonNode> result;
  if (!value->is_array()) {
    fail(fmt::format("expected an array, found {}", value->type_name()));
    return result;
  }
  result.reserve(value->size());
  for (size_t i = 0; i < value->size(); ++i)
    result.push_back(at(i));
  return result;
}

JsonNode JsonNode::at(size_t index) const {
  const bool there = value->is_array() && index < value->size();
  if (!there)
    fail(fmt::format("has no element {}", index));
  return JsonNode(there ? (*value)[index] : kNull, fmt::format("{}[{}]", path, index), *fault);
}

size_t JsonNode::size() const { return value->size(); }

// Returns the node's value as a T if `good` is true (the value has the type T); else fails.
template <typename T> static T valueOf(const JsonNode &node, bool good, const char *expected) {
  if (good)
    return node.json().get<T>();
  node.fail(fmt::format("expected {}, found {}", expected, node.json().type_name()));
  return T();
}

std::string JsonNode::text() const {
  return valueOf<std::string>(*this, value->is_string(), "a string");
}
bool JsonNode::boolean() const {
  return valueOf<bool>(*this, value->is_boolean(), "true or false");
}
double JsonNode::real() const { return valueOf<double>(*this, value->is_number(), "a number"); }

uint32_t JsonNode::number() const {
  if (!value->is_number_unsigned() || value->get<uint64_t>() >= INT32_MAX) {
    fail("expected a whole number below 2147483647");
    return 0;
  }
  return value->get<uint32_t>();
}

size_t JsonNode::oneOf(std::initializer_list<std::string_view> names) const {
  const std::string name = text();
  auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end())
    return found - names.begin();
  fail(fmt::format("'{}' is not supported, only {}", name, fmt::join(names, ", ")));
  return 0;
}

// Returns the value that Rust's serde_json reads from `text` (without its option float_roundtrip).
static double serdeNumber(std::string_view text, double nearest) {
  const bool negative = text.starts_with('-');
  uint64_t significand = 0;
  int exponent = 0;
  bool fraction = false, full = false;
  size_t at = negative;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      fraction = true;
      continue;
    }
    const uint64_t digit = text[at] - '0';
    // A digit that no longer fits into 64 bits only changes the exponent, as do all later digits.
    full |= significand > (UINT64_MAX - digit) / 10;
    if (!full)
      significand = significand * 10 + digit;
    exponent += (full ? 1 : 0) - (fraction ? 1 : 0);
  }
  if (at < text.size()) {
    const std::string power(text.substr(at + 1));
    if (power.size() > 6)
      return nearest;
    exponent += std::stoi(power);
  }
  double number = static_cast<double>(significand);
  // The powers of ten from 1e0 to 1e308, each rounded to the nearest double.
  const auto power = [](int of) { return *parseDouble(fmt::format("1e{}", of)); };
  while (exponent < -308 && number != 0) {
    number /= power(308);
    exponent += 308;
  }
  if (exponent > 308)
    return nearest;
  if (number != 0)
    number = exponent >= 0 ? number * power(exponent) : number / power(-exponent);
  return negative ? -number : number;
}

namespace {
using DomParser = nlohmann::detail::json_sax_dom_parser<json>;
struct SerdeParser : DomParser {
  explicit SerdeParser(json &root) : DomParser(root, /*allow_exceptions=*/false) {}
  bool number_float(double nearest, const std::string &text) {
    return DomParser::number_float(serdeNumber(text, nearest), text);
  }
};
} // namespace

std::optional<json> parseLikeSerde(std::string_view text) {
  json root;
  SerdeParser parser(root);
  if (!json::sax_parse(text.begin(), text.end(), &parser) || parser.is_errored())
    return std::nullopt;
  return root;
}

} // namespace lmc
