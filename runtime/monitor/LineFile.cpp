#include "runtime/monitor/LineFile.h"

#include "runtime/support/File.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
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

// Appends the bytes from `begin` on of the file `path` to the file `to`, and returns when they are
// on the disk.
static Result<void> copyTail(const std::string &path, uint64_t begin, const std::string &to) {
  auto target = openFile(to);
  LMC_TRY(target);
  std::ifstream source(path, std::ios::binary);
  source.seekg(static_cast<std::streamoff>(begin));
  std::array<char, 1 << 16> piece;
  bool written = ::lseek(*target, 0, SEEK_END) >= 0;
  while (written && (source.read(piece.data(), piece.size()), source.gcount() > 0))
    for (std::streamsize done = 0; written && done < source.gcount();) {
      ssize_t count =
          ::write(*target, piece.data() + done, static_cast<size_t>(source.gcount() - done));
      written = count > 0 || (count < 0 && errno == EINTR);
      done += std::max<ssize_t>(count, 0);
    }
  written = written && ::fsync(*target) == 0;
  int reason = errno;
  ::close(*target);
  if (!written)
    return systemError("write", to, reason);
  return {};
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
  {
    std::ifstream lines(path, std::ios::binary);
    // getline() sets eof if the file ends before a newline: such a line is only a part of one.
    for (std::string line; std::getline(lines, line) && !lines.eof(); file.end += line.size() + 1)
      if (ends(line))
        break;
  }
  struct stat status {};
  if (::fstat(*fd, &status) != 0)
    return systemError("read", path, errno);
  if (static_cast<uint64_t>(status.st_size) == file.end)
    return file;
  auto to = undone();
  LMC_TRY(to);
  LMC_TRY(copyTail(path, file.end, *to));
  if (::ftruncate(*fd, static_cast<off_t>(file.end)) != 0)
    return systemError("shorten", path, errno);
  return file;
}

LineFile::LineFile(LineFile &&other) noexcept
    : fd(std::exchange(other.fd, -1)), path(std::move(other.path)), end(other.end),
      pending(std::move(other.pending)) {}

LineFile::~LineFile() {
  if (fd >= 0)
    ::close(fd);
}

Result<void> LineFile::write(std::string_view line) {
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
