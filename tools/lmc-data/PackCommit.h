// The last step of a pack, which gives all its files their names. A record of it in OUT.bin.partial
// lets the next pack complete what an interrupted one has begun.
#pragma once

#include "tools/lmc-data/write/PartialFolder.h"
#include "tools/lmc-data/write/Publish.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Facts about a finished pack, for the next one.
struct FinishedPack {
  nlohmann::json identity; // everything on which its files depend
  std::string report;      // for the console
};

using PartialFolders = std::vector<std::shared_ptr<PartialFolder>>;

// Gives the complete files of a pack their names and removes the folders; the record is in the
// first of them. After an Error, or if the process ends during this, completePack() does the rest.
Result<void> commitPack(const PartialFolders &folders, const std::vector<Rename> &renames,
                        const FinishedPack &pack);

// Completes an interrupted commitPack() whose record is in `folder`, and empties the folder;
// nullopt if there is no record. A file that another pack has written since then is left alone.
// Error: that of publish(), or the record cannot be read.
Result<std::optional<FinishedPack>> completePack(PartialFolder &folder);

} // namespace lmc
