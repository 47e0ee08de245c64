// Files with a JSON object per step of a run, in the order of the steps.
#pragma once

#include "runtime/monitor/files/LineFile.h"

#include <cstdint>
#include <functional>
#include <string>

namespace lmc {

// Opens `path`, or creates it, to continue after step `lastStep`. The first line whose "step" is
// later, and all lines after it, are moved to the file that `undone` returns, and so is a part of a
// line at the end, which a killed run may leave.
Result<LineFile> openStepLines(const std::string &path, int64_t lastStep,
                               const std::function<Result<std::string>()> &undone);

} // namespace lmc
