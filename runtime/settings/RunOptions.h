// The options of a run on the command line, in addition to the settings of its plan.
#pragma once

#include "runtime/checkpoint/RecordedRun.h"
#include "runtime/comm/LaunchEnvironment.h"
#include "runtime/settings/TimeLimit.h"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct RunOptions {
  std::string plan;                   // path of the plan; "": the plan of the run in `out`
  std::string expectHash;             // SHA-256 that the plan must have; "": any
  std::string out;                    // folder of the run; may be empty if the run does not train
  std::optional<int64_t> steps;       // number of the last optimizer step; default train_iters
  std::string resume = "auto";        // "auto", "none", or a path
  std::optional<uint64_t> rewind;     // step to which the run in `out` goes back
  // All rollbacks of the run if a rollback set `rewind`. Training then skips data already read.
  std::vector<Rollback> rollbacks;
  std::vector<std::string> overrides; // values of --set
  std::vector<std::string> changes;   // keys of settings that may differ from the earlier start
  std::string init; // path of initial weights: Hugging Face folder or .safetensors file
  std::string exportDirectory;
  std::string dumpGradients;
  std::string profile;
  std::string trace;                // file for the measured times of commands
  int64_t traceSteps = 1;           // number of steps in the trace
  int threads = 0;                  // 0: the device's default
  int device = 0;                   // number of the GPU
  std::string collectives = "nccl"; // collectives of GPUs: "nccl" or "host"
  bool noGraphs = false;            // true if the GPU's commands are enqueued one by one
  bool checkCommands = false;       // true if the host waits after each command
  // True if the device measures the implementations of matrix products and keeps the fastest in the
  // user's cache; otherwise the device uses a fixed implementation.
  bool measureGemms = false;
  std::string phase;                  // phase of a start without training; "": chosen by its step
  std::optional<TimeLimit> timeLimit; // a training run saves and ends before this time
  int64_t restart = 0;                // number of restarts that --restarts has made
  LaunchOptions launch;               // says which rank this process is
  FILE *output = stdout;              // gets progress and results
  FILE *errors = stderr;              // gets warnings
};

} // namespace lmc
