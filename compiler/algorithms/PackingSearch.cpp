#include "compiler/algorithms/PackingSearch.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

using namespace lmc;

namespace {

enum class Outcome { Found, Impossible, Stopped };

// A depth-first search for a packing. Sizes and offsets are counted in units of the alignment.
// Buffers are numbered in the order in which they become live.
class PlacementSearch {
public:
  explicit PlacementSearch(const PackingProblem &problem) : alignment(problem.alignment) {
    const std::vector<PackingBuffer> &buffers = problem.buffers;
    size_t count = buffers.size();
    original.resize(count);
    std::iota(original.begin(), original.end(), size_t(0));
    std::ranges::sort(original, {}, [&](size_t i) {
      return std::tuple(buffers[i].first, buffers[i].last, buffers[i].bytes, i);
    });
    std::vector<std::tuple<int64_t, bool, int>> events; // (moment, true: a live range ends, buffer)
    for (size_t i = 0; i < count; ++i) {
      const PackingBuffer &buffer = buffers[original[i]];
      size.push_back(int64_t((buffer.bytes + alignment - 1) / alignment));
      events.push_back({buffer.first, false, int(i)});
      events.push_back({buffer.last, true, int(i)});
      bool same = i > 0 && buffers[original[i - 1]].first == buffer.first &&
                  buffers[original[i - 1]].last == buffer.last && size[i - 1] == size[i];
      twin.push_back(same ? int(i) - 1 : -1);
    }
    std::sort(events.begin(), events.end());
    firstSection.resize(count);
    lastSection.resize(count);
    int sections = 0;
    bool grown = false; // true if the previous event is a start; an end then closes a section
    for (auto [moment, ends, buffer] : events) {
      if (ends && grown)
        ++sections;
      grown = !ends;
      (ends ? lastSection : firstSection)[size_t(buffer)] = ends ? sections - 1 : sections;
    }
    lowest.resize(size_t(sections));

    auto ranked = [&](auto key) {
      std::vector<int> order(count), rankOf(count);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, std::ranges::greater(), key);
      for (size_t i = 0; i < count; ++i)
        rankOf[size_t(order[i])] = int(i);
      ranks.push_back(rankOf);
    };
    auto length = [&](int i) {
      return double(lastSection[size_t(i)] - firstSection[size_t(i)] + 1);
    };
    ranked([&](int i) { return length(i) * double(size[size_t(i)]); });
    ranked([&](int i) { return std::pair(length(i), size[size_t(i)]); });
    ranked([&](int i) { return std::pair(double(size[size_t(i)]), length(i)); });
  }

  // Searches for a packing within an arena of `arena` units of the alignment, with at most
  // `mostNodes` search nodes. If several buffers may take the same offset, the search first places
  // the one with the lowest number in ranks[order].
  Outcome run(int64_t arena, size_t order, uint64_t mostNodes) {
    int count = int(size.size());
    capacity = arena;
    nodes = mostNodes;
    rank = ranks[order].data();
    offset.assign(size_t(count), 0);
    isPlaced.assign(size_t(count), 0);
    next.resize(size_t(count));
    previous.resize(size_t(count));
    top.assign(lowest.size(), 0);
    remaining.assign(lowest.size(), 0);
    trail.clear();
    placements.clear();
    for (int i = 0; i < count; ++i) {
      next[size_t(i)] = i + 1;
      previous[size_t(i)] = i - 1;
      for (int s = firstSection[size_t(i)]; s <= lastSection[size_t(i)]; ++s)
        remaining[size_t(s)] += size[size_t(i)];
    }
    return solveGroups(0, count - 1, 0, -1);
  }

  static constexpr size_t kOrders = 3;

  uint64_t nodesLeft() const { return nodes; }
  // Return the height, in units of the alignment, and the offsets, in bytes, of the packing that
  // run() found.
  int64_t height() const {
    int64_t most = 0;
    for (size_t i = 0; i < size.size(); ++i)
      most = std::max(most, offset[i] + size[i]);
    return most;
  }

