#include "tools/lmc-run/launch/Launch.h"

#include "tools/lmc-run/end/Supervise.h"
#include "tools/lmc-run/launch/LocalLaunch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// Returns this program's command line without the options `names` and their values.
static std::vector<std::string> without(const std::vector<std::string_view> &names, int argc,
                                        char **argv) {
  std::vector<std::string> command = {"/proc/self/exe"};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string_view name = argument.substr(0, argument.find('='));
    if (std::ranges::find(names, name) == names.end())
      command.emplace_back(argument);
    else if (name.size() == argument.size())
      ++i; // skips the option's value
  }
  return command;
}

Result<int> launchHere(int ranks, int argc, char **argv, const LaunchOptions &options) {
  if (options.rank || options.worldSize || options.localRank || options.masterPort ||
      !options.masterAddress.empty() || !options.interface.empty())
    return Error{"--nproc starts all ranks on this machine; leave out --rank, --world-size, "
                 "--local-rank, --master-addr, --master-port and --interface"};
  const auto launch = findLaunch({}, [](const char *name) { return std::getenv(name); });
  LMC_TRY(launch);
  if (launch->size > 1)
    return userError("--nproc starts all ranks, and by its environment this process is rank {} of "
                     "{} already: leave out --nproc",
                     launch->rank, launch->size);
  return launchRanks(ranks, without({"--nproc"}, argc, argv));
}

Result<int> superviseHere(int64_t restarts, int argc, char **argv, const RunOptions &options) {
  const auto launch =
      findLaunch(options.launch, [](const char *name) { return std::getenv(name); });
  LMC_TRY(launch);
  Supervision supervision;
  std::vector<std::string_view> own = {"--restarts"};
  supervision.command = without(own, argc, argv);
  own.insert(own.end(),
             {"--resume", "--rewind", "--change", "--init", "--trace", "--dump-gradients"});
  supervision.again = without(own, argc, argv);
  supervision.out = options.out;
  supervision.logs =
      launch->rank == 0 ? options.out : fmt::format("{}/ranks/{}", options.out, launch->rank);
  supervision.restarts = restarts;
  supervision.limit = options.timeLimit;
  return supervise(supervision);
}

} // namespace lmc
