// Prints the report for a terminal. Everything comes from the JSON report, so that both agree.
#include "compiler/report/Explain.h"
#include "compiler/report/Fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <ranges>
#include <vector>

using namespace lmc;
using nlohmann::json;

namespace {

std::string percent(double fraction) { return fmt::format("{:.1f}%", fraction * 100); }

// Returns the largest members of an object of numbers: "activations 91.0 MiB, gradients 9.2 MiB".
template <typename Print>
std::string largest(const json &object, size_t count, const Print &print) {
  std::string text;
  for (const auto &[value, name] : largestFirst(object) | std::views::take(count))
    if (value > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, print(value));
  return text;
}

// Returns the distinct names in a list: "swiglu, up_proj". A line has about 110 characters at most.
// Lines after the first are indented by `indent` spaces.
std::string listed(const json &names, size_t indent) {
  std::vector<std::string> distinct;
  for (const json &name : names)
    if (name.is_string() && std::ranges::count(distinct, name.get<std::string>()) == 0)
      distinct.push_back(name.get<std::string>());
  std::string text;
  size_t column = indent;
  for (const std::string &name : distinct) {
    if (!text.empty()) {
      text += ", ";
      if (column + name.size() > 110) {
        text.back() = '\n';
        text.append(indent, ' ');
        column = indent;
      }
    }
    text += name;
    column += name.size() + 2;
  }
  return text;
}

std::string withoutNumbers(const std::string &text) {
  std::string kept;
  for (char c : text)
    if (!std::isdigit(static_cast<unsigned char>(c)))
      kept += c;
    else if (kept.empty() || kept.back() != '#')
      kept += '#';
  return kept;
}

// Returns the number of fusions in a list. An entry may count for several fusions.
uint64_t timesOf(const json &entries) {
  uint64_t times = 0;
  for (const json &entry : entries)
    times += entry.value("times", uint64_t(1));
  return times;
}

std::string timesText(uint64_t times) { return times > 1 ? fmt::format(" x {}", times) : ""; }

// Fusions that the report shows together in one line.
struct FoldedFusions {
  std::vector<const json *> entries; // the first one saves the most bytes
  uint64_t times = 0;
  double bytes = 0; // bytes that all of them save together

  void add(const json &entry) {
    uint64_t count = entry.value("times", uint64_t(1));
    times += count;
    bytes += double(count) * number(entry, "bytes");
    entries.push_back(&entry);
    if (number(entry, "bytes") > number(*entries[0], "bytes"))
      std::swap(entries[0], entries.back());
  }
};

// Groups entries that have an equal key(entry). The group with the most bytes comes first.
template <typename Key> std::vector<FoldedFusions> folded(const json &entries, const Key &key) {
  std::map<std::string, FoldedFusions> byKey;
  for (const json &entry : entries)
    byKey[key(entry)].add(entry);
  std::vector<FoldedFusions> groups;
  for (auto &[name, group] : byKey)
    groups.push_back(std::move(group));
  std::ranges::stable_sort(groups, std::ranges::greater(), &FoldedFusions::bytes);
  return groups;
}

// Returns the names of a pair of ops, consumer first: "lm.rms_norm <- lm.add".
std::string pairText(const json &entry) {
  return word(entry, "consumer") + " <- " + word(entry, "producer");
}

std::string mfuText(const json &cost) {
  return fmt::format("MFU {} causal, {} full, of {} dense {}{}; {} a device",
                     percent(number(cost["mfu_causal"])), percent(number(cost["mfu_full"])),
                     flopsOf(cost["peak_flops"]), word(cost, "peak_dtype"),
                     cost.value("peak_is_of_a_machine", false)
                         ? " of the spec's machine (lmc-run counts from it on such a machine)"
                         : "",
                     readableFlops(number(cost["mfu_causal"]) * number(cost["peak_flops"])));
}

std::string ratioText(const json &entry) {
  return entry["ratio"].is_number() ? fmt::format("{:.2f}", number(entry["ratio"])) : "-";
}

class Text {
public:
  explicit Text(const json &report) : report(report) {}

