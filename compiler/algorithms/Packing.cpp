#include "compiler/algorithms/Packing.h"

#include "compiler/algorithms/PackingSearch.h"

#include <algorithm>
#include <functional>
#include <numeric>

using namespace lmc;

static uint64_t roundUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

static bool overlapInTime(const PackingBuffer &a, const PackingBuffer &b) {
  return a.first <= b.last && b.first <= a.last;
}

Result<void> PackingProblem::check() const {
  if (alignment == 0 || (alignment & (alignment - 1)))
    return userError("alignment {} is not a power of two", alignment);
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].first > buffers[i].last)
      return userError("buffer {} ends before it begins", i);
    if (buffers[i].bytes == 0)
      return userError("buffer {} is empty", i);
  }
  return {};
}

uint64_t PackingProblem::lowerBound() const {
  std::vector<std::pair<int64_t, int64_t>> events; // (moment, change of the live bytes)
  for (const PackingBuffer &buffer : buffers) {
    int64_t bytes = int64_t(roundUp(buffer.bytes, alignment));
    events.push_back({buffer.first, bytes});
    events.push_back({buffer.last + 1, -bytes});
  }
  std::sort(events.begin(), events.end()); // at equal moments, ends (negative) come first
  int64_t live = 0, most = 0;
  for (auto [moment, change] : events)
    most = std::max(most, live += change);
  return uint64_t(most);
}

Result<void> PackingSolution::verify(const PackingProblem &problem) const {
  if (offsets.size() != problem.buffers.size())
    return userError("has {} offsets for {} buffers", offsets.size(), problem.buffers.size());
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] % problem.alignment)
      return userError("buffer {} is misaligned", i);
    if (offsets[i] + problem.buffers[i].bytes > bytes)
      return userError("buffer {} ends outside the arena", i);
  }
  // Buffers are visited in order of offset, and each is compared only with buffers that share
  // bytes.
  std::vector<size_t> order(offsets.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::ranges::sort(order, {}, [&](size_t i) { return offsets[i]; });
  for (size_t i = 0; i < order.size(); ++i) {
    uint64_t end = offsets[order[i]] + problem.buffers[order[i]].bytes;
    for (size_t j = i + 1; j < order.size() && offsets[order[j]] < end; ++j)
      if (overlapInTime(problem.buffers[order[i]], problem.buffers[order[j]]))
        return userError("buffers {} and {} share bytes while both are alive", order[i], order[j]);
  }
  return {};
}

