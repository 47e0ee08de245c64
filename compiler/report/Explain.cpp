#include "compiler/report/Explain.h"

#include "compiler/analysis/Fusion.h"
#include "compiler/analysis/Memory.h"
#include "compiler/cost/EightBits.h"
#include "compiler/cost/PlanCost.h"
#include "compiler/kernels/Target.h"
#include "compiler/report/Fields.h"
#include "ground/plan/Names.h"
#include "ground/plan/Operands.h"
#include "ground/plan/PlanFile.h"
#include "ground/plan/PlannedBytes.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringRef.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <ranges>

using namespace lmc;
using nlohmann::json;

namespace {

constexpr size_t kLargestShown = 10;

std::string text(const flatbuffers::String *string) { return string ? string->str() : ""; }

std::string dtypeText(plan::DType dtype) {
  return llvm::StringRef(plan::EnumNameDType(dtype)).lower();
}

std::string dtypeOf(const plan::Plan &plan, uint32_t slice) {
  return dtypeText(plan.slices()->Get(slice)->dtype());
}

json categoriesJson(const CategoryBytes &bytes) {
  json entries = json::object();
  for (size_t category = 0; category < kCategories; ++category)
    if (bytes[category] > 0)
      entries[categoryName(plan::Category(category))] = bytes[category];
  return entries;
}

// Returns the bytes of all arenas at the peak, by category. One category is unused bytes.
json breakdown(const plan::Plan &plan, const MemoryTimeline &timeline) {
  CategoryBytes bytes = timeline.state;
  uint64_t arenas = plannedBytes(plan), used = 0;
  if (timeline.worst >= 0) {
    const FunctionMemory &worst = timeline.functions[size_t(timeline.worst)];
    for (size_t category = 0; category < kCategories; ++category)
      bytes[category] += worst.live[size_t(worst.peakCommand)][category];
    used = worst.peakBytes;
  }
  json categories = categoriesJson(bytes);
  uint64_t workspace = plan.arenas()->size() > 1 ? plan.arenas()->Get(1)->bytes() : 0;
  uint64_t gaps = workspace > used ? workspace - used : 0;
  categories["fragmentation"] = gaps; // shown also if 0: it tells how good the packing is
  if (uint64_t sum = total(bytes) + gaps; arenas > sum) // the excess is padding in the state arena
    categories["alignment"] = arenas - sum;
  return categories;
}

// Returns the memory budget in bytes: the plan's memory_budget, or else the job's memory.budget, or
// else all memory of the device that plans may use.
uint64_t budgetOf(const plan::Plan &plan, const cost::DeviceSpec &spec) {
  uint64_t budget = plan.memory_budget();
  std::string_view text = cost::settingOf(plan, "memory.budget");
  if (budget == 0)
    std::from_chars(text.data(), text.data() + text.size(), budget);
  return budget ? budget : cost::usableBytes(spec);
}

// Returns the bytes of the copies of the state in host memory. A background thread writes
// checkpoints and exports from such a copy. Returns null if the job makes no copy.
json hostCopyReport(const plan::Plan &plan) {
  auto isSet = [&](const char *key, std::string_view no) {
    const std::string_view text = cost::settingOf(plan, key);
    return !text.empty() && text != no;
  };
  if (!isSet("checkpoint.background", "false") ||
      !(isSet("checkpoint.interval", "0") || isSet("checkpoint.export_interval", "0")))
    return nullptr;
  // Bytes in the first node: `rank` is the maximum over its ranks, `node` is their sum.
  uint64_t rank = 0, node = 0;
  for (uint64_t r = 0; r < std::max<uint64_t>(plan.devices_per_node(), 1); ++r) {
    const uint64_t bytes = stateCopyBytes(plan, r);
    rank = std::max(rank, bytes);
    node += bytes;
  }
  return {{"rank_bytes", rank}, {"node_bytes", node}};
}

// Describes the peak of the function that needs the most memory, and the largest buffers at this
// peak; null if the plan has no such function.
json peakReport(const plan::Plan &plan, const MemoryTimeline &timeline) {
  if (timeline.worst < 0)
    return nullptr;
  const FunctionMemory &worst = timeline.functions[size_t(timeline.worst)];
  const plan::Function &function = *plan.functions()->Get(unsigned(timeline.worst));
  json peak = {{"function", function.name()->str()},
               {"command", worst.peakCommand},
               {"source", text(function.commands()->Get(unsigned(worst.peakCommand))->source())},
               {"largest", json::array()}};
  for (const auto &buffer : worst.largest | std::views::take(kLargestShown))
    peak["largest"].push_back({{"source", buffer.source},
                               {"category", categoryName(buffer.category)},
                               {"bytes", buffer.bytes}});
  return peak;
}

json memoryReport(const plan::Plan &plan, const MemoryTimeline &timeline,
                  const cost::DeviceSpec &spec) {
  json memory;
  uint64_t bound = 0;
  for (const plan::Arena *arena : *plan.arenas()) {
    memory["arenas"].push_back({{"name", arena->name()->str()},
                                {"bytes", arena->bytes()},
                                {"lower_bound_bytes", arena->lower_bound_bytes()}});
    bound += arena->lower_bound_bytes();
  }
  memory["peak_bytes"] = plannedBytes(plan);
  memory["lower_bound_bytes"] = bound;
  memory["device_bytes"] = cost::usableBytes(spec);
  memory["budget_bytes"] = budgetOf(plan, spec);
  memory["state_bytes"] = total(timeline.state);
  memory["activation_bytes"] = timeline.activationBytes();
  memory["by_category"] = breakdown(plan, timeline);
  memory["fragmentation_bytes"] = memory["by_category"].value("fragmentation", uint64_t(0));

  if (json copy = hostCopyReport(plan); !copy.is_null())
    memory["host_copy"] = std::move(copy);

  memory["functions"] = json::array();
  memory["phases"] = json::array();
  for (size_t f = 0; f < timeline.functions.size(); ++f) {
    const FunctionMemory &function = timeline.functions[f];
    const plan::Function &planned = *plan.functions()->Get(unsigned(f));
    std::string name = planned.name()->str();
    json live = json::object(); // bytes by category, only of used categories
    for (size_t category = 0; category < kCategories; ++category) {
      json bytes = json::array();
      bool used = false;
      for (const CategoryBytes &at : function.live) {
        bytes.push_back(at[category]);
        used |= at[category] > 0;
      }
      if (used)
        live[categoryName(plan::Category(category))] = std::move(bytes);
    }
    memory["functions"].push_back({{"name", name},
                                   {"peak_bytes", function.peakBytes},
                                   {"peak_command", function.peakCommand},
                                   {"live_bytes", std::move(live)}});
    for (const MemoryPhase &phase : function.phases) {
      json entry = {{"function", name},
                    {"phase", phase.name},
                    {"first_command", phase.first},
                    {"last_command", phase.last},
                    {"peak_bytes", 0},
                    {"peak_command", phase.peakCommand},
                    {"peak_source", ""},
                    {"by_category", json::object()}};
      if (phase.peakCommand >= 0) {
        const CategoryBytes &at = function.live[size_t(phase.peakCommand)];
        entry["peak_bytes"] = total(at);
        entry["by_category"] = categoriesJson(at);
        entry["peak_source"] = text(planned.commands()->Get(unsigned(phase.peakCommand))->source());
      }
      memory["phases"].push_back(std::move(entry));
    }
  }
  if (json peak = peakReport(plan, timeline); !peak.is_null())
    memory["peak"] = std::move(peak);
  return memory;
}

// Returns (FLOPs of matrix products in a micro-step / FLOPs without recompute) - 1. Without
// recompute, a micro-step has 3 times the FLOPs of a forward pass, for attention 3.5 times. The
// forward pass is the function `eval`. Returns null if the plan has no `eval`.
json recomputedFraction(const plan::Plan &plan, const cost::PlanCost &cost) {
  int step = microStep(plan);
  double done = 0, needed = 0;
  for (unsigned f = 0; f < plan.functions()->size(); ++f) {
    const plan::Function &function = *plan.functions()->Get(f);
    bool eval = function.name()->string_view() == names::kEval;
    for (unsigned c = 0; (eval || int(f) == step) && c < function.commands()->size(); ++c) {
      const cost::Work work = cost::workOf(plan, *function.commands()->Get(c));
      if (!cost::isMatrixWork(work))
        continue;
      bool attention = std::holds_alternative<cost::AttentionWork>(work);
      double flops = cost.functions[f].commands[c].flops;
      (eval ? needed : done) += eval ? flops * (attention ? 3.5 : 3) : flops;
    }
  }
  if (needed == 0 || done == 0)
    return nullptr;
  return std::max(0.0, done / needed - 1);
}

json recomputeReport(const plan::Plan &plan, const cost::PlanCost &cost, const json &said) {
  json report = said.is_object() ? said : json::object();
  report.emplace("mode", "none");
  report.emplace("layers", json::array());
  if (!report.contains("flops_overhead"))
    report["flops_overhead"] = recomputedFraction(plan, cost);
  return report;
}

json costReport(const plan::Plan &plan, const cost::PlanCost &cost, const cost::DeviceSpec &spec) {
  json report = {{"device", spec.name},
                 {"description", spec.description},
                 {"step_seconds", cost.stepSeconds},
                 {"tokens_per_second_per_device", cost.tokensPerSecond},
                 {"mfu_causal", cost.mfuCausal},
                 {"mfu_full", cost.mfuFull},
                 {"peak_flops", cost.peakFlops},
                 {"peak_is_of_a_machine", spec.host},
                 {"peak_dtype", dtypeText(plan.compute_dtype())},
                 {"functions", json::array()},
                 {"kinds", json::array()}};
  struct Kind {
    uint64_t commands = 0;
    double seconds = 0, flops = 0, bytes = 0;
    std::array<double, cost::kNumBounds> byBound{};
  };
  std::map<std::string, Kind> kinds; // totals of one optimizer step
  std::array<double, cost::kNumBounds> byBound{};
  for (unsigned f = 0; f < cost.functions.size(); ++f) {
    const plan::Function &function = *plan.functions()->Get(f);
    const cost::FunctionCost &entry = cost.functions[f];
    double runs = double(entry.runsPerStep);
    report["functions"].push_back({{"name", function.name()->str()},
                                   {"seconds", entry.seconds},
                                   {"runs_per_step", entry.runsPerStep}});
    for (unsigned c = 0; runs > 0 && c < entry.commands.size(); ++c) {
      const cost::Estimate &estimate = entry.commands[c];
      if (function.commands()->Get(c)->stream() != 0)
        continue; // its Wait has the seconds that this command adds to the step
      Kind &kind = kinds[plan::commandName(*function.commands()->Get(c))];
      kind.commands += entry.runsPerStep;
      kind.seconds += runs * estimate.seconds;
      kind.flops += runs * estimate.flops;
      kind.bytes += runs * estimate.bytes;
      kind.byBound[size_t(estimate.bound)] += runs * estimate.seconds;
      byBound[size_t(estimate.bound)] += runs * estimate.seconds;
    }
  }
  for (const auto &[name, kind] : kinds) {
    auto bound = cost::Bound(std::ranges::max_element(kind.byBound) - kind.byBound.begin());
    auto perSecond = [&](double number) { return kind.seconds > 0 ? number / kind.seconds : 0; };
    report["kinds"].push_back({{"kind", name},
                               {"commands_per_step", kind.commands},
                               {"seconds_per_step", kind.seconds},
                               {"flops_per_second", perSecond(kind.flops)},
                               {"bytes_per_second", perSecond(kind.bytes)},
                               {"bound", cost::boundName(bound)}});
  }
  llvm::stable_sort(report["kinds"], [](const json &a, const json &b) {
    return a["seconds_per_step"].get<double>() > b["seconds_per_step"].get<double>();
  });
  for (size_t bound = 0; bound < byBound.size(); ++bound)
    report["seconds_by_bound"][std::string(cost::boundName(cost::Bound(bound)))] = byBound[bound];
  return report;
}

// Finds the computation that runs beside a collective, or else why a device must wait for it.
class Beside {
public:
  Beside(const plan::Plan &plan, const plan::Function &function, const cost::FunctionCost &cost,
         const std::string &overlap)
      : plan(plan), function(function), cost(cost), overlap(overlap) {}

