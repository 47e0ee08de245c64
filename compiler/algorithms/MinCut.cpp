#include "compiler/algorithms/MinCut.h"

#include <algorithm>

using namespace lmc;

Result<void> MinCutProblem::check() const {
  auto isNode = [&](int node) { return node >= 0 && node < nodes; };
  if (!isNode(source) || !isNode(sink) || source == sink)
    return Error{"source and sink are not two nodes"};
  CutCapacity sum = 0;
  for (size_t i = 0; i < arcs.size(); ++i) {
    if (!isNode(arcs[i].from) || !isNode(arcs[i].to))
      return userError("arc {} joins nodes that do not exist", i);
    if (arcs[i].capacity == kUncuttable)
      continue;
    if (arcs[i].capacity < 0)
      return userError("arc {} has a negative capacity", i);
    constexpr CutCapacity kMax = CutCapacity(1) << 124;
    if (arcs[i].capacity >= kMax || (sum += arcs[i].capacity) >= kMax)
      return Error{"the capacities sum to 2^124 or more"};
  }
  return {};
}

Result<void> MinCut::verify(const MinCutProblem &problem) const {
  if (sourceSide.size() != size_t(problem.nodes) || flow.size() != problem.arcs.size())
    return Error{"does not speak of every node and arc"};
  if (!sourceSide[size_t(problem.source)] || sourceSide[size_t(problem.sink)])
    return Error{"does not part source and sink"};
  // Per node: incoming minus outgoing flow. Unsigned, because sums of an invalid flow may overflow.
  using Excess = unsigned __int128;
  std::vector<Excess> excess(sourceSide.size());
  CutCapacity cut = 0;
  for (size_t i = 0; i < flow.size(); ++i) {
    const MinCutProblem::Arc &arc = problem.arcs[i];
    if (flow[i] < 0 || flow[i] > arc.capacity)
      return userError("the flow of arc {} is outside its capacity", i);
    excess[size_t(arc.from)] -= Excess(flow[i]);
    excess[size_t(arc.to)] += Excess(flow[i]);
    if (!sourceSide[size_t(arc.from)] || sourceSide[size_t(arc.to)])
      continue;
    if (arc.capacity == kUncuttable)
      return userError("cuts arc {}, which may not be cut", i);
    cut += arc.capacity;
  }
  for (int node = 0; node < problem.nodes; ++node)
    if (node != problem.source && node != problem.sink && excess[size_t(node)] != 0)
      return userError("flow is lost or made at node {}", node);
  if (cut != capacity)
    return Error{"the arcs cut do not have the capacity stated"};
  if (excess[size_t(problem.sink)] != Excess(capacity))
    return Error{"the flow does not prove the cut to be minimal"};
  return {};
}

namespace {

// The residual network, which has the unused capacities. Edge 2i is arc i of the problem, and edge
// 2i + 1 is the reverse of that arc.
class Residual {
public:
  Residual(const MinCutProblem &problem, CutCapacity uncuttable)
      : problem(problem), head(problem.arcs.size() * 2), left(head.size()),
        begin(size_t(problem.nodes) + 1), edges(head.size()), level(size_t(problem.nodes)) {
    for (size_t i = 0; i < problem.arcs.size(); ++i) {
      const MinCutProblem::Arc &arc = problem.arcs[i];
      head[2 * i] = arc.to;
      head[2 * i + 1] = arc.from;
      left[2 * i] = arc.capacity == kUncuttable ? uncuttable : arc.capacity;
      ++begin[size_t(arc.from) + 1];
      ++begin[size_t(arc.to) + 1];
    }
    for (size_t node = 0; node < size_t(problem.nodes); ++node)
      begin[node + 1] += begin[node];
    next = begin;
    for (size_t edge = 0; edge < head.size(); ++edge)
      edges[next[size_t(head[edge ^ 1])]++] = edge;
  }

  // Sets each node's level, the length of its shortest path from the source; -1: no path.
  void findLevels() {
    std::fill(level.begin(), level.end(), -1);
    queue.assign(1, problem.source);
    level[size_t(problem.source)] = 0;
    for (size_t i = 0; i < queue.size(); ++i) {
      size_t node = size_t(queue[i]);
      for (size_t e = begin[node]; e < begin[node + 1]; ++e) {
        int to = head[edges[e]];
        if (left[edges[e]] > 0 && level[size_t(to)] < 0) {
          level[size_t(to)] = level[node] + 1;
          queue.push_back(to);
        }
      }
    }
  }

  bool reaches(int node) const { return level[size_t(node)] >= 0; }

  // Adds flow along shortest paths from source to sink until each such path has an edge without
  // unused capacity (a blocking flow). Returns the amount of added flow. Not recursive, because a
  // path can have very many edges.
  CutCapacity augment() {
    CutCapacity total = 0;
    next = begin;
    std::vector<size_t> path;
    int at = problem.source;
    while (true) {
      if (at == problem.sink) {
        size_t tightest = 0;
        for (size_t i = 1; i < path.size(); ++i)
          if (left[path[i]] < left[path[tightest]])
            tightest = i;
        CutCapacity amount = left[path[tightest]];
        for (size_t edge : path) {
          left[edge] -= amount;
          left[edge ^ 1] += amount;
        }
        total += amount;
        at = head[path[tightest] ^ 1]; // goes back to the node at which the full edge starts
        path.resize(tightest);
        continue;
      }
      size_t node = size_t(at);
      while (next[node] < begin[node + 1] &&
             (left[edges[next[node]]] == 0 ||
              level[size_t(head[edges[next[node]]])] != level[node] + 1))
        ++next[node];
      if (next[node] < begin[node + 1]) {
        path.push_back(edges[next[node]]);
        at = head[path.back()];
      } else if (path.empty()) {
        return total;
      } else {
        at = head[path.back() ^ 1];
        path.pop_back();
        ++next[size_t(at)];
      }
    }
  }

  CutCapacity flow(size_t arc) const { return left[2 * arc + 1]; }

private:
  const MinCutProblem &problem;
  std::vector<int> head;           // per edge e, the node where e ends; e starts at head[e ^ 1]
  std::vector<CutCapacity> left;   // per edge, the unused capacity
  std::vector<size_t> begin, next; // index in `edges` of a node's first edge and of its next to try
  std::vector<size_t> edges;       // all edges, grouped by the node that they start from
  std::vector<int> level, queue;
};

} // namespace

std::optional<MinCut> lmc::minCut(const MinCutProblem &problem) {
  // An uncuttable arc gets a capacity of 1 + the sum of the finite capacities. A minimum cut then
  // crosses an uncuttable arc only if every cut crosses one.
  CutCapacity finite = 0;
  for (const MinCutProblem::Arc &arc : problem.arcs)
    if (arc.capacity != kUncuttable)
      finite += arc.capacity;
  MinCutProblem uncuttable = problem;
  std::erase_if(uncuttable.arcs,
                [](const MinCutProblem::Arc &arc) { return arc.capacity != kUncuttable; });
  Residual joined(uncuttable, 1);
  joined.findLevels();
  if (joined.reaches(problem.sink))
    return std::nullopt;

  MinCut cut;
  Residual residual(problem, finite + 1);
  while (residual.findLevels(), residual.reaches(problem.sink))
    cut.capacity += residual.augment();
  for (int node = 0; node < problem.nodes; ++node)
    cut.sourceSide.push_back(residual.reaches(node));
  for (size_t arc = 0; arc < problem.arcs.size(); ++arc)
    cut.flow.push_back(residual.flow(arc));
  return cut;
}
