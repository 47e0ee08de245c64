// Files and folders, with errors as values and durability spelled out.
//
// Every Error names the path and the system's reason. A missing or mistyped
// path given for reading is the user's (ExitCode::UserError); a full, failing or
// unwritable disk is the machine's (ExitCode::Failure).
#pragma once

#include "runtime/support/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

// "cannot ACTION PATH: REASON" for an errno value.
Error systemError(const std::string &action, const std::string &path, int errorNumber);

// An open file; closed when destroyed. Reads and writes are sequential.
class File {
public:
  // Regular files only, so that a FIFO or a device cannot block or mislead.
  static Result<File> openForReading(const std::string &path);
  // Creates the file or empties it.
  static Result<File> create(const std::string &path);

  File(File &&other) noexcept;
  File &operator=(File &&other) noexcept;
  ~File();

  // Writes all of it, however many system calls that takes.
  Result<void> write(const void *data, size_t bytes);
  // Reads up to `bytes`; fewer only at the end of the file.
  Result<size_t> read(void *data, size_t bytes);
  Result<uint64_t> size() const;
  // Returns when the contents are on the disk.
  Result<void> sync();
  // Some file systems report a failed write only here.
  Result<void> close();

  int descriptor() const { return fd; }
  const std::string &path() const { return name; }

private:
  File(int fd, std::string path) : fd(fd), name(std::move(path)) {}
  int fd = -1;
  std::string name;
};

// A file mapped read-only. Its size is fixed at the time of opening: nobody may
// shorten the file while it is mapped.
class MappedFile {
public:
  static Result<MappedFile> open(const std::string &path);

  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  ~MappedFile();

  // Page-aligned; nullptr for an empty file.
  const std::byte *data() const { return start; }
  size_t size() const { return bytes; }
  const std::string &path() const { return name; }

private:
  MappedFile(const std::byte *start, size_t bytes, std::string path)
      : start(start), bytes(bytes), name(std::move(path)) {}
  const std::byte *start = nullptr;
  size_t bytes = 0;
  std::string name;
};

// The whole text of a file of at most `maximumBytes`; a larger one is an Error.
Result<std::string> readTextFile(const std::string &path, uint64_t maximumBytes);

// Creates the file with this text and returns when it is on the disk.
Result<void> writeTextFile(const std::string &path, const std::string &text);

// Makes a folder's entries (new names, renames, removals) durable.
Result<void> syncFolder(const std::string &path);

// Creates the folder and its missing parents, durably.
Result<void> makeFolders(const std::string &path);

// Removes a file or a folder and all below it; a missing one is fine.
Result<void> removeTree(const std::string &path);

bool exists(const std::string &path);

// Names of a folder's entries, sorted, without "." and "..".
Result<std::vector<std::string>> listFolder(const std::string &path);

// Bytes that an unprivileged writer may still use on the disk that holds `path`.
Result<uint64_t> freeBytes(const std::string &path);

// Renames the finished folder `from` to `to`, durably, and removes what was at
// `to` before. At every moment a whole folder can be found: at `to`, or, on file
// systems that cannot exchange two names, the old one at `aside` (then a crash in
// between leaves it there). All three must be in one parent folder.
Result<void> publishFolder(const std::string &from, const std::string &to,
                           const std::string &aside);

} // namespace lmc
