// Tokenizer files for the tests, written field by field.
#pragma once

#include "corpus/tokenizer/Tokenizer.h"
#include "test/runtime/checkpoint/TestFolder.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <string>
#include <vector>

namespace lmc::test {

// A tokenizer.json of BPE without merges.
inline nlohmann::json bpeFile(const nlohmann::json &vocabulary) {
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
}

inline nlohmann::json addedToken(uint32_t id, const std::string &content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

// The types of a piece in a .model.
enum PieceType { Normal = 1, Unknown, Control, UserDefined, Unused, Byte };
enum ModelType { Unigram = 1, Bpe };

// A .model of SentencePiece that changes nothing before it divides the text.
class ModelFile {
public:
  explicit ModelFile(ModelType type, bool byteFallback = false)
      : trainer(field(3, type) + field(35, byteFallback)) {}

  ModelFile &piece(const std::string &text, float score = 0, PieceType type = Normal) {
    uint32_t bits = std::bit_cast<uint32_t>(score);
    pieces += field(1, field(1, text) + "\x15" + std::string(reinterpret_cast<char *>(&bits), 4) +
                           field(3, type));
    return *this;
  }
  // Sets the table of replacements.
  ModelFile &replacements(const std::string &given) {
    table = given;
    return *this;
  }
  std::string bytes() const {
    const std::string normalizer = field(3, 0) + field(4, 0) + field(2, table);
    return pieces + field(2, trainer) + field(3, normalizer);
  }

private:
  std::string pieces, trainer, table;

  static std::string varint(uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7)
      bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
  }
  static std::string field(int number, uint64_t value) {
    return varint(uint64_t(number) << 3) + varint(value);
  }
  static std::string field(int number, const std::string &bytes) {
    return varint(uint64_t(number) << 3 | 2) + varint(bytes.size()) + bytes;
  }
};

class TokenizerTest : public testing::Test {
protected:
  TestFolder folder;

  Result<std::shared_ptr<const Tokenizer>> open(const nlohmann::json &file) {
    write(folder / "tokenizer.json", file.dump());
    return Tokenizer::open(folder / "tokenizer.json");
  }
  Result<std::shared_ptr<const Tokenizer>> open(const ModelFile &file) {
    return open(file.bytes());
  }
  // Opens a .model of these bytes.
  Result<std::shared_ptr<const Tokenizer>> open(const std::string &bytes) {
    write(folder / "tokenizer.model", bytes);
    return Tokenizer::open(folder / "tokenizer.model");
  }
};

// The ids of a text, and the places in it that spell a special token.
struct Encoded {
  std::vector<uint32_t> ids;
  uint64_t spelled = 0;
};
inline Result<Encoded> encode(const Tokenizer &tokenizer, const std::string &text,
                              SpecialTokens mode = SpecialTokens::Text,
                              const std::vector<uint32_t> &borders = {}) {
  auto encoders = tokenizer.encoders(1, mode, borders);
  LMC_TRY(encoders);
  Encoded result;
  LMC_TRY((*encoders)[0]->encode(text, result.ids));
  result.spelled = (*encoders)[0]->spelled();
  return result;
}

} // namespace lmc::test
