// A rank that sums numbers over all ranks again and again, for tests of what ranks do when others
// die or hang (FaultsTest.cpp). The environment says which rank it is, as for lmc-run.
//
//   rank-loop [--steps=N] [--elements=N] [--stuck] [--hang=STEP] [--save=MS] [--shard=N]
//             [--interface=I] [--secret-file=F] [--stall=MS] [--join=MS] [--silence=MS] [--beat=MS]
//             [--grace=MS]
//
// Prints "ready" after the first sum. --steps=0: goes on for ever. --stuck: the main thread then
// sleeps for ever, so that only the threads of the control connection can end the process. --hang:
// it sleeps for ever while it reads the data of that step. --save: it takes so long to save after
// step 3.
#include "runtime/comm/GlooWorld.h"
#include "tools/support/CommandLine.h"

#include <fmt/format.h>

#include <cstdlib>
#include <thread>
#include <vector>

using namespace lmc;

static Result<void> loop(World &world, uint64_t steps, uint64_t elements, bool stuck, uint64_t hang,
                         uint64_t saveMilliseconds) {
  for (uint64_t step = 0; steps == 0 || step < steps; ++step) {
    world.progress().enter(Activity::Reading, step + 1);
    if (step + 1 == hang)
      std::this_thread::sleep_for(std::chrono::hours(1));
    world.progress().enter(Activity::Computing, step + 1);
    std::vector<double> x(elements, world.rank() + 1);
    for (Communicator *group : {&world.all(), &world.along(plan::Axis::Shard)}) {
      LMC_TRY(group->allReduce(x.data(), x.size(), plan::DType::F64));
      LMC_TRY(group->barrier());
    }
    if (step == 0) {
      fmt::print("ready {}\n", x[0]);
      std::fflush(stdout);
    }
    world.progress().endStep(1e-3);
    if (step + 1 == 3) {
      world.progress().enter(Activity::Saving, step + 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(saveMilliseconds));
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
  uint64_t steps = 0, elements = 1000, shard = 1, hang = 0, save = 0;
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
  number("--hang", [&](uint64_t n) { hang = n; });
  number("--save", [&](uint64_t n) { save = n; });
  number("--stall", [&](uint64_t n) { times.stall.seconds = double(n) / 1e3; });
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
    return loop(**world, steps, elements, stuck, hang, save);
  };
  if (const Result<void> result = run(); !result) {
    fmt::print(stderr, "rank-loop: error: {}\n", result.error().message);
    return static_cast<int>(result.error().code);
  }
  return 0;
}
