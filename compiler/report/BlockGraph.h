// The commands of one layer as a graph, with a layout for drawing.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

struct GraphNode {
  int command = -1; // number in the micro-step
  bool backward = false;
  std::vector<std::string> lines;             // text of the node; the first line is its title
  double x = 0, y = 0, width = 0, height = 0; // x, y: top left corner
};

struct GraphEdge {
  size_t from = 0, to = 0; // indices of nodes
  bool kept = false;       // kept from the forward to the backward pass
  uint64_t bytes = 0;      // bytes that `to` reads
};

struct BlockGraph {
  int layer = -1;
  std::vector<GraphNode> nodes; // in the order of commands
  std::vector<GraphEdge> edges;
  double width = 0, height = 0;
  double backwardX = 0; // left end of the backward pass's half
};

// Returns the graph of the middle layer of the micro-step: the forward pass on the left, the
// backward pass on the right, both from top to bottom. Every command is below those whose results
// it reads. Empty for a plan without layers.
BlockGraph blockGraph(const plan::Plan &plan);

} // namespace lmc