  template <typename... Args> void line(fmt::format_string<Args...> format, Args &&...args) {
    text += fmt::format(format, std::forward<Args>(args)...);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }

  void summary() {
    const json &batch = report["batch"], &memory = report["memory"], &cost = report["cost"];
    const json &fusion = report["fusion"], &overhead = report["recompute"]["flops_overhead"];
    line("{} with {} parameters for {}", word(report["model"], "architecture"),
         report["model"]["parameters"].get<uint64_t>(), word(report, "target"));
    line("GBS {} = MBS {} x GAS {} x {} rank(s), sequences of {} tokens: {} tokens a step",
         number(batch["gbs"]), number(batch["mbs"]), number(batch["gas"]), number(batch["ranks"]),
         number(batch["sequence_length"]), number(batch["tokens_per_step"]));
    const double planned = number(memory["peak_bytes"]), budget = number(memory["budget_bytes"]);
    line("{}: {} planned, {} of the budget of {}", planned <= budget ? "fits" : "DOES NOT FIT",
         readableBytes(planned), percent(planned / std::max(1.0, budget)), readableBytes(budget));
    line("needs most for: {}", largest(memory["by_category"], 4, readableBytes));
    line("speed, predicted for {}: {} tokens/s per device, a step in {}", word(cost, "device"),
         countOf(cost["tokens_per_second_per_device"]), secondsOf(cost["step_seconds"]));
    line("{}", mfuText(cost));
    const double step = std::max(1e-30, number(cost["step_seconds"]));
    line("waits for: {}", largest(cost["seconds_by_bound"], 3,
                                  [&](double seconds) { return percent(seconds / step); }));
    line("computes again for the backward pass: {}",
         !overhead.is_number()     ? "unknown"
         : number(overhead) < 5e-4 ? "no matrix products"
                                   : percent(number(overhead)) + " more matrix FLOPs");
    if (fusion.contains("bytes_per_token"))
      line("a layer launches {} kernels forward, {} backward, beside products and attention",
           number(fusion["kernels_per_layer_forward"]),
           number(fusion["kernels_per_layer_backward"]));
    if (const json &job = report["job"]; job.is_object())
      line("the job: {} steps, {} tokens ({:.2f} per parameter), {:.2f} hours on {} device(s)",
           number(job["steps"]), countOf(job["tokens"]), number(job["tokens_per_parameter"]),
           number(job["hours"]), number(batch["ranks"]));
    if (!report.contains("micro_batch"))
      return;
    line("MBS was chosen; tokens/s per device, predicted, of those tried:");
    for (const json &attempt : report["micro_batch"].value("attempts", json::array()))
      line("  {:>6} {:>12}  {:>10}{}", number(attempt["mbs"]),
           countOf(attempt["tokens_per_second_per_device"]), bytesOf(attempt["peak_bytes"]),
           attempt.value("fits", true) ? "" : "  does not fit");
  }

  void warnings() {
    text += hintsText(report.value("hints", json::array()));
    for (const json &warning : report["warnings"])
      line("warning: {}", warning.get<std::string>());
  }

