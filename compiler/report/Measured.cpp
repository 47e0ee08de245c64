#include "compiler/report/Measured.h"

#include "compiler/cost/DeviceSpec.h"
#include "compiler/kernels/Target.h"
#include "ground/plan/Operands.h"
#include "ground/plan/Steps.h"

#include "llvm/ADT/StringRef.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

using nlohmann::json;

namespace lmc {

namespace {

// Returns a title. Equal work has equal titles: "gemm 2048x512x64 bf16 to f32", "attention 4x2048,
// 16/8 heads of 64, bf16", or the name of a kernel.
class Titles {
public:
  Titles(const plan::Plan &plan, std::string kind) : plan(plan), kind(std::move(kind)) {}

  std::string operator()(const plan::Launch &op) const {
    return plan.kernels()->Get(op.kernel())->name()->str();
  }
  std::string operator()(const plan::Gemm &op) const {
    return fmt::format("{} {}{}x{}x{} {}{}{} to {}{}", kind,
                       op.batch() > 1 ? fmt::format("{} of ", op.batch()) : "", op.m(), op.n(),
                       op.k(), dtype(op.a()), op.transpose_a() ? ", a transposed" : "",
                       op.transpose_b() ? ", b transposed" : "", dtype(op.d()),
                       plan::accumulates(op)      ? ", added"
                       : plan::residualOf(op) >= 0 ? ", with residual"
                                                   : "");
  }
  template <typename Body> std::string operator()(const Body &op) const {
    if constexpr (requires { op.kv_heads(); }) // attention or its gradient
      return fmt::format("{} {}x{}, {}/{} heads of {}, {}", kind, op.batch(), op.seq(), op.heads(),
                         op.kv_heads(), op.head_dim(), dtype(op.q()));
    if constexpr (requires { op.product(); }) // with SwiGLU or its gradient
      return fmt::format("{} {}x{}x{} {}", kind, op.product()->m(), op.product()->n(),
                         op.product()->k(), dtype(op.product()->a()));
    return kind;
  }

private:
  std::string dtype(uint32_t slice) const {
    return llvm::StringRef(plan::EnumNameDType(plan.slices()->Get(slice)->dtype())).lower();
  }

