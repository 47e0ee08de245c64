// A library for LD_PRELOAD that makes a disk slow, full, stuck, read-only or gone. On the disk are
// the files of LMC_DISK=FOLDER or, without this variable, those of unfinished checkpoints and
// exports (`.../checkpoints/.STEP.partial/...`, `.../exports/.STEP.partial/...`). A test switches
// each fault by the environment and, while the program runs, by files:
//
//   LMC_DISK_GATE=FILE       writes wait until FILE exists
//   LMC_DISK_FULL=FILE       writes fail with ENOSPC as long as FILE exists
//   LMC_DISK_READ_ONLY=FILE  what changes the disk fails with EROFS as long as FILE exists
//   LMC_DISK_GONE=FILE       everything fails with EIO as long as FILE exists, except fstat(),
//                            which a system may answer from its memory
//   LMC_DISK_RATE=N          reads and writes take the time that a disk of N bytes per second takes
//   LMC_DISK_SLOW=FILE       the same with the number in FILE, as long as FILE exists

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace {

template <typename Function> Function *next(const char *name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

bool isOnDisk(const char *path) {
  if (const char *folder = std::getenv("LMC_DISK")) {
    const size_t length = std::strlen(folder);
    return std::strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
  }
  return std::strstr(path, "/checkpoints/.") || std::strstr(path, "/exports/.");
}

// Where a file is: at a path, or behind a descriptor.
struct Place {
  char path[4096] = "";

  explicit Place(int fd) {
    char link[64];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
  }
  Place(int folder, const char *name) : Place(folder) {
    if (name[0] == '/' || folder == AT_FDCWD) {
      std::snprintf(path, sizeof path, "%s", name);
    } else {
      const size_t length = std::strlen(path);
      std::snprintf(path + length, sizeof path - length, "/%s", name);
    }
  }
};

bool isSwitchedOn(const char *fault) {
  const char *file = std::getenv(fault);
  return file && ::access(file, F_OK) == 0;
}

// Returns the bytes per second; 0: the disk is as fast as it is.
double rate() {
  if (const char *always = std::getenv("LMC_DISK_RATE"))
    return std::atof(always);
  double rate = 0;
  if (isSwitchedOn("LMC_DISK_SLOW"))
    if (FILE *file = std::fopen(std::getenv("LMC_DISK_SLOW"), "r")) {
      if (std::fscanf(file, "%lf", &rate) != 1)
        rate = 0;
      std::fclose(file);
    }
  return rate;
}

enum class Kind { Look, Change, Read, Write };

// Returns false, with errno, if an operation of `bytes` bytes must fail.
bool allowed(const Place &place, Kind kind, size_t bytes = 0) {
  if (!isOnDisk(place.path))
    return true;
  if (kind == Kind::Write)
    if (const char *gate = std::getenv("LMC_DISK_GATE"))
      while (::access(gate, F_OK) != 0)
        ::usleep(1000);
  if (bytes > 0)
    if (const double perSecond = rate(); perSecond > 0)
      ::usleep(static_cast<useconds_t>(1e6 * static_cast<double>(bytes) / perSecond));
  const bool changes = kind == Kind::Change || kind == Kind::Write;
  errno = isSwitchedOn("LMC_DISK_GONE")                          ? EIO
          : changes && isSwitchedOn("LMC_DISK_READ_ONLY")        ? EROFS
          : kind == Kind::Write && isSwitchedOn("LMC_DISK_FULL") ? ENOSPC
                                                                 : 0;
  return errno == 0;
}

Kind kindOf(int flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) ? Kind::Change : Kind::Look;
}

mode_t modeOf(int flags, va_list more) { return (flags & O_CREAT) ? va_arg(more, mode_t) : 0; }

} // namespace

