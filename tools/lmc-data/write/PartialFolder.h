// A file PATH is written in the folder PATH.partial until it is complete. Renames then give all
// finished files their final names together.
#pragma once

#include "ground/support/Result.h"

#include <memory>
#include <string>
#include <vector>

namespace lmc {

class PartialFolder {
public:
  // Creates the folder of the file `path` if it is missing, and locks it until this object is
  // destroyed or the process ends. Errors: the folder is a link, belongs to another user or cannot
  // be created, or another process has locked it.
  static Result<std::shared_ptr<PartialFolder>> lock(const std::string &path);
  // Removes the folder if it is empty, and ends the lock.
  ~PartialFolder();
  PartialFolder(const PartialFolder &) = delete;
  PartialFolder &operator=(const PartialFolder &) = delete;

  const std::string &target() const { return path; } // PATH
  std::string nameOf(const std::string &file) const;
  // Removes the files that an interrupted process has left. If the folder holds another file,
  // removes nothing and returns an Error.
  Result<void> empty() const;
  // Removes the folder with all its contents. The lock stays.
  void remove();

private:
  PartialFolder(std::string path, int descriptor) : path(std::move(path)), descriptor(descriptor) {}
  std::string path;
  int descriptor;
  bool removed = false;
};

std::string partialFolder(const std::string &path);

struct Rename {
  std::string from; // file or folder on the file system of `to`; "": `to` is removed
  std::string to;
};

// Renames each `from` that exists. If there are several renames, first removes all old files, so
// that an old file never stands beside a new one. If a call is interrupted, a second call completes
// it. Error: a file cannot be removed or renamed.
Result<void> publish(const std::vector<Rename> &renames);

} // namespace lmc
