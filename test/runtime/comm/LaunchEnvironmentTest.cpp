#include "runtime/comm/LaunchEnvironment.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

using namespace lmc;

namespace {

using Variables = std::map<std::string, std::string>;

// "rank/size local=L at HOST:PORT", or the error.
std::string launchOf(const Variables &variables, const LaunchOptions &options = {}) {
  auto get = [&](const char *name) -> const char * {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const Result<Launch> launch = findLaunch(options, get);
  if (!launch)
    return launch.error().message;
  std::string text = fmt::format("{}/{} local={}", launch->rank, launch->size, launch->localRank);
  if (launch->size > 1)
    text += fmt::format(" at {}:{}", launch->address, launch->port);
  return text;
}

Variables with(Variables variables, const std::string &name, const std::string &value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string &name) {
  EXPECT_EQ(variables.erase(name), 1u) << name;
  return variables;
}

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_NTASKS", "16"},
                          {"SLURM_STEP_NUM_TASKS", "8"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_JOB_ID", "1234567"},
                          {"SLURM_STEP_ID", "2"},
                          {"SLURM_JOB_NODELIST", "gpu[001-004]"},
                          {"SLURM_STEP_NODELIST", "gpu[003-004]"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"MASTER_ADDR", "10.0.0.7"}};

TEST(LaunchEnvironment, NothingIsAWorldOfOne) {
  EXPECT_EQ(launchOf({}), "0/1 local=0");
  EXPECT_EQ(launchOf({{"WORLD_SIZE", "1"}}), "0/1 local=0");
  EXPECT_EQ(launchOf({{"RANK", ""}}), "0/1 local=0");
  // A batch script, whose commands srun did not start.
  EXPECT_EQ(launchOf({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}}),
            "0/1 local=0");
}

TEST(LaunchEnvironment, Torchrun) {
  EXPECT_EQ(launchOf(kTorchrun), "3/8 local=1 at node1:30500");
  EXPECT_EQ(launchOf(with(kTorchrun, "MASTER_PORT", "65000")), "3/8 local=1 at node1:64000");
  EXPECT_EQ(launchOf(with(kTorchrun, "LMC_PORT", "4000")), "3/8 local=1 at node1:4000");
}

TEST(LaunchEnvironment, OperatorsOfKubernetesSetNoLocalRank) {
  EXPECT_EQ(launchOf({{"RANK", "1"},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "job-master-0"},
                      {"MASTER_PORT", "23456"}}),
            "1/2 local=0 at job-master-0:24456");
}

TEST(LaunchEnvironment, Slurm) {
  // 20000 + (8 * 1234567 + 2) % 10000
  EXPECT_EQ(launchOf(kSlurm), "5/8 local=1 at gpu003:26538");
  EXPECT_EQ(launchOf(without(kSlurm, "SLURM_STEP_NODELIST")), "5/8 local=1 at gpu001:26538");
  EXPECT_EQ(launchOf(without(kSlurm, "SLURM_STEP_NUM_TASKS")), "5/16 local=1 at gpu003:26538");
  EXPECT_EQ(launchOf(with(kSlurm, "MASTER_ADDR", "10.1.2.3")), "5/8 local=1 at 10.1.2.3:26538");
}

TEST(LaunchEnvironment, OpenMpi) {
  EXPECT_EQ(launchOf(kOpenMpi), "2/4 local=0 at 10.0.0.7:29400");
  const Variables oneHost =
      with(without(kOpenMpi, "MASTER_ADDR"), "OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  EXPECT_EQ(launchOf(oneHost), "2/4 local=0 at 127.0.0.1:29400");
  EXPECT_EQ(launchOf(without(kOpenMpi, "MASTER_ADDR")),
            "Open MPI does not say on which host rank 0 is: give --master-addr, or set MASTER_ADDR "
            "(mpirun -x MASTER_ADDR=HOST)");
}

TEST(LaunchEnvironment, LaunchersThatRunUnderSlurmComeBeforeIt) {
  Variables both = kSlurm;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(launchOf(both), "3/8 local=1 at node1:30500");
  both = kSlurm;
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(launchOf(both), "2/4 local=0 at 10.0.0.7:29400");
}

TEST(LaunchEnvironment, FlagsComeBeforeTheEnvironment) {
  LaunchOptions options;
  options.rank = 7;
  options.masterPort = 999;
  options.masterAddress = "b";
  EXPECT_EQ(launchOf(kTorchrun, options), "7/8 local=1 at b:999");
  options.worldSize = 9;
  options.localRank = 2;
  EXPECT_EQ(launchOf({}, options), "7/9 local=2 at b:999");
}

TEST(LaunchEnvironment, WhatIsMissingOrContradictsIsReported) {
  EXPECT_EQ(launchOf(without(kTorchrun, "WORLD_SIZE")),
            "RANK says which rank this is, and nothing how many there are: set WORLD_SIZE, or give "
            "--world-size");
  EXPECT_EQ(launchOf({{"WORLD_SIZE", "4"}}),
            "WORLD_SIZE=4 in the environment, and RANK is not set: set RANK and LOCAL_RANK of this "
            "rank, or unset WORLD_SIZE");
  EXPECT_EQ(launchOf(without(kTorchrun, "MASTER_ADDR")),
            "rank 3 of 8 does not know on which host rank 0 is: give --master-addr, or set "
            "MASTER_ADDR");
  EXPECT_EQ(launchOf(with(kTorchrun, "RANK", "8")),
            "this is rank 8 of 8 ranks (RANK, WORLD_SIZE): ranks are 0 to 7");
  EXPECT_EQ(launchOf(with(kTorchrun, "RANK", "3x")),
            "RANK=3x in the environment: must be a whole number from 0 to 1048576");
  EXPECT_EQ(launchOf(with(kTorchrun, "MASTER_PORT", "70000")),
            "MASTER_PORT=70000 in the environment: must be a whole number from 1 to 65535");
  LaunchOptions options;
  options.rank = 1;
  EXPECT_EQ(launchOf({}, options),
            "--rank says which rank this is, and nothing how many there are: "
            "give --world-size as well");
  options = {};
  options.worldSize = 2;
  EXPECT_EQ(launchOf({}, options),
            "--world-size says how many ranks there are, and nothing which of them this is: give "
            "--rank as well, or --nproc to start all ranks here");
  options = {};
  options.masterAddress = "b";
  EXPECT_EQ(launchOf({}, options), "--master-addr, --master-port and --local-rank are for a run of "
                                   "many ranks: give --rank and --world-size as well");
}

TEST(LaunchEnvironment, FirstHostOfASlurmList) {
  EXPECT_EQ(firstHost("node1"), "node1");
  EXPECT_EQ(firstHost("node1,node2"), "node1");
  EXPECT_EQ(firstHost("gpu[07-09,12],login1"), "gpu07");
  EXPECT_EQ(firstHost("gpu[3,5-9]"), "gpu3");
  EXPECT_EQ(firstHost("gpu[3]-ib,x"), "gpu3-ib");
  EXPECT_EQ(firstHost("rack[2-3]n[01-16]"), "rack2n01");
  EXPECT_EQ(firstHost("node[1"), "node[1"); // no list
}

} // namespace
