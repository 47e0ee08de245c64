#include "corpus/tokenizer/SentencePieceModel.h"

#include "corpus/tokenizer/unicode/Utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <iterator>

namespace lmc {

namespace {

// A field of a Protocol Buffers message (protobuf.dev/programming-guides/encoding).
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;     // value of an integer, or bits of a float
  std::string_view bytes; // contents of a string or message
  bool isBytes = false;

  float real() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
};

// Calls read() for each field. Returns false once read() fails, or if `message` is damaged.
bool eachField(std::string_view message, const std::function<bool(const Field &)> &read) {
  const auto varint = [&](uint64_t &value) {
    value = 0;
    for (int shift = 0; shift < 64 && !message.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(message[0]);
      message.remove_prefix(1);
      value |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80)
        return true;
    }
    return false;
  };
  while (!message.empty()) {
    uint64_t key, length = 0;
    if (!varint(key))
      return false;
    Field field;
    field.number = key >> 3;
    switch (key & 7) {
    case 0:
      if (!varint(field.value))
        return false;
      break;
    case 1:
    case 5:
      length = (key & 7) == 1 ? 8 : 4;
      if (message.size() < length)
        return false;
      std::memcpy(&field.value, message.data(), length);
      break;
    case 2:
      if (!varint(length) || message.size() < length)
        return false;
      field.bytes = message.substr(0, length);
      field.isBytes = true;
      break;
    default:
      return false;
    }
    message.remove_prefix(length);
    if (!read(field))
      return false;
  }
  return true;
}

struct Reader {
  SentencePieceModel model;
  std::string fault;

  bool fail(std::string what) {
    if (fault.empty())
      fault = std::move(what);
    return false;
  }
  bool unknown(const char *message, const Field &field) {
    return fail(fmt::format("field {} of {} is not supported", field.number, message));
  }

  // Sets a member of the model. Returns true, so that eachField() continues.
  template <typename T> static bool set(T &part, auto value) {
    part = value;
    return true;
  }

  bool piece(std::string_view message) {
    SentencePieceModel::Piece piece;
    const bool good = eachField(message, [&](const Field &field) {
      if (field.number == 1 && field.isBytes)
        piece.text = field.bytes;
      else if (field.number == 2)
        piece.score = field.real();
      else if (field.number == 3 && field.value >= 1 && field.value <= 6)
        piece.type = static_cast<SentencePieceModel::Type>(field.value);
      else
        return unknown("pieces", field);
      return true;
    });
    if (good && replaceInvalidUtf8(piece.text) != piece.text)
      return fail(fmt::format("piece {} is not UTF-8", model.pieces.size()));
    model.pieces.push_back(std::move(piece));
    return good;
  }

  // Returns true if the field describes how the model was trained, and does not affect encoding.
  static bool ofTraining(uint64_t number) {
    constexpr uint64_t kKnown[] = {1,  2,  4,  5,  6,  7,  10, 11, 12, 13, 14, 15, 16, 17,
                                   18, 19, 20, 21, 22, 23, 25, 26, 30, 31, 32, 33, 34, 36,
                                   40, 41, 42, 43, 45, 48, 49, 50, 51, 52, 53, 54, 55};
    return std::ranges::find(kKnown, number) != std::end(kKnown);
  }

  bool trainer(std::string_view message) {
    return eachField(message, [&](const Field &field) {
      switch (field.number) {
      case 3:
        if (field.value < 1 || field.value > 4)
          return fail(fmt::format("model_type {} is not supported", field.value));
        return set(model.kind, static_cast<SentencePieceModel::Kind>(field.value));
      case 24:
        return set(model.spaceAsSuffix, field.value != 0);
      case 35:
        return set(model.byteFallback, field.value != 0);
      case 44:
        return set(model.unknownText, field.bytes);
      case 46:
        return set(model.begin, field.bytes.empty() ? "<s>" : field.bytes);
      case 47:
        return set(model.end, field.bytes.empty() ? "</s>" : field.bytes);
      default:
        return ofTraining(field.number) || unknown("trainer_spec", field);
      }
    });
  }

  bool normalizer(std::string_view message) {
    return eachField(message, [&](const Field &field) {
      switch (field.number) {
      case 1: // name
      case 6: // the rules from which the charsmap was made
        return true;
      case 2:
        return set(model.charsmap, field.bytes);
      case 3:
        return set(model.dummyPrefix, field.value != 0);
      case 4:
        return set(model.removeExtraSpaces, field.value != 0);
      case 5:
        return set(model.escapeSpaces, field.value != 0);
      default:
        return unknown("normalizer_spec", field);
      }
    });
  }

  bool denormalizer(std::string_view message) {
    return eachField(message, [&](const Field &field) {
      return (field.number == 2 && !field.bytes.empty()) ? fail("a denormalizer is not supported")
                                                         : true;
    });
  }
};

} // namespace

Result<SentencePieceModel> parseSentencePieceModel(std::string_view bytes) {
  Reader reader;
  const bool good = eachField(bytes, [&](const Field &field) {
    switch (field.number) {
    case 1:
      return reader.piece(field.bytes);
    case 2:
      return reader.trainer(field.bytes);
    case 3:
      return reader.normalizer(field.bytes);
    case 4: // samples for the library's self-test of the model
      return true;
    case 5:
      return reader.denormalizer(field.bytes);
    default:
      return reader.unknown("the model", field);
    }
  });
  if (!good || reader.model.pieces.empty())
    return Error{reader.fault.empty() ? "not a model of SentencePiece" : reader.fault};
  return std::move(reader.model);
}

} // namespace lmc
