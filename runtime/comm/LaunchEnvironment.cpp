#include "runtime/comm/LaunchEnvironment.h"

#include "ground/support/Number.h"

#include <fmt/format.h>

#include <limits>

namespace lmc {

namespace {

constexpr int kHighestPort = 65535, kDefaultPort = 29400;

struct Launcher {
  // The names of environment variables. `size2` is a second name for the number of ranks, or null.
  const char *rank, *size, *size2, *localRank;
};

// Slurm is tried last, because mpirun and torchrun may themselves run under Slurm.
constexpr Launcher kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr,
                               "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Launcher kTorch = {"RANK", "WORLD_SIZE", nullptr, "LOCAL_RANK"};
constexpr Launcher kSlurm = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
                             "SLURM_LOCALID"};

class Reader {
public:
  Reader(const LaunchOptions &options, const Environment &environment)
      : options(options), environment(environment) {}

  Result<Launch> read() {
    const Launcher *launcher = findLauncher();
    const char *rankName = launcher ? launcher->rank : nullptr;
    const char *sizeName = launcher ? present(launcher->size, launcher->size2) : nullptr;
    Launch launch;
    LMC_LET(size, number(options.worldSize, "--world-size", 1, 1 << 20, sizeName));
    LMC_LET(rank, number(options.rank, "--rank", 0, 1 << 20, rankName));
    if (!*size && !*rank)
      return alone();
    if (!*size)
      return userError("{} says which rank this is, and nothing how many there are: {}",
                       options.rank ? "--rank" : rankName,
                       launcher && !options.rank
                           ? fmt::format("set {}, or give --world-size", launcher->size)
                           : "give --world-size as well");
    if (!*rank)
      return Error{"--world-size says how many ranks there are, and nothing which of them this is: "
                   "give --rank as well, or --nproc to start all ranks here"};
    launch.size = static_cast<int>(**size);
    launch.rank = static_cast<int>(**rank);
    if (launch.rank >= launch.size)
      return userError("this is rank {} of {} ranks ({}, {}): ranks are 0 to {}", launch.rank,
                       launch.size, options.rank ? "--rank" : rankName,
                       options.worldSize ? "--world-size" : sizeName, launch.size - 1);
    LMC_LET(local, number(options.localRank, "--local-rank", 0, launch.size - 1,
                          launcher ? launcher->localRank : nullptr));
    launch.localRank = static_cast<int>(local->value_or(0));
    if (launch.size == 1)
      return launch;
    LMC_SET(launch.address, findAddress(launcher, launch));
    LMC_SET(launch.port, findPort(launcher));
    return launch;
  }

private:
  const char *get(const char *name) const {
    const char *value = name ? environment(name) : nullptr;
    return value && *value ? value : nullptr;
  }

  // Returns the first of the two names whose variable is set, or nullptr.
  const char *present(const char *name, const char *other) const {
    return get(name) ? name : get(other) ? other : nullptr;
  }

  // A batch script has SLURM_PROCID even without srun. Only srun sets the variables of a job step.
  const Launcher *findLauncher() const {
    if (get(kOpenMpi.rank))
      return &kOpenMpi;
    if (get(kTorch.rank))
      return &kTorch;
    if (get(kSlurm.rank) && (get("SLURM_STEP_NODELIST") || get("SLURM_STEP_ID")))
      return &kSlurm;
    return nullptr;
  }

  // Returns the flag's value, else that of the variable `name` (may be null), else nullopt.
  Result<std::optional<int64_t>> number(const std::optional<int64_t> &option, const char *flag,
                                        int64_t least, int64_t most, const char *name) const {
    if (option) {
      if (*option < least || *option > most)
        return outOfRange(fmt::format("{}={}", flag, *option), least, most);
      return option;
    }
    const char *text = get(name);
    if (!text)
      return std::optional<int64_t>();
    const auto value = parseWhole<int64_t>(text);
    if (!value || *value < least || *value > most)
      return outOfRange(fmt::format("{}={} in the environment", name, text), least, most);
    return value;
  }

  Result<std::optional<int64_t>> number(int64_t least, int64_t most, const char *name) const {
    return number({}, "", least, most, name);
  }

  static Error outOfRange(const std::string &what, int64_t least, int64_t most) {
    return userError("{}: must be a whole number from {} to {}", what, least, most);
  }

  // Returns a launch of one rank. Error: a variable shows that the user wants more ranks.
  Result<Launch> alone() const {
    LMC_LET(size, number(0, std::numeric_limits<int>::max(), "WORLD_SIZE"));
    if (size->value_or(1) > 1)
      return userError("WORLD_SIZE={} in the environment, and RANK is not set: set RANK and "
                       "LOCAL_RANK of this rank, or unset WORLD_SIZE",
                       **size);
    if (!options.masterAddress.empty() || options.masterPort || options.localRank)
      return Error{
          "--master-addr, --master-port and --local-rank are for a run of many ranks: give "
          "--rank and --world-size as well"};
    return Launch{};
  }

  Result<std::string> findAddress(const Launcher *launcher, const Launch &launch) const {
    if (!options.masterAddress.empty())
      return options.masterAddress;
    if (const char *address = get("MASTER_ADDR"))
      return std::string(address);
    if (launcher == &kSlurm)
      if (const char *nodes = get(present("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")))
        return firstHost(nodes);
    if (launcher == &kOpenMpi) {
      LMC_LET(local, number(0, 1 << 20, "OMPI_COMM_WORLD_LOCAL_SIZE"));
      if (*local && **local == launch.size)
        return std::string("127.0.0.1");
      return Error{"Open MPI does not say on which host rank 0 is: give --master-addr, or set "
                   "MASTER_ADDR (mpirun -x MASTER_ADDR=HOST)"};
    }
    return userError("rank {} of {} does not know on which host rank 0 is: give --master-addr, or "
                     "set MASTER_ADDR",
                     launch.rank, launch.size);
  }

  Result<int> findPort(const Launcher *launcher) const {
    LMC_LET(own, number(options.masterPort, "--master-port", 1, kHighestPort, "LMC_PORT"));
    if (*own)
      return static_cast<int>(**own);
    LMC_LET(agents, number(1, kHighestPort, "MASTER_PORT"));
    if (*agents) {
      const int port = static_cast<int>(**agents);
      return port + 1000 <= kHighestPort ? port + 1000 : port - 1000;
    }
    if (launcher == &kSlurm) {
      constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
      LMC_LET(job, number(0, kMost, "SLURM_JOB_ID"));
      LMC_LET(step, number(0, kMost, "SLURM_STEP_ID"));
      if (*job)
        return static_cast<int>(20000 + (8 * **job + step->value_or(0)) % 10000);
    }
    return kDefaultPort;
  }

  const LaunchOptions &options;
  const Environment &environment;
};

} // namespace

Result<Launch> findLaunch(const LaunchOptions &options, const Environment &environment) {
  return Reader(options, environment).read();
}

std::string firstHost(std::string_view nodeList) {
  std::string host;
  while (!nodeList.empty() && nodeList.front() != ',') {
    const size_t close = nodeList.find(']');
    if (nodeList.front() != '[' || close == std::string_view::npos) {
      host += nodeList.front();
      nodeList.remove_prefix(1);
      continue;
    }
    const std::string_view numbers = nodeList.substr(1, close - 1);
    host += numbers.substr(0, numbers.find_first_of("-,"));
    nodeList.remove_prefix(close + 1);
  }
  return host;
}

} // namespace lmc
