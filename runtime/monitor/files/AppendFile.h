// Appends whole records, such as lines, to a file of a run.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace lmc {

// If the disk is full, no incomplete record stays in the file. A record that could not be written
// is kept in memory. The next write(), flush() or the destructor tries to write it again.
class AppendFile {
public:
  static Result<AppendFile> open(const std::string &path);

  AppendFile(AppendFile &&other) noexcept;
  AppendFile &operator=(AppendFile &&) = delete;
  ~AppendFile();

  // Writes the records that are kept, and then `record`. After an Error all of them are kept.
  Result<void> write(std::string_view record);

  Result<void> flush();

  // Adds `bytes` to the front of the next record.
  void prepend(std::string_view bytes) { pending.insert(0, bytes); }

  // Forgets the records that are kept, for a caller that itself keeps them and writes them again.
  void drop() { pending.clear(); }

  // Cuts the file to its first `bytes` bytes.
  Result<void> cut(uint64_t bytes);

  // Returns true if the file was removed, so that later records are lost.
  bool isRemoved() const;

  // Syncs all written records, as far as the system can.
  void sync();

  uint64_t size() const { return end; } // bytes of the whole records in the file
  int descriptor() const { return fd; }

private:
  AppendFile(int fd, std::string path) : fd(fd), path(std::move(path)) {}
  int fd = -1;
  std::string path;
  uint64_t end = 0;
  std::string pending; // whole records that are not in the file
};

} // namespace lmc
