// A library for LD_PRELOAD that kills its process before one of its calls that rename or remove a
// file: the call of number LMC_KILL_AT, from 1 on.

#include <csignal>
#include <cstdlib>
#include <dlfcn.h>

template <typename Function> static Function *next(const char *name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

// Counts a call.
static void count() {
  static int calls = 0;
  const char *last = std::getenv("LMC_KILL_AT");
  if (last && ++calls == std::atoi(last))
    std::raise(SIGKILL);
}

extern "C" {
int rename(const char *from, const char *to) noexcept {
  count();
  return next<int(const char *, const char *)>("rename")(from, to);
}
int unlink(const char *path) noexcept {
  count();
  return next<int(const char *)>("unlink")(path);
}
int unlinkat(int folder, const char *path, int flags) noexcept {
  count();
  return next<int(int, const char *, int)>("unlinkat")(folder, path, flags);
}
int rmdir(const char *path) noexcept {
  count();
  return next<int(const char *)>("rmdir")(path);
}
}
