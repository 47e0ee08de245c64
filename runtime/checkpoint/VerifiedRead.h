// Reads files completely and compares them with the sizes and hashes that were recorded when they
// were written. Several threads read and hash, even within one file.
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

// The size and hash of a file. The file is cut into pieces of 16 MiB; the last piece may be
// shorter. `xxh64` is the XXH64 (seed 0) of the list of the pieces' XXH64s (seed 0; 8 bytes each,
// little-endian), so that pieces can be hashed in any order.
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

// Reads each byte of `files` once and passes it to `consume` before the hash is checked. Returns
// nullopt if all files are as recorded. Otherwise returns the fault of one file, and the bytes that
// `consume` received must not be used. Error: `consume` failed.
Result<std::optional<std::string>> readVerified(const std::vector<RecordedFile> &files,
                                                const ConsumeBytes &consume);

// Returns the digest of a file, of which each rank of the group reads a part. All ranks get the
// same digest, or an Error.
Result<FileDigest> digestTogether(const std::string &path, Communicator &group);

// Does the same as verifyFiles(). Each rank of the group reads a part of each file.
Result<void> verifyTogether(const std::vector<RecordedFile> &files, Communicator &group);

// Reads all of `files`. Error: one is damaged, missing or cannot be read.
Result<void> verifyFiles(const std::vector<RecordedFile> &files);

} // namespace lmc
