#include "runtime/data/Fingerprint.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>

namespace lmc {

namespace {

constexpr const char *kPath = "path", *kFormat = "format", *kTokenType = "token_type",
                     *kBytes = "bytes", *kTokens = "tokens", *kHeaderHash = "header_hash",
                     *kSampleHash = "sample_hash", *kTokenizer = "tokenizer_hash";

std::string hexadecimal(uint64_t hash) { return fmt::format("{:016x}", hash); }

} // namespace

bool haveOtherTokenizers(const FileFingerprint &first, const FileFingerprint &second) {
  return first.tokenizer != 0 && second.tokenizer != 0 && first.tokenizer != second.tokenizer;
}

std::optional<std::string> difference(const FileFingerprint &was, const FileFingerprint &is) {
  if (haveOtherTokenizers(was, is))
    return "made by another tokenizer";
  if (is.format != was.format || is.tokenType != was.tokenType)
    return fmt::format("{} {} tokens, were {} {}", is.format, is.tokenType, was.format,
                       was.tokenType);
  if (is.tokens != was.tokens)
    return fmt::format("{} tokens, were {}", is.tokens, was.tokens);
  if (is.bytes != was.bytes)
    return fmt::format("{} bytes, were {}", is.bytes, was.bytes);
  if (is.headerHash != was.headerHash)
    return "another header or index of the same size";
  if (is.sampleHash != was.sampleHash)
    return "other tokens, as many as before";
  return std::nullopt;
}

nlohmann::ordered_json toJson(const FileFingerprint &fingerprint) {
  nlohmann::ordered_json json;
  json[kPath] = fingerprint.path;
  json[kFormat] = fingerprint.format;
  json[kTokenType] = fingerprint.tokenType;
  json[kBytes] = fingerprint.bytes;
  json[kTokens] = fingerprint.tokens;
  json[kHeaderHash] = hexadecimal(fingerprint.headerHash);
  json[kSampleHash] = hexadecimal(fingerprint.sampleHash);
  if (fingerprint.tokenizer != 0)
    json[kTokenizer] = hexadecimal(fingerprint.tokenizer);
  return json;
}

Result<FileFingerprint> fingerprintFromJson(const nlohmann::json &json) {
  FileFingerprint fingerprint;
  auto bad = [](const char *name) {
    return userError("the fingerprint of a token file has no valid '{}'", name);
  };
  if (!json.is_object())
    return bad(kPath);
  for (auto [name, out] : {std::pair{kPath, &fingerprint.path},
                           {kFormat, &fingerprint.format},
                           {kTokenType, &fingerprint.tokenType}}) {
    const nlohmann::json value = json.value(name, nlohmann::json());
    if (!value.is_string())
      return bad(name);
    *out = value.get<std::string>();
  }
  for (auto [name, out] : {std::pair{kBytes, &fingerprint.bytes}, {kTokens, &fingerprint.tokens}}) {
    const nlohmann::json value = json.value(name, nlohmann::json());
    if (!value.is_number_unsigned())
      return bad(name);
    *out = value.get<uint64_t>();
  }
  for (auto [name, out] : {std::pair{kHeaderHash, &fingerprint.headerHash},
                           {kSampleHash, &fingerprint.sampleHash},
                           {kTokenizer, &fingerprint.tokenizer}}) {
    if (name == kTokenizer && !json.contains(name)) // absent if unknown, or in an earlier release
      continue;
    const nlohmann::json value = json.value(name, nlohmann::json());
    if (!value.is_string())
      return bad(name);
    const auto &text = value.get_ref<const std::string &>();
    const char *end = text.data() + text.size();
    if (auto [stop, error] = std::from_chars(text.data(), end, *out, 16);
        error != std::errc() || stop != end)
      return bad(name);
  }
  return fingerprint;
}

} // namespace lmc
