// The options of commands that read documents.

#include "tools/lmc-data/Commands.h"
#include "tools/lmc-data/input/Documents.h"
#include "tools/lmc-data/input/TextInput.h"

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
      return userError(
          "unknown escape at character {}; \\f \\n \\r \\t \\0 \\\\ and \\xHH are understood",
          i + 1);
    }
  }
  Utf8Checker utf8; // a separator with part of a character could match inside characters of a text
  if (utf8.check(separator) >= 0 || !utf8.complete())
    return Error{"is not UTF-8"};
  return separator;
}

void addFormatOption(Command &command, DataFormat &format) {
  addParsedOption(
      command, "--format", "FORMAT", parseDataFormat, format,
      "what a .bin without a header holds: uint16, uint32, megatron (with its .idx), or auto: the "
      ".idx beside it or a sample decides. Default: auto");
}

void addDocumentOptions(Command &command, DocumentOptions &options) {
  addParsedOption(
      command, "--format", "text|jsonl|parquet", parseInputFormat, options.format,
      "what the files are. Default: jsonl for .jsonl and .ndjson, parquet for .parquet, else text");
  addParsedOption(
      command, "--document-separator", "TEXT", parseSeparator, options.separator,
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