namespace {

// Places the buffers in `order`. Each buffer takes the lowest free hole that is large enough or, if
// `tightest`, the smallest such hole. A hole is free if no placed buffer uses it at the same time.
PackingSolution place(const PackingProblem &problem, const std::vector<size_t> &order,
                      bool tightest) {
  PackingSolution solution;
  solution.offsets.assign(problem.buffers.size(), 0);
  struct Placed {
    uint64_t offset, end;
    int64_t first, last;
  };
  std::vector<Placed> placed; // placed buffers in order of offset
  placed.reserve(order.size());
  for (size_t buffer : order) {
    const PackingBuffer &current = problem.buffers[buffer];
    uint64_t bytes = roundUp(current.bytes, problem.alignment);
    uint64_t cursor = 0, best = UINT64_MAX, bestHole = UINT64_MAX;
    for (const Placed &other : placed) {
      if (other.first > current.last || current.first > other.last)
        continue;
      if (other.offset > cursor && other.offset - cursor >= bytes) {
        uint64_t hole = other.offset - cursor;
        if (best == UINT64_MAX || (tightest && hole < bestHole)) {
          best = cursor;
          bestHole = hole;
        }
        if (!tightest)
          break;
      }
      cursor = std::max(cursor, other.end);
    }
    if (best == UINT64_MAX)
      best = cursor;
    solution.offsets[buffer] = best;
    placed.insert(std::ranges::upper_bound(placed, best, {}, &Placed::offset),
                  {best, best + bytes, current.first, current.last});
    solution.bytes = std::max(solution.bytes, best + bytes);
  }
  return solution;
}

// Packs the buffers in several greedy orders. Returns the first packing of at most `enough` bytes,
// or else the smallest packing.
PackingSolution packGreedily(const PackingProblem &problem, uint64_t enough) {
  const auto &buffers = problem.buffers;
  auto sorted = [&](auto key) {
    std::vector<size_t> order(buffers.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::ranges::stable_sort(order, std::ranges::greater(),
                             [&](size_t i) { return key(buffers[i]); });
    return order;
  };
  auto bytes = [](const PackingBuffer &b) { return double(b.bytes); };
  auto duration = [](const PackingBuffer &b) { return double(b.last - b.first + 1); };
  const std::vector<size_t> orders[] = {
      sorted(bytes),
      sorted(duration),
      sorted([&](const PackingBuffer &b) { return bytes(b) * duration(b); }),
      sorted([](const PackingBuffer &b) { return -double(b.first); }),
  };
  PackingSolution best;
  best.bytes = UINT64_MAX;
  for (const std::vector<size_t> &order : orders)
    for (bool tightest : {false, true}) {
      PackingSolution candidate = place(problem, order, tightest);
      if (candidate.bytes < best.bytes)
        best = std::move(candidate);
      if (best.bytes <= enough)
        return best;
    }
  return best;
}

// Buffers that are connected by overlaps of their live ranges. Two components are never live at the
// same moment, so each component is packed on its own, from offset 0.
struct Component {
  std::vector<size_t> members;
  PackingProblem problem;
  PackingSolution solution;
};

std::vector<Component> componentsOf(const PackingProblem &problem) {
  std::vector<size_t> order(problem.buffers.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::ranges::stable_sort(order, {}, [&](size_t i) { return problem.buffers[i].first; });
  std::vector<Component> components;
  int64_t last = 0;
  for (size_t i : order) {
    const PackingBuffer &buffer = problem.buffers[i];
    if (components.empty() || buffer.first > last) {
      components.emplace_back().problem.alignment = problem.alignment;
      last = buffer.last;
    }
    last = std::max(last, buffer.last);
    components.back().members.push_back(i);
  }
  // Sorts the members by index, because packing places the first of two equal buffers first.
  for (Component &component : components) {
    std::sort(component.members.begin(), component.members.end());
    for (size_t i : component.members)
      component.problem.buffers.push_back(problem.buffers[i]);
  }
  return components;
}

} // namespace

PackingSolution lmc::pack(const PackingProblem &problem, uint64_t searchNodes) {
  // Each round improves the largest component, because it decides the size of the arena. A
  // component that is as small as the lower bound of the whole problem is small enough.
  uint64_t bound = problem.lowerBound();
  PackingSolution solution;
  solution.isOptimal = true;
  solution.offsets.resize(problem.buffers.size());
  std::vector<Component> components = componentsOf(problem);
  for (Component &component : components)
    component.solution = packGreedily(component.problem, bound);
  auto largest = [&] {
    return std::ranges::max_element(
        components, {}, [](const Component &component) { return component.solution.bytes; });
  };
  constexpr double kNearEnough = 1.02;
  while (!components.empty()) {
    Component &fullest = *largest();
    uint64_t before = fullest.solution.bytes;
    if (double(before) <= kNearEnough * double(bound) || fullest.solution.isOptimal)
      break;
    searchPacking(fullest.problem, bound, fullest.solution, searchNodes);
    if (fullest.solution.bytes == before)
      break;
  }
  for (const Component &component : components)
    for (size_t i = 0; i < component.members.size(); ++i)
      solution.offsets[component.members[i]] = component.solution.offsets[i];
  if (!components.empty()) {
    const PackingSolution &fullest = largest()->solution;
    solution.bytes = fullest.bytes;
    solution.isOptimal = fullest.isOptimal || fullest.bytes <= bound;
  }
  return solution;
}