  void memory() {
    const json &memory = report["memory"];
    double planned = number(memory["peak_bytes"]), bound = number(memory["lower_bound_bytes"]);
    line("\nmemory: {} planned, {} above the lower bound of {}; budget {}", readableBytes(planned),
         percent(bound > 0 ? planned / bound - 1 : 0), readableBytes(bound),
         bytesOf(memory["budget_bytes"]));
    for (const auto &[size, category] : largestFirst(memory["by_category"]))
      line("  {:<18} {:>12}", category, readableBytes(size));
    line("  held for the backward pass at most: {}", bytesOf(memory["activation_bytes"]));
    if (memory.contains("host_copy"))
      line("  of the host's memory: {} on a rank, {} on a node, for the copy of the state that "
           "checkpoints are written from",
           bytesOf(memory["host_copy"]["rank_bytes"]), bytesOf(memory["host_copy"]["node_bytes"]));
    if (report.contains("loss_chunk"))
      lossChunk(report["loss_chunk"]);
    padding("vocabulary", "the head's weights have {} rows for {} tokens", "vocab_size", "the head",
            "the head");
    padding("intermediate", "the MLPs have {} columns for intermediate_size = {}",
            "intermediate_size", "them", "the MLPs");
    line("  workspace by phase       peak   activations  at");
    for (const json &phase : memory["phases"]) {
      std::string name = word(phase, "function");
      if (!word(phase, "phase").empty())
        name += " " + word(phase, "phase");
      line("    {:<20} {:>10}  {:>10}  command {} {}", name, bytesOf(phase["peak_bytes"]),
           bytesOf(phase["by_category"], "activations"), phase["peak_command"].get<int>(),
           word(phase, "peak_source"));
    }
    if (!memory.contains("peak"))
      return;
    line("  peak in {} at command {} ({}); the largest buffers then:",
         word(memory["peak"], "function"), memory["peak"]["command"].get<int>(),
         word(memory["peak"], "source"));
    for (const json &buffer : memory["peak"]["largest"])
      line("    {:>12}  {:<12} {}", bytesOf(buffer["bytes"]), word(buffer, "category"),
           word(buffer, "source"));
  }

  // Prints the cost and the gain of a padded size, if report[key] describes one. The format string
  // `sizes` takes the padded and the original size. target.make_<setting>_divisible_by is the key
  // in the configuration. Padding adds work to `in`, to make matrix products of `products` faster.
  void padding(const char *key, const char *sizes, const char *setting, const char *in,
               const char *products) {
    if (!report.contains(key))
      return;
    const json &size = report[key];
    const double padded = number(size["padded"]), own = number(size["size"]);
    line("  {} (target.make_{}_divisible_by = {}), {} more to compute in {}",
         fmt::format(fmt::runtime(sizes), padded, own), setting, number(size["multiple"]),
         percent(padded / own - 1), in);
    const std::string bytes = bytesOf(size["added_bytes"]);
    if (!size.contains("seconds_per_step")) {
      line("    it adds {} of state", bytes);
      return;
    }
    const double with = number(size["seconds_per_step"]),
                 without = number(size["unpadded_seconds_per_step"]);
    line("    it adds {} of state; the products of {} take {} per step instead of {} ({}{}), "
         "predicted",
         bytes, products, readableSeconds(with), readableSeconds(without),
         with > without ? "+" : "", percent(with / without - 1));
  }

  // Prints the tokens per chunk of the loss, and the sizes among which the compiler chose.
  void lossChunk(const json &chunk) {
    const json candidates = chunk.value("candidates", json::array());
    line("  the loss takes {} tokens at a time ({} of logits){}", number(chunk["tokens"]),
         bytesOf(chunk["logits_bytes"]),
         candidates.empty() ? "" : ", which the fastest plan within the budget does; there were:");
    if (candidates.empty())
      return;
    line("      tokens      logits  predicted time of a token outside of the layers");
    for (const json &candidate : candidates)
      line("    {:>8}  {:>10}  {:.3f} us", number(candidate["tokens"]),
           bytesOf(candidate["logits_bytes"]), number(candidate["seconds_per_token"]) * 1e6);
  }

  void fusion(bool showsAll) {
    const json &fusion = report["fusion"];
    const json chunks = report.value("loss_chunk", json());
    if (!fusion.contains("bytes_per_token"))
      return line("\nfusion: the plan has no micro-step");
    line("\nfusion: {} kernels a layer forward, {} backward (products and attention not counted)",
         number(fusion["kernels_per_layer_forward"]), number(fusion["kernels_per_layer_backward"]));
    auto traffic = [&](const char *name, const char *moved, const char *floor) {
      const double at = number(fusion[moved]);
      if (fusion[floor].is_null())
        return line("  {:<22} {:>12} a token", name, readableBytes(at));
      line("  {:<22} {:>12} a token, {:.2f} of the floor of {}", name, readableBytes(at),
           at / number(fusion[floor]), bytesOf(fusion[floor]));
    };
    line("  memory traffic of a micro-step but products and attention:");
    traffic("layers", "layers_bytes_per_token", "floor_layers_bytes_per_token");
    traffic("embedding, head, loss", "head_bytes_per_token", "floor_head_bytes_per_token");
    traffic("together", "bytes_per_token", "floor_bytes_per_token");
    line("  main gradients that products read and write:");
    traffic("all", "gradient_bytes_per_token", "floor_gradient_bytes_per_token");
    line("  {:<22} {:>12} a token{}", "head", bytesOf(fusion["gradient_head_bytes_per_token"]),
         chunks.is_object() ? fmt::format(", once for {} tokens", number(chunks["tokens"])) : "");
    if (!fusion.contains("formed") && !fusion.contains("refused"))
      return line("  the plan does not say which fusions were formed");
    formed(fusion.value("formed", json::array()));
    refused(fusion.value("refused", json::array()), showsAll);
  }

