// The commands of one layer as a graph, with positions for drawing.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

struct GraphNode {
  int command = -1;                           // number of the command in the micro-step
  bool backward = false;                      // true if it is in the backward pass
  std::vector<std::string> lines;             // text of the node; the first line is its title
  double x = 0, y = 0, width = 0, height = 0; // x, y: top left corner
};

struct GraphEdge {
  size_t from = 0, to = 0; // indices of nodes
  bool kept = false;       // true if it is a kept value, which the backward pass reads
  uint64_t bytes = 0;      // bytes that `to` reads from `from`
};

struct BlockGraph {
  int layer = -1;
  std::vector<GraphNode> nodes; // nodes in the order of the commands
  std::vector<GraphEdge> edges;
  double width = 0, height = 0;
  double backwardX = 0; // left end of the backward pass
};

// Returns the graph of the model's middle layer in a micro-step. The forward pass is on the left,
// the backward pass on the right. Each command is below the commands whose results it reads. The
// graph is empty if the plan has no layers.
BlockGraph blockGraph(const plan::Plan &plan);

} // namespace lmc
