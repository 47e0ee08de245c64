#include "tools/lmc-run/check/CheckFolder.h"

#include "ground/support/File.h"
#include "ground/support/Size.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/folder/RunDirectory.h"
#include "runtime/watch/DiskSpace.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <unistd.h>

namespace lmc {

static Result<void> writeScratch(const std::string &place) {
  const std::string path = fmt::format("{}/{}{}.file", place, kScratchPrefix, ::getpid());
  const Result<void> written = writeTextFile(path, std::string(4096, 'x'));
  ::unlink(path.c_str());
  return written;
}

// Returns true if the file or folder has not changed for ten minutes.
static bool isOld(const std::string &path) {
  std::error_code failed;
  const auto changed = std::filesystem::last_write_time(path, failed);
  return !failed &&
         std::filesystem::file_time_type::clock::now() - changed > std::chrono::minutes(10);
}

// Removes the scratch folders of killed checks. A running check holds the lock of its folder,
// except just after it has made the folder. So only old folders are removed.
static void removeLeftOvers(const std::string &place) {
  auto names = listFolder(place);
  if (!names)
    return;
  for (const std::string &name : *names) {
    const std::string path = place + "/" + name;
    if (name.starts_with(kScratchPrefix) && isOld(path) && RunDirectory::checkFree(path))
      (void)static_cast<bool>(removeTree(path));
  }
}

void checkFolder(const std::string &out, Findings &findings) {
  const std::string place = nearestFolder(out);
  if (!std::filesystem::is_directory(place))
    return findings.error("folder",
                          fmt::format("{}: it is not a folder; give another --out", place));
  const Result<void> written = writeScratch(place);
  if (!written)
    findings.error("folder", fmt::format("{}; make the folder writable, or give another --out",
                                         written.error().message));
  else
    removeLeftOvers(place);
  const Result<void> isFree = RunDirectory::checkFree(out);
  if (!isFree)
    findings.error("folder", isFree.error().message);
  if (written && isFree)
    findings.ok("folder", exists(out)
                              ? fmt::format("{} can be written, and no run has its lock", out)
                              : fmt::format("{} can be made in {}", out, place));
}

void checkCheckpoints(const std::string &out, const std::optional<std::string> &start,
                      Findings &findings) {
  std::vector<DamagedCheckpoint> damaged;
  auto newest = exists(out) ? findLatestCheckpoint(out, damaged)
                            : Result<std::optional<std::string>>(std::nullopt);
  if (!newest)
    return findings.error("folder", newest.error().message);
  auto isDamaged = [&](const std::string &path, const std::string &fault) {
    findings.error(
        "folder", fmt::format("the checkpoint {} is damaged: {}; restore it from a copy, or remove "
                              "it: the run then goes on from an older one, or from its beginning",
                              path, fault));
  };
  for (const DamagedCheckpoint &each : damaged)
    isDamaged(each.path, each.fault);
  auto verify = [&](const std::string &path) {
    auto state = readCheckpointState(path, /*verifyChecksums=*/true);
    if (!state)
      return isDamaged(path, state.error().message);
    uint64_t bytes = 0;
    std::error_code failed;
    for (const auto &entry : std::filesystem::directory_iterator(path, failed))
      bytes += entry.file_size(failed);
    findings.ok("folder", fmt::format("the checkpoint {} is whole: all {} have their checksums",
                                      path, formatBytes(bytes)));
  };
  if (*newest)
    verify(**newest);
  std::error_code failed;
  if (start && !(*newest && std::filesystem::equivalent(*start, **newest, failed)))
    verify(*start);
}

} // namespace lmc
