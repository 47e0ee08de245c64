#include "compiler/report/Explain.h"

#include "compiler/analysis/Fusion.h"
#include "compiler/report/BlockGraph.h"
#include "compiler/report/Fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>

using nlohmann::json;

namespace lmc {
namespace {

constexpr double kWidth = 1080; // width of every drawing, in SVG units

constexpr const char *kStyle = R"css(
:root { --ink: #1c2126; --soft: #5c6670; --rule: #d5dae0; --paper: #ffffff; --panel: #f5f7f9;
  --node: #ffffff; --budget: #c0272d; --bound: #1f6f43; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --soft: #9aa5b0; --rule: #39424c; --paper: #14181c; --panel: #1c2228;
    --node: #242c34; --budget: #ff7a7f; --bound: #6fd39b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 20px 60px; max-width: 1400px; background: var(--paper);
  color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 40px 0 6px; }
p { margin: 4px 0 12px; color: var(--soft); max-width: 80ch; }
.figures { display: flex; flex-wrap: wrap; gap: 10px; margin: 18px 0; }
.figures div { background: var(--panel); border: 1px solid var(--rule); border-radius: 6px;
  padding: 8px 14px; min-width: 150px; }
.figures b { display: block; font-size: 20px; }
.figures span { color: var(--soft); font-size: 13px; }
table { border-collapse: collapse; margin: 8px 0 16px; font-size: 14px; }
th, td { text-align: left; padding: 3px 16px 3px 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th { color: var(--soft); font-weight: 600; } td.n, th.n { text-align: right; white-space: nowrap; }
code { font: 13px ui-monospace, monospace; }
.wide { overflow-x: auto; } svg { display: block; max-width: 100%; height: auto; }
.wide svg { max-width: none; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg text.soft { fill: var(--soft); }
svg .mono { font: 11px ui-monospace, monospace; } svg .title { font-weight: 600; }
svg .rule { stroke: var(--rule); fill: none; } svg .node { fill: var(--node); stroke-width: 1.5; }
svg .edge { stroke: var(--soft); fill: none; stroke-width: 1.2; }
svg .kept { stroke: #f28e2b; fill: none; stroke-width: 1.2; opacity: .55; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 6px 0; font-size: 13px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin-right: 6px;
  vertical-align: -1px; }
details { margin: 6px 0 16px; } summary { cursor: pointer; color: var(--soft); }
)css";

struct Colour {
  const char *name, *label, *colour;
};
// The areas of the memory chart, from bottom to top.
constexpr Colour kCategoryColours[] = {
    {"parameters", "parameters", "#4e79a7"},
    {"compute_copies", "compute copies", "#76b7b2"},
    {"gradients", "gradients", "#59a14f"},
    {"optimizer_state", "optimizer state", "#9c755f"},
    {"other", "tables, inputs, scalars", "#bab0ac"},
    {"activations", "activations", "#f28e2b"},
    {"temporaries", "temporaries", "#edc948"},
    {"library_workspace", "library workspace", "#b07aa1"},
};
constexpr Colour kKindColours[] = {
    {"gemm", "matrix product", "#4e79a7"},
    {"linear_swiglu", "matrix product with SwiGLU", "#4e79a7"},
    {"swiglu_linear_grad", "matrix product with SwiGLU's gradient", "#4e79a7"},
    {"attention", "attention", "#b07aa1"},
    {"attention_grad", "attention gradient", "#7d4f8c"},
    {"launch", "generated kernel", "#f28e2b"},
    {"scatter_add", "scatter", "#e15759"},
    {"copy", "copy", "#8f9aa3"},
};

const char *kindColour(const std::string &kind) {
  for (const Colour &known : kKindColours)
    if (kind == known.name)
      return known.colour;
  return "#8f9aa3";
}

// Escapes text for XML, which does not allow most control characters.
std::string escape(const std::string &text) {
  std::string out;
  for (char c : text)
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  return out;
}

// Returns the bytes between two ticks, such as 50 MiB. An axis to `most` bytes has 5 to 11 ticks.
double tickStep(double most) {
  double unit = most >= 1 << 30 ? 1 << 30 : most >= 1 << 20 ? 1 << 20 : 1 << 10;
  double step = std::pow(10, std::floor(std::log10(std::max(1.0, most / unit) / 4)));
  for (double factor : {5.0, 2.0})
    if (most / unit / (step * factor) >= 4)
      return step * factor * unit;
  return step * unit;
}

class Page {
public:
  Page(const plan::Plan &plan, const json &report) : plan(plan), report(report) {}

  std::string run(const std::string &title) {
    add("<!DOCTYPE html>");
    add("<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head><meta "
        "charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width, "
        "initial-scale=1\"/><title>{}</title>",
        escape(title));
    add("<style>{}</style></head><body>", kStyle);
    add("<h1>{}</h1>", escape(title));
    summary();
    memory();
    graph();
    schedule();
    tables();
    add("</body></html>");
    return std::move(html);
  }

private:
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    html += fmt::format(format, std::forward<Args>(args)...);
    html += '\n';
  }
  void figure(const std::string &value, const std::string &label) {
    add("<div><b>{}</b><span>{}</span></div>", escape(value), escape(label));
  }
  template <size_t N> void legend(const Colour (&colours)[N]) {
    add("<div class=\"legend\">");
    for (const Colour &colour : colours)
      add("<span><i style=\"background:{}\"></i>{}</span>", colour.colour, colour.label);
    add("</div>");
  }

  // Begins a table after the text `before`; the caller ends the table. `kinds` has one letter per
  // column: c (code), n (numbers) or t (text).
  void table(const char *kinds, std::initializer_list<std::string> heads,
             const std::string &before = "") {
    columns = kinds;
    html += before + "<table>";
    row(heads, "th");
  }
  void row(std::initializer_list<std::string> cells, const char *tag = "td") {
    html += "<tr>";
    for (const char *kind = columns; const std::string &cell : cells) {
      const bool isCode = *kind == 'c' && tag == std::string_view("td");
      html += fmt::format("<{0}{1}>{2}</{0}>", tag, *kind++ == 'n' ? " class=\"n\"" : "",
                          isCode ? "<code>" + escape(cell) + "</code>" : escape(cell));
    }
    html += "</tr>\n";
  }

  void summary() {
    const json &cost = report["cost"], &memory = report["memory"], &batch = report["batch"];
    add("<p>{}: {} parameters; GBS {} = MBS {} x GAS {} x {} rank(s), sequences of {} tokens; for "
        "<code>{}</code>, predicted on {}.</p>",
        escape(word(report["model"], "architecture")), countOf(report["model"]["parameters"]),
        number(batch["gbs"]), number(batch["mbs"]), number(batch["gas"]), number(batch["ranks"]),
        number(batch["sequence_length"]), escape(word(report, "target")),
        escape(word(cost, "description")));
    add("<div class=\"figures\">");
    figure(bytesOf(memory["peak_bytes"]), "planned memory");
    figure(bytesOf(memory["activation_bytes"]), "held for the backward pass");
    figure(secondsOf(cost["step_seconds"]), "a step");
    figure(countOf(cost["tokens_per_second_per_device"]), "tokens/s per device");
    figure(
        fmt::format("{:.1f}%", 100 * number(cost["mfu_causal"])),
        fmt::format("MFU causal, of {} {}", flopsOf(cost["peak_flops"]), word(cost, "peak_dtype")));
    figure(fmt::format("{:.1f}%", 100 * number(cost["mfu_full"])), "MFU full");
    figure(word(report["recompute"], "mode"), "recompute");
    add("</div>");
  }

  // Draws a chart of live bytes by category. The x axis is the commands of an optimizer step.
  void memoryChart() {
    const json &memory = report["memory"];
    struct Part {
      std::string name;
      uint64_t runs;
      const json *live;
      size_t commands;
    };
    std::vector<Part> parts;
    size_t commands = 0;
    for (size_t f = 0; f < memory["functions"].size(); ++f) {
      uint64_t runs = report["cost"]["functions"][f]["runs_per_step"].get<uint64_t>();
      size_t count = report["functions"][f]["commands"].size();
      if (runs == 0 || count == 0)
        continue;
      parts.push_back({word(memory["functions"][f], "name"), runs,
                       &memory["functions"][f]["live_bytes"], count});
      commands += count;
    }
    if (parts.empty())
      return add("<p>The plan has no functions that a step runs.</p>");

    constexpr double left = 64, right = 12, top = 34, chart = 300, bottom = 44;
    double planned = number(memory["peak_bytes"]), bound = number(memory["lower_bound_bytes"]),
           budget = number(memory["budget_bytes"]);
    bool budgetFits = budget <= 1.6 * planned;
    double most = 1.06 * std::max({planned, bound, budgetFits ? budget : 0.0});
    double gap = 10, plot = kWidth - left - right - gap * double(parts.size() - 1);
    auto yOf = [&](double bytes) { return top + chart * (1 - bytes / most); };

    std::map<std::string, double> state; // bytes by the chart's categories
    for (const auto &[category, size] : memory["by_category"].items()) {
      if (category == "tables" || category == "inputs" || category == "scalars" ||
          category == "alignment")
        state["other"] += number(size);
      else if (category == "parameters" || category == "compute_copies" ||
               category == "gradients" || category == "optimizer_state")
        state[category] += number(size);
    }

    add("<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\">", kWidth, top + chart + bottom,
        kWidth);
    for (double bytes = 0; bytes <= most; bytes += tickStep(most)) {
      add("<path class=\"rule\" d=\"M{} {:.1f}H{}\"/><text class=\"soft\" x=\"{}\" y=\"{:.1f}\" "
          "text-anchor=\"end\">{}</text>",
          left, yOf(bytes), kWidth - right, left - 6, yOf(bytes) + 4, readableBytes(bytes));
    }
    double x = left;
    for (const Part &part : parts) {
      double width = plot * double(part.commands) / double(commands);
      double step = width / double(part.commands);
      std::vector<double> base(part.commands, 0); // lower edge of the next area
      for (const Colour &category : kCategoryColours) {
        std::vector<double> upper = base;
        auto live = part.live->find(category.name);
        double constant = state.count(category.name) ? state[category.name] : 0;
        double highest = 0;
        for (size_t c = 0; c < part.commands; ++c) {
          double bytes = constant + (live != part.live->end() ? number((*live)[c]) : 0);
          upper[c] += bytes;
          highest = std::max(highest, bytes);
        }
        if (highest == 0)
          continue;
        auto corners = [&](const std::vector<double> &level, bool backwards) {
          std::string path;
          size_t n = part.commands;
          for (size_t i = 0; i < n; ++i) {
            size_t c = backwards ? n - 1 - i : i;
            bool first = i == 0, last = i == n - 1;
            double from = x + step * double(backwards ? c + 1 : c),
                   to = x + step * double(backwards ? c : c + 1);
            size_t before = backwards ? c + 1 : c - 1, after = backwards ? c - 1 : c + 1;
            if (first || level[before] != level[c])
              path += fmt::format("{}{:.1f} {:.1f}", first && !backwards ? "M" : "L", from,
                                  yOf(level[c]));
            if (last || level[after] != level[c])
              path += fmt::format("L{:.1f} {:.1f}", to, yOf(level[c]));
          }
          return path;
        };
        add("<path fill=\"{}\" d=\"{}{}Z\"><title>{} in {}: at most {}</title></path>",
            category.colour, corners(upper, false), corners(base, true), category.label,
            escape(part.name), readableBytes(highest));
        base = std::move(upper);
      }
      add("<text class=\"title\" x=\"{:.1f}\" y=\"14\">{}{}</text>", x,
          escape(step * double(part.commands) < 60 ? part.name.substr(0, 6) : part.name),
          part.runs > 1 ? fmt::format(" (x{})", part.runs) : "");
      for (const json &phase : memory["phases"]) {
        if (word(phase, "function") != part.name || word(phase, "phase").empty())
          continue;
        double begin = x + step * number(phase["first_command"]),
               end = x + step * (number(phase["last_command"]) + 1);
        add("<path class=\"rule\" stroke-dasharray=\"2 3\" d=\"M{:.1f} {}V{}\"/>", begin, top - 14,
            top + chart + 16);
        if (end - begin > 60)
          add("<text class=\"soft\" x=\"{:.1f}\" y=\"{}\">{}</text>", begin + 4, top + chart + 14,
              escape(word(phase, "phase")));
      }
      x += width + gap;
    }
    auto level = [&](double bytes, const char *colour, const std::string &label, double at) {
      add("<path d=\"M{} {:.1f}H{}\" stroke=\"var({})\" stroke-width=\"1.5\" stroke-dasharray=\"7 "
          "4\" fill=\"none\"/><text x=\"{}\" y=\"{:.1f}\" style=\"fill:var({})\">{}</text>",
          left, yOf(bytes), kWidth - right, colour, at, yOf(bytes) - 5, colour, escape(label));
    };
    if (budgetFits)
      level(budget, "--budget", "budget " + readableBytes(budget), left + 6);
    level(bound, "--bound", "lower bound " + readableBytes(bound), left + 260);
    add("<text class=\"soft\" x=\"{}\" y=\"{}\">commands, in the order in which they run{}</text>",
        left, top + chart + 34,
        budgetFits ? ""
                   : fmt::format("; the budget of {} is above the chart", readableBytes(budget)));
    add("</svg>");
  }

  void memory() {
    const json &memory = report["memory"];
    add("<h2>Memory</h2><p>What each command finds in memory: state below, what the functions make "
        "and drop above. Planned {}, lower bound {}, held for the backward pass at most {}.</p>",
        bytesOf(memory["peak_bytes"]), bytesOf(memory["lower_bound_bytes"]),
        bytesOf(memory["activation_bytes"]));
    legend(kCategoryColours);
    memoryChart();
    table("tn", {"at the peak", "bytes"});
    for (const auto &[size, category] : largestFirst(memory["by_category"]))
      row({category, readableBytes(size)});
    add("</table>");
    if (memory.contains("peak")) {
      add("<p>The largest buffers at the peak, in {} at command {} (<code>{}</code>):</p>",
          escape(word(memory["peak"], "function")), number(memory["peak"]["command"]),
          escape(word(memory["peak"], "source")));
      table("ctn", {"made by", "for", "bytes"});
      for (const json &buffer : memory["peak"]["largest"])
        row({word(buffer, "source"), word(buffer, "category"), bytesOf(buffer["bytes"])});
      add("</table>");
    }
  }

  void graph() {
    BlockGraph graph = blockGraph(plan);
    if (graph.nodes.empty())
      return;
    int step = microStep(plan);
    const json &commands = report["functions"][size_t(step)]["commands"];
    add("<h2>One layer</h2><p>Layer {} of a micro-step: its forward pass on the left, its backward "
        "pass on the right. A box is a command, with the ops that were fused into it; grey lines "
        "are what it reads, orange ones what the forward pass keeps for the backward pass.</p>",
        graph.layer);
    legend(kKindColours);
    add("<div class=\"wide\"><svg viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" role=\"img\">",
        graph.width, graph.height, graph.width);
    const bool backward = std::ranges::any_of(graph.nodes, &GraphNode::backward);
    add("<text class=\"title\" x=\"8\" y=\"16\">{}</text>", backward ? "forward" : "");
    if (backward)
      add("<text class=\"title\" x=\"{:.0f}\" y=\"16\">backward</text>", graph.backwardX);
    // Draws edges of kept values first, so that other edges hide them where they cross.
    for (bool kept : {true, false})
      for (const GraphEdge &edge : graph.edges) {
        if (edge.kept != kept)
          continue;
        const GraphNode &from = graph.nodes[edge.from], &to = graph.nodes[edge.to];
        double x1 = from.x + from.width / 2, y1 = from.y + from.height, x2 = to.x + to.width / 2,
               y2 = to.y;
        double bendX = 0, bendY = std::max(12.0, (y2 - y1) / 2);
        if (kept) {
          x1 = from.x + from.width;
          y1 = from.y + from.height / 2;
          x2 = to.x;
          y2 = to.y + to.height / 2;
          bendX = std::max(40.0, (x2 - x1) / 2);
          bendY = 0;
        }
        add("<path class=\"{}\" d=\"M{:.0f} {:.0f}C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} "
            "{:.0f}\"><title>{}{}</title></path>",
            kept ? "kept" : "edge", x1, y1, x1 + bendX, y1 + bendY, x2 - bendX, y2 - bendY, x2, y2,
            readableBytes(double(edge.bytes)), kept ? " kept" : "");
      }
    for (const GraphNode &node : graph.nodes) {
      const json &command = commands[size_t(node.command)];
      add("<g><title>{}, {} ({})</title><rect class=\"node\" rx=\"5\" x=\"{:.0f}\" y=\"{:.0f}\" "
          "width=\"{:.0f}\" height=\"{:.0f}\" style=\"stroke:{}\"/>",
          escape(word(command, "source")), secondsOf(command["seconds"]),
          escape(word(command, "bound")), node.x, node.y, node.width, node.height,
          kindColour(word(command, "kind")));
      double y = node.y + 18;
      for (size_t i = 0; i < node.lines.size(); ++i, y += 15)
        add("<text class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>",
            i == 0 ? "title" : "soft mono", node.x + 8, y, escape(node.lines[i]));
      add("</g>");
    }
    add("</svg></div>");
  }

  // Draws the commands of the micro-step. Widths are proportional to time, and each stream has a
  // row. Commands of stream 0 have no gaps between them. A command of another stream is drawn below
  // the commands of stream 0 that run at the same time.
  void bars(const std::vector<unsigned> &commands, double y, double height) {
    int step = microStep(plan);
    const json &all = report["functions"][size_t(step)]["commands"];
    const auto &planned = *plan.functions()->Get(unsigned(step))->commands();
    const unsigned backwardStart = firstBackward(*plan.functions()->Get(unsigned(step)));
    double total = 0;
    unsigned streams = 1;
    for (unsigned c : commands) {
      total += planned[c]->stream() == 0 ? number(all[c]["seconds"]) : 0;
      streams = std::max(streams, planned[c]->stream() + 1u);
    }
    if (total <= 0)
      return;
    const double bottom = y + 32 + height + (streams - 1) * (height + 3);
    // Returns how many of the function's first `time` seconds stream 0 spends on `commands`.
    auto shown = [&](double time) {
      double sum = 0;
      for (unsigned c : commands)
        if (planned[c]->stream() == 0)
          sum += std::clamp(time - number(all[c]["start_seconds"]), 0.0, number(all[c]["seconds"]));
      return sum;
    };
    double now = 0; // end, in seconds, of the commands of stream 0 that are drawn so far
    int layer = -2;
    bool backward = false;
    for (unsigned c : commands) {
      double seconds = number(all[c]["seconds"]);
      const bool isBeside = planned[c]->stream() != 0;
      double start = now, end = now + seconds;
      if (isBeside) {
        const double begin = number(all[c]["start_seconds"]);
        start = shown(begin);
        end = shown(begin + seconds);
      }
      double x = start / total * kWidth;
      double width = std::max(0.3, (end - start) / total * kWidth);
      double row = y + 16 + double(planned[c]->stream()) * (height + 3);
      if (int here = planned[c]->layer();
          !isBeside && (here != layer || (c >= backwardStart) != backward || c == commands[0])) {
        layer = here;
        backward = c >= backwardStart;
        if (commands.size() < 200 || layer % 4 == 0)
          add("<path class=\"rule\" d=\"M{:.1f} {:.1f}V{:.1f}\"/><text class=\"soft\" x=\"{:.1f}\" "
              "y=\"{:.1f}\">{}</text>",
              x, y, row, x + 2, y + 11,
              layer < 0 ? std::string("") : fmt::format("{}{}", layer, backward ? "'" : ""));
      }
      add("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{}: "
          "{}, {}</title></rect>",
          x, row, width, height, kindColour(word(all[c], "kind")), escape(word(all[c], "source")),
          readableSeconds(seconds), escape(word(all[c], "bound")));
      now += isBeside ? 0 : seconds;
    }
    add("<text class=\"soft\" x=\"0\" y=\"{:.1f}\">0</text><text class=\"soft\" x=\"{}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
        bottom, kWidth, bottom, readableSeconds(total));
  }

  void schedule() {
    int step = microStep(plan);
    if (step < 0)
      return;
    const json &cost = report["cost"];
    add("<h2>Schedule</h2><p>Predicted times, to scale. First a step, then one micro-step with its "
        "layers numbered (a dash marks the backward pass), then one layer of it.</p>");
    legend(kKindColours);
    std::vector<unsigned> all, block;
    const auto &planned = *plan.functions()->Get(unsigned(step))->commands();
    int layers = 0, streams = 1;
    for (unsigned c = 0; c < planned.size(); ++c) {
      all.push_back(c);
      layers = std::max(layers, planned[c]->layer() + 1);
      streams = std::max(streams, int(planned[c]->stream()) + 1);
    }
    for (unsigned c : all)
      if (layers > 0 && planned[c]->layer() == layers / 2)
        block.push_back(c);
    double extra = double(streams - 1) * 51;
    add("<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\">", kWidth, 276 + 2 * extra, kWidth);
    double x = 0, seconds = std::max(1e-30, number(cost["step_seconds"]));
    for (const json &function : cost["functions"]) {
      const double runs = number(function["runs_per_step"]);
      const double width = number(function["seconds"]) * runs / seconds * kWidth;
      if (width <= 0)
        continue;
      const std::string label = fmt::format(
          "{}{}, {}{}", word(function, "name"), runs > 1 ? fmt::format(" x{}", runs) : "",
          secondsOf(function["seconds"]), runs > 1 ? " each" : "");
      add("<g><title>{}</title><rect class=\"node\" style=\"stroke:var(--soft)\" x=\"{:.1f}\" "
          "y=\"4\" width=\"{:.1f}\" height=\"26\"/>",
          escape(label), x + 1, std::max(0.5, width - 2));
      if (double(label.size()) * 6.6 < width)
        add("<text x=\"{:.1f}\" y=\"21\">{}</text>", x + 8, escape(label));
      add("</g>");
      x += width;
    }
    bars(all, 48, 48);
    if (!block.empty())
      bars(block, 164 + extra, 48);
    add("</svg>");
    table("tnnnnt", {"command", "a step", "share", "reaches", "moves", "bound by"});
    for (const json &kind : cost["kinds"])
      row({word(kind, "kind"), secondsOf(kind["seconds_per_step"]),
           fmt::format("{:.1f}%", 100 * number(kind["seconds_per_step"]) / seconds),
           flopsOf(kind["flops_per_second"]), bandwidthOf(kind["bytes_per_second"]),
           word(kind, "bound")});
    add("</table>");
  }

  void tables() {
    const json &fusion = report["fusion"];
    add("<h2>Fusion</h2>");
    if (fusion.contains("bytes_per_token")) {
      add("<p>{} kernels a layer forward, {} backward, beside products and attention.</p>",
          number(fusion["kernels_per_layer_forward"]),
          number(fusion["kernels_per_layer_backward"]));
      table("tnnn", {"traffic of a token", "moved", "floor", "ratio"});
      const char *rows[][3] = {
          {"layers", "layers_bytes_per_token", "floor_layers_bytes_per_token"},
          {"embedding, head, loss", "head_bytes_per_token", "floor_head_bytes_per_token"},
          {"together", "bytes_per_token", "floor_bytes_per_token"}};
      for (const auto &[label, moved, floor] : rows) {
        double least = number(fusion[floor]);
        row({label, bytesOf(fusion[moved]), least > 0 ? readableBytes(least) : "",
             least > 0 ? fmt::format("{:.2f}", number(fusion[moved]) / least) : ""});
      }
      add("</table>");
    }
    auto pairs = [&](const char *list, const char *title, const char *last) {
      if (!fusion.contains(list) || fusion[list].empty())
        return;
      table("ccnt", {"consumer", "producer", "bytes", last},
            fmt::format("<details><summary>{} {}</summary>", fusion[list].size(), title));
      for (const json &entry : fusion[list])
        row({word(entry, "consumer"), word(entry, "producer"), bytesOf(entry, "bytes"),
             word(entry, last)});
      add("</table></details>");
    };
    pairs("formed", "fusions formed", "hero");
    pairs("refused", "fusions refused", "reason");

    const json &recompute = report["recompute"];
    add("<h2>Recompute</h2><p>Mode {}{}.</p>", escape(word(recompute, "mode")),
        recompute["flops_overhead"].is_number()
            ? fmt::format("; {:.1f}% more matrix FLOPs than without",
                          100 * number(recompute["flops_overhead"]))
            : "");
    if (recompute.contains("options")) {
      table("tnnnn", {"option", "kept", "transient", "time", "layers"});
      size_t index = 0;
      for (const json &option : recompute["options"])
        row({word(option, "name"), bytesOf(option, "kept_bytes"),
             bytesOf(option, "transient_bytes"), secondsOf(option, "seconds"),
             std::to_string(takersOf(recompute["layers"], index++))});
      add("</table>");
    }

    table("ctnnnt", {"kernel", "ops", "a step", "each", "together", "bound by"},
          "<h2>Kernels</h2><div class=\"wide\">");
    for (const json *kernel : kernelsByTime(report)) {
      std::map<std::string, int> counts;
      std::string ops;
      for (const json &op : (*kernel)["source_ops"])
        ++counts[op.get<std::string>()];
      for (const auto &[op, count] : counts)
        ops += (ops.empty() ? "" : ", ") + (count > 1 ? fmt::format("{} x ", count) : "") + op;
      row({word(*kernel, "name"), ops, fmt::format("{}", number((*kernel)["launches_per_step"])),
           secondsOf((*kernel)["seconds"]), secondsOf((*kernel)["seconds_per_step"]),
           word(*kernel, "bound")});
    }
    add("</table></div>");
  }

  const plan::Plan &plan;
  const json &report;
  const char *columns = ""; // the kinds of the columns of the latest table
  std::string html;
};

} // namespace

std::string htmlReport(const plan::Plan &plan, const json &report, const std::string &title) {
  return Page(plan, report).run(title);
}

} // namespace lmc
