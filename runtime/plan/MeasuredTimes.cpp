#include "runtime/plan/MeasuredTimes.h"

#include "runtime/plan/Steps.h"
#include "runtime/support/Median.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

using nlohmann::json;

namespace lmc::plan {

// The seconds of each run, by function, command and run.
using Runs = std::vector<std::vector<std::vector<double>>>;

static Result<Runs> collect(const json &trace, const std::string &path, const Plan &plan) {
  Runs runs;
  std::map<std::string, size_t> functions;
  for (const Function *function : *plan.functions()) {
    functions[function->name()->str()] = runs.size();
    runs.emplace_back(function->commands()->size());
  }
  for (const json &event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("cat") == "function")
      continue;
    const json &arguments = event.at("args");
    const auto name = arguments.at("function").get<std::string>();
    const auto command = arguments.at("command").get<size_t>();
    const double seconds = event.at("dur").get<double>() * 1e-6;
    auto function = functions.find(name);
    if (function == functions.end() || command >= runs[function->second].size())
      return Error{fmt::format("{}: the plan has no command {} of {}", path, command, name)};
    if (!std::isfinite(seconds) || seconds < 0)
      return Error{fmt::format("{}: {} us is no time of command {} of {}", path, seconds * 1e6,
                               command, name)};
    runs[function->second][command].push_back(seconds);
  }
  return runs;
}

Result<MeasuredTimes> readMeasuredTimes(const std::string &text, const std::string &path,
                                        const PlanFile &plan) try {
  const json trace = json::parse(text);
  const json &about = trace.at("otherData");
  if (const auto hash = about.at("plan").get<std::string>(); hash != plan.hash())
    return Error{fmt::format("{}: measured with a plan of SHA-256 {}, and {} has {}; measure this "
                             "plan, or explain that one",
                             path, hash, plan.path(), plan.hash())};
  MeasuredTimes times{about.at("device"), about.at("first_step"), about.at("last_step"), {}};
  auto runs = collect(trace, path, *plan);
  LMC_TRY(runs);
  const uint64_t gas = plan->batch()->gradient_accumulation_steps();
  for (uint32_t f = 0; f < runs->size(); ++f) {
    const std::string name = plan->functions()->Get(f)->name()->str();
    const auto &commands = (*runs)[f];
    const auto measured = std::count_if(commands.begin(), commands.end(),
                                        [](const auto &command) { return !command.empty(); });
    std::vector<double> &seconds = times.seconds.emplace_back();
    if (measured == 0 && runsPerStep(name, gas) == 0)
      continue;
    if (size_t(measured) < commands.size())
      return Error{fmt::format("{}: has no whole run of the function {}", path, name)};
    for (const std::vector<double> &command : commands)
      seconds.push_back(median(command));
  }
  return times;
} catch (const json::exception &) {
  return Error{fmt::format("{}: no trace that `lmc-run --trace` wrote", path)};
}

} // namespace lmc::plan
