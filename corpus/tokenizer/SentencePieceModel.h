// Reads SentencePiece's model files: the fields of the message ModelProto
// (sentencepiece_model.proto in github.com/google/sentencepiece) that encoding needs.
#pragma once

#include "ground/support/Result.h"

#include <string>
#include <vector>

namespace lmc {

struct SentencePieceModel {
  enum class Type { Normal = 1, Unknown, Control, UserDefined, Unused, Byte };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::Normal;
  };
  std::vector<Piece> pieces; // the index is the id

  enum class Kind { Unigram = 1, Bpe, Word, Char };
  Kind kind = Kind::Unigram;
  bool byteFallback = false;
  bool spaceAsSuffix = false; // treat_whitespace_as_suffix
  std::string begin = "<s>", end = "</s>";
  std::string unknownText = " \xe2\x81\x87 "; // the unknown piece is decoded as this text

  std::string charsmap;
  bool dummyPrefix = true;       // add_dummy_prefix
  bool removeExtraSpaces = true; // remove_extra_whitespaces
  bool escapeSpaces = true;      // escape_whitespaces
};

// Parses a .model file. Error, whose message is one clause: it is damaged or has an unknown field.
Result<SentencePieceModel> parseSentencePieceModel(std::string_view bytes);

} // namespace lmc
