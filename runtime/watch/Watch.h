// What looks at a run while it trains, and warns of what goes wrong. Each watch is told what
// happens, and returns what it has found; Watches.def lists the watches.
#pragma once

#include "runtime/folder/RunDirectory.h"
#include "runtime/monitor/Guard.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/monitor/Updates.h"
#include "runtime/step/Session.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lmc {

// What follows a finding. GoBack: the run goes back to before step `since`. Save: the state is
// worth a checkpoint. Stop: the run ends as one that has diverged since the step `since`, and its
// state is kept. StopUnsaved: the same, and the state is of no use.
enum class WatchAction { GoOn, Save, GoBack, Stop, StopUnsaved };

struct WatchFinding {
  std::string warning = {};          // for the console, one line; "": none
  const char *event = "";            // its name in events.jsonl; "": none
  nlohmann::ordered_json facts = {}; // of the event
  WatchAction action = WatchAction::GoOn;
  int64_t since = 0;
  std::string text = {}; // of an action that stops the run: what has happened, as a clause
};
using WatchFindings = std::vector<WatchFinding>;

// What is watched. It outlives its watches.
struct WatchedRun {
  Session &session;
  std::string out;         // the run's folder
  uint64_t totalSteps = 0; // of the run
};

// All functions but state() are called by all ranks, in the same order, unless they say otherwise.
class Watch {
public:
  virtual ~Watch() = default;

  // The run begins with weights that were drawn. Or it goes on, and what it trains was changed on
  // purpose.
  virtual void expectFreshWeights() {}
  virtual void expectChange() {}
  // Save and restore what later findings depend on. A watch with a state returns its key in the
  // extra state of a checkpoint; the state "" is not saved. An error ends in a warning, and the
  // watch begins anew.
  virtual const char *stateKey() const { return nullptr; }
  virtual std::string state() const { return ""; }
  virtual Result<void> restore(const std::string &text) { return {}; }

  // A step is about to be enqueued.
  virtual void begins(int64_t step) {}
  // Returns what the step must not exceed; the device leaves its update out otherwise.
  virtual StepLimits limitsOf(int64_t step) const { return {}; }
  // The results of a step have arrived, of one after the other. Ranks may be at other steps.
  virtual WatchFindings settled(const StepRecord &record) { return {}; }
  // Its record is complete, with the times of what followed it.
  virtual WatchFindings reported(const StepRecord &record) { return {}; }
  virtual WatchFindings validated(const ValidationSettings &set, int64_t step, double loss) {
    return {};
  }
  // How far a step has moved each tensor is known.
  virtual WatchFindings updated(const StepUpdates &step) { return {}; }

  // Returns true if the watch wants to look at the state after the step; then the device has
  // nothing to do meanwhile, and look() is called. Error: a device or a rank failed.
  virtual bool isDue(uint64_t step) const { return false; }
  virtual Result<WatchFindings> look(uint64_t step) { return WatchFindings(); }

  // A checkpoint is about to be made. Returns the first step whose state may be damaged; state from
  // before is worth keeping.
  virtual std::optional<uint64_t> suspectSince() const { return std::nullopt; }
  virtual WatchFindings saving() { return {}; }
  // A checkpoint of `step` is being written, for `seconds` so far. Or it is written, after
  // `seconds`; nullopt: that has failed.
  virtual WatchFindings writing(uint64_t step, double seconds) { return {}; }
  virtual WatchFindings saved(uint64_t step, std::optional<double> seconds) { return {}; }
};

// All watches of a run.
class Watches {
public:
  // Makes those that have something to watch. All ranks call it together.
  static Result<Watches> open(const WatchedRun &run);

  // Asks all watches the same, as in ask(&Watch::settled, record), and returns what they found.
  template <typename... Parameters, typename... Arguments>
  WatchFindings ask(WatchFindings (Watch::*question)(Parameters...), const Arguments &...about) {
    WatchFindings all;
    for (const auto &watch : list)
      for (WatchFinding &finding : (watch.get()->*question)(about...))
        all.push_back(std::move(finding));
    return all;
  }
  // Tells all watches what needs no answer, as in tell(&Watch::begins, step).
  template <typename... Parameters, typename... Arguments>
  void tell(void (Watch::*event)(Parameters...), const Arguments &...about) {
    for (const auto &watch : list)
      (watch.get()->*event)(about...);
  }

  StepLimits limitsOf(int64_t step) const;
  std::optional<uint64_t> suspectSince() const;
  bool isDue(uint64_t step) const;
  Result<WatchFindings> look(uint64_t step);

  // Write the watches' states to the extra state of a checkpoint, or read them there. Returns
  // warnings.
  void save(std::map<std::string, std::string> &extra) const;
  std::vector<std::string> restore(const std::map<std::string, std::string> &extra);

private:
  std::vector<std::unique_ptr<Watch>> list;
};

// For the functions below: return a new watch of class T, or none.
template <typename T, typename... Arguments>
Result<std::unique_ptr<Watch>> makeWatch(Arguments &&...arguments) {
  return std::unique_ptr<Watch>(new T(std::forward<Arguments>(arguments)...));
}
inline Result<std::unique_ptr<Watch>> noWatch() { return std::unique_ptr<Watch>(); }

// Each makes a watch, or none where there is nothing to watch. Errors are of this rank alone.
#define LMC_WATCH(NAME) Result<std::unique_ptr<Watch>> NAME(const WatchedRun &run);
#include "runtime/watch/Watches.def"
#undef LMC_WATCH

} // namespace lmc
