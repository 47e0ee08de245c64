// A trie of strings with values.
#pragma once

#include "runtime/tokenizer/Model.h"

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lmc {

// Node 0 is the root. All edges are in one hash table.
class Trie {
public:
  void add(std::string_view key, uint32_t value) {
    uint32_t node = 0;
    for (char byte : key) {
      const uint64_t edge = keyOf(node, byte);
      auto [place, isNew] = building.emplace(edge, static_cast<uint32_t>(values.size()));
      if (isNew)
        values.push_back(kNoId);
      node = place->second;
    }
    values[node] = value;
  }
  // Must be called behind the last add() and before the first child().
  void finish() {
    size_t size = 16;
    while (size < 2 * building.size())
      size *= 2;
    mask = size - 1;
    edges.assign(size, {});
    for (const auto &[edge, child] : building)
      edges[find(edge)] = {edge, child};
    building.clear();
  }
  // Returns the child of `node` for a byte, or 0.
  uint32_t child(uint32_t node, char byte) const { return edges[find(keyOf(node, byte))].child; }
  // Returns the value of the string that ends at `node`, or kNoId.
  uint32_t value(uint32_t node) const { return values[node]; }

private:
  struct Edge {
    uint64_t key = UINT64_MAX;
    uint32_t child = 0;
  };
  std::unordered_map<uint64_t, uint32_t> building;
  std::vector<Edge> edges;
  std::vector<uint32_t> values{kNoId};
  size_t mask = 0;

  static uint64_t keyOf(uint32_t node, char byte) {
    return uint64_t(node) << 8 | static_cast<uint8_t>(byte);
  }
  size_t find(uint64_t key) const {
    // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).
    size_t at = (key * 0x9e3779b97f4a7c15u) >> 32 & mask;
    while (edges[at].key != key && edges[at].key != UINT64_MAX)
      at = (at + 1) & mask;
    return at;
  }
};

} // namespace lmc
