// The options of commands that read documents.

#include "tools/lmc-data/Commands.h"
#include "tools/lmc-data/input/Documents.h"
#include "tools/lmc-data/input/TextInput.h"

#include <fmt/format.h>

#include <cctype>

namespace lmc {

static Result<std::string> parseSeparator(const std::string &text) {
  std::string separator;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      separator += text[i];
      continue;
    }
    const std::string_view rest = std::string_view(text).substr(i + 1);
    const std::string_view letters = "fnrt0\\", meanings("\f\n\r\t\0\\", 6);
    if (size_t known = rest.empty() ? letters.npos : letters.find(rest[0]); known != letters.npos) {
      separator += meanings[known];
      ++i;
    } else if (rest.size() >= 3 && rest[0] == 'x' && std::isxdigit(rest[1]) &&
               std::isxdigit(rest[2])) {
      separator += static_cast<char>(std::stoi(std::string(rest.substr(1, 2)), nullptr, 16));
      i += 3;
    } else {
      return Error{fmt::format("--document-separator={}: unknown escape at character {}; \\f \\n "
                               "\\r \\t \\0 \\\\ and \\xHH are understood",
                               text, i + 1)};
    }
  }
  Utf8Checker utf8; // a partial character could match inside another character
  if (utf8.check(separator) >= 0 || !utf8.complete())
    return Error{fmt::format("--document-separator={}: is not UTF-8", text)};
  return separator;
}

void addFormatOption(Command &command, DataFormat &format) {
  command.option(
      "--format", "FORMAT",
      [&format](const std::string &value) -> Result<void> {
        auto parsed = parseDataFormat(value);
        if (!parsed)
          return Error{fmt::format("--format={}: {}", value, parsed.error().message)};
        format = *parsed;
        return {};
      },
      "what a .bin without a header holds: uint16, uint32, megatron (with its .idx), or auto: the "
      ".idx beside it or a sample decides. Default: auto");
}

void addDocumentOptions(Command &command, DocumentOptions &options) {
  command.option(
      "--format", "text|jsonl|parquet",
      [&options](const std::string &value) -> Result<void> {
        auto format = parseInputFormat(value);
        if (!format)
          return Error{fmt::format("--format={}: {}", value, format.error().message)};
        options.format = *format;
        return {};
      },
      "what the files are. Default: jsonl for .jsonl and .ndjson, parquet for .parquet, else text");
  command.option(
      "--document-separator", "TEXT",
      [&options](const std::string &value) -> Result<void> {
        LMC_LET(separator, parseSeparator(value));
        options.separator = *separator;
        return {};
      },
      "what ends a document of a text; \\f \\n \\r \\t \\0 \\\\ \\xHH are understood; '' makes "
      "each file one document. With --tokenizer a document has at most 1 GiB. Default: \\f (form "
      "feed)");
  command.option(
      "--field", "NAME", options.field,
      "the field of each line of JSON, or the column of Parquet, that holds a document's "
      "text. Default: text");
  command.either("--nulls", "error", "empty", options.nullIsEmpty,
                 "what a null is in the place of a text. Default: error");
  command.either("--invalid-utf8", "error", "replace", options.replaceInvalid,
                 "what becomes of bytes that are not UTF-8: an error, or U+FFFD. Default: error");
}

} // namespace lmc
