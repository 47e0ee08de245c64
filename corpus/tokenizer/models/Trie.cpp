#include "corpus/tokenizer/models/Trie.h"

#include <algorithm>

namespace lmc {

namespace {

// A linked list of the free places (elements) of a double array. Its head, place 0, is never free.
class FreePlaces {
public:
  explicit FreePlaces(size_t places) : next(1), previous(1) { append(places); }

  // Adds `places` free places at the end of the array. Returns the first new place.
  uint32_t append(size_t places) {
    const auto first = static_cast<uint32_t>(next.size());
    for (size_t i = 0; i < places; ++i) {
      const auto place = static_cast<uint32_t>(next.size()), last = previous[0];
      next.push_back(0);
      previous.push_back(last);
      next[last] = previous[0] = place;
    }
    return first;
  }
  void take(uint32_t place) {
    next[previous[place]] = next[place];
    previous[next[place]] = previous[place];
    next[place] = kNoId;
  }
  bool isFree(uint32_t place) const { return place != 0 && next[place] != kNoId; }
  // Returns the free place that follows `place`; 0 if none does. after(0) is the first free place.
  uint32_t after(uint32_t place) const { return next[place]; }

private:
  std::vector<uint32_t> next, previous; // next[place] is kNoId if `place` is taken
};

} // namespace

void Trie::finish() {
  constexpr uint32_t kBlock = 256; // the children of a node lie in one range of kBlock places
  constexpr int kTries = 64;       // tries per node; more tries cost time and find few places
  std::sort(keys.begin(), keys.end());
  nodes.assign(kBlock, {});
  FreePlaces places(kBlock - 1);

  // A node, and the keys [begin, end) that go through it: their first `depth` bytes are equal.
  struct Branch {
    size_t begin, end, depth;
    uint32_t node;
  };
  std::vector<Branch> open = {{0, keys.size(), 0, 0}};
  std::vector<Branch> children; // `node` is first the child's byte, and later the child's place
  while (!open.empty()) {
    auto [begin, end, depth, node] = open.back();
    open.pop_back();
    if (begin < end && keys[begin].first.size() == depth)
      nodes[node].value = keys[begin++].second;
    children.clear();
    for (size_t i = begin; i < end; ++i) {
      const auto byte = static_cast<uint8_t>(keys[i].first[depth]);
      if (children.empty() || children.back().node != byte)
        children.push_back({i, i, depth + 1, byte});
      children.back().end = i + 1;
    }
    if (children.empty())
      continue;
    const auto fits = [&](uint32_t base) {
      return std::all_of(children.begin(), children.end(),
                         [&](const Branch &child) { return places.isFree(base ^ child.node); });
    };
    uint32_t place = places.after(0);
    for (int i = 0; place != 0 && !fits(place ^ children[0].node); ++i)
      place = i < kTries ? places.after(place) : 0;
    if (place == 0) {
      place = places.append(kBlock) ^ children[0].node;
      nodes.resize(nodes.size() + kBlock);
    }
    nodes[node].base = place ^ children[0].node;
    for (Branch &child : children) {
      child.node ^= nodes[node].base;
      places.take(child.node);
      nodes[child.node].parent = node;
      open.push_back(child);
    }
  }
  keys.clear();
  keys.shrink_to_fit();
}

} // namespace lmc