  const plan::Plan &plan;
  const std::string kind;
};

} // namespace

static json entryOf(double measured, double predicted) {
  return {{"seconds", measured},
          {"predicted_seconds", predicted},
          {"ratio", predicted > 0 ? json(measured / predicted) : json()}};
}

// Sorts entries by |measured - predicted| seconds per optimizer step, largest first.
static json sorted(std::vector<json> entries) {
  std::ranges::stable_sort(entries, std::ranges::greater(), [](const json &entry) {
    return std::abs(entry["seconds"].get<double>() - entry["predicted_seconds"].get<double>()) *
           entry["runs_per_step"].get<double>();
  });
  return entries;
}

json measuredJson(const plan::Plan &plan, const cost::PlanCost &cost, const plan::MeasuredTimes &times) {
  struct Group {
    std::string kind;
    std::string_view bound;
    uint64_t runs = 0;                 // runs per step
    double seconds = 0, predicted = 0; // per step
  };
  std::map<std::string, Group> groups;
  std::vector<json> functions, commands, kernels;
  double step = 0;
  for (unsigned f = 0; f < times.seconds.size(); ++f) {
    const plan::Function &function = *plan.functions()->Get(f);
    const cost::FunctionCost &predicted = cost.functions[f];
    const std::vector<double> &seconds = times.seconds[f];
    if (predicted.runsPerStep == 0 || seconds.empty())
      continue;
    double whole = 0;
    for (unsigned c = 0; c < seconds.size(); ++c) {
      const plan::Command &command = *function.commands()->Get(c);
      const cost::Estimate &estimate = predicted.commands[c];
      const std::string kind = plan::commandName(command);
      const std::string title = plan::visitBody(command, Titles(plan, kind));
      whole += seconds[c];
      Group &group = groups[title];
      group.kind = kind;
      group.bound = cost::boundName(estimate.bound);
      group.runs += predicted.runsPerStep;
      group.seconds += double(predicted.runsPerStep) * seconds[c];
      group.predicted += double(predicted.runsPerStep) * estimate.seconds;
      json entry = entryOf(seconds[c], estimate.seconds);
      entry.update({{"function", function.name()->str()},
                    {"command", c},
                    {"kind", kind},
                    {"title", title},
                    {"source", command.source() ? command.source()->str() : ""},
                    {"runs_per_step", predicted.runsPerStep},
                    {"bound", group.bound}});
      commands.push_back(std::move(entry));
    }
    step += double(predicted.runsPerStep) * whole;
    json entry = entryOf(whole, predicted.seconds);
    entry.update({{"name", function.name()->str()}, {"runs_per_step", predicted.runsPerStep}});
    functions.push_back(std::move(entry));
  }
  for (const auto &[title, group] : groups) {
    json entry = entryOf(group.seconds / double(group.runs), group.predicted / double(group.runs));
    entry.update({{"title", title},
                  {"kind", group.kind},
                  {"bound", group.bound},
                  {"runs_per_step", group.runs}});
    kernels.push_back(std::move(entry));
  }
  json report = {{"device", times.device},
                 {"first_step", times.firstStep},
                 {"last_step", times.lastStep},
                 {"step_seconds", step},
                 {"predicted_step_seconds", cost.stepSeconds},
                 {"ratio", cost.stepSeconds > 0 ? json(step / cost.stepSeconds) : json()}};
  report["functions"] = sorted(std::move(functions));
  report["kernels"] = sorted(std::move(kernels));
  report["commands"] = sorted(std::move(commands));
  return report;
}

cost::Refit refitSpec(const plan::Plan &plan, const plan::MeasuredTimes &times,
                      const cost::DeviceSpec &spec) {
  std::vector<cost::MeasuredWork> measured;
  for (unsigned f = 0; f < times.seconds.size(); ++f) {
    const plan::Function &function = *plan.functions()->Get(f);
    const uint64_t runs = plan::runsPerStep(function.name()->string_view(),
                                            plan.batch()->gradient_accumulation_steps());
    for (unsigned c = 0; runs > 0 && c < times.seconds[f].size(); ++c)
      measured.push_back({cost::workOf(plan, *function.commands()->Get(c)), times.seconds[f][c],
                          double(runs)});
  }
  return cost::refit(spec, measured, [&](cost::DeviceSpec changed) {
    return codegen::costModelOf(plan.target()->string_view(), std::move(changed));
  });
}

std::string refitToml(const cost::Refit &refit, const plan::MeasuredTimes &times,
                      const std::string &name, const std::string &source) {
  cost::DeviceSpec spec = refit.spec;
  const std::string before = std::exchange(spec.name, name);
  spec.defaultOf.clear();
  cost::SpecComments comments;
  for (const cost::FittedNumber &number : refit.numbers)
    comments[number.key] =
        number.commands > 0
            ? fmt::format("fitted to {} commands: {:.4g}, was {:.4g}", number.commands,
                          number.after, number.before)
            : fmt::format("reached by a command: {:.4g}, was {:.4g}", number.after, number.before);
  return cost::deviceSpecToml(
      spec,
      fmt::format("# The device spec {} with rates fitted by `lmc explain --measured` to {}:\n"
                  "# steps {} to {} on {}. SI units: bytes/s, FLOP/s, seconds.\n",
                  before, source, times.firstStep, times.lastStep, times.device),
      comments);
}

json fittedJson(const cost::Refit &refit) {
  json fitted = json::array();
  for (const cost::FittedNumber &number : refit.numbers)
    fitted.push_back({{"key", number.key},
                      {"before", number.before},
                      {"after", number.after},
                      {"commands", number.commands}});
  return fitted;
}

} // namespace lmc
