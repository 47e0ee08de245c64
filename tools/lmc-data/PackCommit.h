// The last step of a pack gives its files their final names. If this step is interrupted, the next
// pack completes it.
#pragma once

#include "tools/lmc-data/write/PartialFolder.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct FinishedPack {
  nlohmann::json identity; // lmc's release, the inputs and the options; the files depend on these
  std::string report;      // for the console
};

using PartialFolders = std::vector<std::shared_ptr<PartialFolder>>;

// Gives the complete files of a pack their final names, and then removes `folders`. Records the
// renames in the first folder, so that completePack() can do the rest after an Error.
Result<void> commitPack(const PartialFolders &folders, const std::vector<Rename> &renames,
                        const FinishedPack &pack);

// Completes an interrupted commitPack() from its record in `folder`, and empties the folder. Does
// not rename a file that another pack has written after the interruption. Returns nullopt if there
// is no record. Errors: publish() fails, or the record is damaged.
Result<std::optional<FinishedPack>> completePack(PartialFolder &folder);

} // namespace lmc
