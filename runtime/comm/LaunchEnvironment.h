// Finds the number of this process's rank and the address of rank 0. Reads them from flags, else
// from the environment variables that a launcher has set. Launchers are tried in this order:
//
//   Open MPI              OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
//   torchrun, Kubernetes  RANK, WORLD_SIZE, LOCAL_RANK (else 0)
//   Slurm (srun)          SLURM_PROCID, SLURM_STEP_NUM_TASKS (else SLURM_NTASKS), SLURM_LOCALID
//
// If none of these variables is set, the process is the only rank.
//
// Rank 0's host is MASTER_ADDR. Without this variable, it is the first host of the Slurm job step's
// node list, or this host under Open MPI if all ranks are on it.
//
// Rank 0's port is the first of these numbers whose environment variables are set:
//   LMC_PORT
//   MASTER_PORT + 1000 or, if that is above 65535, MASTER_PORT - 1000: torchrun uses MASTER_PORT
//   20000 + (8 SLURM_JOB_ID + SLURM_STEP_ID) % 10000
//   29400
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lmc {

// The settings of a launch on the command line. A member is empty if its flag is absent.
struct LaunchOptions {
  std::optional<int64_t> rank, worldSize, localRank, masterPort;
  std::string masterAddress;
  // Name or address of the network interface for all traffic; "": the one that reaches rank 0.
  std::string interface;
  std::string secretFile;             // path of a file with the secret of the run; "": no secret
  std::optional<int64_t> joinSeconds; // the time that ranks wait for each other at the start
  // The value of StallLimits::seconds, and the minimum of RendezvousOptions::silence.
  std::optional<int64_t> hangSeconds;
  std::optional<int64_t> slowSeconds; // StallLimits::otherSeconds
};

struct Launch {
  int rank = 0, size = 1;
  int localRank = 0;   // number of the rank among the ranks of its node
  std::string address; // name or address of rank 0's host; "" if size is 1
  int port = 0;        // port of rank 0; 0 if size is 1
};

// Returns the value of a variable of the environment, or nullptr.
using Environment = std::function<const char *(const char *name)>;

// Error: a value is missing, is no number, or contradicts another one.
Result<Launch> findLaunch(const LaunchOptions &options, const Environment &environment);

// Returns the first host of a node list in Slurm's notation: "gpu[07-09,12],login1" gives "gpu07".
// https://slurm.schedmd.com/scontrol.html (hostlist)
std::string firstHost(std::string_view nodeList);

} // namespace lmc
