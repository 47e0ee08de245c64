// The files that a command reads documents from.
#pragma once

#include "tools/lmc-data/input/Documents.h"

#include <string>
#include <vector>

namespace lmc {

// Finds the files of `arguments`, in the order in which they are read: that of the arguments. A
// folder stands for all files below it whose name says a format (formatOfName()), sorted by the
// bytes of their paths, without names that begin with '.' or '_'; a note on stderr names the files
// that are left out. A pattern with '*', '?' or '[' that no shell has expanded stands for what it
// matches, sorted in the same way. "-" is standard input.
// Errors: a path does not exist or cannot be opened, a folder has no such file, a link in a folder
// leads back to it, what is named is no file (a pipe may be given by its own path), a file is given
// twice, nothing says the format of standard input, or a name in .json, .csv or .tsv would be read
// as plain text.
Result<std::vector<std::string>> findInputs(const std::vector<std::string> &arguments,
                                            const DocumentOptions &options);

// What a regular file is at a time; all zeros of standard input, a pipe or a file that is not
// there.
struct InputStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t seconds = 0, nanoseconds = 0; // of its latest change
  bool operator==(const InputStamp &) const = default;
};
std::vector<InputStamp> stampsOf(const std::vector<std::string> &paths);

// Returns true if the file can be read a second time and from its middle on, as standard input and
// a pipe cannot.
bool canReadAgain(const std::string &path);

// Reads the documents of all files, from a place in the file of number `first` on. `task` is what a
// line of progress says: "packing". Error: a file cannot be read, or at its end is no longer what
// `stamps` says.
Result<void> readInputs(const std::vector<std::string> &paths,
                        const std::vector<InputStamp> &stamps, const DocumentOptions &options,
                        const char *task, DocumentReceiver &receiver, size_t first = 0,
                        const DocumentPlace &from = {});

} // namespace lmc
