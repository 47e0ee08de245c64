#include "runtime/checkpoint/VerifiedRead.h"

#include "runtime/comm/Agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <system_error>
#include <thread>

namespace lmc {

static_assert(std::endian::native == std::endian::little, "hashes are hashed as little-endian");

static constexpr uint64_t kPieceBytes = 16 << 20;
// The number of bytes that a thread reads, hashes and passes on at a time; they fit in its cache.
static constexpr uint64_t kBlockBytes = 1 << 20;
static constexpr unsigned kMaximumThreads = 16;

static uint64_t combine(const std::vector<uint64_t> &pieces) {
  return XXH64(pieces.data(), pieces.size() * sizeof(uint64_t), 0);
}

FileHasher::FileHasher() : piece(XXH64_createState(), &XXH64_freeState) {
  XXH64_reset(piece.get(), 0);
}

void FileHasher::update(const void *data, uint64_t bytes) {
  const auto *next = static_cast<const std::byte *>(data);
  while (bytes > 0) {
    const uint64_t part = std::min(bytes, kPieceBytes - total % kPieceBytes);
    XXH64_update(piece.get(), next, part);
    next += part;
    bytes -= part;
    total += part;
    if (total % kPieceBytes == 0) {
      pieces.push_back(XXH64_digest(piece.get()));
      XXH64_reset(piece.get(), 0);
    }
  }
}

FileDigest FileHasher::digest() {
  if (total % kPieceBytes != 0)
    pieces.push_back(XXH64_digest(piece.get()));
  return {total, combine(pieces)};
}

static Error damaged(const std::string &path) {
  return userError("{}: damaged: its contents do not match its checksum", path);
}

static Error wrongSize(const RecordedFile &recorded, uint64_t bytes) {
  return userError("{}: damaged: it has {} bytes instead of {}", recorded.path, bytes,
                   recorded.digest.bytes);
}

Result<File> openRecorded(const RecordedFile &recorded) {
  LMC_LET(file, File::openForReading(recorded.path));
  LMC_LET(bytes, file->size());
  if (*bytes != recorded.digest.bytes)
    return wrongSize(recorded, *bytes);
  return file;
}

// Reads bytes [begin, end) of a file in blocks, and returns their hash. After reading a block into
// `block`, calls use(offset, bytes) with its place in the file.
template <typename Use>
static Result<uint64_t> hashPiece(const File &file, uint64_t begin, uint64_t end,
                                  std::vector<std::byte> &block, const Use &use) {
  const std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> hash(XXH64_createState(),
                                                                        &XXH64_freeState);
  XXH64_reset(hash.get(), 0);
  for (uint64_t offset = begin; offset < end; offset += kBlockBytes) {
    const uint64_t bytes = std::min(kBlockBytes, end - offset);
    LMC_LET(got, file.readAt(block.data(), bytes, offset));
    if (*got < bytes)
      return userError("{}: damaged: it ends at byte {}", file.path(), offset + *got);
    XXH64_update(hash.get(), block.data(), bytes);
    LMC_TRY(use(offset, bytes));
  }
  return XXH64_digest(hash.get());
}

namespace {

struct Piece {
  size_t file;
  uint64_t begin, end; // byte range in the file
};

// The pieces of work that threads share. Each thread takes the next piece until a thread fails.
class Reading {
public:
  Reading(const std::vector<RecordedFile> &files, const ConsumeBytes &consume)
      : files(files), consume(consume), hashes(files.size()) {}

  // Opens the files and compares their sizes. Returns the first error message, or nullopt.
  std::optional<std::string> open() {
    for (size_t i = 0; i < files.size(); ++i) {
      Result<File> file = openRecorded(files[i]);
      if (!file)
        return file.error().message;
      opened.push_back(std::move(*file));
      const uint64_t bytes = files[i].digest.bytes;
      for (uint64_t begin = 0; begin < bytes; begin += kPieceBytes)
        pieces.push_back({i, begin, std::min(begin + kPieceBytes, bytes)});
      hashes[i].resize((bytes + kPieceBytes - 1) / kPieceBytes);
    }
    return std::nullopt;
  }

  void run() {
    const size_t count = std::clamp<size_t>(
        std::min<size_t>(pieces.size(), std::thread::hardware_concurrency()), 1, kMaximumThreads);
    std::vector<std::vector<std::byte>> blocks(count, std::vector<std::byte>(kBlockBytes));
    std::vector<std::thread> threads;
    for (size_t i = 1; i < count; ++i)
      try {
        threads.emplace_back([&, i] { work(blocks[i]); });
      } catch (const std::system_error &) {
        break; // no further thread can start: the others do the work
      }
    work(blocks[0]);
    for (std::thread &thread : threads)
      thread.join();
  }

