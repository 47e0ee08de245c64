#include "tools/lmc-data/input/Documents.h"

#include "corpus/tokenizer/unicode/Utf8.h"
#include "tools/lmc-data/input/ParquetFile.h"
#include "tools/lmc-data/input/TextInput.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

namespace lmc {

namespace {

Error notUtf8(const std::string &path, uint64_t position, const std::string &what) {
  return userError("{}: {} at byte {} of the text is not UTF-8; convert the text, for example "
                   "with: iconv -f latin1 -t utf-8, or give --invalid-utf8=replace",
                   path, what, position);
}

// Returns the number of bytes of an incomplete character at the end of `text`; 0: there is none.
size_t incompleteBytes(std::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
    const auto byte = static_cast<uint8_t>(text[text.size() - bytes]);
    if (byte >= 0xc0)
      return utf8Length(static_cast<char>(byte)) > bytes ? bytes : 0;
    if (byte < 0x80)
      return 0;
  }
  return 0;
}

// Replaces the JSON escape of a surrogate by '?' if the other surrogate of its pair is missing.
std::string replaceLoneSurrogates(std::string line) {
  // Returns the code unit XXXX of an escape "\uXXXX" at index `at`; 0 if there is no escape.
  const auto unitAt = [&](size_t at) -> unsigned long {
    if (at + 6 > line.size() || line[at] != '\\' || line[at + 1] != 'u')
      return 0;
    const std::string digits = line.substr(at + 2, 4);
    return digits.find_first_not_of("0123456789abcdefABCDEF") == digits.npos
               ? std::stoul(digits, nullptr, 16)
               : 0;
  };
  for (size_t at = 0; (at = line.find('\\', at)) != std::string::npos;) {
    const unsigned long unit = unitAt(at);
    const unsigned long next = unitAt(at + 6);
    if (unit >= 0xd800 && unit < 0xdc00 && next >= 0xdc00 && next < 0xe000) {
      at += 12;
    } else if (unit >= 0xd800 && unit < 0xe000) {
      line.replace(at, 6, 1, '?');
      ++at;
    } else {
      at += 2;
    }
  }
  return line;
}

Error tooLong(const std::string &place, const DocumentOptions &options, const char *advice) {
  return userError(
      "{}: the document here is longer than {} MiB, the most that a tokenizer encodes at once; {}",
      place, options.maximumBytes >> 20, advice);
}

constexpr const char *kNulls = "; --nulls=empty reads it as an empty text";

class TextReader {
public:
  TextReader(std::string name, const DocumentOptions &options, DocumentReceiver &receiver,
             const DocumentPlace &from)
      : name(std::move(name)), options(options), receiver(receiver), utf8(from.offset),
        bytes(from.offset), begin(from.offset) {}

  Result<void> read(TextInput &in) {
    const std::string &separator = options.separator;
    while (true) {
      LMC_LET(piece, in.read());
      if (piece->empty())
        break;
      if (!options.replaceInvalid)
        if (int64_t wrong = utf8.check(*piece); wrong >= 0)
          return notUtf8(name, wrong,
                         fmt::format("0x{:02x}", uint8_t((*piece)[uint64_t(wrong) - bytes])));
      bytes += piece->size();
      held += *piece;
      size_t first = 0;
      if (!separator.empty())
        for (size_t end; (end = held.find(separator, first)) != std::string::npos;) {
          LMC_TRY(pass(std::string_view(held).substr(first, end - first)));
          first = end + separator.size();
          LMC_TRY(endDocument(bytes - held.size() + first));
        }
      const size_t keep =
          separator.empty() ? 0 : std::min(separator.size() - 1, held.size() - first);
      const size_t end = held.size() - keep;
      LMC_TRY(pass(std::string_view(held).substr(first, end - first)));
      held.erase(0, end);
    }
    if (!utf8.complete())
      return notUtf8(name, bytes, "the end of the file");
    LMC_TRY(pass(held));
    // If the file ends with a separator, the last document is already complete.
    return begin == bytes && bytes > 0 ? Result<void>() : endDocument(bytes);
  }

private:
  std::string name;
  const DocumentOptions &options;
  DocumentReceiver &receiver;
  Utf8Checker utf8;
  uint64_t bytes;      // offset in the text at which the next piece begins
  std::string held;    // the last bytes read, which may begin a separator
  std::string cut;     // with replaceInvalid: the incomplete character at the end of the text
  uint64_t begin;      // offset of the document's first byte
  uint64_t length = 0; // bytes of the document so far

