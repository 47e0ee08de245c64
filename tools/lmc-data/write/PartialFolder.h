// The folder PATH.partial, in which a file PATH is written until it is complete.
#pragma once

#include "ground/support/Result.h"

#include <memory>
#include <string>

namespace lmc {

class PartialFolder {
public:
  // Creates the folder of the file `path` if it does not exist, and locks it until this object is
  // destroyed or the process ends, however it ends. Errors: the folder is a link, belongs to
  // another user or cannot be created, or another process has locked it.
  static Result<std::shared_ptr<PartialFolder>> lock(const std::string &path);
  // Removes the folder if it is empty, and ends the lock.
  ~PartialFolder();
  PartialFolder(const PartialFolder &) = delete;
  PartialFolder &operator=(const PartialFolder &) = delete;

  const std::string &target() const { return path; } // PATH
  std::string nameOf(const std::string &file) const;
  // Removes the files that an interrupted process has left in the folder. Error, without removing
  // anything: the folder holds a file that does not belong to an unfinished token file.
  Result<void> empty() const;
  // Removes the folder with all its contents. The lock stays.
  void remove();

private:
  PartialFolder(std::string path, int descriptor) : path(std::move(path)), descriptor(descriptor) {}
  std::string path;
  int descriptor;
  bool removed = false;
};

// Returns the name of the folder: PATH.partial.
std::string partialFolder(const std::string &path);

} // namespace lmc
