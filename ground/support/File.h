// Functions for files and folders. A function that syncs returns when the data is on the disk.
//
// Every Error names the path and the system's reason. Its exit code is UserError if a path to be
// read is missing or cannot be opened. Otherwise it is Failure, for example if a disk is full.
#pragma once

#include "ground/support/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lmc {

// Returns the Error "cannot ACTION PATH: REASON" for an errno value.
Error systemError(const std::string &action, const std::string &path, int errorNumber);

// An open file, which the destructor closes. read() and write() continue at the file's offset.
class File {
public:
  // Opens `path` only if it is a regular file: a FIFO could block.
  static Result<File> openForReading(const std::string &path);
  // Creates the file, or empties an existing one.
  static Result<File> create(const std::string &path);
  // Opens an existing file and keeps its contents.
  static Result<File> openForWriting(const std::string &path);
  // Opens an existing file and removes all but its first `bytes` bytes. write() appends to them.
  static Result<File> openForAppending(const std::string &path, uint64_t bytes);

  File(File &&other) noexcept;
  File &operator=(File &&other) noexcept;
  ~File();

  // Writes all `bytes` bytes at `data`, with as many system calls as necessary.
  Result<void> write(const void *data, size_t bytes);
  // Like write(), but begins at byte `offset` of the file.
  Result<void> writeAt(const void *data, size_t bytes, uint64_t offset);
  // Makes the file `bytes` bytes long. Bytes after its old end are zeros.
  Result<void> resize(uint64_t bytes);
  // Reads `bytes` bytes, or fewer at the end of the file. Returns the number of bytes that it read.
  Result<size_t> read(void *data, size_t bytes);
  // Like read(), but from byte `offset` of the file. Several threads may call it at the same time.
  Result<size_t> readAt(void *data, size_t bytes, uint64_t offset) const;
  Result<uint64_t> size() const;
  // Syncs the contents.
  Result<void> sync();
  // Closes the file. Some file systems report a failed write only when the file is closed.
  Result<void> close();

  int descriptor() const { return fd; }
  const std::string &path() const { return name; }

private:
  File(int fd, std::string path) : fd(fd), name(std::move(path)) {}
  int fd = -1;
  std::string name;
};

// A file that is mapped into memory, read-only. While it is mapped, no process may shorten it.
class MappedFile {
public:
  static Result<MappedFile> open(const std::string &path);

  // Returns the start of the mapped bytes, aligned to a page, or nullptr for an empty file.
  const std::byte *data() const { return mapped.get(); }
  size_t size() const { return mapped.get_deleter().bytes; }
  const std::string &path() const { return name; }

private:
  struct Unmap {
    size_t bytes;
    void operator()(const std::byte *start) const;
  };
  MappedFile(const std::byte *start, size_t bytes, std::string path)
      : mapped(start, {bytes}), name(std::move(path)) {}
  std::unique_ptr<const std::byte[], Unmap> mapped;
  std::string name;
};

// Returns the whole text of a file. Error: the file has more than `maximumBytes` bytes.
Result<std::string> readTextFile(const std::string &path, uint64_t maximumBytes);

// Creates the file `path` with the contents `text`, and syncs it.
Result<void> writeTextFile(const std::string &path, const std::string &text);

// Writes `text` to PATH.partial, renames this file to `path`, and syncs the file and its folder. At
// every moment, `path` has either its old or its new contents.
Result<void> publishFile(const std::string &path, const std::string &text);

// Does the same as publishFile(), but without syncing: a machine crash may lose the new contents.
Result<void> replaceFile(const std::string &path, const std::string &text);

// Syncs the entries of a folder: new names, renames and removals.
Result<void> syncFolder(const std::string &path);

// Creates and syncs a folder, if it is missing. Error: so is its parent.
Result<void> makeFolder(const std::string &path);

// Creates and syncs a folder and its missing parents.
Result<void> makeFolders(const std::string &path);

// Removes a file, or a folder and everything in it. A missing path is no Error.
Result<void> removeTree(const std::string &path);

bool exists(const std::string &path);

// Returns the paths that match a pattern with '*', '?' and '[', sorted by bytes. Returns only
// `pattern` if it has no such wildcard or is an existing path. Error: no path matches.
Result<std::vector<std::string>> expandPattern(const std::string &pattern);

// Returns the names of a folder's entries, sorted, without "." and "..".
Result<std::vector<std::string>> listFolder(const std::string &path);

// Returns how many bytes an unprivileged user may still write to the disk that holds `path`.
Result<uint64_t> freeBytes(const std::string &path);

// Renames the complete folder `from` to `to`, removes the old folder at `to`, and syncs the result.
// At every moment, the old or the new folder is complete at `to`. Exception: if the file system
// cannot exchange names, the old folder may be at `aside`. All paths must have the same parent.
Result<void> publishFolder(const std::string &from, const std::string &to,
                           const std::string &aside);

} // namespace lmc
