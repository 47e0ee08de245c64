// A rank that sums numbers over all ranks again and again, for tests of what ranks do when others
// die or hang (FaultsTest.cpp). The environment says which rank it is, as for lmc-run.
//
//   rank-loop [--steps=N] [--elements=N] [--stuck] [--shard=N] [--interface=I]
//             [--secret-file=F] [--join=MS] [--silence=MS] [--beat=MS] [--grace=MS]
//
// Prints "ready" after the first sum. --steps=0: goes on for ever. --stuck: the main thread then
// sleeps for ever, so that only the threads of the control connection can end the process.
#include "runtime/comm/GlooWorld.h"
#include "tools/support/CommandLine.h"

#include <fmt/format.h>

#include <cstdlib>
#include <thread>
#include <vector>

using namespace lmc;

static Result<void> loop(World &world, uint64_t steps, uint64_t elements, bool stuck) {
  for (uint64_t step = 0; steps == 0 || step < steps; ++step) {
    std::vector<double> x(elements, world.rank() + 1);
    for (Communicator *group : {&world.all(), &world.along(plan::Axis::Shard)}) {
      LMC_TRY(group->allReduce(x.data(), x.size(), plan::DType::F64));
      LMC_TRY(group->barrier());
    }
    if (step == 0) {
      fmt::print("ready {}\n", x[0]);
      std::fflush(stdout);
    }
    if (stuck)
      std::this_thread::sleep_for(std::chrono::hours(1));
  }
  return {};
}

int main(int argc, char **argv) {
  CommandLine line("rank-loop", "1", "Sums numbers over all ranks.");
  RendezvousOptions times;
  LaunchOptions options;
  uint64_t steps = 0, elements = 1000, shard = 1;
  bool stuck = false;
  auto number = [&](const char *name, auto set) {
    line.option(
        name, "N",
        [name, set](const std::string &text) -> Result<void> {
          auto value = parseNumber(name, text, 0, 100000000);
          LMC_TRY(value);
          set(*value);
          return {};
        },
        "a number");
  };
  number("--steps", [&](uint64_t n) { steps = n; });
  number("--elements", [&](uint64_t n) { elements = n; });
  number("--shard", [&](uint64_t n) { shard = n; });
  number("--join", [&](uint64_t n) { times.join = Milliseconds(n); });
  number("--silence", [&](uint64_t n) { times.silence = Milliseconds(n); });
  number("--beat", [&](uint64_t n) { times.beat = Milliseconds(n); });
  number("--grace", [&](uint64_t n) { times.grace = Milliseconds(n); });
  line.option("--interface", "NAME", options.interface, "network interface");
  line.option("--secret-file", "FILE", options.secretFile, "secret");
  line.flag("--stuck", stuck, "sleep");
  if (std::optional<int> done = line.parse(argc, argv))
    return *done;

  auto run = [&]() -> Result<void> {
    auto world = openWorld(options, static_cast<int>(shard), times);
    if (!world)
      return world.error();
    return loop(**world, steps, elements, stuck);
  };
  if (const Result<void> result = run(); !result) {
    fmt::print(stderr, "rank-loop: error: {}\n", result.error().message);
    return static_cast<int>(result.error().code);
  }
  return 0;
}
