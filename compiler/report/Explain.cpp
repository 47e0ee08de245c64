#include "compiler/report/Explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

using namespace lmc;
using nlohmann::json;

namespace {

// The moment at which a function needs the most workspace, and what is alive then.
struct Peak {
  uint64_t bytes = 0; // distinct bytes in use
  int command = -1;
  std::map<std::string, uint64_t> byCategory;
  std::vector<const plan::Slice *> live; // largest first
};

// Total length of the union of [offset, offset + bytes) over `slices`.
uint64_t unionBytes(std::vector<const plan::Slice *> slices) {
  std::sort(slices.begin(), slices.end(),
            [](const plan::Slice *a, const plan::Slice *b) { return a->offset() < b->offset(); });
  uint64_t total = 0, covered = 0;
  for (const plan::Slice *slice : slices) {
    uint64_t end = slice->offset() + slice->bytes();
    uint64_t begin = std::max(slice->offset(), covered);
    if (end > begin)
      total += end - begin;
    covered = std::max(covered, end);
  }
  return total;
}

Peak findPeak(const plan::Plan &plan, int function) {
  std::vector<const plan::Slice *> own;
  for (const plan::Slice *slice : *plan.slices())
    if (slice->function() == function)
      own.push_back(slice);
  Peak peak;
  int commands = int(plan.functions()->Get(unsigned(function))->commands()->size());
  for (int command = 0; command < commands; ++command) {
    std::vector<const plan::Slice *> live;
    for (const plan::Slice *slice : own)
      if (slice->first_command() <= command && command <= slice->last_command())
        live.push_back(slice);
    uint64_t bytes = unionBytes(live);
    if (bytes <= peak.bytes)
      continue;
    peak.bytes = bytes;
    peak.command = command;
    peak.live = std::move(live);
  }
  std::map<std::string, std::vector<const plan::Slice *>> groups;
  for (const plan::Slice *slice : peak.live)
    groups[plan::EnumNameCategory(slice->category())].push_back(slice);
  for (auto &[category, slices] : groups)
    peak.byCategory[category] = unionBytes(slices);
  std::sort(peak.live.begin(), peak.live.end(),
            [](const plan::Slice *a, const plan::Slice *b) { return a->bytes() > b->bytes(); });
  return peak;
}

// "OptimizerState" becomes "optimizer_state".
std::string snakeCase(const std::string &name) {
  std::string out;
  for (char c : name) {
    if (c >= 'A' && c <= 'Z') {
      if (!out.empty())
        out += '_';
      c = char(c - 'A' + 'a');
    }
    out += c;
  }
  return out;
}

json explainMemory(const plan::Plan &plan) {
  json memory;
  uint64_t total = 0, bound = 0;
  for (const plan::Arena *arena : *plan.arenas()) {
    memory["arenas"].push_back({{"name", arena->name()->str()},
                                {"bytes", arena->bytes()},
                                {"lower_bound_bytes", arena->lower_bound_bytes()}});
    total += arena->bytes();
    bound += arena->lower_bound_bytes();
  }
  memory["peak_bytes"] = total;
  memory["lower_bound_bytes"] = bound;

  std::map<std::string, uint64_t> categories;
  for (const plan::Variable *variable : *plan.variables()) {
    const plan::Slice *slice = plan.slices()->Get(variable->slice());
    categories[snakeCase(plan::EnumNameCategory(slice->category()))] += slice->bytes();
  }
  Peak worst;
  int worstFunction = -1;
  uint64_t activations = 0;
  for (unsigned i = 0; i < plan.functions()->size(); ++i) {
    Peak peak = findPeak(plan, int(i));
    memory["functions"].push_back({{"name", plan.functions()->Get(i)->name()->str()},
                                   {"peak_bytes", peak.bytes},
                                   {"peak_command", peak.command}});
    activations = std::max(activations, peak.byCategory["Activations"]);
    if (peak.bytes > worst.bytes) {
      worst = std::move(peak);
      worstFunction = int(i);
    }
  }
  uint64_t accounted = 0;
  for (const auto &[category, bytes] : worst.byCategory) {
    categories[snakeCase(category)] += bytes;
    accounted += bytes;
  }
  memory["activation_bytes"] = activations;
  uint64_t workspace = plan.arenas()->size() > 1 ? plan.arenas()->Get(1)->bytes() : 0;
  if (workspace > accounted)
    categories["fragmentation"] = workspace - accounted;
  uint64_t sum = 0;
  for (const auto &[category, bytes] : categories)
    sum += bytes;
  if (total > sum) // rounding of variables to the arena's alignment
    categories["alignment"] = total - sum;
  memory["by_category"] = categories;
  if (worstFunction >= 0) {
    const plan::Function *function = plan.functions()->Get(unsigned(worstFunction));
    memory["peak"] = {{"function", function->name()->str()}, {"command", worst.command}};
    for (size_t i = 0; i < std::min<size_t>(worst.live.size(), 10); ++i)
      memory["peak"]["largest"].push_back(
          {{"source", worst.live[i]->name() ? worst.live[i]->name()->str() : ""},
           {"category", snakeCase(plan::EnumNameCategory(worst.live[i]->category()))},
           {"bytes", worst.live[i]->bytes()}});
  }
  return memory;
}

std::string mebibytes(uint64_t bytes) { return fmt::format("{:.1f} MiB", double(bytes) / 1048576); }

} // namespace

