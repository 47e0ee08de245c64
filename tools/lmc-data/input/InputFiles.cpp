#include "tools/lmc-data/input/InputFiles.h"

#include "ground/support/File.h"
#include "tools/lmc-data/input/TextInput.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace lmc {

namespace fs = std::filesystem;

static constexpr size_t kNamed = 5; // maximum number of files that a note lists

// Returns an Error if `link`, a link to a folder, leads to a folder that contains the link.
static Result<void> checkLeadsOn(const fs::path &link, const fs::path &folder) {
  std::error_code ignored;
  for (fs::path above = link.parent_path();; above = above.parent_path()) {
    if (fs::equivalent(link, above, ignored))
      return userError("{}: this link leads back to {}, so that the files below have no end; "
                       "remove the link, or name the files with a pattern",
                       link.string(), above.string());
    if (above == folder || above.empty() || above == above.parent_path())
      return {};
  }
}

// Returns an Error if `path` cannot be opened or is no file. `inFolder`: the user named a folder
// above `path`, and not `path` itself.
static Result<void> checkIsFile(const std::string &path, bool inFolder) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  const bool isPipe = fs::is_fifo(status), isDevice = fs::is_character_file(status);
  if (fs::is_socket(status) || fs::is_block_file(status) || (inFolder && (isPipe || isDevice)))
    return userError("{}: is a {}, expected a file{}", path,
                     isPipe                  ? "pipe"
                     : fs::is_socket(status) ? "socket"
                                             : "device",
                     isPipe ? "; a pipe is read if its own path is given" : "");
  if (isPipe || isDevice) // opening a pipe would disturb its other end
    return {};
  LMC_LET(file, File::openForReading(path));
  return {};
}

static Result<void> addFolder(const std::string &folder, std::vector<std::string> &paths,
                              std::vector<std::string> &notes) {
  std::vector<std::string> found, others;
  std::error_code error;
  fs::recursive_directory_iterator next(folder, fs::directory_options::follow_directory_symlink,
                                        error);
  for (; !error && next != fs::recursive_directory_iterator(); next.increment(error)) {
    const std::string name = next->path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.') || name.starts_with('_'))
      next.disable_recursion_pending();
    else if (next->is_directory(ignored)) // also a link to a folder: the iterator follows it
      LMC_TRY(next->is_symlink(ignored) ? checkLeadsOn(next->path(), folder) : Result<void>());
    else // a file, or a broken link, which checkIsFile() refuses
      (formatOfName(name) ? found : others).push_back(next->path().string());
  }
  if (error)
    return machineError("{}: cannot list the folder: {}", folder, error.message());
  if (found.empty())
    return userError("{}: no file there has a name that ends in .parquet, .txt, .jsonl or .ndjson, "
                     "or in one of the last three with .gz or .zst",
                     folder);
  std::sort(found.begin(), found.end());
  std::sort(others.begin(), others.end());
  paths.insert(paths.end(), found.begin(), found.end());
  if (!others.empty()) {
    const std::vector<std::string> named(others.begin(),
                                         others.begin() + std::min(others.size(), kNamed));
    notes.push_back(
        fmt::format("{}: {} files are left out because their names say no format: {}{}; "
                    "give their own paths to read them",
                    folder, others.size(), fmt::join(named, ", "),
                    others.size() > named.size() ? ", ..." : ""));
  }
  return {};
}

Result<std::vector<std::string>> findInputs(const std::vector<std::string> &arguments,
                                            const DocumentOptions &options) {
  std::vector<std::string> paths, notes;
  for (const std::string &argument : arguments) {
    if (argument == kStandardInput) {
      if (!options.format)
        return Error{"-: standard input has no name that says its format; give --format=text or "
                     "--format=jsonl"};
      if (*options.format == InputFormat::Parquet)
        return Error{
            "-: Parquet is read from its end on, which standard input cannot be; save it to "
            "a file first"};
      paths.push_back(argument);
      continue;
    }
    LMC_LET(expanded, expandPattern(argument));
    for (const std::string &path : *expanded) {
      std::error_code error;
      const fs::file_status status = fs::status(path, error);
      if (!fs::exists(status))
        return userError("{}: cannot open: {}", path,
                         error ? error.message() : std::strerror(ENOENT));
      const size_t before = paths.size();
      if (fs::is_directory(status))
        LMC_TRY(addFolder(path, paths, notes));
      else
        paths.push_back(path);
      for (size_t i = before; i < paths.size(); ++i)
        LMC_TRY(checkIsFile(paths[i], fs::is_directory(status)));
    }
  }
  for (const std::string &path : paths)
    if (!options.format)
      for (const char *ending : {".json", ".csv", ".tsv"})
        if (path.ends_with(ending) || path.ends_with(std::string(ending) + ".gz") ||
            path.ends_with(std::string(ending) + ".zst"))
          return userError("{}: a name in {} does not say how documents are read; give "
                           "--format=jsonl if each line is a JSON object, or --format=text",
                           path, ending);
  std::set<std::pair<dev_t, ino_t>> seen;
  for (const std::string &path : paths) {
    struct stat status {};
    if (path == kStandardInput ? fstat(STDIN_FILENO, &status) : stat(path.c_str(), &status))
      return userError("{}: cannot open: {}", nameOfInput(path), std::strerror(errno));
    if (!seen.emplace(status.st_dev, status.st_ino).second)
      return userError("{}: is given twice, so that its documents would be repeated",
                       nameOfInput(path));
  }
  for (const std::string &note : notes)
    fmt::print(stderr, "note: {}\n", note);
  return paths;
}

bool canReadAgain(const std::string &path) {
  std::error_code ignored;
  return path != kStandardInput && fs::is_regular_file(path, ignored);
}

static InputStamp stampOf(const std::string &path) {
  struct stat status {};
  if (path == kStandardInput || stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
    return {};
  return {status.st_dev, status.st_ino, uint64_t(status.st_size), status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec};
}

std::vector<InputStamp> stampsOf(const std::vector<std::string> &paths) {
  std::vector<InputStamp> stamps;
  for (const std::string &path : paths)
    stamps.push_back(stampOf(path));
  return stamps;
}

static Result<void> checkUnchanged(const std::string &path, const InputStamp &was) {
  const InputStamp is = stampOf(path);
  if (is == was)
    return {};
  return userError(
      "{}: has changed while it was read ({}); start again when nothing writes to it", path,
      is.size == was.size ? std::string("it is as long as before, but was written to")
                          : fmt::format("it has {} bytes, and had {}", is.size, was.size));
}

Result<void> readInputs(const std::vector<std::string> &paths,
                        const std::vector<InputStamp> &stamps, const DocumentOptions &options,
                        const char *task, DocumentReceiver &receiver, size_t first,
                        const DocumentPlace &from) {
  uint64_t total = 0;
  for (size_t i = first; i < paths.size(); ++i) {
    std::error_code notRegular;
    if (uint64_t size = fs::file_size(paths[i], notRegular); !notRegular)
      total += size;
  }
  Progress progress(task, total);
  for (size_t i = first; i < paths.size(); ++i) {
    auto read =
        readDocuments(paths[i], options, receiver, progress, i == first ? from : DocumentPlace());
    // Reports a change of the file first: the change may be the cause of an error in `read`.
    LMC_TRY(checkUnchanged(paths[i], stamps[i]));
    LMC_TRY(read);
  }
  return {};
}

} // namespace lmc
