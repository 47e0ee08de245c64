// Who is shown a run while it trains, beside the files of the run itself. The first rank has one.
#pragma once

#include "ground/config/Config.h"
#include "runtime/monitor/Console.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/monitor/RunLog.h"
#include "runtime/monitor/Updates.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lmc {

// A prompt and how the model continues it, in valid UTF-8.
struct GeneratedText {
  std::string prompt, text;
};

class RunObserver {
public:
  virtual ~RunObserver() = default;
  // Is called after every step, when its line is in metrics.jsonl. The console has the first one,
  // and those of each `logInterval` steps.
  virtual void step(const StepRecord &record, int64_t logInterval) = 0;
  // Is given texts that the model has generated after `step`.
  virtual void generated(int64_t step, const std::vector<GeneratedText> &texts) = 0;
  // Is given how far an earlier step has moved each tensor.
  virtual void updated(const StepUpdates &updates) = 0;
};

// Makes the observer of the run in the folder `out`; its events are those of `log`
// (RunLog::listen()). The last two outlive it.
using RunObserverMaker = std::function<std::unique_ptr<RunObserver>(
    const Config &config, const std::string &out, Console &console, RunLog &log)>;

} // namespace lmc
