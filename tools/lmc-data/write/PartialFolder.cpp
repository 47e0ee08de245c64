#include "tools/lmc-data/write/PartialFolder.h"

#include "ground/support/File.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace lmc {

static constexpr std::string_view kOwnNames[] = {"tokens",
                                                 "starts",
                                                 "index",
                                                 "texts",
                                                 "state.json",
                                                 "audit.json",
                                                 "commit.json",
                                                 "state.json.partial",
                                                 "commit.json.partial"};

std::string partialFolder(const std::string &path) { return path + ".partial"; }

static Error cannotCreate(const std::string &path) {
  const bool full = errno == ENOSPC || errno == EDQUOT;
  return {fmt::format("{}: cannot create: {}", path, std::strerror(errno)),
          full ? ExitCode::Failure : ExitCode::UserError};
}

Result<std::shared_ptr<PartialFolder>> PartialFolder::lock(const std::string &path) {
  const std::string folder = partialFolder(path);
  for (;;) {
    if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
      return cannotCreate(path);
    // Refuses links, and folders of other users, because the folder will be emptied.
    const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0 && errno == ENOENT)
      continue; // tries again: another process has just removed the folder
    if (opened < 0)
      return cannotCreate(path);
    struct stat mine, named;
    if (fstat(opened, &mine) != 0 || mine.st_uid != geteuid()) {
      close(opened);
      return userError("{}: belongs to another user; give --output another name", folder);
    }
    // Ignores other errors: a file system without locks cannot tell if another process writes.
    if (flock(opened, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(opened);
      return userError("{}: another lmc-data writes it", path);
    }
    // Tries again if a process that had the lock removed the folder after it was opened here.
    if (stat(folder.c_str(), &named) == 0 && named.st_dev == mine.st_dev &&
        named.st_ino == mine.st_ino)
      return std::shared_ptr<PartialFolder>(new PartialFolder(path, opened));
    close(opened);
  }
}

PartialFolder::~PartialFolder() {
  if (!removed)
    (void)rmdir(partialFolder(path).c_str());
  close(descriptor);
}

std::string PartialFolder::nameOf(const std::string &file) const {
  return partialFolder(path) + "/" + file;
}

Result<void> PartialFolder::empty() const {
  const std::string folder = partialFolder(path);
  LMC_LET(left, listFolder(folder));
  for (const std::string &name : *left)
    if (std::ranges::find(kOwnNames, name) == std::end(kOwnNames))
      return userError("{}: holds '{}', which is not of an unfinished token file; move it away, or "
                       "give --output another name",
                       folder, name);
  for (const std::string &name : *left)
    LMC_TRY(removeTree(folder + "/" + name));
  return {};
}

void PartialFolder::remove() {
  if (!std::exchange(removed, true))
    (void)removeTree(partialFolder(path));
}

// Syncs the folders with the new names. Some network file systems cannot; this is no error.
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
