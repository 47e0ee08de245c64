#include "runtime/watch/UpdateWatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

namespace lmc {

static constexpr double kFirstSteps = 5;      // the first judged step is >= kFirstSteps / limit
static constexpr double kFirstLimit = 10;     // limit before the first judged step
static constexpr size_t kNamedInWarnings = 3; // tensors

namespace {

enum class Fault { NotFinite, Ratio, NoGradient }; // the worst first
struct OutOfRange {
  std::string name;
  Fault fault = Fault::Ratio;
  std::optional<double> ratio; // as in TensorUpdate
};

} // namespace

static std::string describe(const OutOfRange &tensor) {
  if (tensor.fault == Fault::Ratio)
    return fmt::format("{} changes by {:.3g} of its weights", tensor.name, *tensor.ratio);
  const bool isFinite = tensor.fault != Fault::NotFinite;
  return tensor.name + (isFinite ? " has no gradient" : " is not finite");
}

WatchFindings UpdateWatch::updated(const StepUpdates &updates) {
  if (limit <= 0)
    return {};
  const bool started =
      updates.step > warmupEnd && static_cast<double>(updates.step) >= kFirstSteps / limit;
  const double highest = started ? limit : std::max(limit, kFirstLimit);
  auto faultOf = [&](const TensorUpdate &tensor) -> std::optional<Fault> {
    if (!tensor.isFinite)
      return Fault::NotFinite;
    if (tensor.isMatrix && tensor.ratio && *tensor.ratio > highest)
      return Fault::Ratio;
    if (started && !tensor.hasGradient)
      return Fault::NoGradient;
    return std::nullopt;
  };
  std::vector<OutOfRange> all;
  std::set<std::string> names;
  for (const TensorUpdate &tensor : updates.tensors)
    if (const auto fault = faultOf(tensor)) {
      all.push_back({tensor.name, *fault, tensor.ratio});
      names.insert(tensor.name);
    }
  std::erase_if(all, [&](const OutOfRange &each) { return known.contains(each.name); });
  known = std::move(names);
  if (all.empty())
    return {};
  std::ranges::stable_sort(all, [](const OutOfRange &a, const OutOfRange &b) {
    return std::tuple(a.fault, -a.ratio.value_or(0)) < std::tuple(b.fault, -b.ratio.value_or(0));
  });
  std::vector<std::string> worst;
  for (size_t i = 0; i < std::min(all.size(), kNamedInWarnings); ++i)
    worst.push_back(describe(all[i]));
  if (all.size() > worst.size())
    worst.push_back(fmt::format("and {} more", all.size() - worst.size()));
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  for (const OutOfRange &tensor : all) {
    constexpr const char *kNames[] = {"not_finite", "ratio", "no_gradient"};
    tensors[tensor.name]["fault"] = kNames[static_cast<int>(tensor.fault)];
    if (tensor.ratio)
      tensors[tensor.name]["ratio"] = *tensor.ratio;
  }
  return {{.warning = fmt::format("step {}: the updates of {} of {} tensors are out of range: {} "
                                  "(guard.update_ratio = {}); updates.jsonl has all",
                                  updates.step, known.size(), updates.tensors.size(),
                                  fmt::join(worst, ", "), limit),
           .event = "update_ratio",
           .facts = {{"step", updates.step}, {"limit", limit}, {"tensors", std::move(tensors)}}}};
}

std::string UpdateWatch::state() const { return nlohmann::json(known).dump(); }

Result<void> UpdateWatch::restore(const std::string &text) {
  try {
    known = nlohmann::json::parse(text).get<std::set<std::string>>();
  } catch (const nlohmann::json::exception &) {
    return Error{"the tensors that are out of range are not of this version of lmc-run"};
  }
  return {};
}

Result<std::unique_ptr<Watch>> watchUpdates(const WatchedRun &run) {
  const TrainSettings &settings = run.session.settings;
  const GuardConfig &guard = settings.config.guard;
  return makeWatch<UpdateWatch>(guard.action == "off" ? 0 : guard.updateRatio,
                                settings.lr.begin + settings.lr.warmupIters);
}

} // namespace lmc
