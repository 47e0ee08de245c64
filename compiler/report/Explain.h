// Reports the contents and the predicted cost of a plan, for people and for scripts.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace lmc {

class PlanFile;

// The sections of the report that the user requests.
struct ExplainSections {
  bool memory = false, fusion = false, recompute = false, cost = false, comm = false,
       kernels = false, commands = false;

  bool operator==(const ExplainSections &) const = default;
};

// Returns the report of a plan on a device as JSON. docs/explain.md documents the keys.
nlohmann::json explainJson(const plan::Plan &plan, const cost::DeviceSpec &spec);

// Returns the compiler's warnings, which the plan contains as its report "warnings".
std::vector<std::string> warningsIn(const plan::Plan &plan);

// Returns the text for a terminal: the requested sections, or all sections if `all` is true.
// Refused fusions are listed one by one if `fusion` is requested, otherwise by reason.
std::string explainText(const nlohmann::json &report, const ExplainSections &requested, bool all);

// Print sections of the report as text. `fusions` has the lists `formed` and `refused`, like the
// section `fusion`. The keys `layers` and `flops_overhead` of `recompute` are optional.
std::string fusionsText(const nlohmann::json &fusions);
std::string recomputeText(const nlohmann::json &recompute);

// Prints the section `hints`: settings with which the job would fit the memory. "" if none.
std::string hintsText(const nlohmann::json &hints);

// Prints the section `scale`: a table with a row per number of devices and strategy.
std::string scaleText(const nlohmann::json &report);

// Returns the section `training_phases` of a report (docs/explain.md): a list with an entry for
// each training phase of the job. The list is empty if the job has no phases.
nlohmann::json trainingPhasesJson(const PlanFile &plan, const cost::DeviceSpec &spec);

// Prints the section `training_phases` as a table; "" for an empty list.
std::string trainingPhasesText(const nlohmann::json &phases);

// Returns the report as one HTML page that loads no other file and is well-formed XML. `report` is
// the result of explainJson.
std::string htmlReport(const plan::Plan &plan, const nlohmann::json &report,
                       const std::string &title);

// Returns the predicted schedule of an optimizer step as a trace for chrome://tracing and
// ui.perfetto.dev. The trace shows the functions one after the other, each only once. It has a
// track per stream with an event per command, a track of the functions, and a counter of live bytes
// by category. Times are in microseconds and never decrease.
nlohmann::json traceJson(const plan::Plan &plan, const cost::DeviceSpec &spec);

// Returns the error message for a plan that needs more than `budget` bytes. "PATH: error: ..." and
// indented lines give the bytes by category and by buffer. `smallestBudget` is the fewest bytes
// with which the job would compile.
std::string budgetError(const plan::Plan &plan, const std::string &path, uint64_t budget,
                        uint64_t smallestBudget);

} // namespace lmc
