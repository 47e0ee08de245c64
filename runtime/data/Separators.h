// Counts the tokens that end documents while tokens are read for another purpose.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lmc {

class SeparatorCount {
public:
  // `id` is the token that ends a document; if it is below 0, nothing is counted.
  explicit SeparatorCount(int32_t id) : wanted(id) {}

  // Counts the tokens from position `begin` of the file on. If the tokens follow those of the call
  // before, a separator that ends that call and begins this one counts as doubled.
  void add(uint64_t begin, std::span<const int32_t> tokens);

  int32_t id() const { return wanted; }
  uint64_t tokens() const { return read; }          // that were looked at
  uint64_t separators() const { return found; }     // that are the id
  uint64_t doubled() const { return foundDoubled; } // directly behind another one
  uint64_t firstDoubled() const { return first; }   // of the first, if doubled() > 0

  // Returns a line about the file `path` with a remedy if separators are doubled; "" otherwise.
  std::string faultOf(const std::string &path) const;

private:
  int32_t wanted;
  uint64_t read = 0, found = 0, foundDoubled = 0, first = 0;
  uint64_t next = 0;        // position behind the latest token
  bool latestIsOne = false; // the latest token is a separator
};

} // namespace lmc
