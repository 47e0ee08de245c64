#include "ground/support/File.h"

#include "ground/support/FileWait.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <glob.h>
#include <iterator>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace lmc {

Error systemError(const std::string &action, const std::string &path, int errorNumber) {
  return machineError("cannot {} {}: {}", action, path,
                      std::generic_category().message(errorNumber));
}

// Returns the Error for a path that could not be read. A missing or unreadable path is a user
// error, because the user probably mistyped the path.
static Error readingError(const std::string &path, int errorNumber) {
  constexpr int kOfUser[] = {ENOENT, ENOTDIR, EISDIR, EACCES, ELOOP, ENAMETOOLONG};
  Error error = systemError("read", path, errorNumber);
  if (std::ranges::find(kOfUser, errorNumber) != std::end(kOfUser))
    error.code = ExitCode::UserError;
  return error;
}

static std::string parentOf(const std::string &path) {
  std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

//===--- File -------------------------------------------------------------===//

Result<File> File::openForReading(const std::string &path) {
  // O_NONBLOCK keeps open() from waiting for the writer of a FIFO.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return readingError(path, errno);
  File file(fd, path);
  struct stat status;
  if (::fstat(fd, &status) != 0)
    return readingError(path, errno);
  if (S_ISDIR(status.st_mode))
    return readingError(path, EISDIR);
  if (!S_ISREG(status.st_mode))
    return userError("cannot read {}: not a regular file", path);
  return file;
}

Result<File> File::create(const std::string &path) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    return systemError("create", path, errno);
  return File(fd, path);
}

Result<File> File::openForWriting(const std::string &path) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return systemError("open", path, errno);
  return File(fd, path);
}

Result<File> File::openForAppending(const std::string &path, uint64_t bytes) {
  LMC_LET(file, openForWriting(path));
  LMC_TRY(file->resize(bytes));
  if (::lseek(file->fd, 0, SEEK_END) < 0)
    return systemError("write", path, errno);
  return file;
}

File::File(File &&other) noexcept : fd(std::exchange(other.fd, -1)), name(std::move(other.name)) {}

File &File::operator=(File &&other) noexcept {
  std::swap(fd, other.fd);
  std::swap(name, other.name);
  return *this;
}

File::~File() {
  if (fd >= 0)
    ::close(fd);
}

// Calls `writeSome(address, bytes, done)` until `bytes` bytes are written.
template <typename WriteSome>
static Result<void> writeAll(const std::string &name, const void *data, size_t bytes,
                             const WriteSome &writeSome) {
  const char *start = static_cast<const char *>(data);
  for (size_t done = 0; done < bytes;) {
    ssize_t written = writeSome(start + done, bytes - done, done);
    if (written >= 0)
      done += static_cast<size_t>(written);
    else if (errno != EINTR)
      return systemError("write", name, errno);
  }
  return {};
}

Result<void> File::write(const void *data, size_t bytes) {
  const FileWait wait("writing", name);
  return writeAll(name, data, bytes,
                  [&](const char *from, size_t count, size_t) { return ::write(fd, from, count); });
}

Result<void> File::writeAt(const void *data, size_t bytes, uint64_t offset) {
  const FileWait wait("writing", name);
  return writeAll(name, data, bytes, [&](const char *from, size_t count, size_t done) {
    return ::pwrite(fd, from, count, static_cast<off_t>(offset + done));
  });
}

Result<void> File::resize(uint64_t bytes) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    return systemError("write", name, errno);
  return {};
}

// Calls `readSome(address, bytes, done)` until `bytes` bytes are read or the file ends.
template <typename ReadSome>
static Result<size_t> readAll(const std::string &name, void *data, size_t bytes,
                              const ReadSome &readSome) {
  char *start = static_cast<char *>(data);
  size_t total = 0;
  while (total < bytes) {
    ssize_t got = readSome(start + total, bytes - total, total);
    if (got == 0)
      break;
    if (got > 0)
      total += static_cast<size_t>(got);
    else if (errno != EINTR)
      return readingError(name, errno);
  }
  return total;
}

Result<size_t> File::read(void *data, size_t bytes) {
  const FileWait wait("reading", name);
  return readAll(name, data, bytes,
                 [&](char *to, size_t most, size_t) { return ::read(fd, to, most); });
}

Result<size_t> File::readAt(void *data, size_t bytes, uint64_t offset) const {
  const FileWait wait("reading", name);
  return readAll(name, data, bytes, [&](char *to, size_t most, size_t done) {
    return ::pread(fd, to, most, static_cast<off_t>(offset + done));
  });
}

Result<uint64_t> File::size() const {
  struct stat status;
  if (::fstat(fd, &status) != 0)
    return readingError(name, errno);
  return static_cast<uint64_t>(status.st_size);
}

Result<void> File::sync() {
  const FileWait wait("writing", name);
  while (::fsync(fd) != 0)
    if (errno != EINTR)
      return systemError("write", name, errno);
  return {};
}

Result<void> File::close() {
  int closing = std::exchange(fd, -1);
  // Ignores EINTR: Linux closes the descriptor even then.
  if (closing >= 0 && ::close(closing) != 0 && errno != EINTR)
    return systemError("write", name, errno);
  return {};
}

//===--- MappedFile -------------------------------------------------------===//

