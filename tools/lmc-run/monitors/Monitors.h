// Monitors show a run to the user: TensorBoard, W&B, Prometheus, and a command for events. Only the
// first rank has monitors.
//
// No monitor stops a run. A monitor that fails tries again later; only the first of consecutive
// failures gives a warning. A run never waits for a program or for the network, but it waits for
// the files of TensorBoard and Prometheus.
#pragma once

#include "ground/config/Config.h"
#include "runtime/monitor/RunObserver.h"
#include "tools/lmc-run/monitors/Clock.h"
#include "tools/lmc-run/monitors/EventCommand.h"
#include "tools/lmc-run/monitors/ExportCommand.h"
#include "tools/lmc-run/monitors/Prometheus.h"
#include "tools/lmc-run/monitors/TensorBoard.h"
#include "tools/lmc-run/monitors/WandbSender.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace lmc {

// Events may come from any thread. The log's lock guards all members except `console` and `log`.
class Monitors final : public RunObserver {
public:
  // Watches the run in the folder `out`, and receives all events of `log`, from now on. `onExport`
  // is a command for each export ("": none). `console` and `log` must outlive this object.
  Monitors(const MonitoringConfig &settings, const std::string &onExport, const std::string &out,
           Console &console, RunLog &log, const MonitorClock &clock = monitorTime);
  ~Monitors() override;
  Monitors(const Monitors &) = delete;
  Monitors &operator=(const Monitors &) = delete;

  // TensorBoard gets every step. Prometheus gets only the steps that the console shows.
  void step(const StepRecord &record, int64_t logInterval) override;
  void generated(int64_t step, const std::vector<GeneratedText> &texts) override;
  void updated(const StepUpdates &updates) override;

private:
  void event(const std::string &name, const nlohmann::ordered_json &event);
  void poll();
  void pollExports();
  // Warns if `attempt` failed, unless the previous attempt with the same `key` failed too.
  void check(const Result<void> &attempt, const char *key);

  Console &console;
  RunLog &log;
  std::optional<TensorBoardWriter> tensorboard;
  std::optional<PrometheusFile> prometheus;
  std::optional<EventCommand> onEvent;
  std::optional<WandbSender> wandb;
  std::optional<ExportCommand> onExport;
  std::set<std::string> failing; // config keys of monitors whose previous attempt failed
  bool dropping = false;         // true: TensorBoard lost steps since its last successful write
  int64_t latestStep = 0;
  bool sawStep = false;
};

} // namespace lmc
