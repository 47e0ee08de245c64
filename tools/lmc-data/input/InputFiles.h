// The files from which a command reads documents.
#pragma once

#include "tools/lmc-data/input/Documents.h"

#include <string>
#include <vector>

namespace lmc {

// Finds the files of `arguments`, in the order in which they are read: that of the arguments. A
// folder stands for all files below it whose name has a known format (formatOfName()), sorted by
// the bytes of their paths, without names that begin with '.' or '_'; a note on stderr names the
// files that are left out. A pattern with '*', '?' or '[' that no shell has expanded stands for
// what it matches, sorted in the same way. "-" is standard input. Errors: a path does not exist or
// cannot be opened, a folder has no such file, a link in a folder leads back to it, what is named
// is no file (a pipe may be given by its own path), a file is given twice, nothing says the format
// of standard input, or a name in .json, .csv or .tsv would be read as plain text.
Result<std::vector<std::string>> findInputs(const std::vector<std::string> &arguments,
                                            const DocumentOptions &options);

// The identity and state of a regular file at a time; all zeros for standard input, a pipe or a
// missing file.
struct InputStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t seconds = 0, nanoseconds = 0; // of its latest change
  bool operator==(const InputStamp &) const = default;
};
std::vector<InputStamp> stampsOf(const std::vector<std::string> &paths);

// Returns true if the file can be read again and from its middle on, unlike standard input and a
// pipe.
bool canReadAgain(const std::string &path);

// Reads the documents of all files, from a place in the file of number `first` on. `task` is the
// word in a line of progress: "packing". Error: a file cannot be read, or has changed since its
// `stamps`.
Result<void> readInputs(const std::vector<std::string> &paths,
                        const std::vector<InputStamp> &stamps, const DocumentOptions &options,
                        const char *task, DocumentReceiver &receiver, size_t first = 0,
                        const DocumentPlace &from = {});

} // namespace lmc
