#include "tools/lmc-run/Launch.h"

#include "runtime/comm/LocalLaunch.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

namespace lmc {

Result<int> launchHere(int ranks, int argc, char **argv, const LaunchOptions &options) {
  if (options.rank || options.worldSize || options.localRank || options.masterPort ||
      !options.masterAddress.empty() || !options.interface.empty())
    return Error{"--nproc starts all ranks on this machine; leave out --rank, --world-size, "
                 "--local-rank, --master-addr, --master-port and --interface"};
  const auto launch = findLaunch({}, [](const char *name) { return std::getenv(name); });
  LMC_TRY(launch);
  if (launch->size > 1)
    return Error{
        fmt::format("--nproc starts all ranks, and by its environment this process is rank "
                    "{} of {} already: leave out --nproc",
                    launch->rank, launch->size)};
  std::vector<std::string> command = {"/proc/self/exe"};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--nproc")
      ++i; // its value is the next argument
    else if (!argument.starts_with("--nproc="))
      command.emplace_back(argument);
  }
  return launchRanks(ranks, command);
}

} // namespace lmc
