#include "corpus/tokenizer/Decoder.h"

#include "corpus/tokenizer/models/Model.h"
#include "corpus/tokenizer/unicode/Utf8.h"

#include <charconv>

namespace lmc {

namespace {

constexpr const char *kReplacement = "\xef\xbf\xbd"; // U+FFFD

std::string joined(const std::vector<std::string> &pieces) {
  std::string text;
  for (const std::string &piece : pieces)
    text += piece;
  return text;
}

} // namespace

int byteOfPiece(const std::string &piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>')
    return -1;
  int byte = -1;
  const char *end = piece.data() + 5;
  // Skips a '+', which Rust's from_str_radix accepts and from_chars does not.
  const char *begin = piece.data() + 3 + (piece[3] == '+');
  auto [stop, error] = std::from_chars(begin, end, byte, 16);
  return error == std::errc() && stop == end && piece[3] != '-' ? byte : -1;
}

Decoder makeByteLevelDecoder() {
  return [](std::vector<std::string> &pieces) -> Result<void> {
    std::string bytes;
    for (const std::string &piece : pieces)
      bytes += bytesOfCharacters(piece).value_or(piece);
    pieces = {replaceInvalidUtf8(bytes)};
    return {};
  };
}

Decoder makeByteFallbackDecoder() {
  return [](std::vector<std::string> &pieces) -> Result<void> {
    std::vector<std::string> result;
    std::string bytes;
    const auto flush = [&] {
      if (replaceInvalidUtf8(bytes) == bytes && !bytes.empty())
        result.push_back(bytes);
      else
        result.insert(result.end(), bytes.size(), kReplacement);
      bytes.clear();
    };
    for (std::string &piece : pieces) {
      if (int byte = byteOfPiece(piece); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      result.push_back(std::move(piece));
    }
    flush();
    pieces = std::move(result);
    return {};
  };
}

Decoder makeFuseDecoder() {
  return [](std::vector<std::string> &pieces) -> Result<void> {
    pieces = {joined(pieces)};
    return {};
  };
}

Decoder makeMetaspaceDecoder(std::string mark, bool dropsFirst) {
  return [=](std::vector<std::string> &pieces) -> Result<void> {
    for (size_t i = 0; i < pieces.size(); ++i)
      for (size_t at = 0; (at = pieces[i].find(mark, at)) != std::string::npos;) {
        const std::string_view with = i == 0 && dropsFirst ? "" : " ";
        pieces[i].replace(at, mark.size(), with);
        at += with.size();
      }
    return {};
  };
}

Decoder makeReplaceDecoder(Matcher matcher, std::string content) {
  return [matcher = std::move(matcher),
          content = std::move(content)](std::vector<std::string> &pieces) -> Result<void> {
    std::vector<Span> spans;
    for (std::string &piece : pieces) {
      LMC_TRY(matcher(piece, spans));
      std::string text;
      for (const Span &span : spans)
        text += span.match ? content : piece.substr(span.begin, span.end - span.begin);
      piece = std::move(text);
    }
    return {};
  };
}

Decoder makeStripDecoder(std::string content, size_t start, size_t stop) {
  return [=](std::vector<std::string> &pieces) -> Result<void> {
    for (std::string &piece : pieces) {
      std::string_view rest = piece;
      for (size_t i = 0; i < start && rest.starts_with(content); ++i)
        rest.remove_prefix(content.size());
      for (size_t i = 0; i < stop && rest.ends_with(content); ++i)
        rest.remove_suffix(content.size());
      piece = std::string(rest);
    }
    return {};
  };
}

} // namespace lmc
