#include "tools/lmc-data/write/Publish.h"

#include "ground/support/File.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>

namespace lmc {

// Syncs the folders, so that the new names are on the disk. Ignores failures, because some network
// file systems cannot sync a folder.
static void syncFoldersOf(const std::vector<Rename> &renames) {
  std::set<std::string> folders;
  for (const Rename &each : renames) {
    const std::filesystem::path parent = std::filesystem::path(each.to).parent_path();
    folders.insert(parent.empty() ? "." : parent.string());
  }
  for (const std::string &folder : folders)
    (void)syncFolder(folder);
}

Result<void> publish(const std::vector<Rename> &renames) {
  if (renames.size() > 1) {
    for (const Rename &each : renames)
      if (each.from.empty() || exists(each.from))
        LMC_TRY(removeTree(each.to));
    syncFoldersOf(renames);
  }
  for (const Rename &each : renames)
    if (!each.from.empty() && exists(each.from) && rename(each.from.c_str(), each.to.c_str()) != 0)
      return systemError("rename " + each.from + " to", each.to, errno);
  syncFoldersOf(renames);
  return {};
}

} // namespace lmc
