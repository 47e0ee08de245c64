// The keys of [lr_schedule], the rules for them, and the learning-rate schedule that they describe.
// `lmc compile` checks a job by the rules, and `lmc-run --set` checks its changes.
#pragma once

#include "ground/settings/SettingTable.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lmc {

enum class LrStyle { Constant, Linear, Cosine, Wsd, InverseSqrt, Piecewise };
enum class WsdDecayStyle { Linear, Cosine, Exponential, MinusSqrt };

// The names of the styles in a job, in the order of the enumerators.
inline constexpr const char *kLrStyles[] = {"constant", "linear",       "cosine",
                                            "wsd",      "inverse_sqrt", "piecewise"};
inline constexpr const char *kWsdDecayStyles[] = {"linear", "cosine", "exponential", "minus_sqrt"};

inline constexpr double kMaxRate = 10; // the maximum learning rate that a job may give

struct RatePoint {
  int64_t step = 0;
  double rate = 0;
};

// A schedule, as learningRate() takes it (runtime/settings/LrSchedule.h).
struct LrSettings {
  LrStyle style = LrStyle::Cosine;
  int64_t begin = 0;           // step i >= 1 of the schedule is step begin + i of the run
  double lr = 0, minLr = 0;    // the highest rate, and the rate at the end
  double warmupInit = 0;       // rate from which the warm-up rises
  int64_t warmupIters = 0;     // number of warm-up steps; like decayIters, counted from `begin`
  int64_t decayIters = 0;      // step at which the rate reaches minLr
  double wsdDecayFraction = 0; // style Wsd: the rate decays in this last share of decayIters
  WsdDecayStyle wsdDecayStyle = WsdDecayStyle::Linear;
  std::vector<RatePoint> points = {}; // for style Piecewise, by ascending step
};

// The keys of [lr_schedule].
struct LrKeys {
  std::string style = "cosine";
  double lr = 3e-4;
  double minLr = 0;      // default: lr / 10
  double minLrRatio = 0; // minLr as a fraction of lr
  double warmupInit = 0;
  int64_t warmupIters = 0;
  double warmupRatio = 0; // warmupIters as a fraction of decayIters
  int64_t decayIters = 0; // default: the number of steps up to train_iters
  double wsdDecayFraction = 0.2;
  std::string wsdDecayStyle = "linear";
  std::vector<std::string> points = {}; // "STEP:RATE"
  int64_t restartStep = 0;
  // Where each given key ("min_lr") comes from: 1 is the file, 2 is `lmc compile --set`, 3 is
  // `lmc-run --set`. Of min_lr and min_lr_ratio, the one with the higher number counts.
  std::map<std::string, int> given = {};
};

// Returns the mistakes in the keys of a schedule that ends with step `lastStep` of the run. A
// mistake names keys without their section: "min_lr".
std::vector<SettingFault> lrFaults(const LrKeys &keys, int64_t lastStep);

// Returns the schedule of `keys`, which must have no mistakes.
LrSettings lrSettings(const LrKeys &keys, int64_t lastStep);

} // namespace lmc
