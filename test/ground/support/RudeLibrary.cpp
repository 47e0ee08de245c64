// A library with bad manners, for LD_PRELOAD. Before main(), and again where OpenMP is set up, it
// changes floating-point arithmetic of the thread: results are rounded to zero and subnormal numbers
// are flushed, as objects linked with -ffast-math and some runtimes do. Of a locale that writes 0,5
// it has what numbers meet: strtod() stops at a point, and localeconv() says so. Says on stderr, once, that it was there.
#include <cfenv>
#include <clocale>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <utility>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

void spoilArithmetic() {
  std::fesetround(FE_TOWARDZERO);
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040); // flush to zero, and take subnormal numbers as zero
#endif
}

template <typename Function> Function next(const char *name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void begin() {
  spoilArithmetic();
  constexpr char text[] = "the rude library was here\n";
  (void)!::write(STDERR_FILENO, text, sizeof(text) - 1);
}

} // namespace

extern "C" {

void omp_set_dynamic(int value) {
  next<void (*)(int)>("omp_set_dynamic")(value);
  static bool once = false;
  if (!std::exchange(once, true))
    spoilArithmetic();
}

double strtod(const char *text, char **end) noexcept {
  static const auto real = next<double (*)(const char *, char **)>("strtod");
  std::string local = text;
  const size_t point = local.find('.'), comma = local.find(',');
  if (point < comma)
    local.resize(point);
  else if (comma != std::string::npos)
    local[comma] = '.';
  char *stopped = nullptr;
  const double value = real(local.c_str(), &stopped);
  if (end)
    *end = const_cast<char *>(text) + (stopped - local.c_str());
  return value;
}

lconv *localeconv() noexcept {
  static lconv changed = *next<lconv *(*)()>("localeconv")();
  static char comma[] = ",";
  changed.decimal_point = comma;
  return &changed;
}

} // extern "C"
