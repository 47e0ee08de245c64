#include "runtime/monitor/files/LineFile.h"

#include "ground/support/File.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <filesystem>
#include <unistd.h>

namespace lmc {

// Appends `text` to the file `path`, and returns when it is on the disk.
static Result<void> appendText(const std::string &path, std::string_view text) {
  LMC_LET(target, AppendFile::open(path));
  LMC_TRY(target->write(text));
  if (::fsync(target->descriptor()) != 0)
    return systemError("write", path, errno);
  return syncFolder(std::filesystem::path(path).parent_path());
}

Result<LineFile> LineFile::open(const std::string &path) {
  LMC_LET(file, AppendFile::open(path));
  char last = '\n';
  if (file->size() > 0 &&
      ::pread(file->descriptor(), &last, 1, static_cast<off_t>(file->size() - 1)) != 1)
    return systemError("read", path, errno);
  if (last != '\n')
    file->prepend("\n");
  return LineFile(std::move(*file));
}

// Returns true if `line` is the record of a later step than `lastStep`.
static bool isLater(const std::string &line, int64_t lastStep) {
  nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object())
    return false;
  auto step = record.find("step");
  return step != record.end() && step->is_number_integer() && step->get<int64_t>() > lastStep;
}

Result<LineFile> LineFile::openAfter(const std::string &path, int64_t lastStep,
                                     const std::function<Result<std::string>()> &undone) {
  LMC_LET(file, AppendFile::open(path));
  LMC_LET(text, readTextFile(path, UINT64_MAX));
  size_t end = 0; // end of the lines that stay
  for (size_t newline; (newline = text->find('\n', end)) != std::string::npos; end = newline + 1)
    if (isLater(text->substr(end, newline - end), lastStep))
      break;
  if (text->size() > end) {
    LMC_LET(to, undone());
    LMC_TRY(appendText(std::filesystem::path(*to) / std::filesystem::path(path).filename(),
                       std::string_view(*text).substr(end)));
    LMC_TRY(file->cut(end));
  }
  return LineFile(std::move(*file));
}

Result<void> LineFile::write(std::string_view line) {
  std::string record(line);
  record += '\n';
  return file.write(record);
}

std::string LineFile::writeOrWarn(std::string_view line, const char *what) {
  const Result<void> written = write(line);
  const bool wasBehind = std::exchange(behind, !written);
  return written || wasBehind
             ? ""
             : fmt::format(
                   "{}; the run goes on, and {} are kept in memory until they can be written",
                   written.error().message, what);
}

} // namespace lmc
