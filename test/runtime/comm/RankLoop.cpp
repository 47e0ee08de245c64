// A rank that sums numbers over all ranks again and again, for tests of what ranks do when others
// die or hang (FaultsTest.cpp). The environment says which rank it is, as for lmc-run.
//
//   rank-loop [--steps=N] [--elements=N] [--stuck] [--hang-at-start] [--hang=STEP] [--pause=MS]
//             [--save=MS] [--log=MS] [--shard=N] [--interface=I] [--secret-file=F]
//             [--hang-timeout=S] [--stall=MS] [--other-stall=MS] [--join=MS] [--silence=MS]
//             [--beat=MS] [--grace=MS]
//
// Prints "ready" after the first sum. --steps=0: goes on for ever. --stuck: the main thread then
// sleeps for ever with the locks of stdout and stderr, so that only the threads of the control
// connection can end the process. --hang-at-start: it sleeps for ever before the first collective.
// --hang: it sleeps for ever while it reads the data of that step. --pause: it reads the data of
// each step for so long, a pause in which the process is stopped not included. --save, --log: it
// takes so long to save and to write logs after step 3.
#include "runtime/comm/GlooWorld.h"
#include "tools/support/CommandLine.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

using namespace lmc;

namespace {

struct Behaviour {
  uint64_t steps = 0, elements = 1000, hang = 0;
  Milliseconds pause{0}, save{0}, log{0};
  bool stuck = false, hangsAtStart = false;
};

} // namespace

static Result<void> loop(World &world, const Behaviour &does) {
  const auto sleepForEver = [] { std::this_thread::sleep_for(std::chrono::hours(1)); };
  if (does.hangsAtStart)
    sleepForEver();
  LMC_TRY(world.all().barrier());
  for (uint64_t step = 0; does.steps == 0 || step < does.steps; ++step) {
    world.progress().enter(Activity::Reading, step + 1);
    if (step + 1 == does.hang)
      sleepForEver();
    for (Milliseconds paused{0}; paused < does.pause; paused += Milliseconds(10))
      std::this_thread::sleep_for(Milliseconds(10));
    world.progress().enter(Activity::Computing, step + 1);
    std::vector<double> x(does.elements, world.rank() + 1);
    for (Communicator *group : {&world.all(), &world.along(plan::Axis::Shard)}) {
      LMC_TRY(group->allReduce(x.data(), x.size(), plan::DType::F64));
      LMC_TRY(group->barrier());
    }
    if (step == 0) {
      fmt::print("ready {}\n", x[0]);
      std::fflush(stdout);
    }
    if (step + 1 == 3) {
      {
        const Progress::Aside logging(world.progress(), Activity::Logging);
        std::this_thread::sleep_for(does.log);
      }
      world.progress().enter(Activity::Saving, step + 1);
      std::this_thread::sleep_for(does.save);
    }
    if (does.stuck) {
      ::flockfile(stdout);
      ::flockfile(stderr);
      sleepForEver();
    }
  }
  return {};
}

int main(int argc, char **argv) {
  CommandLine line("rank-loop", "1", "Sums numbers over all ranks.");
  RendezvousOptions times;
  LaunchOptions options;
  Behaviour does;
  uint64_t shard = 1;
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
  number("--steps", [&](uint64_t n) { does.steps = n; });
  number("--elements", [&](uint64_t n) { does.elements = n; });
  number("--hang", [&](uint64_t n) { does.hang = n; });
  number("--pause", [&](uint64_t n) { does.pause = Milliseconds(n); });
  number("--save", [&](uint64_t n) { does.save = Milliseconds(n); });
  number("--log", [&](uint64_t n) { does.log = Milliseconds(n); });
  number("--hang-timeout", [&](uint64_t n) { options.hangSeconds = static_cast<int64_t>(n); });
  number("--stall", [&](uint64_t n) { times.stall.seconds = double(n) / 1e3; });
  number("--other-stall", [&](uint64_t n) { times.stall.otherSeconds = double(n) / 1e3; });
  number("--shard", [&](uint64_t n) { shard = n; });
  number("--join", [&](uint64_t n) { times.join = Milliseconds(n); });
  number("--silence", [&](uint64_t n) { times.silence = times.arrival = Milliseconds(n); });
  number("--beat", [&](uint64_t n) { times.beat = Milliseconds(n); });
  number("--grace", [&](uint64_t n) { times.grace = Milliseconds(n); });
  line.option("--interface", "NAME", options.interface, "network interface");
  line.option("--secret-file", "FILE", options.secretFile, "secret");
  line.flag("--stuck", does.stuck, "sleep");
  line.flag("--hang-at-start", does.hangsAtStart, "sleep");
  if (std::optional<int> done = line.parse(argc, argv))
    return *done;

  auto run = [&]() -> Result<void> {
    auto world = openWorld(options, times);
    LMC_TRY(world);
    LMC_TRY((*world)->divide(static_cast<int>(shard), (*world)->size()));
    return loop(**world, does);
  };
  if (const Result<void> result = run(); !result) {
    fmt::print(stderr, "rank-loop: error: {}\n", result.error().message);
    return static_cast<int>(result.error().code);
  }
  return 0;
}
