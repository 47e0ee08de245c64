#include "compiler/kernels/KernelCache.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/Chrono.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <cstdlib>

using llvm::StringRef;

namespace lmc::codegen {

// An entry has kForm, the key, the code, and a 64-bit hash of all bytes before the hash.
static constexpr llvm::StringLiteral kForm = "lmc kernel 2\n";
static constexpr size_t kKeyDigits = 64, kHashBytes = 8;
static constexpr size_t kHeadBytes = kForm.size() + kKeyDigits;

std::string KernelCache::defaultDirectory() {
  constexpr std::pair<const char *, const char *> places[] = {
      {"LMC_CACHE_DIR", ""}, {"XDG_CACHE_HOME", "/lmc/kernels"}, {"HOME", "/.cache/lmc/kernels"}};
  for (auto [variable, folder] : places)
    if (const char *value = std::getenv(variable); value && *value)
      return std::string(value) + folder;
  return "";
}

KernelCache::KernelCache(std::string directory, uint64_t mostBytes)
    : directory(std::move(directory)), mostBytes(mostBytes) {}

KernelCache::~KernelCache() {
  if (directory.empty() || !llvm::sys::fs::is_directory(directory))
    return;
  llvm::CachePruningPolicy policy; // LLVM's default policy also deletes files unused for a week
  policy.MaxSizeBytes = mostBytes;
  llvm::pruneCache(directory, policy);
}

std::string KernelCache::key(llvm::ArrayRef<StringRef> parts) {
  llvm::SHA256 hash;
  for (StringRef part : parts) {
    uint8_t length[8]; // the length keeps different lists of parts apart
    llvm::support::endian::write64le(length, part.size());
    hash.update(length);
    hash.update(part);
  }
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

// The name begins with "llvmcache-" because llvm::pruneCache() deletes only such files.
std::string KernelCache::pathOf(StringRef key) const {
  return (directory + "/llvmcache-lmc-" + key).str();
}

std::optional<std::string> KernelCache::find(StringRef key) const {
  if (directory.empty())
    return std::nullopt;
  // The file is read, not mapped into memory, because another process may replace it meanwhile.
  auto file =
      llvm::MemoryBuffer::getFile(pathOf(key), /*IsText=*/false, /*RequiresNullTerminator=*/false,
                                  /*IsVolatile=*/true);
  if (!file)
    return std::nullopt;
  StringRef bytes = (*file)->getBuffer();
  if (bytes.size() < kHeadBytes + kHashBytes)
    return std::nullopt;
  StringRef content = bytes.drop_back(kHashBytes);
  if (llvm::support::endian::read64le(content.end()) != llvm::xxh3_64bits(content) ||
      !content.consume_front(kForm) || !content.consume_front(key))
    return std::nullopt;
  return content.str();
}

void KernelCache::keep(StringRef key, StringRef code) const {
  if (directory.empty() || llvm::sys::fs::create_directories(directory))
    return;
  std::string content = (kForm + key + code).str();
  char hash[kHashBytes];
  llvm::support::endian::write64le(hash, llvm::xxh3_64bits(content));
  content.append(hash, sizeof(hash));

  llvm::Expected<llvm::sys::fs::TempFile> file =
      llvm::sys::fs::TempFile::create(directory + "/llvmcache-lmc-%%%%%%%%.partial");
  if (!file)
    return llvm::consumeError(file.takeError());
  llvm::raw_fd_ostream stream(file->FD, /*shouldClose=*/false);
  stream << content;
  stream.flush();
  const bool isWhole = !stream.has_error();
  stream.clear_error();
  llvm::consumeError(isWhole ? file->keep(pathOf(key)) : file->discard());
}

} // namespace lmc::codegen