json lmc::explainJson(const plan::Plan &plan) {
  json report;
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
  report["memory"] = explainMemory(plan);

  // What a phase reported, under the report's name ("recompute").
  if (plan.reports())
    for (const plan::Report *entry : *plan.reports())
      report[entry->name()->str()] = json::parse(entry->json()->str(), nullptr, false);

  std::vector<uint64_t> launches(plan.kernels()->size(), 0);
  report["functions"] = json::array();
  for (const plan::Function *function : *plan.functions()) {
    json commands = json::array();
    std::map<std::string, uint64_t> counts;
    for (const plan::Command *command : *function->commands()) {
      std::string kind = snakeCase(plan::EnumNameCommandBody(command->body_type()));
      json entry = {{"kind", kind},
                    {"source", command->source() ? command->source()->str() : ""}};
      if (const plan::Launch *launch = command->body_as_Launch()) {
        ++launches[launch->kernel()];
        entry["kernel"] = plan.kernels()->Get(launch->kernel())->name()->str();
        entry["items"] = launch->items();
        entry["chunk"] = launch->chunk();
      } else if (const plan::Gemm *gemm = command->body_as_Gemm()) {
        entry["m"] = gemm->m();
        entry["n"] = gemm->n();
        entry["k"] = gemm->k();
        entry["accumulate"] = gemm->c() >= 0;
      }
      ++counts[kind];
      commands.push_back(std::move(entry));
    }
    report["functions"].push_back({{"name", function->name()->str()},
                                   {"commands", std::move(commands)},
                                   {"counts", counts},
                                   {"peak_workspace_bytes", function->peak_workspace_bytes()}});
  }
  report["kernels"] = json::array();
  for (unsigned i = 0; i < plan.kernels()->size(); ++i) {
    const plan::Kernel *kernel = plan.kernels()->Get(i);
    json sources = json::array();
    if (kernel->source_ops())
      for (const flatbuffers::String *source : *kernel->source_ops())
        sources.push_back(source->str());
    report["kernels"].push_back({{"name", kernel->name()->str()},
                                 {"hero", kernel->hero() ? kernel->hero()->str() : ""},
                                 {"source_ops", sources},
                                 {"launches", launches[i]},
                                 {"bytes_per_item", kernel->bytes_per_item()},
                                 {"flops_per_item", kernel->flops_per_item()}});
  }
  return report;
}

std::string lmc::explainText(const json &report, const ExplainSections &sections) {
  std::string text;
  auto line = [&](const std::string &content) { text += content + "\n"; };
  auto number = [](const json &value) { return value.get<uint64_t>(); };
  line(fmt::format("{} with {} parameters for {}", report["model"]["architecture"].get<std::string>(),
                   number(report["model"]["parameters"]), report["target"].get<std::string>()));
  const json &batch = report["batch"];
  line(fmt::format("GBS {} = MBS {} x GAS {} x {} rank(s), sequences of {} tokens: {} tokens a step",
                   number(batch["gbs"]), number(batch["mbs"]), number(batch["gas"]),
                   number(batch["ranks"]), number(batch["sequence_length"]),
                   number(batch["tokens_per_step"])));
  if (sections.memory) {
    const json &memory = report["memory"];
    if (report.contains("recompute"))
      line("recompute: " + report["recompute"].value("mode", ""));
    line(fmt::format("\nmemory: {} (lower bound {})", mebibytes(number(memory["peak_bytes"])),
                     mebibytes(number(memory["lower_bound_bytes"]))));
    std::vector<std::pair<uint64_t, std::string>> categories;
    for (const auto &[category, bytes] : memory["by_category"].items())
      categories.push_back({number(bytes), category});
    std::sort(categories.rbegin(), categories.rend());
    for (const auto &[bytes, category] : categories)
      line(fmt::format("  {:<18} {:>14}", category, mebibytes(bytes)));
    if (memory.contains("peak")) {
      line(fmt::format("  peak in {} at command {}; the largest buffers then:",
                       memory["peak"]["function"].get<std::string>(),
                       memory["peak"]["command"].get<int>()));
      if (memory["peak"].contains("largest"))
        for (const json &buffer : memory["peak"]["largest"])
          line(fmt::format("    {:>14}  {:<12} {}", mebibytes(number(buffer["bytes"])),
                           buffer["category"].get<std::string>(),
                           buffer["source"].get<std::string>()));
    }
  }
  if (sections.kernels) {
    line(fmt::format("\nkernels: {}", report["kernels"].size()));
    for (const json &kernel : report["kernels"])
      line(fmt::format("  {:<44} {:<16} x{:<6} {} B/item", kernel["name"].get<std::string>(),
                       kernel["hero"].get<std::string>(), number(kernel["launches"]),
                       number(kernel["bytes_per_item"])));
  }
  if (sections.commands) {
    line("\nfunctions:");
    for (const json &function : report["functions"]) {
      std::string counts;
      for (const auto &[kind, count] : function["counts"].items())
        counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", number(count), kind);
      line(fmt::format("  {:<12} {:>6} commands ({}), {} of workspace",
                       function["name"].get<std::string>(), function["commands"].size(), counts,
                       mebibytes(number(function["peak_workspace_bytes"]))));
    }
  }
  return text;
}
