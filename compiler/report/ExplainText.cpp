// The report for a terminal: from the JSON alone, so that both say the same.
#include "compiler/report/Explain.h"
#include "compiler/report/Units.h"

#include <fmt/format.h>

#include <algorithm>

using namespace lmc;
using nlohmann::json;

namespace {

double number(const json &value) { return value.is_number() ? value.get<double>() : 0; }

std::string word(const json &object, const char *key) {
  auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

std::string bytes(const json &value) { return readableBytes(number(value)); }
std::string percent(double fraction) { return fmt::format("{:.1f}%", fraction * 100); }

class Text {
public:
  explicit Text(const json &report) : report(report) {}

  template <typename... Args> void line(fmt::format_string<Args...> format, Args &&...args) {
    text += fmt::format(format, std::forward<Args>(args)...);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }

  void heading();
  void memory();
  void fusion();
  void recompute();
  void cost();
  void comm();
  void kernels();
  void resources(const std::vector<const json *> &kernels);
  void commands();

  const json &report;
  std::string text;
};

void Text::heading() {
  const json &batch = report["batch"];
  line("{} with {} parameters for {}", word(report["model"], "architecture"),
       report["model"]["parameters"].get<uint64_t>(), word(report, "target"));
  line("GBS {} = MBS {} x GAS {} x {} rank(s), sequences of {} tokens: {} tokens a step",
       number(batch["gbs"]), number(batch["mbs"]), number(batch["gas"]), number(batch["ranks"]),
       number(batch["sequence_length"]), number(batch["tokens_per_step"]));
  if (!report.contains("micro_batch"))
    return;
  line("MBS was chosen; tokens/s per device, predicted, of those tried:");
  for (const json &attempt : report["micro_batch"].value("attempts", json::array()))
    line("  {:>6} {:>12}  {:>10}{}", number(attempt["mbs"]),
         readableCount(number(attempt["tokens_per_second_per_device"])),
         bytes(attempt["peak_bytes"]), attempt.value("fits", true) ? "" : "  does not fit");
}

void Text::memory() {
  const json &memory = report["memory"];
  double planned = number(memory["peak_bytes"]), bound = number(memory["lower_bound_bytes"]);
  line("\nmemory: {} planned, {} above the lower bound of {}; budget {}", readableBytes(planned),
       percent(bound > 0 ? planned / bound - 1 : 0), readableBytes(bound),
       bytes(memory["budget_bytes"]));
  std::vector<std::pair<double, std::string>> categories;
  for (const auto &[category, size] : memory["by_category"].items())
    categories.push_back({number(size), category});
  std::sort(categories.rbegin(), categories.rend());
  for (const auto &[size, category] : categories)
    line("  {:<18} {:>12}", category, readableBytes(size));
  line("  held for the backward pass at most: {}", bytes(memory["activation_bytes"]));
  line("  workspace by phase       peak   activations  at");
  for (const json &phase : memory["phases"]) {
    std::string name = word(phase, "function");
    if (!word(phase, "phase").empty())
      name += " " + word(phase, "phase");
    line("    {:<20} {:>10}  {:>10}  command {} {}", name, bytes(phase["peak_bytes"]),
         readableBytes(number(phase["by_category"].value("activations", json(0)))),
         phase["peak_command"].get<int>(), word(phase, "peak_source"));
  }
  if (!memory.contains("peak"))
    return;
  line("  peak in {} at command {} ({}); the largest buffers then:",
       word(memory["peak"], "function"), memory["peak"]["command"].get<int>(),
       word(memory["peak"], "source"));
  for (const json &buffer : memory["peak"]["largest"])
    line("    {:>12}  {:<12} {}", bytes(buffer["bytes"]), word(buffer, "category"),
         word(buffer, "source"));
}

void Text::fusion() {
  const json &fusion = report["fusion"];
  if (!fusion.contains("bytes_per_token"))
    return line("\nfusion: the plan has no micro-step");
  line("\nfusion: {} kernels a layer forward, {} backward (products and attention not counted)",
       number(fusion["kernels_per_layer_forward"]), number(fusion["kernels_per_layer_backward"]));
  auto traffic = [&](const char *name, const char *moved, const char *floor) {
    const double at = number(fusion[moved]);
    if (fusion[floor].is_null())
      return line("  {:<22} {:>12} a token", name, readableBytes(at));
    line("  {:<22} {:>12} a token, {:.2f} of the floor of {}", name, readableBytes(at),
         at / number(fusion[floor]), bytes(fusion[floor]));
  };
  line("  memory traffic of a micro-step but products and attention:");
  traffic("layers", "layers_bytes_per_token", "floor_layers_bytes_per_token");
  traffic("embedding, head, loss", "head_bytes_per_token", "floor_head_bytes_per_token");
  traffic("together", "bytes_per_token", "floor_bytes_per_token");
  if (!fusion.contains("formed") && !fusion.contains("refused"))
    return line("  the plan does not say which fusions were formed");
  if (fusion.contains("formed") && !fusion["formed"].empty()) {
    line("  formed: {}", fusion["formed"].size());
    for (const json &entry : fusion["formed"])
      line("    {:<16} {} <- {}  saves {}{}", word(entry, "hero"), word(entry, "consumer"),
           word(entry, "producer"), bytes(entry.value("bytes", json(0))),
           word(entry, "function").empty() ? "" : "  in " + word(entry, "function"));
  }
  if (fusion.contains("merged") && !fusion["merged"].empty()) {
    line("  merged products: {}", fusion["merged"].size());
    for (const json &entry : fusion["merged"]) {
      std::string gemms;
      for (const json &gemm : entry.value("gemms", json::array()))
        if (gemm.is_string())
          gemms += (gemms.empty() ? "" : ", ") + gemm.get<std::string>();
      line("    {}  {}", gemms, word(entry, "reason"));
    }
  }
  if (fusion.contains("refused") && !fusion["refused"].empty()) {
    line("  refused: {}", fusion["refused"].size());
    for (const json &entry : fusion["refused"])
      line("    {} <- {}  would save {}: {}", word(entry, "consumer"), word(entry, "producer"),
           bytes(entry.value("bytes", json(0))), word(entry, "reason"));
  }
}

void Text::recompute() {
  const json &recompute = report["recompute"];
  const json &overhead = recompute["flops_overhead"];
  line("\nrecompute: {}{}", word(recompute, "mode"),
       overhead.is_number() ? fmt::format(", {} more matrix FLOPs", percent(number(overhead)))
                            : "");
  if (recompute.contains("options")) {
    line("  options of a layer         kept    transient       time  computed again");
    size_t index = 0;
    for (const json &option : recompute["options"]) {
      size_t layers = 0;
      for (const json &choice : recompute["layers"])
        layers += choice.is_number() && choice.get<size_t>() == index;
      std::string again;
      for (const json &op : option.value("recomputed", json::array()))
        if (op.is_string())
          again += (again.empty() ? "" : ", ") + op.get<std::string>();
      line("    {:>2} {:<14} {:>11}  {:>11}  {:>9}  {}", index, word(option, "name"),
           bytes(option.value("kept_bytes", json(0))),
           bytes(option.value("transient_bytes", json(0))),
           readableSeconds(number(option.value("seconds", json(0)))),
           again.empty() ? "nothing" : again);
      if (layers > 0)
        line("       taken by {} layer(s)", layers);
      ++index;
    }
  }
  if (!recompute["layers"].empty()) {
    // Runs of layers with the same option: "0-11: 2, 12-15: 0".
    std::string runs;
    const json &layers = recompute["layers"];
    for (size_t first = 0; first < layers.size();) {
      size_t last = first;
      while (last + 1 < layers.size() && layers[last + 1] == layers[first])
        ++last;
      runs +=
          fmt::format("{}{}: {}", runs.empty() ? "" : ", ",
                      first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last),
                      layers[first].dump());
      first = last + 1;
    }
    line("  option by layer: {}", runs);
  }
  for (const json &attempt : recompute.value("attempts", json::array()))
    line("  tried {}: peak {}, {}",
         attempt.contains("rung")
             ? (attempt["rung"].is_string() ? word(attempt, "rung") : attempt["rung"].dump())
             : "",
         bytes(attempt.value("peak_bytes", json(0))),
         readableSeconds(number(attempt.value("seconds", json(0)))));
}

void Text::cost() {
  const json &cost = report["cost"];
  line("\ncost, predicted for {} ({}):", word(cost, "device"), word(cost, "description"));
  line("  a step takes {}: {} tokens/s per device", readableSeconds(number(cost["step_seconds"])),
       readableCount(number(cost["tokens_per_second_per_device"])));
  line("  MFU {} causal, {} full, of {} dense {}", percent(number(cost["mfu_causal"])),
       percent(number(cost["mfu_full"])), readableFlops(number(cost["peak_flops"])),
       word(cost, "peak_dtype"));
  double step = std::max(1e-30, number(cost["step_seconds"]));
  line("  function          runs       each  of the step");
  for (const json &function : cost["functions"])
    if (number(function["runs_per_step"]) > 0)
      line("    {:<14} {:>5} {:>10}  {:>7}", word(function, "name"),
           number(function["runs_per_step"]), readableSeconds(number(function["seconds"])),
           percent(number(function["seconds"]) * number(function["runs_per_step"]) / step));
  line("  commands                 time  of the step        reaches        moves  bound by");
  for (const json &kind : cost["kinds"])
    line("    {:<15} {:>10}  {:>11}  {:>13}  {:>11}  {}", word(kind, "kind"),
         readableSeconds(number(kind["seconds_per_step"])),
         percent(number(kind["seconds_per_step"]) / step),
         readableFlops(number(kind["flops_per_second"])),
         readableBandwidth(number(kind["bytes_per_second"])), word(kind, "bound"));
}

void Text::comm() {
  const json &comm = report["comm"];
  if (number(comm["ranks"]) == 1)
    return line("\ncommunication: one rank, none");
  line("\ncommunication: {} ranks, {} collectives", number(comm["ranks"]),
       comm["collectives"].size());
}

void Text::kernels() {
  line("\nkernels: {}", report["kernels"].size());
  std::vector<const json *> kernels;
  for (const json &kernel : report["kernels"])
    kernels.push_back(&kernel);
  std::stable_sort(kernels.begin(), kernels.end(), [](const json *a, const json *b) {
    return number((*a)["seconds_per_step"]) > number((*b)["seconds_per_step"]);
  });
  line("  name                                          hero              a step       each    "
       "together  bound by");
  for (const json *kernel : kernels)
    line("  {:<45} {:<16} {:>7} {:>10}  {:>10}  {}", word(*kernel, "name"), word(*kernel, "hero"),
         fmt::format("x{}", number((*kernel)["launches_per_step"])),
         number((*kernel)["launches_per_step"]) > 0 ? readableSeconds(number((*kernel)["seconds"]))
                                                    : "-",
         readableSeconds(number((*kernel)["seconds_per_step"])), word(*kernel, "bound"));
  resources(kernels);
}

// What CUDA kernels take, in the same order.
void Text::resources(const std::vector<const json *> &kernels) {
  if (kernels.empty() || !kernels[0]->contains("registers"))
    return;
  line("  for {}, of a thread and of a block:", word(*kernels[0], "arch"));
  line("  name                                             blocks  threads  registers  spills"
       "    shared  on an SM");
  for (const json *kernel : kernels) {
    const json &grid = (*kernel)["grid"];
    line("  {:<45} {:>9} {:>8} {:>10} {:>7} {:>9}  {}", word(*kernel, "name"),
         number(grid[0]) * number(grid[1]) * number(grid[2]), number((*kernel)["threads"]),
         number((*kernel)["registers"]), number((*kernel)["spill_bytes"]),
         number((*kernel)["shared_bytes"]),
         kernel->contains("occupancy")
             ? fmt::format("{} ({:.0f}%)", number((*kernel)["blocks_per_sm"]),
                           number((*kernel)["occupancy"]) * 100)
             : "");
  }
}

void Text::commands() {
  line("\nfunctions:");
  for (const json &function : report["functions"]) {
    std::string counts;
    for (const auto &[kind, count] : function["counts"].items())
      counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", number(count), kind);
    line("  {:<12} {:>6} commands ({}), {} of workspace", word(function, "name"),
         function["commands"].size(), counts, bytes(function["peak_workspace_bytes"]));
  }
}

} // namespace

std::string lmc::explainText(const json &report, const ExplainSections &sections) {
  Text text(report);
  text.heading();
  if (sections.memory)
    text.memory();
  if (sections.fusion)
    text.fusion();
  if (sections.recompute)
    text.recompute();
  if (sections.cost)
    text.cost();
  if (sections.comm)
    text.comm();
  if (sections.kernels)
    text.kernels();
  if (sections.commands)
    text.commands();
  return std::move(text.text);
}
