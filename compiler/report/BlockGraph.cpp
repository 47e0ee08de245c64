#include "compiler/report/BlockGraph.h"

#include "compiler/analysis/Fusion.h"
#include "ground/plan/Operands.h"
#include "ground/plan/SliceGeometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lmc {
namespace {

constexpr double kLetter = 6.7, kLine = 15, kPad = 8; // sizes for the 12px font of Html.cpp
constexpr double kGapX = 14, kGapY = 26, kBetween = 70;

std::string shortened(std::string text, size_t letters) {
  if (text.size() > letters)
    text = text.substr(0, letters - 3) + "...";
  return text;
}

std::vector<std::string> describe(const plan::Plan &plan, const plan::Command &command) {
  std::string source = command.source() ? command.source()->str() : "";
  if (size_t slash = source.find('/'); slash != std::string::npos)
    source = source.substr(slash + 1);
  std::vector<std::string> lines = {source};
  if (const plan::Launch *launch = command.body_as_Launch()) {
    const plan::Kernel &kernel = *plan.kernels()->Get(launch->kernel());
    lines[0] = kernel.name()->str();
    // Lists the source ops, and merges neighbours of the same name: "lm.add, 2 x lm.cast".
    std::string ops;
    if (kernel.source_ops())
      for (unsigned i = 0; i < kernel.source_ops()->size();) {
        unsigned next = i;
        while (next < kernel.source_ops()->size() &&
               kernel.source_ops()->Get(next)->str() == kernel.source_ops()->Get(i)->str())
          ++next;
        std::string op = kernel.source_ops()->Get(i)->str();
        if (next - i > 1)
          op = fmt::format("{} x {}", next - i, op);
        if (!ops.empty() && ops.size() + op.size() > 34) {
          lines.push_back(ops);
          ops = op;
        } else {
          ops += (ops.empty() ? "" : ", ") + op;
        }
        i = next;
      }
    if (!ops.empty())
      lines.push_back(ops);
    if (!source.empty())
      lines.push_back("of " + source);
  } else if (const plan::Gemm *gemm = command.body_as_Gemm()) {
    lines.push_back(fmt::format("gemm {}{} x {} x {}{}",
                                gemm->batch() > 1 ? fmt::format("{} of ", gemm->batch()) : "",
                                gemm->m(), gemm->n(), gemm->k(), plan::accumulates(*gemm)      ? ", adds"
                                : plan::residualOf(*gemm) >= 0 ? ", with residual"
                                                               : ""));
  } else if (const plan::Gemm *product = plan::productOf(command)) {
    lines.push_back(fmt::format("{} {} x {} x {}", plan::commandName(command), product->m(),
                                product->n(), product->k()));
  } else {
    lines.push_back(plan::commandName(command));
  }
  if (lines[0].empty())
    lines.erase(lines.begin());
  for (std::string &line : lines)
    line = shortened(line, 40);
  return lines;
}

// Places the nodes of a forward or backward pass to the right of x = `left`. Returns their width.
double layOut(BlockGraph &graph, const std::vector<size_t> &members, double left) {
  std::map<size_t, size_t> rank; // node -> row
  size_t rows = 0;
  for (size_t node : members) { // in command order, so the nodes that a node reads come first
    size_t row = 0;
    for (const GraphEdge &edge : graph.edges)
      if (edge.to == node && rank.count(edge.from))
        row = std::max(row, rank[edge.from] + 1);
    rank[node] = row;
    rows = std::max(rows, row + 1);
  }
  // Moves a node down to the row directly above the first node that reads its result.
  for (size_t i = members.size(); i-- > 0;) {
    size_t limit = rows, node = members[i];
    for (const GraphEdge &edge : graph.edges)
      if (edge.from == node && rank.count(edge.to))
        limit = std::min(limit, rank[edge.to]);
    if (limit < rows && limit > 0)
      rank[node] = std::max(rank[node], limit - 1);
  }
  std::vector<std::vector<size_t>> byRow(rows);
  for (size_t node : members)
    byRow[rank[node]].push_back(node);

  // Sorts the nodes of each row in rounds, alternately from top to bottom and from bottom to top.
  // The sort key is the mean position of the nodes that a node reads (down) or that read it (up).
  std::map<size_t, double> place;
  auto number = [&](const std::vector<size_t> &row) {
    for (size_t i = 0; i < row.size(); ++i)
      place[row[i]] = (double(i) + 0.5) / double(row.size());
  };
  std::ranges::for_each(byRow, number);
  for (int round = 0; round < 8; ++round) {
    bool down = round % 2 == 0;
    for (size_t r = 0; r < rows; ++r) {
      auto &row = byRow[down ? r : rows - 1 - r];
      std::map<size_t, double> wanted;
      for (size_t node : row) {
        double sum = 0;
        int count = 0;
        for (const GraphEdge &edge : graph.edges) {
          size_t other = down ? edge.from : edge.to;
          if ((down ? edge.to : edge.from) == node && rank.count(other)) {
            sum += place[other];
            ++count;
          }
        }
        wanted[node] = count ? sum / count : place[node];
      }
      std::ranges::stable_sort(row, {}, [&](size_t node) { return wanted[node]; });
      number(row);
    }
  }

  double width = 0;
  std::vector<double> rowWidth(rows, -kGapX);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t node : byRow[r])
      rowWidth[r] += graph.nodes[node].width + kGapX;
    width = std::max(width, rowWidth[r]);
  }
  double y = kLine * 2;
  for (size_t r = 0; r < rows; ++r) {
    double x = left + (width - rowWidth[r]) / 2, height = 0;
    for (size_t node : byRow[r]) {
      graph.nodes[node].x = x;
      graph.nodes[node].y = y;
      x += graph.nodes[node].width + kGapX;
      height = std::max(height, graph.nodes[node].height);
    }
    y += height + kGapY;
  }
  graph.height = std::max(graph.height, y);
  return width;
}

} // namespace