  std::vector<uint64_t> offsets() const {
    std::vector<uint64_t> bytes(size.size());
    for (size_t i = 0; i < size.size(); ++i)
      bytes[original[i]] = uint64_t(offset[i]) * alignment;
    return bytes;
  }

private:
  // Packs a group: the unplaced buffers with numbers from `head` to `tail`. The pair (offset, rank)
  // of each placed buffer exceeds that of the buffer before it, so that no packing is tried twice.
  Outcome solve(int head, int tail, int64_t from, int fromRank) {
    if (!fits(head, tail, from))
      return Outcome::Impossible;
    // The next buffer must begin below `limit`: else another unplaced buffer would fit below it.
    int64_t limit = std::numeric_limits<int64_t>::max();
    for (int i = head; i <= tail; i = next[size_t(i)])
      limit = std::min(limit, offset[size_t(i)] + size[size_t(i)]);
    auto placeOf = [&](int i) { return std::pair(offset[size_t(i)], rank[i]); };
    std::vector<int> candidates;
    for (int i = head; i <= tail; i = next[size_t(i)])
      if (offset[size_t(i)] < limit && placeOf(i) > std::pair(from, fromRank) &&
          (twin[size_t(i)] < 0 || isPlaced[size_t(twin[size_t(i)])]))
        candidates.push_back(i);
    std::ranges::sort(candidates, {}, placeOf);
    for (int buffer : candidates) {
      if (nodes == 0)
        return Outcome::Stopped;
      --nodes;
      size_t mark = trail.size(), placed = placements.size();
      put(buffer, head, tail);
      int restHead = buffer == head ? next[size_t(buffer)] : head;
      int restTail = buffer == tail ? previous[size_t(buffer)] : tail;
      Outcome outcome = Outcome::Found;
      if (head != tail)
        outcome = solveGroups(restHead, restTail, offset[size_t(buffer)], rank[buffer]);
      if (outcome != Outcome::Impossible)
        return outcome;
      undo(placed);
      for (; trail.size() > mark; trail.pop_back())
        *trail.back().first = trail.back().second;
    }
    return Outcome::Impossible;
  }

  // Divides the unplaced buffers from `head` to `tail` into groups, and packs one group after the
  // other. Buffers of different groups are never live at the same moment.
  Outcome solveGroups(int head, int tail, int64_t from, int fromRank) {
    for (int i = head; i <= tail;) {
      int begin = i, end = i, last = lastSection[size_t(i)];
      for (i = next[size_t(i)]; i <= tail && firstSection[size_t(i)] <= last; i = next[size_t(i)]) {
        last = std::max(last, lastSection[size_t(i)]);
        end = i;
      }
      if (Outcome outcome = solve(begin, end, from, fromRank); outcome != Outcome::Found)
        return outcome;
    }
    return Outcome::Found;
  }

  // Returns false if the unplaced buffers from `head` to `tail` certainly do not fit between the
  // offsets `from` and `capacity`.
  bool fits(int head, int tail, int64_t from) {
    int begin = firstSection[size_t(head)], end = begin;
    int64_t visits = 0, highest = from; // maximum of all lowest allowed offsets
    for (int i = head; i <= tail; i = next[size_t(i)]) {
      if (std::max(offset[size_t(i)], from) + size[size_t(i)] > capacity)
        return false;
      highest = std::max(highest, offset[size_t(i)]);
      end = std::max(end, lastSection[size_t(i)] + 1);
      visits += lastSection[size_t(i)] - firstSection[size_t(i)] + 1;
    }
    int firstTight = end, lastTight = begin - 1; // sections that may fail the stricter check below
    for (int s = begin; s < end; ++s) {
      if (std::max(top[size_t(s)], from) + remaining[size_t(s)] > capacity)
        return false;
      if (highest + remaining[size_t(s)] > capacity) {
        firstTight = std::min(firstTight, s);
        lastTight = s;
      }
    }
    // This check is stricter: in a section, all unplaced buffers lie above the lowest offset that
    // any of them may take. It takes more than linear time, so only small groups use it.
    constexpr int64_t kMaxVisits = 4096;
    if (visits > kMaxVisits || firstTight > lastTight)
      return true;
    std::fill(lowest.begin() + firstTight, lowest.begin() + lastTight + 1, capacity);
    for (int i = head; i <= tail && firstSection[size_t(i)] <= lastTight; i = next[size_t(i)]) {
      int64_t at = std::max(offset[size_t(i)], from);
      int last = std::min(lastSection[size_t(i)], lastTight);
      for (int s = std::max(firstSection[size_t(i)], firstTight); s <= last; ++s)
        lowest[size_t(s)] = std::min(lowest[size_t(s)], at);
    }
    for (int s = firstTight; s <= lastTight; ++s)
      if (lowest[size_t(s)] + remaining[size_t(s)] > capacity)
        return false;
    return true;
  }