  // Adds the time of computation beside `of` to seconds[0] (forward) and seconds[1] (backward).
  void addHidden(const cost::CollectiveTime &of, std::array<double, 2> &seconds) const {
    for (unsigned c = of.command; c < cost.commands.size(); ++c) {
      if (!computes(c))
        continue;
      const double start = cost.starts[c], end = start + cost.commands[c].seconds;
      if (start >= of.end)
        return;
      seconds[function.commands()->Get(c)->backward()] +=
          std::max(0.0, std::min(of.end, end) - std::max(of.start, start));
    }
  }

  std::string whyExposed(const cost::CollectiveTime &of) const {
    const plan::Command &command = *function.commands()->Get(of.command);
    if (command.stream() != 0)
      return "too little to compute beside it";
    if (names::isMicroStep(function.name()->string_view())) {
      if (overlap == "no")
        return why("no overlap");
      if (overlap == "gathers" &&
          command.body_as_Collective()->kind() != plan::CollectiveKind::AllGather)
        return why("only weights overlap");
    }
    bool isFirst = true, isLast = true;
    for (unsigned c = 0; c < function.commands()->size(); ++c)
      if (computes(c) && c < of.command)
        isFirst = false;
      else if (computes(c) && text(function.commands()->Get(c)->source()) != text(command.source()))
        isLast = false; // this later work does not wait for the result
    return isFirst  ? "nothing to compute before it"
           : isLast ? "nothing left to compute"
                    : "what comes next needs it";
  }

private:
  // Adds the limit to `what`: distributed.overlap if the job sets it, otherwise the memory budget.
  std::string why(const std::string &what) const {
    const bool isOwn = cost::settingOf(plan, "distributed.overlap") != "auto";
    return what + (isOwn ? ": distributed.overlap" : ": budget");
  }
  // Returns true if command `c` is a computation, not a collective or a wait.
  bool computes(unsigned c) const {
    const plan::Command &command = *function.commands()->Get(c);
    return !command.body_as_Collective() && !command.body_as_Wait();
  }

