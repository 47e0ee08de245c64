// Tells the thread sanitizer where OpenMP's threads fork and join. libgomp is not
// instrumented and waits on futexes, so without this every parallel loop looks like a
// race with the code before and after it. Suppressing libgomp would hide the real races
// inside the loops; this stands in for its entry points, states the two orderings that
// OpenMP guarantees, and leaves everything between the threads of a loop to be checked.
// Linked into what LMC_SANITIZE=thread builds, and nothing else.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

namespace {

struct Region {
  void (*body)(void *);
  void *data;
  char fork = 0, join = 0; // their addresses name the orderings
};

void runThread(void *argument) {
  auto &region = *static_cast<Region *>(argument);
  __tsan_acquire(&region.fork);
  region.body(region.data);
  __tsan_release(&region.join);
}

// `name` of libgomp, called as `arguments` say, between a fork and a join.
template <typename... Arguments>
void runRegion(const char *name, void (*body)(void *), void *data, Arguments... arguments) {
  using Entry = void (*)(void (*)(void *), void *, Arguments...);
  auto entry = reinterpret_cast<Entry>(dlsym(RTLD_NEXT, name));
  Region region{body, data};
  __tsan_release(&region.fork);
  entry(runThread, &region, arguments...);
  __tsan_acquire(&region.join);
}

} // namespace

extern "C" {

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags) {
  runRegion("GOMP_parallel", body, data, threads, flags);
}

// What GCC calls instead where a parallel loop's bounds are known before the fork.
#define LOOP(name)                                                                                 \
  void name(void (*body)(void *), void *data, unsigned threads, long from, long to, long step,     \
            long chunk, unsigned flags) {                                                          \
    runRegion(#name, body, data, threads, from, to, step, chunk, flags);                           \
  }
LOOP(GOMP_parallel_loop_dynamic)
LOOP(GOMP_parallel_loop_guided)
LOOP(GOMP_parallel_loop_nonmonotonic_dynamic)
LOOP(GOMP_parallel_loop_nonmonotonic_guided)
#undef LOOP
}