// NAME is a function that returns -1, or a null pointer, on errors.
#define LMC_FAULTY(RESULT, FAILURE, NAME, PARAMETERS, ARGUMENTS, ...)                              \
  extern "C" RESULT NAME PARAMETERS {                                                              \
    static auto *const real = next<RESULT PARAMETERS>(#NAME);                                      \
    return allowed(__VA_ARGS__) ? real ARGUMENTS : FAILURE;                                        \
  }

LMC_FAULTY(ssize_t, -1, write, (int fd, const void *data, size_t bytes), (fd, data, bytes),
           Place(fd), Kind::Write, bytes)
LMC_FAULTY(ssize_t, -1, pwrite, (int fd, const void *data, size_t bytes, off_t offset),
           (fd, data, bytes, offset), Place(fd), Kind::Write, bytes)
LMC_FAULTY(ssize_t, -1, pwrite64, (int fd, const void *data, size_t bytes, off64_t offset),
           (fd, data, bytes, offset), Place(fd), Kind::Write, bytes)
LMC_FAULTY(ssize_t, -1, read, (int fd, void *data, size_t bytes), (fd, data, bytes), Place(fd),
           Kind::Read, bytes)
LMC_FAULTY(ssize_t, -1, pread, (int fd, void *data, size_t bytes, off_t offset),
           (fd, data, bytes, offset), Place(fd), Kind::Read, bytes)
LMC_FAULTY(ssize_t, -1, pread64, (int fd, void *data, size_t bytes, off64_t offset),
           (fd, data, bytes, offset), Place(fd), Kind::Read, bytes)
LMC_FAULTY(int, -1, fsync, (int fd), (fd), Place(fd), Kind::Look)
LMC_FAULTY(int, -1, fdatasync, (int fd), (fd), Place(fd), Kind::Look)
LMC_FAULTY(int, -1, ftruncate, (int fd, off_t length), (fd, length), Place(fd), Kind::Change)
LMC_FAULTY(int, -1, ftruncate64, (int fd, off64_t length), (fd, length), Place(fd), Kind::Change)
LMC_FAULTY(int, -1, stat, (const char *path, struct stat *status), (path, status),
           Place(AT_FDCWD, path), Kind::Look)
LMC_FAULTY(int, -1, lstat, (const char *path, struct stat *status), (path, status),
           Place(AT_FDCWD, path), Kind::Look)
LMC_FAULTY(int, -1, statvfs, (const char *path, struct statvfs *status), (path, status),
           Place(AT_FDCWD, path), Kind::Look)
LMC_FAULTY(DIR *, nullptr, opendir, (const char *path), (path), Place(AT_FDCWD, path), Kind::Look)
LMC_FAULTY(int, -1, mkdir, (const char *path, mode_t mode), (path, mode), Place(AT_FDCWD, path),
           Kind::Change)
LMC_FAULTY(int, -1, unlink, (const char *path), (path), Place(AT_FDCWD, path), Kind::Change)
LMC_FAULTY(int, -1, unlinkat, (int folder, const char *path, int flags), (folder, path, flags),
           Place(folder, path), Kind::Change)
LMC_FAULTY(int, -1, rename, (const char *from, const char *to), (from, to), Place(AT_FDCWD, from),
           Kind::Change)
LMC_FAULTY(int, -1, renameat2,
           (int folder, const char *from, int other, const char *to, unsigned flags),
           (folder, from, other, to, flags), Place(folder, from), Kind::Change)

#define LMC_FAULTY_OPEN(NAME)                                                                      \
  extern "C" int NAME(const char *path, int flags, ...) {                                          \
    static auto *const real = next<int(const char *, int, ...)>(#NAME);                            \
    va_list more;                                                                                  \
    va_start(more, flags);                                                                         \
    const mode_t mode = modeOf(flags, more);                                                       \
    va_end(more);                                                                                  \
    return allowed(Place(AT_FDCWD, path), kindOf(flags)) ? real(path, flags, mode) : -1;           \
  }
#define LMC_FAULTY_OPENAT(NAME)                                                                    \
  extern "C" int NAME(int folder, const char *path, int flags, ...) {                              \
    static auto *const real = next<int(int, const char *, int, ...)>(#NAME);                       \
    va_list more;                                                                                  \
    va_start(more, flags);                                                                         \
    const mode_t mode = modeOf(flags, more);                                                       \
    va_end(more);                                                                                  \
    return allowed(Place(folder, path), kindOf(flags)) ? real(folder, path, flags, mode) : -1;     \
  }

LMC_FAULTY_OPEN(open)
LMC_FAULTY_OPEN(open64)
LMC_FAULTY_OPENAT(openat)
LMC_FAULTY_OPENAT(openat64)