BlockGraph blockGraph(const plan::Plan &plan) {
  BlockGraph graph;
  int step = microStep(plan);
  if (step < 0)
    return graph;
  const plan::Function &function = *plan.functions()->Get(unsigned(step));
  const auto &commands = *function.commands();
  const unsigned backwardStart = firstBackward(function);
  int layers = 0;
  for (const plan::Command *command : commands)
    layers = std::max(layers, command->layer() + 1);
  if (layers == 0)
    return graph;
  graph.layer = layers / 2;

  // `node` is the node of the command that writes `slice`; -1 if the command is not in the layer.
  struct Write {
    const plan::Slice *slice;
    int node;
  };
  std::vector<Write> writes;
  for (unsigned c = 0; c < commands.size(); ++c) {
    const plan::Command &command = *commands[c];
    const plan::Operands operands = plan::operandsOf(command);
    int node = -1;
    if (command.layer() == graph.layer) {
      node = int(graph.nodes.size());
      GraphNode made{int(c), c >= backwardStart, describe(plan, command)};
      size_t letters = 0;
      for (const std::string &line : made.lines)
        letters = std::max(letters, line.size());
      made.width = double(letters) * kLetter + 2 * kPad;
      made.height = double(made.lines.size()) * kLine + 2 * kPad;
      graph.nodes.push_back(std::move(made));
      std::map<size_t, uint64_t> sources; // node -> bytes read from it
      for (const plan::Operand &operand : operands) {
        const plan::Slice &read = *plan.slices()->Get(uint32_t(operand.slice));
        // State, such as weights and gradients, gets no edges.
        if (!operand.isRead() || read.function() < 0)
          continue;
        // Visits earlier writes, latest first, until they cover every byte that the command reads.
        std::vector<const plan::Slice *> found;
        for (size_t w = writes.size(); w-- > 0;) {
          if (!overlap(read, *writes[w].slice))
            continue;
          if (writes[w].node >= 0)
            sources[size_t(writes[w].node)] += std::min(read.bytes(), writes[w].slice->bytes());
          found.push_back(writes[w].slice);
          uint64_t covered = unionBytes(found);
          found.push_back(&read);
          if (unionBytes(found) == covered)
            break;
          found.pop_back();
        }
      }
      for (const auto &[from, bytes] : sources)
        graph.edges.push_back(
            {from, size_t(node), !graph.nodes[from].backward && c >= backwardStart, bytes});
    }
    for (const plan::Operand &operand : operands)
      if (const plan::Slice *slice = plan.slices()->Get(uint32_t(operand.slice));
          operand.isResult() && slice->function() >= 0)
        writes.push_back({slice, node});
  }
  std::vector<size_t> forward, backward;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    (graph.nodes[i].backward ? backward : forward).push_back(i);
  double width = layOut(graph, forward, kPad);
  graph.backwardX = kPad + width + kBetween;
  graph.width = backward.empty()
                    ? width + 2 * kPad
                    : graph.backwardX + layOut(graph, backward, graph.backwardX) + kPad;
  return graph;
}

} // namespace lmc