  void formed(const json &entries) {
    line("  formed: {}{}", timesOf(entries),
         entries.empty() ? ""
                         : " (second op <- first op, and the memory traffic that one run saves)");
    auto keyOf = [](const json &entry) {
      return fmt::format("{} {} {}", word(entry, "hero"), pairText(entry),
                         entry.value("bytes", json(0)).dump());
    };
    for (const FoldedFusions &same : folded(entries, keyOf)) {
      const json &entry = *same.entries[0];
      std::string functions;
      for (const json *each : same.entries)
        if (std::string name = word(*each, "function"); !name.empty())
          functions += (functions.empty() ? "  in " : ", ") + name;
      line("    {:<16} {}  saves {}{}{}", word(entry, "hero"), pairText(entry),
           bytesOf(entry, "bytes"), timesText(same.times), functions);
    }
  }

  void refused(const json &entries, bool showsAll) {
    line("  refused: {}{}", timesOf(entries), entries.empty() || showsAll ? "" : ", by reason:");
    if (showsAll) {
      for (const json &entry : entries)
        line("    {}  would save {}{}: {}", pairText(entry), bytesOf(entry, "bytes"),
             timesText(entry.value("times", uint64_t(1))), word(entry, "reason"));
      return;
    }
    auto keyOf = [](const json &entry) { return withoutNumbers(word(entry, "reason")); };
    for (const FoldedFusions &same : folded(entries, keyOf)) {
      const json &most = *same.entries[0];
      line("    {:>4} x {}", same.times, word(most, "reason"));
      line("           together {}; the largest is {}  {}", readableBytes(same.bytes),
           pairText(most), bytesOf(most, "bytes"));
    }
  }

  void recompute(const json &recompute) {
    const json overhead = recompute.value("flops_overhead", json());
    const json layers = recompute.value("layers", json::array()); // index of each layer's option
    line("\nrecompute: {}{}", word(recompute, "mode"),
         overhead.is_number() ? fmt::format(", {} more matrix FLOPs", percent(number(overhead)))
                              : "");
    if (recompute.contains("options")) {
      line("  per layer and micro-step: bytes kept for the backward pass, bytes that are live "
           "only in");
      line("  the layer's backward pass, and the predicted time of what is computed again");
      line("  options of a layer         kept    transient       time  computed again");
      size_t index = 0;
      for (const json &option : recompute["options"]) {
        const size_t takers = takersOf(layers, index);
        const std::string again = listed(option.value("recomputed", json::array()), 62);
        line("    {:>2} {:<14} {:>11}  {:>11}  {:>9}  {}", index, word(option, "name"),
             bytesOf(option, "kept_bytes"), bytesOf(option, "transient_bytes"),
             secondsOf(option, "seconds"), again.empty() ? "nothing" : again);
        if (takers > 0)
          line("       taken by {} layer(s)", takers);
        ++index;
      }
    }
    if (!layers.empty()) {
      // Lists layers with the same option in a row: "0-11: 2" is option 2 of layers 0 to 11.
      std::string runs;
      for (size_t first = 0; first < layers.size();) {
        size_t last = first;
        while (last + 1 < layers.size() && layers[last + 1] == layers[first])
          ++last;
        runs += fmt::format("{}{}: {}", runs.empty() ? "" : ", ",
                            first == last ? fmt::format("{}", first)
                                          : fmt::format("{}-{}", first, last),
                            layers[first].dump());
        first = last + 1;
      }
      line("  option by layer: {}", runs);
    }
    for (const json &attempt : recompute.value("attempts", json::array()))
      line("  tried {}{}: peak {}, {}", word(attempt, "options"),
           number(attempt, "loss_chunk") > 0
               ? fmt::format(", loss in chunks of {}", number(attempt["loss_chunk"]))
               : "",
           bytesOf(attempt, "peak_bytes"), secondsOf(attempt, "seconds"));
  }

