// The settings of a run: those in the plan, with the changes of `lmc-run --set`.
//
// The plan's table gives the type, the range, the choices of each key, and whether it may change at
// run time. The runtime therefore names only the keys that the trainer reads, in one place:
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
  // Applies `overrides` in order. Each has the form "section.key=value", with a TOML value, or a
  // bare word for a string. The key must be one of the plan that may change at run time; the value
  // must have its type and be within its range or choices.
  static Result<SettingTable> fromPlan(const plan::Plan &plan,
                                       const std::vector<std::string> &overrides);

  // Returns the value of `key`. Fails if the plan has no such key of that type.
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

// [lr_schedule]; steps count from 1.
struct LrSettings {
  LrStyle style = LrStyle::Cosine;
  double lr = 0, minLr = 0;
  int64_t warmupIters = 0;
  int64_t decayIters = 0;      // step at which minLr is reached
  double wsdDecayFraction = 0; // wsd: the last fraction of decayIters, in which the rate decays
};

// The settings that the trainer uses, read once.
struct TrainSettings {
  uint64_t seed = 0;
  int64_t trainIters = 0;
  double beta1 = 0, beta2 = 0;    // the bases of the bias corrections
  LrSettings lr;
  std::vector<std::string> trainData, validationData;
  int32_t endOfDocument = -1; // for token files without a table of documents; -1: none
  int64_t numWorkers = 0;
  int64_t checkpointInterval = 0; // steps; 0: only at the end
  int64_t checkpointKeep = 0;     // 0: all
  int64_t exportInterval = 0;     // steps; 0: none
  int64_t logInterval = 1;        // steps between lines of a log
  int64_t validationInterval = 0; // steps; 0: only at the end
  int64_t validationIters = 0;    // batches of batch_size sequences
  double peakTflops = 0;          // 0: the device's own value

  static Result<TrainSettings> read(const SettingTable &table);
};

} // namespace lmc
