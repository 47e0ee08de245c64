#include "runtime/data/ByteFile.h"

#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace lmc {

static constexpr uint64_t kPieces = 64, kPieceBytes = 4096; // number and size of a sample's pieces

ByteFile::ByteFile(ByteFile &&other) noexcept
    : descriptor(std::exchange(other.descriptor, -1)), size(other.size), id(other.id),
      name(std::move(other.name)) {}

ByteFile::~ByteFile() {
  if (descriptor >= 0)
    close(descriptor);
}

Result<ByteFile> ByteFile::open(const std::string &path) {
  // Without O_NONBLOCK, opening a FIFO that nobody writes to would wait forever.
  ByteFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), path);
  if (file.descriptor < 0)
    return errno == ENOENT ? file.bad("missing: no such token file")
                           : file.bad("cannot open: {}", std::strerror(errno));
  struct stat status;
  if (fstat(file.descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    return file.bad("not a regular file");
  if (status.st_size == 0)
    return file.bad("empty: 0 bytes, no tokens");
  file.size = static_cast<uint64_t>(status.st_size);
  file.id = {status.st_dev, status.st_ino};
  return file;
}

Result<void> ByteFile::read(uint64_t offset, uint64_t count, void *out) const {
  for (uint64_t done = 0; done < count;) {
    ssize_t got = pread(descriptor, static_cast<char *>(out) + done, count - done,
                        static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return machineError("{}: cannot read at byte {}: {}", name, offset + done,
                          std::strerror(errno));
    if (got == 0) {
      struct stat status {};
      fstat(descriptor, &status);
      return machineError("{}: has {} bytes, but had {} when it was opened; it was cut short while "
                          "it was read, copy it again",
                          name, status.st_size, size);
    }
    done += static_cast<uint64_t>(got);
  }
  return {};
}

Result<void> ByteFile::sample(
    uint64_t begin, uint64_t end,
    const std::function<void(uint64_t offset, std::span<const unsigned char>)> &visit) const {
  const uint64_t length = end - begin;
  const bool whole = length <= kPieces * kPieceBytes;
  std::vector<unsigned char> piece(whole ? length : kPieceBytes);
  for (uint64_t i = 0; i < (whole ? 1 : kPieces); ++i) {
    const uint64_t offset = begin + i * (length - piece.size()) / (kPieces - 1);
    LMC_TRY(read(offset, piece.size(), piece.data()));
    visit(offset, piece);
  }
  return {};
}

Result<uint64_t> ByteFile::sampleHash(uint64_t begin, uint64_t end) const {
  std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> hash(XXH64_createState(),
                                                                  &XXH64_freeState);
  XXH64_reset(hash.get(), 0);
  LMC_TRY(sample(begin, end, [&](uint64_t, std::span<const unsigned char> piece) {
    XXH64_update(hash.get(), piece.data(), piece.size());
  }));
  return XXH64_digest(hash.get());
}

} // namespace lmc
