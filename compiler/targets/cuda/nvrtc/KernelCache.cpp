#include "compiler/targets/cuda/nvrtc/KernelCache.h"

#include "compiler/targets/cuda/DeviceLibrary.h"

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

#include <array>
#include <cstdlib>

using llvm::StringRef;

namespace lmc::codegen {

// The version of the cache. It must change when the format of entries changes, and when compiled
// code depends on a new thing that key() does not hash.
static constexpr llvm::StringLiteral kForm = "lmc kernel 1\n";

// An entry has kForm, the key, the 4 numbers of KernelResources (32 bits each, little-endian), the
// image of the cubin, and a 64-bit hash of all bytes before the hash.
static constexpr size_t kKeyDigits = 64, kNumbers = 4, kHashBytes = 8;
static constexpr size_t kHeadBytes = kForm.size() + kKeyDigits + kNumbers * 4;

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
  llvm::CachePruningPolicy policy; // by default, it also deletes files unused for a week
  policy.MaxSizeBytes = mostBytes;
  llvm::pruneCache(directory, policy);
}

std::string KernelCache::key(const CudaKernel &kernel, StringRef arch, StringRef nvrtc) {
  llvm::SHA256 hash;
  auto add = [&](StringRef text) { // the length keeps different lists of texts apart
    uint8_t length[8];
    llvm::support::endian::write64le(length, text.size());
    hash.update(length);
    hash.update(text);
  };
  for (StringRef text :
       {StringRef(kForm), nvrtc, arch, StringRef(kernel.name), StringRef(kernel.source)})
    add(text);
  for (const char *option : Nvrtc::options(kernel))
    add(option);
  for (const DeviceHeader &header : deviceHeaders()) {
    add(header.name);
    add(header.text);
  }
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

// The name begins with "llvmcache-" because llvm::pruneCache() deletes only such files.
std::string KernelCache::pathOf(StringRef key) const {
  return (directory + "/llvmcache-lmc-" + key).str();
}

std::optional<Cubin> KernelCache::find(StringRef key) const {
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
  std::array<uint32_t, kNumbers> numbers;
  for (uint32_t &number : numbers) {
    number = llvm::support::endian::read32le(content.data());
    content = content.drop_front(4);
  }
  Cubin cubin;
  cubin.resources = {numbers[0], numbers[1], numbers[2], numbers[3]};
  cubin.image.assign(content.bytes_begin(), content.bytes_end());
  return cubin;
}

void KernelCache::keep(StringRef key, const Cubin &cubin) const {
  if (directory.empty() || llvm::sys::fs::create_directories(directory))
    return;
  std::string content = (kForm + key).str();
  const KernelResources &resources = cubin.resources;
  for (uint32_t number :
       {resources.registers, resources.sharedBytes, resources.stackBytes, resources.spillBytes}) {
    char word[4];
    llvm::support::endian::write32le(word, number);
    content.append(word, sizeof(word));
  }
  content.append(cubin.image.begin(), cubin.image.end());
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
