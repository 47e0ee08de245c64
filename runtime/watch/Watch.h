// A watch looks at a run while it trains, and warns of problems. The trainer calls each watch with
// the events of the run, and the watch returns its findings. Watches.def lists the watches.
#pragma once

#include "runtime/folder/RunDirectory.h"
#include "runtime/monitor/Guard.h"
#include "runtime/monitor/Metrics.h"
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

// The consequence of a finding. GoBack: the run continues from a state before step `since`. Stop:
// the run ends as diverged, and its state is saved. StopUnsaved: the state is useless, so the run
// ends without saving it.
enum class WatchAction { GoOn, Save, GoBack, Stop, StopUnsaved };

struct WatchFinding {
  std::string warning = {};          // one line for the console; "": none
  const char *event = "";            // name of its event in events.jsonl; "": none
  nlohmann::ordered_json facts = {}; // the facts in the event
  WatchAction action = WatchAction::GoOn;
  int64_t since = 0;
  std::string text = {}; // if the action stops the run: a clause with the reason
};
using WatchFindings = std::vector<WatchFinding>;

// The run that is watched. It must outlive the watches.
struct WatchedRun {
  Session &session;
  std::string out;         // the run's folder
  uint64_t totalSteps = 0; // number of the run's last step
};

// All ranks call all functions but state(), in the same order, unless a comment says otherwise.
class Watch {
public:
  virtual ~Watch() = default;

  // Tell the watch that a start begins with random weights, or with a changed setting or phase.
  virtual void expectFreshWeights() {}
  virtual void expectChange() {}
  // stateKey() names the watch's state in a checkpoint; nullptr: there is none. state() returns all
  // data on which later findings depend; "" is not saved. restore() reads these data; its Error
  // becomes a warning.
  virtual const char *stateKey() const { return nullptr; }
  virtual std::string state() const { return ""; }
  virtual Result<void> restore(const std::string &text) { return {}; }

  // Is called before the host enqueues a step for the device.
  virtual void begins(int64_t step) {}
  // Returns the limits of the step. The device does not apply a step that exceeds them.
  virtual StepLimits limitsOf(int64_t step) const { return {}; }
  // Is called with the results of each step, in order. Other ranks may then be at other steps.
  virtual WatchFindings settled(const StepRecord &record) { return {}; }
  // Is called with the complete record of a step.
  virtual WatchFindings reported(const StepRecord &record) { return {}; }
  virtual WatchFindings validated(const ValidationSettings &set, int64_t step, double loss) {
    return {};
  }
  // Is called when the updates of tensors by a step are known.
  virtual WatchFindings updated(const StepUpdates &step) { return {}; }

  // Returns true if look() must be called after the step, while the device has no other work.
  virtual bool isDue(uint64_t step) const { return false; }
  virtual Result<WatchFindings> look(uint64_t step) { return WatchFindings(); }

  // Returns the first step whose state may be damaged; nullopt: no step is suspect.
  virtual std::optional<uint64_t> suspectSince() const { return std::nullopt; }
  virtual WatchFindings saving() { return {}; }
  // writing() is called repeatedly while the checkpoint of `step` is being written, and saved()
  // after that. `seconds`: the time since the writing began; nullopt: the writing failed.
  virtual WatchFindings writing(uint64_t step, double seconds) { return {}; }
  virtual WatchFindings saved(uint64_t step, std::optional<double> seconds) { return {}; }
};

class Watches {
public:
  // Makes the watches that have something to watch. All ranks call it together.
  static Result<Watches> open(const WatchedRun &run);

  // Calls the function `question` of each watch, for example ask(&Watch::settled, record).
  template <typename... Parameters, typename... Arguments>
  WatchFindings ask(WatchFindings (Watch::*question)(Parameters...), const Arguments &...about) {
    WatchFindings all;
    for (const auto &watch : list)
      for (WatchFinding &finding : (watch.get()->*question)(about...))
        all.push_back(std::move(finding));
    return all;
  }
  // Calls the function `event` of each watch, for example tell(&Watch::begins, step).
  template <typename... Parameters, typename... Arguments>
  void tell(void (Watch::*event)(Parameters...), const Arguments &...about) {
    for (const auto &watch : list)
      (watch.get()->*event)(about...);
  }

  StepLimits limitsOf(int64_t step) const;
  std::optional<uint64_t> suspectSince() const;
  bool isDue(uint64_t step) const;
  Result<WatchFindings> look(uint64_t step);

  // save() adds the watches' states to `extra`. restore() reads them, and returns warnings.
  void save(std::map<std::string, std::string> &extra) const;
  std::vector<std::string> restore(const std::map<std::string, std::string> &extra);

private:
  std::vector<std::unique_ptr<Watch>> list;
};

template <typename T, typename... Arguments>
Result<std::unique_ptr<Watch>> makeWatch(Arguments &&...arguments) {
  return std::unique_ptr<Watch>(new T(std::forward<Arguments>(arguments)...));
}
inline Result<std::unique_ptr<Watch>> noWatch() { return std::unique_ptr<Watch>(); }

// Each function makes a watch; null: nothing to watch. An Error may occur on some ranks only.
#define LMC_WATCH(NAME) Result<std::unique_ptr<Watch>> NAME(const WatchedRun &run);
#include "runtime/watch/Watches.def"
#undef LMC_WATCH

} // namespace lmc
