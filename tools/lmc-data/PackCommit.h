// The last step of a pack gives its files their final names. After an interruption, the next pack
// completes it.
#pragma once

#include "tools/lmc-data/write/PartialFolder.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct FinishedPack {
  nlohmann::json identity; // everything on which its files depend
  std::string report;      // for the console
};

using PartialFolders = std::vector<std::shared_ptr<PartialFolder>>;

// Gives the complete files of a pack their final names, and removes the folders. The first one has
// the record. After an Error, completePack() does the rest.
Result<void> commitPack(const PartialFolders &folders, const std::vector<Rename> &renames,
                        const FinishedPack &pack);

// Completes an interrupted commitPack() whose record is in `folder`, and empties the folder;
// nullopt: there is no record. Leaves a file alone that another pack has written since. Error: that
// of publish(), or the record is damaged.
Result<std::optional<FinishedPack>> completePack(PartialFolder &folder);

} // namespace lmc