  void cost() {
    const json &cost = report["cost"];
    line("\ncost, predicted for {} ({}):", word(cost, "device"), word(cost, "description"));
    line("  a step takes {}: {} tokens/s per device", secondsOf(cost["step_seconds"]),
         countOf(cost["tokens_per_second_per_device"]));
    line("  {}", mfuText(cost));
    if (cost.contains("same_experts")) {
      const json &same = cost["same_experts"];
      line(
          "  if all tokens chose the same {} expert(s), a step would take {}, {:.2f} times as long",
          number(same["experts"]), secondsOf(same["step_seconds"]), number(same["ratio"]));
    }
    if (cost.contains("fp8")) {
      const json &fp8 = cost["fp8"];
      line("  with training.fp8 = \"tensor\" a step would take {}, {:.2f} times the rate: products "
           "of "
           "layers {} and not {}, casts {} (no rate of 8-bit floats is measured)",
           secondsOf(fp8["step_seconds"]), number(fp8["ratio"]),
           secondsOf(fp8["fp8_products_seconds"]), secondsOf(fp8["products_seconds"]),
           secondsOf(fp8["casts_seconds"]));
    }
    double step = std::max(1e-30, number(cost["step_seconds"]));
    line("  function          runs       each  of the step");
    for (const json &function : cost["functions"])
      if (number(function["runs_per_step"]) > 0)
        line("    {:<14} {:>5} {:>10}  {:>7}", word(function, "name"),
             number(function["runs_per_step"]), secondsOf(function["seconds"]),
             percent(number(function["seconds"]) * number(function["runs_per_step"]) / step));
    line("  commands                 time  of the step        reaches        moves  bound by");
    for (const json &kind : cost["kinds"])
      line("    {:<15} {:>10}  {:>11}  {:>13}  {:>11}  {}", word(kind, "kind"),
           secondsOf(kind["seconds_per_step"]), percent(number(kind["seconds_per_step"]) / step),
           flopsOf(kind["flops_per_second"]), bandwidthOf(kind["bytes_per_second"]),
           word(kind, "bound"));
  }

  // Prints the first entries of a list of the section `measured`.
  template <typename Name>
  void measuredList(const json &entries, const Name &nameOf, bool showsBound) {
    constexpr size_t kShown = 20;
    for (size_t i = 0; i < std::min(kShown, entries.size()); ++i) {
      const json &entry = entries[i];
      line("    {:<52} {:>6} {:>10}  {:>10}  {:>6}  {}", nameOf(entry),
           fmt::format("x{}", number(entry["runs_per_step"])), secondsOf(entry["seconds"]),
           secondsOf(entry["predicted_seconds"]), ratioText(entry),
           showsBound ? word(entry, "bound") : "");
    }
    if (entries.size() > kShown)
      line("    ... and {} more, in --json", entries.size() - kShown);
  }

  void measured() {
    if (!report.contains("measured"))
      return;
    const json &measured = report["measured"];
    line("\nmeasured on {}, steps {} to {}, command by command:", word(measured, "device"),
         number(measured["first_step"]), number(measured["last_step"]));
    line("  a step takes {}, predicted {}: {} times as long", secondsOf(measured["step_seconds"]),
         secondsOf(measured["predicted_step_seconds"]), ratioText(measured));
    line("  the largest differences of a step first:");
    line("  {:<54} {:>6} {:>10}  {:>10}  {:>6}", "function", "a step", "measured", "predicted",
         "ratio");
    measuredList(
        measured["functions"], [](const json &entry) { return word(entry, "name"); }, false);
    line("  commands that do the same");
    measuredList(
        measured["kernels"], [](const json &entry) { return word(entry, "title"); }, true);
    line("  single commands");
    measuredList(
        measured["commands"],
        [](const json &entry) {
          return fmt::format("{} {} {}", word(entry, "function"), number(entry["command"]),
                             word(entry, "source"));
        },
        true);
    if (!measured.contains("fitted"))
      return;
    line("  fitted numbers of the spec         before       after  commands");
    for (const json &fitted : measured["fitted"])
      line("    {:<28} {:>10.4g}  {:>10.4g}  {:>8}", word(fitted, "key"), number(fitted["before"]),
           number(fitted["after"]), number(fitted["commands"]));
  }

