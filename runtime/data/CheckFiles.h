// What shows, before a token is trained on, that a run would read its token files wrongly.
#pragma once

#include "runtime/data/DataSource.h"

#include <memory>
#include <string>
#include <vector>

namespace lmc {

// Returns the number of blocks of `block` tokens that are read of the file. The last token of a
// block needs a successor.
inline uint64_t blocksOf(const TokenFile &file, uint64_t block) {
  return (file.size() - 1) / block;
}

// Checks the files of a data source against the model and each other, with `options.shuffleBlock`
// set. Returns warnings. The errors are those of DataSource::open().
Result<std::vector<std::string>> checkFiles(const DataOptions &options,
                                            const std::vector<std::unique_ptr<TokenFile>> &files);

} // namespace lmc
