#include "ground/plan/MeasuredTimes.h"

#include "ground/plan/Steps.h"
#include "ground/support/Json.h"
#include "ground/support/Median.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <type_traits>

using nlohmann::json;

namespace lmc::plan {

// runs[function][command][run] is the duration of one run of the command, in seconds.
using Runs = std::vector<std::vector<std::vector<double>>>;

static Error noTrace(const std::string &path) {
  return userError("{}: no trace that `lmc-run --trace` wrote", path);
}

// Returns the member `key` of an object; null if `value` is no object or has no such member.
static const json *member(const json *value, const char *key) {
  if (!value || !value->is_object())
    return nullptr;
  auto found = value->find(key);
  return found == value->end() ? nullptr : &*found;
}

// Sets `value` to the member `key` of an object. Returns false if it is missing or of another type.
template <typename T> static bool read(const json *object, const char *key, T &value) {
  const json *found = member(object, key);
  if (!found || !(std::is_same_v<T, std::string> ? found->is_string()
                  : std::is_integral_v<T>        ? found->is_number_unsigned()
                                                 : found->is_number()))
    return false;
  value = found->get<T>();
  return true;
}

static Result<Runs> collect(const json &events, const std::string &path, const Plan &plan) {
  Runs runs;
  std::map<std::string, size_t> functions;
  for (const Function *function : *plan.functions()) {
    functions[function->name()->str()] = runs.size();
    runs.emplace_back(function->commands()->size());
  }
  for (const json &event : events) {
    std::string phase, category, name;
    size_t command = 0;
    double microseconds = 0;
    if (!read(&event, "ph", phase))
      return noTrace(path);
    if (phase != "X")
      continue;
    if (!read(&event, "cat", category))
      return noTrace(path);
    if (category == "function")
      continue;
    const json *arguments = member(&event, "args");
    if (!read(arguments, "function", name) || !read(arguments, "command", command) ||
        !read(&event, "dur", microseconds))
      return noTrace(path);
    auto function = functions.find(name);
    if (function == functions.end() || command >= runs[function->second].size())
      return userError("{}: the plan has no command {} of {}", path, command, name);
    if (!std::isfinite(microseconds) || microseconds < 0)
      return userError("{}: {} us is no time of command {} of {}", path, microseconds, command,
                       name);
    runs[function->second][command].push_back(microseconds * 1e-6);
  }
  return runs;
}

// Parses without exceptions, because parts of the compiler link this code without exceptions.
Result<MeasuredTimes> readMeasuredTimes(const std::string &text, const std::string &path,
                                        const PlanFile &plan) {
  auto trace = parseJsonObject(text, path);
  if (!trace)
    return noTrace(path);
  const json *about = member(&*trace, "otherData"), *events = member(&*trace, "traceEvents");
  std::string hash;
  MeasuredTimes times;
  if (!read(about, "plan", hash) || !read(about, "device", times.device) ||
      !read(about, "first_step", times.firstStep) || !read(about, "last_step", times.lastStep) ||
      !events || !events->is_array())
    return noTrace(path);
  if (hash != plan.hash())
    return userError("{}: measured with a plan of SHA-256 {}, and {} has {}; measure this plan, or "
                     "explain that one",
                     path, hash, plan.path(), plan.hash());
  LMC_LET(runs, collect(*events, path, *plan));
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
      return userError("{}: has no whole run of the function {}", path, name);
    for (const std::vector<double> &command : commands)
      seconds.push_back(median(command));
  }
  return times;
}

} // namespace lmc::plan
