// The files from which a command reads documents.
#pragma once

#include "tools/lmc-data/input/Documents.h"

#include <string>
#include <vector>

namespace lmc {

// Returns the files that `arguments` name, in their order. A folder stands for all files below it
// whose names imply a format (formatOfName()) and do not begin with '.' or '_', sorted by path. A
// note on stderr names the other files. A pattern with '*', '?' or '[' stands for the sorted paths
// that it matches. "-" is standard input.
//
// Errors of a path: it is missing, cannot be opened, is given twice, or is no file (nor a pipe that
// the user names). Errors of a folder: no file's name implies a format, or a link leads back to the
// folder. Others: standard input has no format; a .json, .csv or .tsv file would be read as text.
Result<std::vector<std::string>> findInputs(const std::vector<std::string> &arguments,
                                            const DocumentOptions &options);

// The identity and state of a regular file when stampsOf() is called; all zeros for other files.
struct InputStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t seconds = 0, nanoseconds = 0; // time of the file's latest change
  bool operator==(const InputStamp &) const = default;
};
std::vector<InputStamp> stampsOf(const std::vector<std::string> &paths);

// Returns true if the file can be read again from any place, unlike a pipe or standard input.
bool canReadAgain(const std::string &path);

// Reads the documents of all files. Starts in the file paths[first], at the place `from`. `task`
// names the work in the line of progress: "packing". Error: a file cannot be read, or has changed
// since `stamps` were taken.
Result<void> readInputs(const std::vector<std::string> &paths,
                        const std::vector<InputStamp> &stamps, const DocumentOptions &options,
                        const char *task, DocumentReceiver &receiver, size_t first = 0,
                        const DocumentPlace &from = {});

} // namespace lmc
