#include "tools/lmc-data/Documents.h"
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
  return Error{fmt::format("{}: {} at byte {} of the text is not UTF-8; convert the text, for example "
                           "with: iconv -f latin1 -t utf-8",
                           path, what, position)};
}

Result<void> readText(std::istream &in, const std::string &path, const std::string &separator,
                      DocumentReceiver &receiver) {
  Utf8Checker utf8;
  uint64_t before = 0; // bytes of text before the chunk
  std::string held; // bytes that may be the start of a separator, until more are read
  std::vector<char> chunk(kChunk);
  while (in.read(chunk.data(), kChunk), in.gcount() > 0) {
    if (int64_t wrong = utf8.check({chunk.data(), size_t(in.gcount())}); wrong >= 0)
      return notUtf8(path, wrong,
                     fmt::format("0x{:02x}", uint8_t(chunk[uint64_t(wrong) - before])));
    before += in.gcount();
    held.append(chunk.data(), in.gcount());
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
                           DocumentReceiver &receiver) {
  std::string line;
  for (uint64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos)
      continue;
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
  Result<void> read = options.format.value_or(formatOf(path)) == InputFormat::Text
                          ? readText(in, path, options.separator, receiver)
                          : readJsonLines(in, path, options.field, receiver);
  // A file that is cut short also ends in the middle of a line, which is not the mistake to report.
  LMC_TRY((*input)->fault());
  return read;
}

} // namespace lmc
