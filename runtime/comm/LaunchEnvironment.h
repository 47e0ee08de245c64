// Finds the number of this process's rank and the address of rank 0: in flags, else in the
// variables that a launcher has set.
//
// In the order in which launchers are tried, the rank, the number of ranks, and the rank on its
// node are in these variables:
//
//   Open MPI              OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
//   torchrun, Kubernetes  RANK, WORLD_SIZE, LOCAL_RANK (else 0)
//   Slurm (srun)          SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID
//
// A process that finds none of them is a world of one rank.
//
// Rank 0's host is MASTER_ADDR. Without it, Slurm's is the first host of the step's node list, and
// Open MPI's is this host if all ranks are on it.
//
// Rank 0's port is LMC_PORT; else MASTER_PORT + 1000, because torchrun's agent listens at
// MASTER_PORT itself (- 1000 if the sum is no port); else, under Slurm, 20000 + (8 SLURM_JOB_ID +
// SLURM_STEP_ID) % 10000, so that jobs on one node differ; else 29400.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lmc {

// The settings of a launch on the command line. An empty member was not given.
struct LaunchOptions {
  std::optional<int64_t> rank, worldSize, localRank, masterPort;
  std::string masterAddress;
  // Name or address of the network interface for all traffic; "": the one on the way to rank 0.
  std::string interface;
  std::string secretFile;             // path of a file with the secret of the run; "": no secret
  std::optional<int64_t> joinSeconds; // how long the ranks wait for each other at the start
  // The value of StallLimits::seconds. It also raises RendezvousOptions::silence, so that a
  // debugger may stop a rank for as long.
  std::optional<int64_t> hangSeconds;
  std::optional<int64_t> slowSeconds; // StallLimits::otherSeconds
};

struct Launch {
  int rank = 0, size = 1;
  int localRank = 0;   // number of the rank among those of its node
  std::string address; // name or address of rank 0's host; "" if size is 1
  int port = 0;        // port of rank 0; 0 if size is 1
};

// Returns the value of a variable of the environment, or nullptr.
using Environment = std::function<const char *(const char *name)>;

// Returns an Error if a value is missing, is no number, or contradicts another one.
Result<Launch> findLaunch(const LaunchOptions &options, const Environment &environment);

// Returns the first host of a node list in Slurm's notation: "gpu[07-09,12],login1" gives "gpu07".
// https://slurm.schedmd.com/scontrol.html (hostlist)
std::string firstHost(std::string_view nodeList);

} // namespace lmc
