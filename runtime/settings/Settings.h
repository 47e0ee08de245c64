// The settings of a run: those of the plan, with the changes of `lmc-run --set`.
//
// The plan has a table with the type, range and choices of each key, and whether the key may change
// at run time. The runtime therefore names only the keys that the trainer reads, and only in
// TrainSettings.
#pragma once

#include "ground/plan/LrSettings.h"
#include "ground/plan/PlanFile.h"
#include "ground/plan/SettingRules.h"
#include "ground/plan/SettingTable.h"
#include "ground/support/Result.h"
#include "runtime/checkpoint/RecordedRun.h"
#include "runtime/data/DataSource.h"
#include "runtime/monitor/Guard.h"
#include "runtime/monitor/Monitors.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// A set of validation data: a table of [[validation]], or data.validation, which has no name.
struct ValidationSettings {
  std::string name;               // "": data.validation
  std::string key;                // setting that names the files: "validation.web.paths"
  std::vector<std::string> paths; // files or globs
  int64_t interval = 0;           // in steps; 0: only at the end
  int64_t iters = 0;              // number of batches of GBS sequences; 0: all data

  // Returns true if the set is evaluated after step `step`, which may be the last one.
  bool isDue(uint64_t step, bool last) const {
    return last || (interval > 0 && step % static_cast<uint64_t>(interval) == 0);
  }
};

// How the next token is chosen (text/Sampling.h).
struct SamplingOptions {
  double temperature = 0; // divides the logits; 0: the most likely token is taken
  double topP = 1;        // a token is drawn from the fewest that have at least this probability
};

// Texts that the model continues during the run.
struct GenerationSettings {
  std::string prompts;  // file; "": none
  int64_t interval = 0; // in steps; 0: only at the end
  uint64_t maxNewTokens = 0;
  SamplingOptions sampling;
};

// A parameter group: a table of [[optimizer.group]].
struct GroupSettings {
  double weightDecay = 0; // of its parameters with weight decay
  double lrMult = 1;      // factor of the learning rate
};

// The settings that the trainer uses, read once at the start.
struct TrainSettings {
  uint64_t seed = 0;
  int64_t trainIters = 0;
  double beta1 = 0, beta2 = 0, eps = 0, weightDecay = 0; // of AdamW
  std::map<std::string, GroupSettings> groups;           // parameter groups, by name
  double muonRate = 1; // learning rate of Muon, in learning rates of the schedule
  LrSettings lr;
  // The sources of [[data.source]] in the order of their names, or one without a name, which has
  // the files of data.train; empty: no data.
  std::vector<SourceOptions> trainData;
  std::vector<ValidationSettings> validations; // in the order of their names
  bool documentLossMask = false; // the last token of a document has no loss
  int32_t endOfDocument = -1; // id that ends a document in files without a table; -1: none
  std::string dataFormat = "auto"; // format of `.bin` files without a header
  int64_t shuffleBlock = 0;        // tokens that stay together when the data is shuffled
  bool bestFit = false;            // data.packing
  bool allowRepeats = false;       // a global batch may hold a sequence more than once
  int64_t numWorkers = 0;
  // In steps; 0: only at the end. Session::open() sets it where checkpoint.interval_minutes counts.
  int64_t checkpointInterval = 0;
  bool checkpointBest = false;    // a save follows each validation that is the best of keep_best
  int64_t checkpointKeep = 0;     // checkpoints to keep; 0: all
  int64_t checkpointKeepEvery = 0; // in steps: these checkpoints are kept too; 0: none
  // The set of validation data ("data.validation" for the one without a name) whose best checkpoint
  // is kept too; "": none.
  std::string checkpointKeepBest;
  int64_t exportInterval = 0;     // in steps; 0: no exports
  bool checkpointBackground = false; // saves and exports are written behind the steps
  int64_t logInterval = 1;        // steps between two lines in a log
  MonitorSettings monitors;
  GenerationSettings generation;
  GuardSettings guard;
  std::vector<StepRange> skipSteps; // steps whose update is left out
  double peakTflops = 0;          // 0: the value that the device gives
  // What may not be meant, by the rules between settings (ground/plan/SettingRules.h).
  std::vector<std::string> warnings;

  // Reads the settings of a run or, with `phase`, of one of its phases. Error: a setting is
  // missing, or settings break a rule.
  static Result<TrainSettings> read(const SettingTable &table,
                                    const PlanFile::Phase *phase = nullptr);

  bool isMixed() const { return !trainData.empty() && !trainData.front().name.empty(); }
  // Returns the setting that names the training data: "data.train", or "data.source" for a mixture.
  const char *trainKey() const { return isMixed() ? kSources : kTrainData; }
};

} // namespace lmc
