// The options of one run of lmc-run, and the function that executes it.
#pragma once

#include "runtime/checkpoint/RecordedRun.h"
#include "runtime/comm/LaunchEnvironment.h"
#include "runtime/comm/World.h"
#include "runtime/support/Result.h"
#include "runtime/train/TimeLimit.h"

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
  std::string dumpLogits;
  std::string profile;
  std::string trace;          // file for the measured times of commands
  int64_t traceSteps = 1;     // steps in it
  int threads = 0;            // 0: the device's default
  int device = 0;             // number of the GPU
  std::string collectives = "nccl"; // of GPUs: "nccl" or "host"
  bool noGraphs = false;      // the GPU's commands are enqueued one by one
  bool checkCommands = false; // the host waits after each command
  // True: the device times the implementations of a matrix product, and keeps its choices in the
  // user's cache. False: it takes a fixed one.
  bool measureGemms = false;
  bool eval = false;
  std::string phase; // name of the phase that a start that does not train uses; "": by its step
  int64_t bench = 0;      // steps to time; 0: no bench
  // What the commands of one step compute is written to the one file, or compared with the other;
  // `tolerance` 0: that of CommandRecord.h.
  std::string recordCommands, compareCommands;
  double tolerance = 0;
  bool preflight = false; // only measure the links between ranks
  bool check = false;     // look for what can go wrong, train three steps elsewhere, and end
  bool json = false;      // the result of a bench, a preflight or a check is printed as JSON
  bool monitors = true;   // what the settings name watches a training run (monitor/Monitors.h)
  // True if steps are run that are not kept, by the bench or for a record of their commands.
  bool onlyMeasures() const {
    return bench > 0 || !recordCommands.empty() || !compareCommands.empty();
  }
  // True if the run is trained and kept.
  bool trains() const { return !preflight && !eval && dumpLogits.empty() && !onlyMeasures(); }
  std::optional<TimeLimit> timeLimit; // before which a training run saves and ends
  int64_t restart = 0;                // how often --restarts has started the run again
  LaunchOptions launch;   // which rank this process is
  FILE *output = stdout;  // for progress and results
  FILE *errors = stderr;  // for warnings
};

// Trains, evaluates, measures, checks or dumps, as `options` says, with the other ranks that the
// launcher has started. Returns Success, Interrupted after a signal of kStopSignals or before the
// time limit, or SlowLink (Preflight.h).
Result<ExitCode> run(const RunOptions &options);

// Does the same as one of the plan's ranks. All ranks of `world` call it. Rank 0 writes to the
// options' `output` and `errors`, and every other rank R only to OUT/ranks/R.
Result<ExitCode> run(const RunOptions &options, World &world);

} // namespace lmc
