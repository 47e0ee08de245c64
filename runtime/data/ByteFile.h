// A regular file that is read at any position. It is not mapped: if a mapped file shrinks or its
// disk fails, the program gets the signal SIGBUS.
#pragma once

#include "ground/support/Result.h"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace lmc {

class ByteFile {
public:
  // Errors: the file is missing, cannot be opened, is no regular file or has 0 bytes.
  static Result<ByteFile> open(const std::string &path);
  ByteFile(ByteFile &&other) noexcept;
  ~ByteFile();

  const std::string &path() const { return name; }
  uint64_t bytes() const { return size; } // size when the file was opened
  // Two open files are the same file if they have the same identity, which is (device, inode).
  std::pair<uint64_t, uint64_t> identity() const { return id; }

  // Returns the Error "PATH: WHAT", where fmt::format() makes WHAT.
  template <typename... Arguments>
  Error bad(fmt::format_string<Arguments...> what, Arguments &&...arguments) const {
    return {name + ": " + fmt::format(what, std::forward<Arguments>(arguments)...)};
  }

  // Reads `count` bytes from byte `offset` on. Thread safe. Error: the file has become too short,
  // or cannot be read.
  Result<void> read(uint64_t offset, uint64_t count, void *out) const;

  // Calls `visit` for 64 pieces of 4 KiB, evenly spaced from the beginning to the end of the bytes
  // [begin, end). A range of at most 256 KiB is one piece.
  Result<void>
  sample(uint64_t begin, uint64_t end,
         const std::function<void(uint64_t offset, std::span<const unsigned char>)> &visit) const;

  // Returns XXH64, seed 0, of the pieces that sample() visits.
  Result<uint64_t> sampleHash(uint64_t begin, uint64_t end) const;

private:
  ByteFile(int descriptor, const std::string &path) : descriptor(descriptor), name(path) {}
  int descriptor = -1;
  uint64_t size = 0;
  std::pair<uint64_t, uint64_t> id;
  std::string name;
};

} // namespace lmc