  const plan::Plan &plan;
  const plan::Function &function;
  const cost::FunctionCost &cost;
  const std::string overlap;
};

// Returns the link speeds between devices and between nodes that the plan was compiled for.
json linksOf(const plan::Plan &plan) {
  json links = json::array();
  if (plan.links())
    for (const plan::Link *link : *plan.links())
      links.push_back({{"kind", link->kind() == plan::LinkKind::Device ? "device" : "node"},
                       {"base_seconds", link->base()},
                       {"latency_seconds", link->latency()},
                       {"bandwidth", link->bandwidth()}});
  return links;
}

json axisSpeedsOf(const plan::Plan &plan) {
  json speeds = json::array();
  if (plan.axis_speeds())
    for (const plan::AxisSpeed *speed : *plan.axis_speeds())
      speeds.push_back({{"axis", nameOf(speed->axis())},
                        {"latency_seconds", speed->latency()},
                        {"bandwidth", speed->bandwidth()}});
  return speeds;
}

// Returns the collectives of an optimizer step. Collectives that differ in no member of the struct
// `Collective` share one entry. `overlap` is "yes", "gathers" or "no".
json commReport(const plan::Plan &plan, const cost::PlanCost &cost, const std::string &overlap) {
  struct Collective {
    std::string function, kind, axis, source, dtype;
    uint64_t payload = 0; // bytes of the whole tensor
    auto operator<=>(const Collective &) const = default;
  };
  struct Total {
    uint64_t runs = 0;
    double seconds = 0, bytes = 0, exposed = 0;
    std::array<double, 2> hidden{}; // seconds beside the forward pass, beside the backward pass
    std::map<std::string, double> exposedBy; // exposed seconds, by the reason
  };
  // Entries are in the order of the commands in the plan.
  llvm::MapVector<Collective, Total, std::map<Collective, unsigned>> totals;
  double seconds = 0, sent = 0;
  for (unsigned f = 0; f < plan.functions()->size(); ++f) {
    const plan::Function &function = *plan.functions()->Get(f);
    const double runs = double(cost.functions[f].runsPerStep);
    if (runs == 0)
      continue;
    const Beside beside(plan, function, cost.functions[f], overlap);
    for (const cost::CollectiveTime &time : cost.functions[f].collectives) {
      const plan::Command &command = *function.commands()->Get(time.command);
      const plan::Collective &body = *command.body_as_Collective();
      const cost::Estimate &estimate = cost.functions[f].commands[time.command];
      // Removes the number of the unit: "weights/unit.3" becomes "weights".
      std::string source = text(command.source());
      source = body.axis() == plan::Axis::Expert ? "experts" : source.substr(0, source.find('/'));
      const Collective key{
          function.name()->str(),
          plan::commandName(command),
          nameOf(body.axis()),
          source,
          dtypeOf(plan, body.x()),
          std::max(plan.slices()->Get(body.x())->bytes(), plan.slices()->Get(body.d())->bytes())};
      Total &total = totals[key];
      total.runs += cost.functions[f].runsPerStep;
      total.seconds += runs * (time.end - time.start);
      total.bytes += runs * estimate.bytes;
      total.exposed += runs * time.exposed;
      beside.addHidden(time, total.hidden);
      if (time.exposed > 0)
        total.exposedBy[beside.whyExposed(time)] += time.exposed;
      seconds += runs * (time.end - time.start);
      sent += runs * estimate.bytes;
    }
  }
  json collectives = json::array();
  for (const auto &[key, total] : totals) {
    auto most = llvm::max_element(total.exposedBy, llvm::less_second());
    json hiddenBy = json::array();
    for (bool isBackward : {false, true})
      if (total.hidden[isBackward] > 0)
        hiddenBy.push_back(isBackward ? "backward" : "forward");
    collectives.push_back(
        {{"function", key.function},
         {"kind", key.kind},
         {"axis", key.axis},
         {"source", key.source},
         {"dtype", key.dtype},
         {"payload_bytes", key.payload},
         {"runs_per_step", total.runs},
         {"sent_bytes_per_step", total.bytes},
         {"seconds_per_step", total.seconds},
         {"exposed_seconds_per_step", total.exposed},
         {"hidden_by", std::move(hiddenBy)},
         {"exposed_because", most == total.exposedBy.end() ? json() : json(most->first)}});
  }
  return {{"ranks", plan.batch()->ranks()},
          {"shard_ranks", plan.shard_ranks()},
          {"replicate_ranks", plan.batch()->ranks() / plan.shard_ranks()},
          {"sent_bytes_per_step", sent},
          {"seconds_per_step", seconds},
          {"exposed_seconds_per_step", cost.exposedSeconds},
          {"slowed_seconds_per_step", cost.slowedSeconds},
          {"overlap", overlap},
          {"collectives", std::move(collectives)},
          {"links_of_spec", text(plan.device_spec())},
          {"links", linksOf(plan)},
          {"axis_speeds", axisSpeedsOf(plan)}};
}

// Returns the job's steps, tokens and hours; null if the plan does not state the number of steps.
json jobReport(const plan::Plan &plan, const cost::PlanCost &cost) {
  std::string_view text = cost::settingOf(plan, "training.train_iters");
  uint64_t steps = 0;
  std::from_chars(text.data(), text.data() + text.size(), steps);
  if (steps == 0)
    return nullptr;
  const double tokens = double(steps) * double(plan.batch()->global_batch_size()) *
                        double(plan.batch()->sequence_length());
  return {{"steps", steps},
          {"tokens", tokens},
          {"tokens_per_parameter", tokens / double(plan.model()->parameters())},
          {"hours", double(steps) * cost.stepSeconds / 3600}};
}

json functionsReport(const plan::Plan &plan, const cost::PlanCost &cost) {
  json functions = json::array();
  for (unsigned f = 0; f < plan.functions()->size(); ++f) {
    const plan::Function &function = *plan.functions()->Get(f);
    json commands = json::array();
    std::map<std::string, uint64_t> counts;
    for (unsigned c = 0; c < function.commands()->size(); ++c) {
      const plan::Command &command = *function.commands()->Get(c);
      const cost::Estimate &estimate = cost.functions[f].commands[c];
      std::string kind = plan::commandName(command);
      json entry = {{"kind", kind},
                    {"source", text(command.source())},
                    {"backward", command.backward()},
                    {"start_seconds", cost.functions[f].starts[c]},
                    {"seconds", estimate.seconds},
                    {"bytes", uint64_t(estimate.bytes)},
                    {"bound", cost::boundName(estimate.bound)}};
      if (const plan::Launch *launch = command.body_as_Launch()) {
        entry["kernel"] = plan.kernels()->Get(launch->kernel())->name()->str();
        entry["items"] = launch->items();
        entry["chunk"] = launch->chunk();
      } else if (const plan::Gemm *gemm = plan::productOf(command)) {
        entry["m"] = gemm->m();
        entry["n"] = gemm->n();
        entry["k"] = gemm->k();
        if (gemm->batch() > 1)
          entry["batch"] = gemm->batch();
        entry["accumulate"] = plan::accumulates(*gemm);
        entry["residual"] = plan::residualOf(*gemm) >= 0;
        entry["transpose_a"] = gemm->transpose_a();
        entry["transpose_b"] = gemm->transpose_b();
        entry["dtype"] = dtypeOf(plan, gemm->a());
        entry["result_dtype"] = dtypeOf(plan, gemm->d());
        entry["product_seconds"] = estimate.seconds - cost.functions[f].behindProducts[c];
      }
      ++counts[kind];
      commands.push_back(std::move(entry));
    }
    functions.push_back({{"name", function.name()->str()},
                         {"commands", std::move(commands)},
                         {"counts", counts},
                         {"peak_workspace_bytes", function.peak_workspace_bytes()}});
  }
  return functions;
}

codegen::TargetCode::Grid gridOf(const plan::Kernel &kernel) {
  const auto &blocks = *kernel.grid();
  return {{blocks.Get(0), blocks.Get(1), blocks.Get(2)},
          kernel.threads(),
          kernel.shared_bytes(),
          kernel.registers(),
          kernel.spill_bytes(),
          kernel.stack_bytes()};
}

// Returns the registers, shared memory and so on of a CUDA kernel; {} for other kernels.
json resourcesReport(const plan::Plan &plan, const plan::Kernel &kernel) {
  if (!kernel.grid())
    return json::object();
  std::string arch = plan.target()->str();
  arch.erase(0, arch.find(':') + 1);
  json report = {{"arch", arch},
                 {"grid", gridOf(kernel).blocks},
                 {"threads", kernel.threads()},
                 {"registers", kernel.registers()},
                 {"shared_bytes", kernel.shared_bytes()},
                 {"spill_bytes", kernel.spill_bytes()},
                 {"stack_bytes", kernel.stack_bytes()},
                 {"code_bytes", plan.modules()->Get(kernel.module_())->image()->size()}};
  if (kernel.blocks_per_sm() > 0)
    report["blocks_per_sm"] = kernel.blocks_per_sm();
  const codegen::Target *target = codegen::findTarget(plan.target()->string_view());
  if (!target)
    return report;
  if (auto filled = target->occupancy(plan.target()->string_view(), gridOf(kernel)))
    report["occupancy"] = filled->threads;
  return report;
}

json kernelsReport(const plan::Plan &plan, const cost::PlanCost &cost) {
  std::vector<uint64_t> launches(plan.kernels()->size(), 0);
  for (const plan::Function *function : *plan.functions())
    for (const plan::Command *command : *function->commands())
      for (const plan::Launch *launch : plan::launchesOf(*command))
        ++launches[launch->kernel()];
  json kernels = json::array();
  for (unsigned i = 0; i < plan.kernels()->size(); ++i) {
    const plan::Kernel &kernel = *plan.kernels()->Get(i);
    const cost::KernelCost &spent = cost.kernels[i];
    json sources = json::array();
    if (kernel.source_ops())
      for (const flatbuffers::String *source : *kernel.source_ops())
        sources.push_back(source->str());
    json entry = {{"name", kernel.name()->str()},
                  {"hero", text(kernel.hero())},
                  {"source_ops", sources},
                  {"launches", launches[i]},
                  {"launches_per_step", spent.launches},
                  {"bytes_per_item", kernel.bytes_per_item()},
                  {"flops_per_item", kernel.flops_per_item()},
                  {"read_bytes", kernel.read_bytes()},
                  {"written_bytes", kernel.written_bytes()},
                  {"seconds", spent.launch.seconds},
                  {"seconds_per_step", spent.seconds},
                  {"bound", cost::boundName(spent.launch.bound)}};
    entry.update(resourcesReport(plan, kernel));
    kernels.push_back(std::move(entry));
  }
  return kernels;
}

} // namespace

