#include "runtime/monitor/files/AppendFile.h"

#include "ground/support/File.h"
#include "ground/support/FileWait.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace lmc {

Result<AppendFile> AppendFile::open(const std::string &path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    return systemError("open", path, errno);
  AppendFile file(fd, path);
  struct stat status {};
  if (::fstat(fd, &status) != 0)
    return systemError("read", path, errno);
  file.end = static_cast<uint64_t>(status.st_size);
  return file;
}

AppendFile::AppendFile(AppendFile &&other) noexcept
    : fd(std::exchange(other.fd, -1)), path(std::move(other.path)), end(other.end),
      pending(std::move(other.pending)) {}

AppendFile::~AppendFile() {
  if (fd < 0)
    return;
  (void)flush();
  ::close(fd);
}

Result<void> AppendFile::flush() { return pending.empty() ? Result<void>() : write(""); }

Result<void> AppendFile::write(std::string_view record) {
  const FileWait wait("writing", path);
  pending += record;
  size_t written = 0;
  while (written < pending.size()) {
    ssize_t count = ::pwrite(fd, pending.data() + written, pending.size() - written,
                             static_cast<off_t>(end + written));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0) {
      Error error = systemError("write", path, count < 0 ? errno : ENOSPC);
      // If the incomplete record cannot be removed, the next write overwrites it.
      (void)!::ftruncate(fd, static_cast<off_t>(end));
      return error;
    }
    written += static_cast<size_t>(count);
  }
  end += written;
  pending.clear();
  return {};
}

Result<void> AppendFile::cut(uint64_t bytes) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    return systemError("shorten", path, errno);
  end = bytes;
  return {};
}

bool AppendFile::isRemoved() const {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && status.st_nlink == 0;
}

void AppendFile::sync() {
  const FileWait wait("writing", path);
  (void)!::fdatasync(fd);
}

} // namespace lmc