  // Prints the compiler's choice for a key of [distributed], and the values that it tried.
  void fastest(const char *key) {
    if (!report.contains(key))
      return;
    const json &choice = report[key];
    std::vector<std::string> attempts;
    bool fits = false;
    for (const json &attempt : choice["attempts"]) {
      const bool isPlanned = attempt.contains("fits"),
                 itFits = isPlanned && attempt["fits"].get<bool>();
      fits |= itFits;
      const std::string what =
          itFits      ? countOf(attempt["tokens_per_second_per_device"]) + " tokens/s"
          : isPlanned ? "does not fit"
                      : fmt::format("at most {} tokens/s (not planned)",
                                    countOf(attempt["at_most_tokens_per_second_per_device"]));
      attempts.push_back(fmt::format("{} {}", word(attempt, key), what));
    }
    line("  distributed.{} = {} {}: {}", key, word(choice, "chosen"),
         fits ? "is the fastest within the budget" : "takes the least memory",
         fmt::join(attempts, ", "));
  }

  void comm() {
    const json &comm = report["comm"];
    if (number(comm["ranks"]) == 1)
      return line("\ncommunication: one rank, none");
    line("\ncommunication of {} ranks ({} divide the state, {} copies of it):",
         number(comm["ranks"]), number(comm["shard_ranks"]), number(comm["replicate_ranks"]));
    const double exposed = number(comm["exposed_seconds_per_step"]);
    line("  a rank sends {} in a step, in {}; for {} of it the device waits, {:.1f}% of the step",
         bytesOf(comm["sent_bytes_per_step"]), secondsOf(comm["seconds_per_step"]),
         readableSeconds(exposed),
         100 * exposed / std::max(number(report["cost"]["step_seconds"]), 1e-30));
    if (const double slowed = number(comm["slowed_seconds_per_step"]); slowed > 0)
      line("  commands beside collectives take {} longer, {:.1f}% of the step: collectives have "
           "processors for themselves ([link.*] processors)",
           readableSeconds(slowed),
           100 * slowed / std::max(number(report["cost"]["step_seconds"]), 1e-30));
    if (report.contains("reshard")) {
      const json &reshard = report["reshard"];
      if (const size_t layers = reshard["kept_layers"].size())
        line("  {} layer(s) keep their weights for the backward pass: {}, which saves {} in a step",
             layers, bytesOf(reshard["kept_bytes"]), secondsOf(reshard["saved_seconds_per_step"]));
      else
        line("  all layers gather their weights again for the backward pass");
    }
    for (const char *key : {"reduce_gradients", "overlap"})
      fastest(key);
    line("  {:<14} {:<10} {:<24} {:>6} {:>12} {:>12} {:>12} {:>12}  {}", "collective", "axis", "of",
         "runs", "a tensor of", "sends", "takes", "waits", "beside; why it waits");
    for (const json &each : comm["collectives"]) {
      const std::string beside = listed(each["hidden_by"], 0);
      const bool isExposed = each["exposed_because"].is_string();
      line("  {:<14} {:<10} {:<24} {:>6} {:>12} {:>12} {:>12} {:>12}  {}{}", word(each, "kind"),
           word(each, "axis"), fmt::format("{} ({})", word(each, "source"), word(each, "function")),
           number(each["runs_per_step"]), bytesOf(each["payload_bytes"]),
           bytesOf(each["sent_bytes_per_step"]), secondsOf(each["seconds_per_step"]),
           secondsOf(each["exposed_seconds_per_step"]), beside.empty() ? "nothing" : beside,
           isExposed ? "; " + word(each, "exposed_because") : "");
    }
    const std::string spec = word(comm, "links_of_spec");
    for (const json &link : comm["links"])
      line("  assumed of a link {}: {} + {} and {:.4g} GB/s per device ([link.{}] of '{}')",
           word(link, "kind") == "device" ? "inside a node" : "between nodes",
           secondsOf(link["base_seconds"]), secondsOf(link["latency_seconds"]),
           number(link["bandwidth"]) / 1e9, word(link, "kind"), spec);
    for (const json &speed : comm["axis_speeds"])
      line("  assumed of an all-gather along {}: {} and {:.4g} GB/s; lmc-run --preflight "
           "measures it",
           word(speed, "axis"), secondsOf(speed["latency_seconds"]),
           number(speed["bandwidth"]) / 1e9);
  }