// Returns the reports in the plan as an object. Its keys are their names, such as "recompute".
static json reportsOf(const plan::Plan &plan) {
  json reports = json::object();
  if (plan.reports())
    for (const plan::Report *entry : *plan.reports())
      if (json said = json::parse(entry->json()->str(), nullptr, false); !said.is_discarded())
        reports[entry->name()->str()] = std::move(said);
  return reports;
}

std::vector<std::string> lmc::warningsIn(const plan::Plan &plan) {
  return reportsOf(plan).value("warnings", std::vector<std::string>());
}

// Returns the job's setting of distributed.overlap. For "auto", returns the compiler's choice.
static std::string overlapOf(const plan::Plan &plan, const json &chosen) {
  std::string setting(cost::settingOf(plan, "distributed.overlap"));
  if (chosen.is_object())
    return chosen.value("chosen", setting);
  return setting == "auto" ? "yes" : setting;
}

json lmc::explainJson(const plan::Plan &plan, const cost::DeviceSpec &spec) {
  json report = reportsOf(plan);
  report["target"] = plan.target()->str();
  report["fingerprint"] = plan.fingerprint()->str();
  report["compiler_version"] = plan.compiler_version()->str();
  report["model"] = {{"architecture", plan.model()->architecture()->str()},
                     {"parameters", plan.model()->parameters()},
                     {"flops_per_token_causal", plan.model()->flops_per_token_causal()},
                     {"flops_per_token_full", plan.model()->flops_per_token_full()}};
  const plan::BatchInfo &batch = *plan.batch();
  report["batch"] = {{"gbs", batch.global_batch_size()},
                     {"mbs", batch.micro_batch_size()},
                     {"gas", batch.gradient_accumulation_steps()},
                     {"ranks", batch.ranks()},
                     {"sequence_length", batch.sequence_length()},
                     {"tokens_per_step", batch.global_batch_size() * batch.sequence_length()}};
  const auto model = codegen::costModelOf(plan.target()->string_view(), spec);
  cost::PlanCost cost = cost::planCost(plan, *model);
  report["memory"] = memoryReport(plan, memoryTimeline(plan), spec);
  report["fusion"] = fusionReport(plan, spec, report.value("fusion", json()));
  report["recompute"] = recomputeReport(plan, cost, report.value("recompute", json()));
  report["cost"] = costReport(plan, cost, spec);
  if (const int64_t experts = cost::sameExperts(plan)) {
    const cost::PlanCost same = cost::planCost(plan, *model, cost::Routing::SameExperts);
    report["cost"]["same_experts"] = {{"experts", experts},
                                      {"step_seconds", same.stepSeconds},
                                      {"ratio", same.stepSeconds / cost.stepSeconds}};
  }
  if (const auto forecast = cost::eightBitsForecast(plan, *model))
    report["cost"]["fp8"] = {{"products_seconds", forecast->products},
                             {"fp8_products_seconds", forecast->eightBits},
                             {"casts_seconds", forecast->casts},
                             {"step_seconds", forecast->stepSeconds},
                             {"ratio", cost.stepSeconds / forecast->stepSeconds}};
  report["comm"] = commReport(plan, cost, overlapOf(plan, report.value("overlap", json())));
  report["job"] = jobReport(plan, cost);
  report["functions"] = functionsReport(plan, cost);
  report["kernels"] = kernelsReport(plan, cost);
  report["warnings"] = warningsIn(plan);
  return report;
}

