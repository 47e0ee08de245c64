// The commands of one layer as a graph, laid out for drawing.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

struct GraphNode {
  int command = -1; // of the micro-step
  bool backward = false;
  std::vector<std::string> lines;             // what to write on it; the first is its title
  double x = 0, y = 0, width = 0, height = 0; // top left corner
};

struct GraphEdge {
  size_t from = 0, to = 0; // nodes
  bool kept = false;       // from the forward to the backward pass: held in between
  uint64_t bytes = 0;      // what is read
};

struct BlockGraph {
  int layer = -1;
  std::vector<GraphNode> nodes; // in the order of commands
  std::vector<GraphEdge> edges;
  double width = 0, height = 0;
  double backwardX = 0; // where the backward pass's half begins
};

// The middle layer of the micro-step: its forward pass on the left, its backward pass on
// the right, both from top to bottom, every command below those it reads from. Empty for a
// plan without layers.
BlockGraph blockGraph(const plan::Plan &plan);

} // namespace lmc
