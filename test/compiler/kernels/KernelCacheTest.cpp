#include "compiler/kernels/KernelCache.h"
#include "test/compiler/kernels/CacheFolder.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

using namespace lmc::codegen;
namespace fs = std::filesystem;

namespace {

class KernelCacheTest : public testing::Test {
protected:
  std::string read(const fs::path &path) const {
    return (*llvm::MemoryBuffer::getFile(path.string()))->getBuffer().str();
  }
  void write(const fs::path &path, llvm::StringRef bytes) const {
    std::error_code error;
    llvm::raw_fd_ostream(path.string(), error) << bytes;
    ASSERT_FALSE(error);
  }

  std::vector<fs::path> entries() const { return made.entries(); }

  const lmc::test::CacheFolder made;
  const std::string &folder = made.path;
};

std::string sample(size_t bytes = 1000) {
  std::string code;
  for (size_t i = 0; i < bytes; ++i)
    code += char(i * 7);
  return code;
}

std::string keyOf(int number) { return KernelCache::key({"test 1", std::to_string(number)}); }

const std::string kKey = keyOf(2);

} // namespace

TEST_F(KernelCacheTest, FindsWhatWasKept) {
  KernelCache cache(folder);
  EXPECT_FALSE(cache.find(kKey));
  cache.keep(kKey, sample());
  EXPECT_EQ(cache.find(kKey), sample());
  EXPECT_EQ(KernelCache(folder).find(kKey), sample());
}

TEST_F(KernelCacheTest, AKeyTellsLists) {
  EXPECT_EQ(kKey.size(), 64u);
  EXPECT_EQ(KernelCache::key({"ab", "c"}), KernelCache::key({"ab", "c"}));
  EXPECT_NE(KernelCache::key({"ab", "c"}), KernelCache::key({"a", "bc"}));
  EXPECT_NE(KernelCache::key({"ab", "c"}), KernelCache::key({"ab", "c", ""}));
  EXPECT_NE(KernelCache::key({"ab", "c"}), KernelCache::key({"c", "ab"}));
}

TEST_F(KernelCacheTest, DamagedAndForeignEntriesAreNotThere) {
  KernelCache cache(folder);
  cache.keep(kKey, sample());
  ASSERT_EQ(entries().size(), 1u);
  const fs::path entry = entries()[0];
  const std::string whole = read(entry);
  for (size_t at = 0; at < whole.size(); at += 13) { // a flipped bit anywhere
    std::string damaged = whole;
    damaged[at] = char(damaged[at] ^ 4);
    write(entry, damaged);
    EXPECT_FALSE(cache.find(kKey)) << "byte " << at;
  }
  for (size_t size : {size_t(0), size_t(1), size_t(50), whole.size() / 2, whole.size() - 1}) {
    write(entry, llvm::StringRef(whole).take_front(size));
    EXPECT_FALSE(cache.find(kKey)) << size << " bytes";
  }
  write(entry, whole + "more");
  EXPECT_FALSE(cache.find(kKey));

  // A sound entry in another's place.
  std::string other = keyOf(3);
  std::string place = entry.string();
  place.replace(place.size() - kKey.size(), kKey.size(), other);
  write(place, whole);
  EXPECT_FALSE(cache.find(other));

  write(entry, whole);
  EXPECT_EQ(cache.find(kKey), sample());
}

TEST_F(KernelCacheTest, ADamagedEntryIsReplaced) {
  KernelCache cache(folder);
  cache.keep(kKey, sample());
  write(entries()[0], "nonsense");
  cache.keep(kKey, sample());
  EXPECT_EQ(cache.find(kKey), sample());
}

TEST_F(KernelCacheTest, AnUnwritablePlaceLosesNothingButTime) {
  write(folder + "/file", "");
  for (const char *place : {"/file", "/file/below"}) { // no folder, whoever runs this
    KernelCache cache(folder + place);
    cache.keep(kKey, sample());
    EXPECT_FALSE(cache.find(kKey));
  }
  EXPECT_EQ(read(folder + "/file"), "");
}

TEST_F(KernelCacheTest, OffKeepsNothing) {
  KernelCache cache("");
  cache.keep(kKey, sample());
  EXPECT_FALSE(cache.find(kKey));
}

TEST_F(KernelCacheTest, StaysBelowItsSize) {
  auto keep = [&](int count, uint64_t most) {
    KernelCache cache(folder, most);
    for (int i = 0; i < count; ++i)
      cache.keep(keyOf(i), sample(10000));
  };
  keep(20, 1 << 20);
  EXPECT_EQ(entries().size(), 20u);
  fs::remove(folder + "/llvmcache.timestamp"); // as if the last look were long ago
  keep(1, 100000);
  EXPECT_GT(entries().size(), 0u);
  EXPECT_LT(entries().size(), 10u);
}

// Readers see nothing, or a whole entry, while processes and threads write the same ones.
TEST_F(KernelCacheTest, ManyProcessesAndThreadsShareIt) {
  constexpr int kProcesses = 4, kRounds = 40;
  auto work = [&](int seed) {
    KernelCache cache(folder);
    bool isSound = true;
    for (int i = 0; i < kRounds; ++i) {
      int which = (i + seed) % 3;
      std::string key = keyOf(which);
      size_t bytes = size_t(30000 * (which + 1));
      if (std::optional<std::string> found = cache.find(key))
        isSound &= *found == sample(bytes);
      cache.keep(key, sample(bytes));
      isSound &= cache.find(key) == sample(bytes);
    }
    return isSound;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i)
    if (pid_t child = fork(); child == 0)
      _exit(work(i) ? 0 : 1);
    else
      children.push_back(child);
  bool isSound[2] = {false, false};
  std::thread first([&] { isSound[0] = work(5); }), second([&] { isSound[1] = work(6); });
  first.join();
  second.join();
  EXPECT_TRUE(isSound[0] && isSound[1]);
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(entries().size(), 3u); // and nothing half written stays
}
