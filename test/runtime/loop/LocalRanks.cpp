// Runs a plan with its ranks as threads of this process, for tests of what many ranks compute:
//
//   local-ranks RANKS [plan=FILE] [out=DIR] [steps=N] [set=KEY=VALUE]...
//     [resume=PATH] [init=PATH] [export=DIR] [dump_gradients=FILE] [change=KEY]... [eval=1]
//     [bench=N] [rank2_set=KEY=VALUE]  a setting that only rank 2 gets
//
// Each rank has one thread. The exit code is that of the first rank that fails.
#include "runtime/comm/LocalWorld.h"
#include "tools/lmc-run/Run.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using namespace lmc;

int main(int argc, char **argv) {
  if (argc < 2)
    return 2;
  const int ranks = std::atoi(argv[1]);
  ProgramOptions options, strange;
  options.threads = 1;
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i], key = text.substr(0, text.find('='));
    const std::string value = text.substr(key.size() + 1);
    if (key == "plan")
      options.plan = value;
    else if (key == "out")
      options.out = value;
    else if (key == "steps")
      options.steps = std::atoll(value.c_str());
    else if (key == "set")
      options.overrides.push_back(value);
    else if (key == "change")
      options.changes.push_back(value);
    else if (key == "resume")
      options.resume = value;
    else if (key == "init")
      options.init = value;
    else if (key == "export")
      options.exportDirectory = value;
    else if (key == "dump_gradients")
      options.dumpGradients = value;
    else if (key == "rank2_set")
      strange.overrides.push_back(value);
    else if (key == "eval")
      options.eval = true;
    else if (key == "bench")
      options.bench = std::atoll(value.c_str());
    else
      return 2;
  }
  strange.overrides.insert(strange.overrides.end(), options.overrides.begin(),
                           options.overrides.end());
  auto worlds = makeLocalWorlds(ranks);
  std::vector<int> codes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < worlds.size(); ++rank)
    threads.emplace_back([&, rank] {
      ProgramOptions own = options;
      if (rank == 2)
        own.overrides = strange.overrides;
      auto result = run(own, *worlds[rank]);
      if (!result)
        fmt::print(stderr, "rank {}: error: {}\n", rank, result.error().message);
      codes[rank] = static_cast<int>(result ? *result : result.error().code);
      worlds[rank].reset();
    });
  for (std::thread &thread : threads)
    thread.join();
  for (int code : codes)
    if (code != 0)
      return code;
  return 0;
}
