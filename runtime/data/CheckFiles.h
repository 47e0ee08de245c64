// Finds signs, before training, that a run would read its token files wrongly.
#pragma once

#include "runtime/data/DataSource.h"

#include <string>
#include <vector>

namespace lmc {

// Returns the number of blocks of `block` tokens in the file. The last token of a block needs a
// successor as its target.
inline uint64_t blocksOf(const TokenFile &file, uint64_t block) {
  return (file.size() - 1) / block;
}

using TokenFiles = std::vector<const TokenFile *>;

// Both functions return warnings; their errors are those of DataSource::open(). They require
// options.shuffleBlock > 0.

// Checks the files of one source against the model.
Result<std::vector<std::string>> checkFiles(const DataOptions &options, const TokenFiles &files);
// Checks the files of all sources against each other.
Result<std::vector<std::string>> compareFiles(const DataOptions &options, const TokenFiles &files);

} // namespace lmc
