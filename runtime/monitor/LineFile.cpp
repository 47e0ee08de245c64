#include "runtime/monitor/LineFile.h"

#include "runtime/support/File.h"
#include "runtime/support/FileWait.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace lmc {

static Result<int> openFile(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    return systemError("open", path, errno);
  return fd;
}

// Reads all of the open file `fd`. Error: the file could not be read to its end.
static Result<std::string> readAll(int fd, const std::string &path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0)
    return systemError("read", path, errno);
  std::string text(static_cast<size_t>(status.st_size), '\0');
  for (size_t done = 0; done < text.size();) {
    ssize_t count =
        ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return systemError("read", path, count < 0 ? errno : EIO);
    done += static_cast<size_t>(count);
  }
  return text;
}

// Appends `text` to the file `path`, and returns when it is on the disk.
static Result<void> appendText(const std::string &path, std::string_view text) {
  auto target = openFile(path);
  LMC_TRY(target);
  bool written = ::lseek(*target, 0, SEEK_END) >= 0;
  while (written && !text.empty()) {
    ssize_t count = ::write(*target, text.data(), text.size());
    written = count > 0 || (count < 0 && errno == EINTR);
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
  written = written && ::fsync(*target) == 0;
  int reason = errno;
  ::close(*target);
  if (!written)
    return systemError("write", path, reason);
  return syncFolder(std::filesystem::path(path).parent_path());
}

Result<LineFile> LineFile::open(const std::string &path) {
  auto fd = openFile(path);
  LMC_TRY(fd);
  LineFile file(*fd, path, 0);
  struct stat status {};
  if (::fstat(*fd, &status) != 0)
    return systemError("read", path, errno);
  file.end = static_cast<uint64_t>(status.st_size);
  char last = '\n';
  if (file.end > 0 && ::pread(*fd, &last, 1, static_cast<off_t>(file.end - 1)) != 1)
    return systemError("read", path, errno);
  if (last != '\n')
    file.pending = "\n";
  return file;
}

Result<LineFile> LineFile::openAndMove(const std::string &path, const Ends &ends,
                                       const std::function<Result<std::string>()> &undone) {
  auto fd = openFile(path);
  LMC_TRY(fd);
  LineFile file(*fd, path, 0);
  auto text = readAll(*fd, path);
  LMC_TRY(text);
  for (size_t newline; (newline = text->find('\n', file.end)) != std::string::npos;
       file.end = newline + 1)
    if (ends(text->substr(file.end, newline - file.end)))
      break;
  if (text->size() == file.end)
    return file;
  auto to = undone();
  LMC_TRY(to);
  LMC_TRY(appendText(*to, std::string_view(*text).substr(file.end)));
  if (::ftruncate(*fd, static_cast<off_t>(file.end)) != 0)
    return systemError("shorten", path, errno);
  return file;
}

void LineFile::sync() {
  const FileWait wait("writing", path);
  (void)!::fdatasync(fd);
}

LineFile::LineFile(LineFile &&other) noexcept
    : fd(std::exchange(other.fd, -1)), path(std::move(other.path)), end(other.end),
      pending(std::move(other.pending)) {}

LineFile::~LineFile() {
  if (fd >= 0)
    ::close(fd);
}

Result<void> LineFile::write(std::string_view line) {
  const FileWait wait("writing", path);
  pending += line;
  pending += '\n';
  size_t written = 0;
  while (written < pending.size()) {
    ssize_t count = ::pwrite(fd, pending.data() + written, pending.size() - written,
                             static_cast<off_t>(end + written));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0) {
      Error error = systemError("write", path, count < 0 ? errno : ENOSPC);
      // Removes the part of the line that was written. If this fails too, the next open completes
      // that part with a newline or moves it away.
      (void)!::ftruncate(fd, static_cast<off_t>(end));
      return error;
    }
    written += static_cast<size_t>(count);
  }
  end += written;
  pending.clear();
  return {};
}

} // namespace lmc
