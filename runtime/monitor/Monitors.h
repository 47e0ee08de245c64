// What people watch a run with, beside its own files: TensorBoard, W&B, Prometheus, and a command
// for events. The first rank has them.
//
// None of them stops a run: what cannot be written or started is a warning, once until it works
// again, and it is tried again. A run never waits for a program or for the network. The files of
// TensorBoard and Prometheus are written between two steps, so that a slow disk delays the run.
#pragma once

#include "runtime/monitor/Clock.h"
#include "runtime/monitor/Console.h"
#include "runtime/monitor/EventCommand.h"
#include "runtime/monitor/ExportCommand.h"
#include "runtime/monitor/Prometheus.h"
#include "runtime/monitor/RunLog.h"
#include "runtime/monitor/TensorBoard.h"
#include "runtime/monitor/WandbSender.h"

#include <cstdint>
#include <optional>
#include <string>

namespace lmc {

struct MonitorSettings {
  bool tensorboard = false; // event files in OUT/tensorboard
  std::string prometheus;   // file for the textfile collector, relative to OUT; "": none
  std::string onEvent;      // command for each event; "": none
  std::string onExport;     // command for each export; "": none
  WandbSettings wandb;
};

// Events may come from any thread: all members but the first two are used with the lock of the log.
class Monitors {
public:
  // Watches the run in the folder `out` from now on, all events of `log` included. `console` and
  // `log` must outlive this object.
  Monitors(const MonitorSettings &settings, const std::string &out, Console &console, RunLog &log,
           const MonitorClock &clock = monitorTime);
  ~Monitors();
  Monitors(const Monitors &) = delete;
  Monitors &operator=(const Monitors &) = delete;

  // Must be called after every step, when its line is in metrics.jsonl. Prometheus gets the first
  // one, and those of each `logInterval` steps.
  void step(const StepRecord &record, int64_t logInterval);
  // Shows texts that the model has generated after `step`.
  void generated(int64_t step, const std::vector<GeneratedText> &texts);
  // Shows how far an earlier step has moved each tensor.
  void updated(const StepUpdates &updates);

private:
  struct Failures {
    bool tensorboard = false, dropped = false, prometheus = false, onEvent = false, wandb = false,
         onExport = false;
  };
  void event(const std::string &name, const nlohmann::ordered_json &event);
  void poll();
  void pollExports();
  // Warns of a failure, unless the attempt before failed too.
  void check(const Result<void> &attempt, bool &failing, const char *key);

  Console &console;
  RunLog &log;
  std::optional<TensorBoardWriter> tensorboard;
  std::optional<PrometheusFile> prometheus;
  std::optional<EventCommand> onEvent;
  std::optional<WandbSender> wandb;
  std::optional<ExportCommand> onExport;
  Failures failing;
  int64_t latestStep = 0;
  bool sawStep = false;
};

} // namespace lmc
