// Checks token files before training.
#pragma once

#include "runtime/data/DataSource.h"

#include <string>
#include <vector>

namespace lmc {

// Returns the number of blocks of `block` tokens in the file. The file must have one more token
// after the last block, because this token is the target of the block's last token.
inline uint64_t blocksOf(const TokenFile &file, uint64_t block) {
  return (file.size() - 1) / block;
}

using TokenFiles = std::vector<const TokenFile *>;

// checkFiles() and compareFiles() return warnings. They require options.shuffleBlock > 0. Their
// errors are those of DataSource::open().

// Checks the files of one source against the model.
Result<std::vector<std::string>> checkFiles(const DataOptions &options, const TokenFiles &files);
// Checks the files of all sources against each other.
Result<std::vector<std::string>> compareFiles(const DataOptions &options, const TokenFiles &files);

} // namespace lmc
