#include "tools/lmc-run/monitors/Prometheus.h"

#include "ground/support/File.h"
#include "runtime/monitor/RunLog.h"
#include "runtime/settings/TimeLimit.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <utility>
#include <vector>

namespace lmc {

// Returns a label's value with escapes, as Prometheus requires inside quotes.
static std::string escaped(const std::string &value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"')
      text += '\\';
    text += c == '\n' ? "\\n" : std::string(1, c);
  }
  return text;
}

static std::string valueOf(double value) {
  if (std::isnan(value))
    return "NaN";
  if (std::isinf(value))
    return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

namespace {

// Writes metrics one after the other, in Prometheus's text format.
class Exposition {
public:
  explicit Exposition(const std::string &run) : run(escaped(run)) {}

  // Begins a metric. `type`: "gauge" or "counter".
  void begin(const char *name, const char *type, const char *help) {
    metric = name;
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  void value(double value) { line("", value); }
  void value(double value, const char *label, const std::string &labelValue) {
    line(fmt::format(",{}=\"{}\"", label, escaped(labelValue)), value);
  }
  void metricOf(const char *name, const char *type, const char *help, double only) {
    begin(name, type, help);
    value(only);
  }

  std::string text;

private:
  void line(const std::string &labels, double value) {
    text += fmt::format("{}{{run=\"{}\"{}}} {}\n", metric, run, labels, valueOf(value));
  }
  std::string run;
  const char *metric = "";
};

} // namespace

void PrometheusFile::step(const StepRecord &record) {
  latest = record;
  stepTime = unixSeconds();
  for (const ValidationRecord &validation : record.validations)
    validations[validation.set] = validation;
}

void PrometheusFile::event(const std::string &name, const nlohmann::ordered_json &event) {
  ++events[name];
  if (name == "checkpoint")
    checkpoint = {integerOf(event, "step", 0), unixSeconds()};
  if (name == "exit")
    exitCode = static_cast<int>(integerOf(event, "code", 0));
}

std::string PrometheusFile::text() const {
  Exposition all(run);
  all.metricOf("lmc_running", "gauge", "1 while the run trains, 0 after it has ended by itself.",
               exitCode ? 0 : 1);
  if (exitCode)
    all.metricOf("lmc_exit_code", "gauge", "Exit code of the run.", *exitCode);
  if (latest) {
    const StepRecord &record = *latest;
    auto gauge = [&](const char *name, double value, const char *help) {
      all.metricOf(name, "gauge", help, value);
    };
    gauge("lmc_step", static_cast<double>(record.step), "Optimizer steps that are done.");
    gauge("lmc_step_timestamp_seconds", stepTime, "When the latest step was done.");
    gauge("lmc_loss", record.loss, "Training loss of the latest step, in nats per token.");
    gauge("lmc_lr", record.lr, "Learning rate of the latest step.");
    gauge("lmc_grad_norm", record.gradNorm, "L2 norm of the gradient before clipping.");
    gauge("lmc_update_ratio", record.updateRatio,
          "L2 norm of the update divided by that of the parameters.");
    all.metricOf("lmc_tokens_total", "counter", "Tokens that the run has trained on.",
                 static_cast<double>(record.tokens));
    gauge("lmc_tokens_per_second", record.tokensPerSecond, "Tokens per second of the latest step.");
    gauge("lmc_mfu", record.mfuFull, "Model FLOPs utilization, with all attention scores counted.");
    gauge("lmc_mfu_causal", record.mfuCausal,
          "Model FLOPs utilization, with only unmasked attention scores counted.");
    gauge("lmc_step_seconds", record.stepSeconds, "Seconds of the latest step.");
    gauge("lmc_data_seconds", record.dataSeconds, "Seconds of it in which it waited for data.");
    gauge("lmc_memory_bytes", static_cast<double>(record.memoryBytes), "Bytes of device memory.");
  }
  if (!validations.empty())
    all.begin("lmc_validation_loss", "gauge",
              "Loss of the latest validation of each set, in nats per token.");
  for (const auto &[set, validation] : validations)
    all.value(validation.loss, "set", set);
  if (latest && !latest->sources.empty())
    all.begin("lmc_source_tokens_total", "counter", "Tokens that were read of each source.");
  for (const SourceRecord &source : latest ? latest->sources : std::vector<SourceRecord>())
    all.value(static_cast<double>(source.tokens), "source", source.name);
  if (checkpoint) {
    all.metricOf("lmc_last_checkpoint_step", "gauge",
                 "Step of the latest checkpoint of this start.",
                 static_cast<double>(checkpoint->step));
    all.metricOf("lmc_last_checkpoint_timestamp_seconds", "gauge", "When it was complete.",
                 checkpoint->time);
  }
  if (!events.empty())
    all.begin("lmc_events_total", "counter", "Events of this start, as in events.jsonl.");
  for (const auto &[name, count] : events)
    all.value(static_cast<double>(count), "event", name);
  return all.text;
}

Result<void> PrometheusFile::write() const { return replaceFile(path, text()); }

} // namespace lmc
