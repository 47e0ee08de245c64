// Gives finished files and folders their final names together.
#pragma once

#include "ground/support/Result.h"

#include <string>
#include <vector>

namespace lmc {

struct Rename {
  std::string from; // file or folder on the file system of `to`; "": `to` is removed
  std::string to;
};

// Renames each `from` that exists. Several renames are of files that belong together: the old files
// are removed before the first rename, so an old file never stands beside a new file, even if the
// process ends too early. A single rename replaces the old file at once. If a call is interrupted,
// a second call completes it. Error: a file cannot be removed or renamed.
Result<void> publish(const std::vector<Rename> &renames);

} // namespace lmc
