// A trie of strings with values.
#pragma once

#include "corpus/tokenizer/models/Model.h"

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace lmc {

// A double array (Aoe, "An Efficient Digital Search Algorithm by Using a Double-Array Structure",
// 1989). A child c of node n for byte b has c = base(n) ^ b and parent(c) = n. The root is node 0.
class Trie {
public:
  // Adds a string, which must be new and not empty. Its memory must stay valid until finish().
  void add(std::string_view key, uint32_t value) { keys.emplace_back(key, value); }
  // Must be called after the last add() and before the first child().
  void finish();
  // Returns the child of `node` for `byte`; 0 if there is none.
  uint32_t child(uint32_t node, char byte) const {
    const uint32_t next = nodes[node].base ^ static_cast<uint8_t>(byte);
    return nodes[next].parent == node ? next : 0;
  }
  // Returns the value of the string that ends at `node`, or kNoId if no string ends there.
  uint32_t value(uint32_t node) const { return nodes[node].value; }

private:
  struct Node {
    uint32_t base = 0;
    uint32_t parent = kNoId; // kNoId: there is no node here
    uint32_t value = kNoId;
  };
  std::vector<std::pair<std::string_view, uint32_t>> keys;
  std::vector<Node> nodes; // their number is a multiple of 256
};

} // namespace lmc
