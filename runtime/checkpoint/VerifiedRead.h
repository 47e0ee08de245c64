// Compares files with the sizes and hashes that were recorded when they were written.
#pragma once

#include "ground/support/File.h"
#include "runtime/comm/Communicator.h"

#include <xxhash.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// The size and hash of a file. The file is divided into pieces of 16 MiB. `xxh64` is the XXH64 of
// the sequence of the pieces' XXH64s, each 8 little-endian bytes. All XXH64s have the seed 0.
struct FileDigest {
  uint64_t bytes = 0;
  uint64_t xxh64 = 0;
};

// Computes the digest of a file that is written from its beginning to its end.
class FileHasher {
public:
  FileHasher();
  void update(const void *data, uint64_t bytes);
  FileDigest digest(); // may be called once, after the last update()

private:
  std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> piece;
  uint64_t total = 0;
  std::vector<uint64_t> pieces; // hashes of the pieces that are complete
};

struct RecordedFile {
  std::string path;
  FileDigest digest;
};

// Opens the file. Error: it is missing, cannot be read or has another size.
Result<File> openRecorded(const RecordedFile &recorded);

// Receives bytes [offset, offset + bytes) of file number `file`. Several threads call it at once.
using ConsumeBytes =
    std::function<Result<void>(size_t file, uint64_t offset, const void *data, uint64_t bytes)>;

// Reads each byte of `files` once, on several threads, and passes it to `consume`. The hashes are
// compared afterwards: if a file differs from its record, returns the reason, and the caller must
// not use the bytes that `consume` received. Error: `consume` failed.
Result<std::optional<std::string>> readVerified(const std::vector<RecordedFile> &files,
                                                const ConsumeBytes &consume);

// Returns the digest of a file on all ranks. Each rank reads a part of the file.
Result<FileDigest> digestTogether(const std::string &path, Communicator &group);

// Does the same as verifyFiles(), but each rank of the group reads only a part of each file.
Result<void> verifyTogether(const std::vector<RecordedFile> &files, Communicator &group);

// Reads all of `files`. Error: one is damaged, missing or cannot be read.
Result<void> verifyFiles(const std::vector<RecordedFile> &files);

} // namespace lmc