  void kernels() {
    line("\nkernels: {}", report["kernels"].size());
    const std::vector<const json *> kernels = kernelsByTime(report);
    line("  name                                          hero              a step       each    "
         "together  bound by");
    for (const json *kernel : kernels)
      line("  {:<45} {:<16} {:>7} {:>10}  {:>10}  {}", word(*kernel, "name"), word(*kernel, "hero"),
           fmt::format("x{}", number((*kernel)["launches_per_step"])),
           number((*kernel)["launches_per_step"]) > 0 ? secondsOf((*kernel)["seconds"]) : "-",
           secondsOf((*kernel)["seconds_per_step"]), word(*kernel, "bound"));
    resources(kernels);
  }

  // Prints the registers, shared memory and so on of CUDA kernels, in the order of `kernels`.
  void resources(const std::vector<const json *> &kernels) {
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
               ? fmt::format("{} ({:.0f}%)", number(kernel->value("blocks_per_sm", json(0))),
                             number((*kernel)["occupancy"]) * 100)
               : "");
    }
  }

  void commands() {
    line("\nfunctions:");
    for (const json &function : report["functions"]) {
      std::string counts;
      for (const auto &[kind, count] : function["counts"].items())
        counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", number(count), kind);
      line("  {:<12} {:>6} commands ({}), {} of workspace", word(function, "name"),
           function["commands"].size(), counts, bytesOf(function["peak_workspace_bytes"]));
    }
  }

  const json &report;
  std::string text;
};

} // namespace

std::string lmc::explainText(const json &report, const ExplainSections &requested, bool all) {
  Text text(report);
  text.summary();
  text.warnings();
  if (all || requested.memory)
    text.memory();
  if (all || requested.fusion)
    text.fusion(/*showsAll=*/requested.fusion);
  if (all || requested.recompute)
    text.recompute(report["recompute"]);
  if (all || requested.cost) {
    text.cost();
    text.measured();
  }
  if (all || requested.comm)
    text.comm();
  if (all || requested.kernels)
    text.kernels();
  if (all || requested.commands)
    text.commands();
  return std::move(text.text);
}

std::string lmc::hintsText(const json &hints) {
  if (hints.empty())
    return "";
  std::string text = "  what would help, each by itself (bytes saved, and bytes then needed):\n";
  bool isEnough = false;
  for (const json &hint : hints) {
    const bool suffices = hint["suffices"];
    text += fmt::format("  {:>14}  {:>10}  {}{}\n", bytesOf(hint["saved_bytes"]),
                        bytesOf(hint["peak_bytes"]), word(hint, "change"),
                        suffices ? ": suffices" : "");
    isEnough |= suffices;
  }
  if (!isEnough)
    text += "  none of these suffices, nor do those on the same devices together\n";
  return text;
}

std::string lmc::fusionsText(const json &fusions) {
  Text text(fusions);
  text.formed(fusions["formed"]);
  text.refused(fusions["refused"], /*showsAll=*/false);
  return std::move(text.text);
}

std::string lmc::recomputeText(const json &recompute) {
  Text text(recompute);
  text.recompute(recompute);
  return std::move(text.text);
}