Result<MappedFile> MappedFile::open(const std::string &path) {
  LMC_LET(file, File::openForReading(path));
  LMC_LET(bytes, file->size());
  if (*bytes == 0)
    return MappedFile(nullptr, 0, path);
  void *start = ::mmap(nullptr, *bytes, PROT_READ, MAP_PRIVATE, file->descriptor(), 0);
  if (start == MAP_FAILED)
    return systemError("map", path, errno);
  return MappedFile(static_cast<const std::byte *>(start), *bytes, path);
}

void MappedFile::Unmap::operator()(const std::byte *start) const {
  ::munmap(const_cast<std::byte *>(start), bytes);
}

//===--- Whole files ------------------------------------------------------===//

Result<std::string> readTextFile(const std::string &path, uint64_t maximumBytes) {
  LMC_LET(file, File::openForReading(path));
  LMC_LET(bytes, file->size());
  if (*bytes > maximumBytes)
    return userError("{}: {} bytes, more than the {} that such a file may have", path, *bytes,
                     maximumBytes);
  std::string text(*bytes, '\0');
  LMC_LET(got, file->read(text.data(), text.size()));
  text.resize(*got);
  return text;
}

// Creates the file; if `syncs` is true, also syncs its contents to the disk.
static Result<void> writeText(const std::string &path, const std::string &text, bool syncs) {
  LMC_LET(file, File::create(path));
  LMC_TRY(file->write(text.data(), text.size()));
  if (syncs)
    LMC_TRY(file->sync());
  return file->close();
}

static Result<void> writeAndRename(const std::string &path, const std::string &text, bool syncs) {
  const std::string partial = path + ".partial";
  LMC_TRY(writeText(partial, text, syncs));
  if (::rename(partial.c_str(), path.c_str()) != 0)
    return systemError("rename", partial, errno);
  return syncs ? syncFolder(parentOf(path)) : Result<void>();
}

Result<void> writeTextFile(const std::string &path, const std::string &text) {
  return writeText(path, text, /*syncs=*/true);
}

Result<void> publishFile(const std::string &path, const std::string &text) {
  return writeAndRename(path, text, /*syncs=*/true);
}

Result<void> replaceFile(const std::string &path, const std::string &text) {
  return writeAndRename(path, text, /*syncs=*/false);
}

//===--- Folders ----------------------------------------------------------===//

Result<void> syncFolder(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return systemError("open", path, errno);
  int status;
  do
    status = ::fsync(fd);
  while (status != 0 && errno == EINTR);
  int errorNumber = errno;
  ::close(fd);
  // Ignores EINVAL: some network file systems cannot sync folders, but rename synchronously.
  if (status != 0 && errorNumber != EINVAL)
    return systemError("write", path, errorNumber);
  return {};
}

Result<void> makeFolder(const std::string &path) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    return {};
  if ((::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) || ::stat(path.c_str(), &status) != 0)
    return systemError("create", path, errno);
  if (!S_ISDIR(status.st_mode))
    return systemError("create", path, ENOTDIR);
  return syncFolder(parentOf(path));
}

Result<void> makeFolders(const std::string &path) {
  std::filesystem::path soFar;
  for (const std::filesystem::path &part : std::filesystem::path(path).lexically_normal()) {
    soFar /= part;
    LMC_TRY(makeFolder(soFar.string()));
  }
  return {};
}

Result<void> removeTree(const std::string &path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error && error.value() != ENOENT)
    return systemError("remove", path, error.value());
  return {};
}

bool exists(const std::string &path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0;
}

Result<std::vector<std::string>> expandPattern(const std::string &pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos || exists(pattern))
    return std::vector<std::string>{pattern};
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 || paths.empty())
    return userError("no file matches '{}'", pattern);
  // Sorts by bytes, because glob(3) sorts by the locale.
  std::sort(paths.begin(), paths.end());
  return paths;
}

Result<std::vector<std::string>> listFolder(const std::string &path) {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator next(path, error), end; !error && next != end;
       next.increment(error))
    names.push_back(next->path().filename().string());
  if (error)
    return readingError(path, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

Result<uint64_t> freeBytes(const std::string &path) {
  struct statvfs status;
  if (::statvfs(path.c_str(), &status) != 0)
    return systemError("measure the free space of", path, errno);
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

Result<void> publishFolder(const std::string &from, const std::string &to,
                           const std::string &aside) {
  std::string parent = parentOf(to);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    LMC_TRY(syncFolder(parent));
    return removeTree(from);
  }
  switch (errno) {
  case ENOENT:
    if (::rename(from.c_str(), to.c_str()) != 0)
      return systemError("create", to, errno);
    return syncFolder(parent);
  case EINVAL:
  case ENOSYS:
    break; // the file system cannot exchange names
  default:
    return systemError("replace", to, errno);
  }
  bool replaces = exists(to);
  if (replaces && ::rename(to.c_str(), aside.c_str()) != 0)
    return systemError("replace", to, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    int errorNumber = errno;
    if (replaces)
      ::rename(aside.c_str(), to.c_str());
    return systemError("create", to, errorNumber);
  }
  LMC_TRY(syncFolder(parent));
  return replaces ? removeTree(aside) : Result<void>();
}

} // namespace lmc
