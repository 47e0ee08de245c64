// Gives finished files and folders their final names, all of them together.
#pragma once

#include "ground/support/Result.h"

#include <string>
#include <vector>

namespace lmc {

struct Rename {
  std::string from; // file or folder on the file system of `to`; "": `to` is removed
  std::string to;
};

// Renames each `from` that exists. The files of several renames belong together: files that already
// have their names are removed before the first rename, so that an old file never stands beside a
// new one, whenever the process ends. A single file replaces the old one at once. A second call
// after an interrupted one completes it. Error: a file cannot be removed or renamed.
Result<void> publish(const std::vector<Rename> &renames);

} // namespace lmc
