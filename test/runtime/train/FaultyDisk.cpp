// A library for LD_PRELOAD that makes the disk under unfinished checkpoints and exports
// (`.../checkpoints/.STEP.partial/...`, `.../exports/.STEP.partial/...`) slow, full or stuck. A test switches each fault by
// the environment and, while the program runs, by files:
//
//   LMC_DISK_GATE=FILE   writes wait until FILE exists
//   LMC_DISK_FULL=FILE   writes fail with ENOSPC as long as FILE exists
//   LMC_DISK_RATE=N      writes take the time that a disk of N bytes per second takes

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

template <typename Function> static Function *next(const char *name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

// Returns true if the file is part of a checkpoint or an export that is not complete.
static bool isUnfinished(int fd) {
  char link[64] = "/proc/self/fd/", path[4096];
  char digits[16];
  int count = 0;
  for (int rest = fd; rest > 0 || count == 0; rest /= 10)
    digits[count++] = static_cast<char>('0' + rest % 10);
  char *end = link + std::strlen(link);
  while (count > 0)
    *end++ = digits[--count];
  *end = '\0';
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  if (length <= 0)
    return false;
  path[length] = '\0';
  return std::strstr(path, "/checkpoints/.") || std::strstr(path, "/exports/.");
}

// Returns false if a write of `bytes` bytes must fail.
static bool allowed(int fd, size_t bytes) {
  if (!isUnfinished(fd))
    return true;
  if (const char *gate = std::getenv("LMC_DISK_GATE"))
    while (::access(gate, F_OK) != 0)
      ::usleep(1000);
  if (const char *rate = std::getenv("LMC_DISK_RATE"))
    ::usleep(static_cast<useconds_t>(1e6 * static_cast<double>(bytes) / std::atof(rate)));
  const char *full = std::getenv("LMC_DISK_FULL");
  if (!full || ::access(full, F_OK) != 0)
    return true;
  errno = ENOSPC;
  return false;
}

extern "C" {
ssize_t write(int fd, const void *data, size_t bytes) {
  static auto *const real = next<ssize_t(int, const void *, size_t)>("write");
  return allowed(fd, bytes) ? real(fd, data, bytes) : -1;
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
  static auto *const real = next<ssize_t(int, const void *, size_t, off_t)>("pwrite");
  return allowed(fd, bytes) ? real(fd, data, bytes, offset) : -1;
}
ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset) {
  static auto *const real = next<ssize_t(int, const void *, size_t, off64_t)>("pwrite64");
  return allowed(fd, bytes) ? real(fd, data, bytes, offset) : -1;
}
}