std::string lmc::budgetError(const plan::Plan &plan, const std::string &path, uint64_t budget,
                             uint64_t smallestBudget) {
  constexpr size_t kBuffers = 5;
  MemoryTimeline timeline = memoryTimeline(plan);
  uint64_t planned = plannedBytes(plan);
  const bool isOwn = cost::settingOf(plan, "memory.budget") != "0";
  std::string message = fmt::format(
      "{}: error: {} {}, but the plan needs {}; the smallest budget that works is {} bytes ({})\n"
      "  what takes the memory:\n",
      path, isOwn ? "memory.budget is" : "device spec '" + text(plan.device_spec()) + "' leaves",
      readableBytes(double(budget)), readableBytes(double(planned)), smallestBudget,
      readableBytes(double(smallestBudget)));
  for (const auto &[bytes, category] : largestFirst(breakdown(plan, timeline)))
    if (bytes * 1000 >= double(planned))
      message += fmt::format("  {:>14}  {}\n", readableBytes(bytes), category);
  if (const json peak = peakReport(plan, timeline); !peak.is_null()) {
    message += fmt::format("  the largest buffers at the peak ({}, command {}, {}):\n",
                           word(peak, "function"), number(peak, "command"), word(peak, "source"));
    for (const json &buffer : peak["largest"] | std::views::take(kBuffers))
      message += fmt::format("  {:>14}  {:<12} {}\n", bytesOf(buffer["bytes"]),
                             word(buffer, "category"), word(buffer, "source"));
  }
  message.pop_back();
  return message;
}