  Result<std::optional<std::string>> outcome() {
    if (failure)
      return *failure;
    for (size_t i = 0; i < files.size() && !fault; ++i)
      if (combine(hashes[i]) != files[i].digest.xxh64)
        fault = damaged(files[i].path).message;
    return fault;
  }

private:
  void work(std::vector<std::byte> &block) {
    for (size_t i; !ended && (i = next++) < pieces.size();) {
      const Piece &piece = pieces[i];
      Result<void> consumed;
      auto use = [&](uint64_t offset, uint64_t bytes) -> Result<void> {
        if (ended)
          return Error{}; // another thread has failed
        return consumed = consume(piece.file, offset, block.data(), bytes);
      };
      const auto hash = hashPiece(opened[piece.file], piece.begin, piece.end, block, use);
      if (!consumed)
        return end(failure, consumed.error());
      if (ended)
        return;
      if (!hash)
        return end(fault, hash.error().message);
      hashes[piece.file][piece.begin / kPieceBytes] = *hash;
    }
  }
  template <typename What> void end(std::optional<What> &place, const What &what) {
    std::lock_guard lock(mutex);
    place = what;
    ended = true;
  }

  const std::vector<RecordedFile> &files;
  const ConsumeBytes &consume;
  std::vector<File> opened;
  std::vector<Piece> pieces;
  std::vector<std::vector<uint64_t>> hashes; // the hashes of each file's pieces
  std::atomic<size_t> next = 0;
  std::atomic<bool> ended = false;
  std::mutex mutex; // guards the two members below
  std::optional<std::string> fault;
  std::optional<Error> failure;
};

} // namespace

Result<std::optional<std::string>> readVerified(const std::vector<RecordedFile> &files,
                                                const ConsumeBytes &consume) {
  Reading reading(files, consume);
  if (std::optional<std::string> fault = reading.open())
    return fault;
  reading.run();
  return reading.outcome();
}

Result<void> verifyFiles(const std::vector<RecordedFile> &files) {
  auto ignore = [](size_t, uint64_t, const void *, uint64_t) { return Result<void>(); };
  LMC_LET(fault, readVerified(files, ignore));
  return *fault ? Result<void>(Error{**fault}) : Result<void>();
}

// Returns the size, and the hashes of this rank's pieces: p, p + n, p + 2n, ... for rank p of n.
static Result<std::pair<uint64_t, std::vector<uint64_t>>> hashShare(const std::string &path,
                                                                    const Communicator &group) {
  LMC_LET(file, File::openForReading(path));
  LMC_LET(bytes, file->size());
  const uint64_t pieces = (*bytes + kPieceBytes - 1) / kPieceBytes;
  const auto ranks = static_cast<uint64_t>(group.size());
  // All ranks return equally many hashes. A piece after the end of the file has the hash 0.
  std::vector<uint64_t> hashes((pieces + ranks - 1) / ranks);
  std::vector<std::byte> block(kBlockBytes);
  for (uint64_t i = 0; i < hashes.size(); ++i) {
    const uint64_t piece = i * ranks + static_cast<uint64_t>(group.position());
    if (piece >= pieces)
      break;
    LMC_LET(hash, hashPiece(*file, piece * kPieceBytes, std::min((piece + 1) * kPieceBytes, *bytes),
                            block, [](uint64_t, uint64_t) { return Result<void>(); }));
    hashes[i] = *hash;
  }
  return std::pair(*bytes, std::move(hashes));
}

Result<FileDigest> digestTogether(const std::string &path, Communicator &group) {
  LMC_LET(share, allSucceed(group, hashShare(path, group)));
  const auto &[bytes, hashes] = *share;
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<uint64_t> gathered(hashes.size() * ranks), pieces;
  LMC_TRY(group.allGather(hashes.data(), gathered.data(), hashes.size() * sizeof(uint64_t)));
  for (uint64_t piece = 0; piece * kPieceBytes < bytes; ++piece)
    pieces.push_back(gathered[piece % ranks * hashes.size() + piece / ranks]);
  return FileDigest{bytes, combine(pieces)};
}

Result<void> verifyTogether(const std::vector<RecordedFile> &files, Communicator &group) {
  for (const RecordedFile &file : files) {
    LMC_LET(digest, digestTogether(file.path, group));
    if (digest->bytes != file.digest.bytes)
      return wrongSize(file, digest->bytes);
    if (digest->xxh64 != file.digest.xxh64)
      return damaged(file.path);
  }
  return {};
}

} // namespace lmc
