// The tokens that end documents, counted in tokens that are read anyway.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lmc {

class SeparatorCount {
public:
  // `id`: the token that ends a document; below 0: nothing is counted.
  explicit SeparatorCount(int32_t id) : wanted(id) {}

  // Counts the tokens from position `begin` of the file on. A call whose tokens follow those of the
  // call before sees a separator that is doubled across the two.
  void add(uint64_t begin, std::span<const int32_t> tokens);

  int32_t id() const { return wanted; }
  uint64_t tokens() const { return read; }          // that were looked at
  uint64_t separators() const { return found; }     // that are the id
  uint64_t doubled() const { return foundDoubled; } // directly behind another one
  uint64_t firstDoubled() const { return first; }   // its position; only if there is one

  // Returns one line on the file `path` if separators are doubled, with what to do; "" otherwise.
  std::string faultOf(const std::string &path) const;

private:
  int32_t wanted;
  uint64_t read = 0, found = 0, foundDoubled = 0, first = 0;
  uint64_t next = 0;        // position behind the latest token
  bool latestIsOne = false; // the latest token is a separator
};

} // namespace lmc
