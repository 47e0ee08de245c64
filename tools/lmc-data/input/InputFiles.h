// The files from which a command reads documents.
#pragma once

#include "tools/lmc-data/input/Documents.h"

#include <string>
#include <vector>

namespace lmc {

// Returns the files that `arguments` name, in the order of the arguments. A folder stands for all
// files below it whose names imply a format (formatOfName()) and do not begin with '.' or '_',
// sorted by the bytes of their paths; a note on stderr names the files that are left out. A pattern
// with '*', '?' or '[' that no shell has expanded stands for the paths that it matches, sorted in
// the same way. "-" is standard input. Errors: a path does not exist, cannot be opened or is no
// file (a pipe may be given by its own path); a folder has no file with a format; a link in a
// folder leads back to the folder; a file is given twice; nothing tells the format of standard
// input; or a .json, .csv or .tsv file would be read as plain text.
Result<std::vector<std::string>> findInputs(const std::vector<std::string> &arguments,
                                            const DocumentOptions &options);

// The identity and state of a regular file at a moment; all zeros for standard input, a pipe or a
// missing file.
struct InputStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t seconds = 0, nanoseconds = 0; // of its latest change
  bool operator==(const InputStamp &) const = default;
};
std::vector<InputStamp> stampsOf(const std::vector<std::string> &paths);

// Returns true if the file can be read several times and from any place on. Standard input and
// pipes cannot.
bool canReadAgain(const std::string &path);

// Reads the documents of all files, from the place `from` in the file of index `first` on. `task`
// is a word for the line of progress: "packing". Error: a file cannot be read, or has changed since
// `stamps` were taken.
Result<void> readInputs(const std::vector<std::string> &paths,
                        const std::vector<InputStamp> &stamps, const DocumentOptions &options,
                        const char *task, DocumentReceiver &receiver, size_t first = 0,
                        const DocumentPlace &from = {});

} // namespace lmc