  // Places `buffer`; raises the lowest allowed offsets of other buffers from `head` to `tail`.
  void put(int buffer, int head, int tail) {
    size_t b = size_t(buffer);
    int64_t end = offset[b] + size[b];
    for (int i = head; i <= tail && firstSection[size_t(i)] <= lastSection[b]; i = next[size_t(i)])
      if (i != buffer && firstSection[b] <= lastSection[size_t(i)] && offset[size_t(i)] < end)
        set(offset[size_t(i)], end);
    for (int s = firstSection[b]; s <= lastSection[b]; ++s) {
      set(top[size_t(s)], end);
      remaining[size_t(s)] -= size[b];
    }
    isPlaced[b] = 1;
    if (previous[b] >= 0)
      next[size_t(previous[b])] = next[b];
    if (next[b] < int(size.size()))
      previous[size_t(next[b])] = previous[b];
    placements.push_back(buffer);
  }

  // Removes the last placements, until only the first `mark` placements are left.
  void undo(size_t mark) {
    while (placements.size() > mark) {
      size_t b = size_t(placements.back());
      placements.pop_back();
      if (previous[b] >= 0)
        next[size_t(previous[b])] = int(b);
      if (next[b] < int(size.size()))
        previous[size_t(next[b])] = int(b);
      isPlaced[b] = 0;
      for (int s = firstSection[b]; s <= lastSection[b]; ++s)
        remaining[size_t(s)] += size[b];
    }
  }

  void set(int64_t &place, int64_t value) {
    trail.push_back({&place, place});
    place = value;
  }

  uint64_t alignment;
  std::vector<size_t> original; // the buffer's index in the problem
  std::vector<int64_t> size;
  // A section is a maximal set of buffers that are live at one moment. The sections of buffer b are
  // firstSection[b] to lastSection[b]. Two buffers that share a section are live together.
  std::vector<int> firstSection, lastSection;
  std::vector<int> twin; // per buffer, the previous buffer if the two are equal, else -1
  std::vector<std::vector<int>> ranks; // per ranking, the rank of each buffer

  int64_t capacity = 0;
  uint64_t nodes = 0;
  const int *rank = nullptr;
  std::vector<int64_t> offset; // per buffer: its offset; before it is placed, the lowest allowed
  std::vector<char> isPlaced;
  std::vector<int> next, previous;     // linked list of the unplaced buffers' numbers, rising
  std::vector<int64_t> top, remaining; // per section: end of placed buffers, total size of unplaced
  std::vector<int64_t> lowest;         // per section, the lowest allowed offset; scratch of fits()
  std::vector<std::pair<int64_t *, int64_t>> trail; // (variable, old value that solve() restores)
  std::vector<int> placements;                      // placed buffers, in the order of placement
};

} // namespace

void lmc::searchPacking(const PackingProblem &problem, uint64_t enough, PackingSolution &solution,
                        uint64_t &nodes) {
  // This limits the memory of the search. Each placed buffer is one level of the recursion, which
  // keeps lists of buffers. So the memory grows with the square of the number of buffers.
  constexpr size_t kMaxBuffers = 8192;
  if (problem.buffers.size() > kMaxBuffers)
    return;
  PlacementSearch search(problem);
  int64_t unit = int64_t(problem.alignment);
  int64_t bound = int64_t(problem.lowerBound()) / unit; // no packing is lower than this
  int64_t best = (int64_t(solution.bytes) + unit - 1) / unit;
  int64_t goal = std::max(bound, int64_t(enough) / unit); // a packing of this height suffices
  // Bisects the height of the packing between `given` and `best`, the lowest height found so far.
  // The first target is `goal`, which the search often reaches. Each later target is the middle of
  // this range. When no height is left inside the range, the bisection starts again, with four
  // times as many search nodes per target.
  int64_t given = goal - 1; // no packing of this height was found; below `goal`, none is needed
  // The maximum number of search nodes for one target and one order of the buffers. It suffices to
  // place each buffer 1.5 times. A longer search hardly ever repairs a bad first placement.
  uint64_t slice = 3 * problem.buffers.size() / 2 + 1000;
  for (int64_t target = goal; best > goal && nodes > 0; target = given + (best - given) / 2) {
    Outcome outcome = Outcome::Stopped;
    for (size_t order = 0; order < PlacementSearch::kOrders && outcome == Outcome::Stopped;
         ++order) {
      uint64_t granted = std::min(slice, nodes);
      outcome = search.run(target, order, granted);
      nodes -= granted - search.nodesLeft();
    }
    if (outcome == Outcome::Found) {
      best = search.height();
      solution.offsets = search.offsets();
      solution.bytes = uint64_t(best * unit);
    } else {
      given = target;
      if (outcome == Outcome::Impossible)
        bound = target + 1;
      goal = std::max(goal, bound);
    }
    if (given + 1 >= best) {
      given = goal - 1;
      slice *= 4;
    }
  }
  solution.isOptimal = best == bound;
}
