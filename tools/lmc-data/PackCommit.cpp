#include "tools/lmc-data/PackCommit.h"

#include "ground/support/File.h"
#include "ground/support/Json.h"

#include <sys/stat.h>

namespace lmc {

static constexpr uint64_t kMaximumRecordBytes = 64 << 20;

static std::string recordOf(const PartialFolder &folder) { return folder.nameOf("commit.json"); }

// Returns numbers that identify the file at `path`; null if there is no file.
static nlohmann::json identityOf(const std::string &path) {
  struct stat status {};
  if (path.empty() || stat(path.c_str(), &status) != 0)
    return {};
  return {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec};
}

Result<void> commitPack(const PartialFolders &folders, const std::vector<Rename> &renames,
                        const FinishedPack &pack) {
  nlohmann::json record = {{"identity", pack.identity}, {"report", pack.report}};
  for (const Rename &each : renames)
    record["renames"].push_back({each.from, each.to, identityOf(each.from)});
  // JSON must be UTF-8, so invalid bytes in paths are replaced.
  LMC_TRY(publishFile(recordOf(*folders.front()),
                      record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  LMC_TRY(publish(renames));
  for (size_t i = folders.size(); i-- > 0;) // the first folder, with the record, is removed last
    folders[i]->remove();
  return {};
}

Result<std::optional<FinishedPack>> completePack(PartialFolder &folder) {
  const std::string path = recordOf(folder);
  if (!exists(path))
    return std::optional<FinishedPack>();
  LMC_LET(record, readJsonObject(path, kMaximumRecordBytes));
  FinishedPack pack;
  std::vector<Rename> renames;
  try {
    pack = {record->at("identity"), record->at("report")};
    for (const nlohmann::json &each : record->at("renames"))
      if (identityOf(each.at(0)) == each.at(2)) // not yet renamed
        renames.push_back({each.at(0), each.at(1)});
  } catch (const nlohmann::json::exception &) {
    return userError("{}: is damaged; remove the folder to write the files again", path);
  }
  LMC_TRY(publish(renames));
  LMC_TRY(folder.empty());
  return std::optional(std::move(pack));
}

} // namespace lmc