  Result<void> pass(std::string_view piece) {
    length += piece.size();
    if (length > options.maximumBytes)
      return tooLong(placeOf(name, InputFormat::Text, begin), options,
                     options.separator.empty()
                         ? "give a --document-separator"
                         : "give the --document-separator that this text has, such as '\\n\\n'");
    if (!options.replaceInvalid)
      return receiver.text(piece);
    cut += piece;
    const size_t whole = cut.size() - incompleteBytes(cut);
    const std::string text = replaceInvalidUtf8(std::string_view(cut).substr(0, whole));
    cut.erase(0, whole);
    return receiver.text(text);
  }

  Result<void> endDocument(uint64_t end) {
    if (!cut.empty())
      LMC_TRY(receiver.text(replaceInvalidUtf8(cut)));
    cut.clear();
    LMC_TRY(receiver.endDocument({begin}, {end}));
    begin = end;
    length = 0;
    return {};
  }
};

// Returns the reason in an error message of nlohmann's JSON library, without the identifier and the
// line number before it. The line number is always 1 here.
std::string_view reasonOf(std::string_view message) {
  size_t column = message.find("column ");
  size_t reason = column == message.npos ? message.npos : message.find(": ", column);
  return reason == message.npos ? message : message.substr(reason + 2);
}

class JsonLinesReader {
public:
  JsonLinesReader(std::string name, const DocumentOptions &options, DocumentReceiver &receiver,
                  const DocumentPlace &from)
      : name(std::move(name)), options(options), receiver(receiver), begin(from) {}

  Result<void> read(TextInput &in) {
    std::string line; // the pieces of the line so far
    while (true) {
      LMC_LET(piece, in.read());
      if (piece->empty())
        break;
      for (size_t end; (end = piece->find('\n')) != piece->npos;) {
        line += piece->substr(0, end);
        piece->remove_prefix(end + 1);
        LMC_TRY(readLine(line, line.size() + 1));
        line.clear();
      }
      line += *piece;
      // Allows a line twice the bytes of a document, because a line has more fields than the text.
      if (line.size() / 2 > options.maximumBytes)
        return tooLong(placeOf(name, InputFormat::JsonLines, begin.number), options, kShorter);
    }
    return readLine(line, line.size());
  }

private:
  static constexpr const char *kShorter = "cut it into several, each on a line";
  std::string name;
  const DocumentOptions &options;
  DocumentReceiver &receiver;
  DocumentPlace begin; // where the current line begins

  // Reads the document in a line, which has `bytes` bytes in the file.
  Result<void> readLine(std::string &line, uint64_t bytes) {
    const DocumentPlace end{begin.offset + bytes, begin.number + 1};
    if (line.find_first_not_of(" \t\r") != std::string::npos) {
      LMC_TRY(readDocument(line, placeOf(name, InputFormat::JsonLines, begin.number)));
      LMC_TRY(receiver.endDocument(begin, end));
    }
    begin = end;
    return {};
  }

