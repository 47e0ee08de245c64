// One run of lmc-run: its options, and their execution.
#pragma once

#include "runtime/support/Result.h"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct RunOptions {
  std::string plan;
  std::string out;                    // may be empty with eval and dumpLogits
  std::optional<int64_t> steps;       // number of the last optimizer step; default train_iters
  std::string resume = "auto";        // "auto", "none", or a path
  std::vector<std::string> overrides; // --set
  std::string init;                   // Hugging Face folder or .safetensors
  std::string exportDirectory;
  std::string dumpGradients;
  std::string dumpLogits;
  std::string profile;
  int threads = 0; // 0: the device's default
  bool eval = false;
  FILE *output = stdout; // progress, and the results of eval
  FILE *errors = stderr; // warnings
};

// Trains, evaluates or dumps. Success, or Interrupted after SIGTERM or SIGINT.
Result<ExitCode> run(const RunOptions &options);

} // namespace lmc
