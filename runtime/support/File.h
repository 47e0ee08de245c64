// Files and folders, with errors as values and explicit durability.
//
// Every Error names the path and the system's reason. If a path to be read is missing or cannot be
// opened, the user made a mistake (ExitCode::UserError); if a disk is full, fails or cannot be
// written, the machine failed (ExitCode::Failure).
#pragma once

#include "runtime/support/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

// Returns "cannot ACTION PATH: REASON" for an errno value.
Error systemError(const std::string &action, const std::string &path, int errorNumber);

// An open file; closed when destroyed. Reads and writes are sequential.
class File {
public:
  // Opens regular files only: a FIFO could block, and a device could give endless data.
  static Result<File> openForReading(const std::string &path);
  // Creates the file, or empties an existing one.
  static Result<File> create(const std::string &path);

  File(File &&other) noexcept;
  File &operator=(File &&other) noexcept;
  ~File();

  // Writes all of `data`, with as many system calls as necessary.
  Result<void> write(const void *data, size_t bytes);
  // Reads up to `bytes`; fewer only at the end of the file.
  Result<size_t> read(void *data, size_t bytes);
  Result<uint64_t> size() const;
  // Returns when the contents are on the disk.
  Result<void> sync();
  // Closes the file. Some file systems report a failed write only here.
  Result<void> close();

  int descriptor() const { return fd; }
  const std::string &path() const { return name; }

private:
  File(int fd, std::string path) : fd(fd), name(std::move(path)) {}
  int fd = -1;
  std::string name;
};

// A file mapped read-only. Its size is that at the time of opening: no process may shorten the file
// while it is mapped.
class MappedFile {
public:
  static Result<MappedFile> open(const std::string &path);

  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  ~MappedFile();

  // The data is aligned to a page; nullptr for an empty file.
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

// Returns the whole text of a file. A file of more than `maximumBytes` is an Error.
Result<std::string> readTextFile(const std::string &path, uint64_t maximumBytes);

// Creates the file with this text and returns when the text is on the disk.
Result<void> writeTextFile(const std::string &path, const std::string &text);

// Makes a folder's entries (new names, renames, removals) durable.
Result<void> syncFolder(const std::string &path);

// Creates the folder and its missing parents, durably.
Result<void> makeFolders(const std::string &path);

// Removes a file, or a folder and everything in it. A missing path is no Error.
Result<void> removeTree(const std::string &path);

bool exists(const std::string &path);

// Returns the names of a folder's entries, sorted, without "." and "..".
Result<std::vector<std::string>> listFolder(const std::string &path);

// Returns the bytes that an unprivileged user may still write on the disk that holds `path`.
Result<uint64_t> freeBytes(const std::string &path);

// Renames the finished folder `from` to `to`, durably, and removes the folder that was at `to`. At
// every moment a whole folder exists: at `to`, or, on file systems that cannot exchange two names,
// the old one at `aside` (a crash in between leaves it there). All three paths must have the same
// parent folder.
Result<void> publishFolder(const std::string &from, const std::string &to,
                           const std::string &aside);

} // namespace lmc
