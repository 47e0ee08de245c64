// The last step of a pack, which gives all its files their final names. A record of this step in
// OUT.bin.partial lets the next pack complete it if it is interrupted.
#pragma once

#include "tools/lmc-data/write/PartialFolder.h"

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

// Gives the complete files of a pack their final names, and removes the folders, of which the first
// has the record. After an Error, or if the process ends too early, completePack() does the rest.
Result<void> commitPack(const PartialFolders &folders, const std::vector<Rename> &renames,
                        const FinishedPack &pack);

// Completes an interrupted commitPack() whose record is in `folder`, and empties the folder.
// Returns nullopt if there is no record. Leaves a file alone that another pack has written since
// then. Error: that of publish(), or the record cannot be read.
Result<std::optional<FinishedPack>> completePack(PartialFolder &folder);

} // namespace lmc
