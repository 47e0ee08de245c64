// The schedule of the learning rate: the keys of [lr_schedule], the rules between them, and what
// they say together. The compiler checks a job with them, and the runtime checks the changes of
// `lmc-run --set`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lmc {

enum class LrStyle { Constant, Linear, Cosine, Wsd, InverseSqrt, Piecewise };
enum class WsdDecayStyle { Linear, Cosine, Exponential, MinusSqrt };

struct RatePoint {
  int64_t step = 0;
  double rate = 0;
};

// A schedule, as learningRate() takes it (runtime/settings/LrSchedule.h). The steps of a run are
// counted from 1, and the steps of the schedule from `begin`: its first step is step begin + 1 of
// the run.
struct LrSettings {
  LrStyle style = LrStyle::Cosine;
  int64_t begin = 0;           // step of the run behind which the schedule begins
  double lr = 0, minLr = 0;    // the highest rate, and the rate at the end
  double warmupInit = 0;       // rate from which the warm-up rises
  int64_t warmupIters = 0;     // in steps of the schedule, as decayIters
  int64_t decayIters = 0;      // step at which the rate reaches minLr
  double wsdDecayFraction = 0; // style Wsd: the fraction of decayIters, at its end, with decay
  WsdDecayStyle wsdDecayStyle = WsdDecayStyle::Linear;
  std::vector<RatePoint> points = {}; // style Piecewise: in steps of the schedule, ascending
};

// The keys of [lr_schedule].
struct LrKeys {
  std::string style = "cosine";
  double lr = 3e-4;
  double minLr = 0;      // default: lr / 10
  double minLrRatio = 0; // of lr, in the place of minLr
  double warmupInit = 0;
  int64_t warmupIters = 0;
  double warmupRatio = 0; // of decayIters, in the place of warmupIters
  int64_t decayIters = 0; // default: the steps up to train_iters
  double wsdDecayFraction = 0.2;
  std::string wsdDecayStyle = "linear";
  std::vector<std::string> points = {}; // "STEP:RATE"
  int64_t restartStep = 0;
  // Where keys that are not defaults were given, by name ("min_lr"): 1 in the file, 2 by
  // `lmc compile --set`, 3 by `lmc-run --set`. Of two keys that say the same in different forms
  // (min_lr and min_lr_ratio), the one that was given later counts.
  std::map<std::string, int> given = {};
};

// A mistake in the keys.
struct LrFault {
  std::string key;                // that it is reported for: "min_lr"
  std::vector<std::string> reads; // the other keys of the section that it depends on
  std::string text;               // "min_lr = 0.02 is more than lr = 0.01"
  bool isWarning = false;         // the schedule holds, but may not be what was meant
};

// Returns the mistakes in the keys of a schedule whose last step is step `lastStep` of the run.
std::vector<LrFault> lrFaults(const LrKeys &keys, int64_t lastStep);

// Returns the schedule of keys without mistakes.
LrSettings lrSettings(const LrKeys &keys, int64_t lastStep);

} // namespace lmc
