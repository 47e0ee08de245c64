// Counts the tokens that end documents (separators).
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lmc {

class SeparatorCount {
public:
  // `id` is the token that ends a document; if it is below 0, nothing is counted.
  explicit SeparatorCount(int32_t id) : wanted(id) {}

  // Counts the separators in `tokens`; tokens[0] is token `begin` of the file. A separator is
  // doubled if the token before it, which may be from an earlier call, is a separator, too.
  void add(uint64_t begin, std::span<const int32_t> tokens);

  int32_t id() const { return wanted; }
  uint64_t tokens() const { return read; }
  uint64_t separators() const { return found; }
  uint64_t doubled() const { return foundDoubled; } // separators directly after another one
  uint64_t firstDoubled() const { return first; }   // position of the first doubled one, if any

  // Returns a warning that `path` has doubled separators, and what to do; "" if it has none.
  std::string faultOf(const std::string &path) const;

private:
  int32_t wanted;
  uint64_t read = 0, found = 0, foundDoubled = 0, first = 0;
  uint64_t next = 0;        // position after the latest token
  bool latestIsOne = false; // true if the latest token is a separator
};

} // namespace lmc
