// The history of a run, which may still be training, from the run's folder (docs/running.md). It
// takes limited memory, however long the run is.
#pragma once

#include "ground/support/EvaluationResults.h"
#include "ground/support/Result.h"
#include "tools/report/GrowingFile.h"
#include "tools/report/Line.h"
#include "tools/report/MedianSketch.h"
#include "tools/report/RouterFigures.h"
#include "tools/report/TensorUpdates.h"

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// The names in metrics.jsonl of the quantities of a step that the report draws.
inline constexpr std::array<const char *, 9> kDrawnQuantities = {
    "loss",       "lr",       "grad_norm",    "update_ratio", "tokens_per_second",
    "mfu_causal", "mfu_full", "step_seconds", "memory_bytes"};

// The kinds of work in a step. The time of Compute is step_seconds - data_seconds.
enum class StepPart { Compute, Data, Validation, Save };
inline constexpr std::array<const char *, 4> kStepParts = {"compute", "data", "validation", "save"};

// A step in which one kind of work took long.
struct SlowStep {
  int64_t step = 0;
  double seconds = 0; // of that part
};

// The losses of a set of validation data.
struct ValidationLine {
  Line line;
  LinePoint last, best;
};

struct RunEvent {
  std::string kind;           // the event's name in events.jsonl
  std::string time;           // as text, copied from the file
  double seconds = 0;         // time in seconds since 1970; 0: not known
  std::optional<double> step; // absent if the event does not name its step
  std::string text;           // one line for people
  bool takenBack = false;     // true if the run went back to before this event's step
};

// A text that the model has generated during the run (OUT/generated.jsonl).
struct GeneratedText {
  int64_t step = 0;
  std::string text;
  std::string end; // reason of the end: "length", "end_of_document", "not_finite"
};
struct GeneratedTexts {
  std::string prompt;
  std::deque<GeneratedText> texts; // the oldest first
};

class RunHistory {
public:
  static constexpr size_t kMaxEvents = 400;     // events of each kind; older events are dropped
  static constexpr size_t kMaxSets = 32;        // sets of validation data
  static constexpr size_t kMaxSlowSteps = 5;    // slow steps of each kind of work
  static constexpr size_t kMaxEvaluations = 12; // only the latest evaluations are kept
  static constexpr size_t kMaxPrompts = 16;     // only the first prompts are kept
  static constexpr size_t kMaxTexts = 6;        // only the latest texts of each prompt are kept

  // Error: `folder` is no folder, or has no metrics.jsonl.
  static Result<RunHistory> open(const std::string &folder);

  // Reads what was added to the folder since the last call. Counts damaged lines and ignores them.
  Result<void> update();

  bool hasEnded() const { return lastEvent == "exit"; }

  // Return an approximate position on the x axes, for a step or for a time in seconds since 1970.
  RunPosition positionOfStep(double step) const;
  RunPosition positionOfTime(double seconds) const;

  // Returns the steps in which `part` took longer than a limit, slowest first; up to kMaxSlowSteps.
  // The limit is half of the median step time. For Compute, its median time is added to this half.
  std::vector<SlowStep> slowSteps(StepPart part) const;

  // Returns the events in the order of the file.
  std::vector<const RunEvent *> events() const;

  std::string folder; // path of the folder, as open() got it

  // The contents of run.json when it was last read.
  std::string planHash, target, host, version;
  std::map<std::string, std::string> settings;
  std::string identityFault; // reason why run.json could not be read; "": none

  // Of metrics.jsonl.
  int64_t steps = 0; // number of the last step
  RunPosition end;   // the position of the last step
  std::string lastTime;
  std::array<Line, kDrawnQuantities.size()> lines;
  std::array<Line, kStepParts.size()> parts;           // seconds
  std::array<double, kStepParts.size()> partSeconds{}; // seconds, summed over all steps
  std::map<std::string, ValidationLine> validations;   // by data set name; "": data.validation
  std::optional<LinePoint> lastLoss, lowestLoss;
  // meanLoss() is the exponential moving average of the losses of about the last kMeanSteps steps.
  static constexpr int64_t kMeanSteps = 100;
  std::optional<double> meanLoss() const;
  MedianSketch stepSeconds, computeSeconds, tokensPerSecond, mfu; // mfu: mfu_causal
  int64_t nonFinite = 0,
          skipped = 0; // steps without a finite loss; steps without an update
  int64_t damagedMetrics = 0;
  RouterFigures routers;

  // Of events.jsonl.
  int64_t starts = 0, warnings = 0, damagedEvents = 0;
  std::string ending; // text of the latest event `exit`; "": the run goes on, or was killed
  std::string phase;  // phase of the last step; "": the run has no phases

  std::vector<GeneratedTexts> generated;            // texts by prompt, as ordered in the file
  std::map<int64_t, EvaluationResults> evaluations; // results of checkpoint.export_command, by step
  TensorUpdates updates;

  // Returns the number of lines that were ignored, including an incomplete last line.
  int64_t damaged() const;

private:
  explicit RunHistory(const std::string &folder);
  Result<bool> readFiles();
  void readMetrics(std::string_view line);
  void readEvent(std::string_view line);
  void readGenerated(std::string_view line);
  void readIdentity();
  void readEvaluations();
  void addSlow(StepPart part, double step, double seconds);
  void addValidation(const std::string &set, const RunPosition &at, const nlohmann::json &loss);

  GrowingFile metricsFile, eventsFile, generatedFile;
  std::map<std::string, std::deque<std::pair<int64_t, RunEvent>>>
      kept; // events by kind, each with its number in the order of the file
  int64_t eventNumber = 0;
  std::string lastEvent;
  double lossSum = 0, lossWeight = 0;                           // meanLoss() is sum / weight
  std::array<std::vector<SlowStep>, kStepParts.size()> slowest; // slowest step first
  std::vector<std::pair<double, RunPosition>> clock;            // (time, position) of some steps
  int64_t clockStride = 1, clockCount = 0;
};

} // namespace lmc
