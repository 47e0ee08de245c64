// The settings of a run: those of the plan, with the changes of `lmc-run --set`.
//
// The plan has a table with the type, range and choices of each key, and whether the key may change
// at run time. The runtime therefore names only the keys that the trainer reads, and only in
// TrainSettings.
#pragma once

#include "runtime/plan/PlanFile.h"
#include "runtime/support/Result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// The plan's table of settings, after the changes of `--set`.
class SettingTable {
public:
  // Applies `overrides` in order. Each has the form "section.key=value" with a TOML value, or for a
  // string a bare word. The plan must have the key and allow it to change at run time; the value
  // must have the key's type and be within its range or choices.
  static Result<SettingTable> fromPlan(const plan::Plan &plan,
                                       const std::vector<std::string> &overrides);

  // Returns the value of `key`. Error: the plan has no key of this name and type.
  Result<int64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<std::string> text(std::string_view key) const;
  Result<std::vector<std::string>> list(std::string_view key) const;

private:
  struct Entry {
    std::string key;
    plan::SettingType type;
    std::string value;
    std::vector<std::string> values;
  };
  Result<void> apply(const plan::Plan &plan, const std::string &override);
  Result<const Entry *> find(std::string_view key, plan::SettingType type) const;

  std::vector<Entry> entries; // in the plan's order
};

enum class LrStyle { Constant, Linear, Cosine, Wsd };

// The keys of the TOML section [lr_schedule]. Steps are counted from 1.
struct LrSettings {
  LrStyle style = LrStyle::Cosine;
  double lr = 0, minLr = 0;
  int64_t warmupIters = 0;
  int64_t decayIters = 0;      // step at which the rate reaches minLr
  double wsdDecayFraction = 0; // style Wsd: the fraction of decayIters, at its end, with decay
};

// The settings that the trainer uses, read once at the start.
struct TrainSettings {
  uint64_t seed = 0;
  int64_t trainIters = 0;
  double beta1 = 0, beta2 = 0; // AdamW's betas, for the bias corrections
  LrSettings lr;
  std::vector<std::string> trainData, validationData;
  int32_t endOfDocument = -1; // id that ends a document in files without a table; -1: none
  int64_t numWorkers = 0;
  int64_t checkpointInterval = 0; // in steps; 0: only at the end
  int64_t checkpointKeep = 0;     // checkpoints to keep; 0: all
  int64_t exportInterval = 0;     // in steps; 0: no exports
  int64_t logInterval = 1;        // steps between two lines in a log
  int64_t validationInterval = 0; // in steps; 0: only at the end
  int64_t validationIters = 0;    // number of batches of GBS sequences
  double peakTflops = 0;          // 0: the value that the device gives

  static Result<TrainSettings> read(const SettingTable &table);
};

} // namespace lmc
