// What the command line tells a run, beside the settings of its plan.
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
  std::string plan;                   // may be empty to go on with the run in `out`
  std::string expectHash;             // SHA-256 that the plan must have; "": any
  std::string out;                    // folder of the run; may be empty if the run does not train
  std::optional<int64_t> steps;       // number of the last optimizer step; default train_iters
  std::string resume = "auto";        // "auto", "none", or a path
  std::optional<uint64_t> rewind;     // step of the run in `out` to go back to
  // The rollbacks of the run if `rewind` is the last of them: the data goes on behind it.
  std::vector<Rollback> rollbacks;
  std::vector<std::string> overrides; // values of --set
  std::vector<std::string> changes;   // keys of the identity that may differ from the run's
  std::string init;                   // initial weights: Hugging Face folder or .safetensors file
  std::string exportDirectory;
  std::string dumpGradients;
  std::string profile;
  std::string trace;                // file for the measured times of commands
  int64_t traceSteps = 1;           // steps in it
  int threads = 0;                  // 0: the device's default
  int device = 0;                   // number of the GPU
  std::string collectives = "nccl"; // of GPUs: "nccl" or "host"
  bool noGraphs = false;            // the GPU's commands are enqueued one by one
  bool checkCommands = false;       // the host waits after each command
  // True: the device times the implementations of a matrix product, and keeps its choices in the
  // user's cache. False: it takes a fixed one.
  bool measureGemms = false;
  std::string phase; // name of the phase that a start that does not train uses; "": by its step
  std::optional<TimeLimit> timeLimit; // before which a training run saves and ends
  int64_t restart = 0;                // how often --restarts has started the run again
  LaunchOptions launch;               // which rank this process is
  FILE *output = stdout;              // for progress and results
  FILE *errors = stderr;              // for warnings
};

} // namespace lmc