  Result<void> readDocument(std::string &line, const std::string &place) {
    if (options.replaceInvalid)
      line = replaceLoneSurrogates(replaceInvalidUtf8(line));
    nlohmann::json value;
    try {
      value = nlohmann::json::parse(line);
    } catch (const nlohmann::json::parse_error &failure) {
      return userError("{}:{}: not JSON: {}", place, failure.byte, reasonOf(failure.what()));
    } catch (const nlohmann::json::exception &failure) { // a number that no double can represent
      const std::string_view reason = failure.what();    // "[json.exception.out_of_range.406] ..."
      return userError("{}: {}", place, reason.substr(reason.find("] ") + 2));
    }
    if (!value.is_object())
      return userError("{}: expected an object with the field \"{}\", found {}", place,
                       options.field, value.type_name());
    auto found = value.find(options.field);
    if (found == value.end())
      return userError("{}: no field \"{}\"; name the one that holds the text with --field", place,
                       options.field);
    if (found->is_null() && options.nullIsEmpty)
      return {};
    if (!found->is_string())
      return userError("{}: the field \"{}\" is {}, expected a string{}", place, options.field,
                       found->type_name(), found->is_null() ? kNulls : "");
    const std::string &text = found->get_ref<const std::string &>();
    if (text.size() > options.maximumBytes)
      return tooLong(place, options, kShorter);
    return receiver.text(text);
  }
};

Result<void> readParquet(const std::string &path, const DocumentOptions &options,
                         DocumentReceiver &receiver, Progress &progress,
                         const DocumentPlace &from) {
  LMC_LET(file, ParquetFile::open(path, options.field, from.number - 1));
  uint64_t bytesRead = 0;
  for (uint64_t number = from.number;; ++number) {
    LMC_LET(row, (*file)->next());
    if (!*row)
      return {};
    progress.advance((*row)->bytesRead - bytesRead);
    bytesRead = (*row)->bytesRead;
    const std::string place = placeOf(path, InputFormat::Parquet, number);
    if (!(*row)->text && !options.nullIsEmpty)
      return userError("{}: the column \"{}\" is null, expected a string{}", place, options.field,
                       kNulls);
    const std::string_view text = (*row)->text.value_or("");
    if (text.size() > options.maximumBytes)
      return tooLong(place, options, "cut it into several, each in a row");
    Utf8Checker utf8;
    if (options.replaceInvalid)
      LMC_TRY(receiver.text(replaceInvalidUtf8(text)));
    else if (int64_t wrong = utf8.check(text); wrong >= 0)
      return notUtf8(place, wrong, fmt::format("0x{:02x}", uint8_t(text[uint64_t(wrong)])));
    else if (!utf8.complete())
      return notUtf8(place, text.size(), "the end of the text");
    else
      LMC_TRY(receiver.text(text));
    LMC_TRY(receiver.endDocument({0, number}, {0, number + 1}));
  }
}

} // namespace

Result<InputFormat> parseInputFormat(std::string_view name) {
  if (name == "text")
    return InputFormat::Text;
  if (name == "jsonl")
    return InputFormat::JsonLines;
  if (name == "parquet")
    return InputFormat::Parquet;
  return userError("'{}' is none of text, jsonl, parquet", name);
}

std::optional<InputFormat> formatOfName(const std::string &path) {
  std::filesystem::path name = path;
  if (name.extension() == ".parquet")
    return InputFormat::Parquet;
  if (name.extension() == ".gz" || name.extension() == ".zst")
    name.replace_extension();
  const std::string extension = name.extension();
  if (extension == ".jsonl" || extension == ".ndjson")
    return InputFormat::JsonLines;
  if (extension == ".txt")
    return InputFormat::Text;
  return std::nullopt;
}

InputFormat formatOf(const std::string &path, const DocumentOptions &options) {
  return options.format.value_or(formatOfName(path).value_or(InputFormat::Text));
}

std::string placeOf(const std::string &path, InputFormat format, uint64_t number) {
  const std::string name = nameOfInput(path);
  switch (format) {
  case InputFormat::Text:
    return fmt::format("{}: byte {} of the text", name, number);
  case InputFormat::JsonLines:
    return fmt::format("{}:{}", name, number);
  case InputFormat::Parquet:
    break;
  }
  return fmt::format("{}: row {}", name, number);
}

Result<void> readDocuments(const std::string &path, const DocumentOptions &options,
                           DocumentReceiver &receiver, Progress &progress,
                           const DocumentPlace &from) {
  const InputFormat format = formatOf(path, options);
  receiver.beginFile(path, format);
  if (format == InputFormat::Parquet)
    return readParquet(path, options, receiver, progress, from);
  LMC_LET(input, TextInput::open(path, progress));
  if (from.offset > 0)
    LMC_TRY((*input)->skip(from.offset));
  if (format == InputFormat::Text)
    return TextReader(nameOfInput(path), options, receiver, from).read(**input);
  return JsonLinesReader(nameOfInput(path), options, receiver, from).read(**input);
}

} // namespace lmc
