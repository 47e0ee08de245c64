// Shows the state of a run to Prometheus, in a file for the textfile collector of node_exporter
// (prometheus.io/docs/instrumenting/exposition_formats, text format 0.0.4).
#pragma once

#include "ground/support/Result.h"
#include "runtime/monitor/Metrics.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace lmc {

class PrometheusFile {
public:
  // `run` is the value of the label `run` of all metrics.
  PrometheusFile(std::string path, std::string run) : path(std::move(path)), run(std::move(run)) {}

  void step(const StepRecord &record);
  // Counts an event of events.jsonl, and records what it tells about checkpoints and the run's end.
  void event(const std::string &name, const nlohmann::ordered_json &event);

  // Returns the contents of the file. Values that are not known yet have no line.
  std::string text() const;
  // Replaces the file: a reader sees either the old or the new contents.
  Result<void> write() const;

private:
  std::string path, run;
  std::optional<StepRecord> latest;
  double stepTime = 0; // time of the latest step, in seconds since 1970
  std::map<std::string, ValidationRecord> validations; // the latest of each data set, by its name
  struct Saved {
    int64_t step = 0;
    double time = 0; // time of the save, in seconds since 1970
  };
  std::optional<Saved> checkpoint;
  std::optional<int> exitCode;
  std::map<std::string, uint64_t> events; // number of events by name, since this start
};

} // namespace lmc
