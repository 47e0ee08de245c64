#include "tools/lmc-data/Documents.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace lmc {

namespace {

constexpr size_t kChunk = 1 << 20; // bytes of text per read

Result<void> readText(std::istream &in, const std::string &separator, DocumentReceiver &receiver,
                      Progress &progress) {
  std::string held; // bytes that may be the start of a separator, until more are read
  std::vector<char> chunk(kChunk);
  while (in.read(chunk.data(), kChunk), in.gcount() > 0) {
    held.append(chunk.data(), in.gcount());
    progress.advance(in.gcount());
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
                           DocumentReceiver &receiver, Progress &progress) {
  std::string line;
  for (uint64_t number = 1; std::getline(in, line); ++number) {
    progress.advance(line.size() + 1);
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
  std::string extension = std::filesystem::path(path).extension();
  return extension == ".jsonl" || extension == ".ndjson" ? InputFormat::JsonLines
                                                         : InputFormat::Text;
}

} // namespace

Result<void> readDocuments(const std::string &path, const DocumentOptions &options,
                           DocumentReceiver &receiver, Progress &progress) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
    return Error{fmt::format("{}: is a directory, expected a file", path)};
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return Error{fmt::format("{}: cannot open: {}", path, std::strerror(errno))};
  if (options.format.value_or(formatOf(path)) == InputFormat::Text)
    LMC_TRY(readText(in, options.separator, receiver, progress));
  else
    LMC_TRY(readJsonLines(in, path, options.field, receiver, progress));
  if (in.bad())
    return Error{fmt::format("{}: cannot read: {}", path, std::strerror(errno)), ExitCode::Failure};
  return {};
}

} // namespace lmc
