// The settings of a run: those compiled into the plan, with the changes that
// `lmc-run --set` may make.
//
// The plan's table says of each key its type, range, choices and whether it may
// change at run time, so no key is named here but those that the trainer reads,
// once, into TrainSettings.
#pragma once

#include "runtime/plan/PlanFile.h"
#include "runtime/support/Result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// The plan's table of settings after `--set` changes.
class SettingTable {
public:
  // Applies `overrides` ("section.key=value" with a TOML value, or a bare word for
  // a string) in order. Each must name a key of the plan that may change at run
  // time, and give it a value of its type and within its range or choices.
  static Result<SettingTable> fromPlan(const plan::Plan &plan,
                                       const std::vector<std::string> &overrides);

  // The value of `key`; an Error when the plan has no such key of that type.
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
  double wsdDecayFraction = 0; // wsd: last part of decayIters that decays
};

// What the trainer wants to know, read once.
struct TrainSettings {
  uint64_t seed = 0;
  int64_t trainIters = 0;
  double beta1 = 0, beta2 = 0, eps = 0, weightDecay = 0, clipGrad = 0;
  LrSettings lr;
  std::vector<std::string> trainData, validationData;
  int32_t endOfDocument = -1;     // of token files that don't tell documents apart; -1: none
  int64_t numWorkers = 0;
  int64_t checkpointInterval = 0; // steps; 0: only at the end
  int64_t checkpointKeep = 0;     // 0: all
  int64_t exportInterval = 0;     // steps; 0: none
  int64_t logInterval = 1;        // steps between lines of a log
  int64_t validationInterval = 0; // steps; 0: only at the end
  int64_t validationIters = 0;    // batches of batch_size sequences
  double peakTflops = 0;          // 0: what the device says of itself

  static Result<TrainSettings> read(const SettingTable &table);
};

} // namespace lmc
