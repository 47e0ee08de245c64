// The interface of observers of a run while it trains. Only rank 0 has an observer.
#pragma once

#include "ground/config/Config.h"
#include "runtime/monitor/Console.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/monitor/RunLog.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lmc {

// A prompt and the text with which the model continues it, in valid UTF-8.
struct GeneratedText {
  std::string prompt, text;
};

class RunObserver {
public:
  virtual ~RunObserver() = default;
  // Is called after every step, once the step's line is in metrics.jsonl. The console shows the
  // first step and every `logInterval`-th one.
  virtual void step(const StepRecord &record, int64_t logInterval) = 0;
  // Is called with the texts that the model generated after `step`.
  virtual void generated(int64_t step, const std::vector<GeneratedText> &texts) = 0;
  // Is called with the updates of the weights in an earlier step.
  virtual void updated(const StepUpdates &updates) = 0;
};

// Makes the observer of the run in the folder `out`. The observer gets the run's events by
// log.listen(). `console` and `log` must outlive the observer.
using RunObserverMaker = std::function<std::unique_ptr<RunObserver>(
    const Config &config, const std::string &out, Console &console, RunLog &log)>;

} // namespace lmc
