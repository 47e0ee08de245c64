#include "tools/lmc-data/Documents.h"

#include "runtime/tokenizer/Utf8.h"
#include "tools/lmc-data/TextInput.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace lmc {

namespace {

constexpr size_t kChunk = 1 << 20; // bytes of text per read

Error notUtf8(const std::string &path, uint64_t position, const std::string &what) {
  return Error{
      fmt::format("{}: {} at byte {} of the text is not UTF-8; convert the text, for example "
                  "with: iconv -f latin1 -t utf-8, or give --invalid-utf8=replace",
                  path, what, position)};
}

// Returns the bytes at the end of `text` that may begin a character whose other bytes are missing.
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

// Replaces each escape of JSON that is half of a surrogate pair, without the other half, by '?'.
std::string replaceLoneSurrogates(std::string line) {
  // Returns the code unit of an escape "\uXXXX" at `at`, or 0.
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
      line.replace(at, 6, "?");
      ++at;
    } else {
      at += 2;
    }
  }
  return line;
}

Result<void> readText(std::istream &in, const std::string &path, const std::string &separator,
                      bool replaceInvalid, DocumentReceiver &receiver) {
  Utf8Checker utf8;
  uint64_t before = 0; // bytes of text before the chunk
  std::string held;    // bytes that may be the start of a separator, until more are read
  std::string cut;     // bytes that may begin a character, if text is replaced
  std::vector<char> chunk(kChunk);
  while (in.read(chunk.data(), kChunk), in.gcount() > 0) {
    const std::string_view bytes(chunk.data(), size_t(in.gcount()));
    if (replaceInvalid) {
      cut += bytes;
      const size_t whole = cut.size() - incompleteBytes(cut);
      held += replaceInvalidUtf8(std::string_view(cut).substr(0, whole));
      cut.erase(0, whole);
    } else {
      if (int64_t wrong = utf8.check(bytes); wrong >= 0)
        return notUtf8(path, wrong,
                       fmt::format("0x{:02x}", uint8_t(chunk[uint64_t(wrong) - before])));
      before += bytes.size();
      held += bytes;
    }
    size_t begin = 0;
    if (!separator.empty())
      for (size_t end; (end = held.find(separator, begin)) != std::string::npos;) {
        LMC_TRY(receiver.text(std::string_view(held).substr(begin, end - begin)));
        LMC_TRY(receiver.endDocument());
        begin = end + separator.size();
      }
    size_t keep = separator.empty() ? 0 : std::min(separator.size() - 1, held.size() - begin);
    size_t end = held.size() - keep;
    LMC_TRY(receiver.text(std::string_view(held).substr(begin, end - begin)));
    held.erase(0, end);
  }
  if (!utf8.complete())
    return notUtf8(path, before, "the end of the file");
  held += replaceInvalidUtf8(cut);
  LMC_TRY(receiver.text(held));
  return receiver.endDocument();
}

// Returns the reason from an error message of nlohmann's JSON library. The message begins with an
// identifier and with a line number, which is always 1 because each line is parsed alone.
std::string_view reasonOf(std::string_view message) {
  size_t column = message.find("column ");
  size_t reason = column == message.npos ? message.npos : message.find(": ", column);
  return reason == message.npos ? message : message.substr(reason + 2);
}

Result<void> readJsonLines(std::istream &in, const std::string &path, const std::string &field,
                           bool replaceInvalid, DocumentReceiver &receiver) {
  std::string line;
  for (uint64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos)
      continue;
    if (replaceInvalid)
      line = replaceLoneSurrogates(replaceInvalidUtf8(line));
    nlohmann::json value;
    try {
      value = nlohmann::json::parse(line);
    } catch (const nlohmann::json::parse_error &failure) {
      return Error{fmt::format("{}:{}:{}: not JSON: {}", path, number, failure.byte,
                               reasonOf(failure.what()))};
    }
    if (!value.is_object())
      return Error{fmt::format("{}:{}: expected an object with the field \"{}\", found {}", path,
                               number, field, value.type_name())};
    auto found = value.find(field);
    if (found == value.end())
      return Error{fmt::format("{}:{}: no field \"{}\"; name the one that holds the text with "
                               "--field",
                               path, number, field)};
    if (!found->is_string())
      return Error{fmt::format("{}:{}: the field \"{}\" is {}, expected a string", path, number,
                               field, found->type_name())};
    LMC_TRY(receiver.text(found->get_ref<const std::string &>()));
    LMC_TRY(receiver.endDocument());
  }
  return {};
}

InputFormat formatOf(const std::string &path) {
  std::filesystem::path name = path;
  if (name.extension() == ".gz" || name.extension() == ".zst")
    name.replace_extension();
  const std::string extension = name.extension();
  return extension == ".jsonl" || extension == ".ndjson" ? InputFormat::JsonLines
                                                         : InputFormat::Text;
}

} // namespace

Result<void> readDocuments(const std::string &path, const DocumentOptions &options,
                           DocumentReceiver &receiver, Progress &progress) {
  auto input = TextInput::open(path, progress);
  if (!input)
    return input.error();
  std::istream &in = (*input)->stream();
  Result<void> read =
      options.format.value_or(formatOf(path)) == InputFormat::Text
          ? readText(in, path, options.separator, options.replaceInvalid, receiver)
          : readJsonLines(in, path, options.field, options.replaceInvalid, receiver);
  // A file that is cut short also ends in the middle of a line, which is not the mistake to report.
  LMC_TRY((*input)->fault());
  return read;
}

} // namespace lmc
