// Predicts a job on several numbers of devices under each sharding strategy (lmc explain --scale).
#pragma once

#include "compiler/driver/Forecast.h"

namespace lmc {

// Returns the section "scale" of a report (docs/explain.md): a list with one row for each number in
// `devices` and each strategy that gives a plan of its own there. `plan` is the plan of `config`.
//
// Nodes have the job's distributed.devices_per_node; for a job of one device they have 8 devices. A
// number of devices below that is one smaller node. Fails if a larger number is not a whole number
// of nodes, or if a job cannot be compiled.
//
// Rows of the job's own strategy are compiled as `lmc compile` would; the others are quick
// forecasts (ForecastJob::isQuick).
llvm::Expected<nlohmann::json> scaleReport(const Config &config, const plan::Plan &plan,
                                           llvm::ArrayRef<int64_t> devices,
                                           const CompileOptions &options);

} // namespace lmc
