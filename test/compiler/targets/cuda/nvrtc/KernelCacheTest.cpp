#include "compiler/targets/cuda/nvrtc/KernelCache.h"
#include "compiler/targets/cuda/CudaCode.h"
#include "test/compiler/targets/cuda/CudaFixture.h"

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
  KernelCacheTest() {
    llvm::SmallString<128> made;
    llvm::sys::fs::createUniqueDirectory("lmc-kernel-cache", made);
    folder = made.str().str();
  }
  ~KernelCacheTest() override { fs::remove_all(folder); }

  // The entries, without what is half written.
  std::vector<fs::path> entries() const {
    std::vector<fs::path> found;
    for (const auto &file : fs::directory_iterator(folder))
      if (file.path().filename().string().starts_with("llvmcache-lmc-"))
        found.push_back(file.path());
    return found;
  }
  std::string read(const fs::path &path) const {
    return (*llvm::MemoryBuffer::getFile(path.string()))->getBuffer().str();
  }
  void write(const fs::path &path, llvm::StringRef bytes) const {
    std::error_code error;
    llvm::raw_fd_ostream(path.string(), error) << bytes;
    ASSERT_FALSE(error);
  }

  std::string folder;
};

Cubin sample(size_t bytes = 1000) {
  Cubin cubin;
  for (size_t i = 0; i < bytes; ++i)
    cubin.image.push_back(uint8_t(i * 7));
  cubin.resources = {40, 512, 16, 8};
  return cubin;
}

const std::string kKey = KernelCache::key(scaleKernel("scale", 2), "sm_90a", "13.0");

void expectSample(const std::optional<Cubin> &found, size_t bytes = 1000) {
  ASSERT_TRUE(found);
  EXPECT_EQ(found->image, sample(bytes).image);
  EXPECT_EQ(found->resources.registers, 40u);
  EXPECT_EQ(found->resources.sharedBytes, 512u);
  EXPECT_EQ(found->resources.stackBytes, 16u);
  EXPECT_EQ(found->resources.spillBytes, 8u);
}

} // namespace

TEST_F(KernelCacheTest, FindsWhatWasKept) {
  KernelCache cache(folder);
  EXPECT_FALSE(cache.find(kKey));
  cache.keep(kKey, sample());
  expectSample(cache.find(kKey));
  expectSample(KernelCache(folder).find(kKey));
}

TEST_F(KernelCacheTest, AKeyTellsEverythingThatCodeDependsOn) {
  CudaKernel kernel = scaleKernel("scale", 2);
  EXPECT_EQ(KernelCache::key(kernel, "sm_90a", "13.0"), kKey);
  EXPECT_EQ(kKey.size(), 64u);
  EXPECT_NE(KernelCache::key(kernel, "sm_90", "13.0"), kKey);
  EXPECT_NE(KernelCache::key(kernel, "sm_90a", "13.1"), kKey);
  kernel.contract = true;
  EXPECT_NE(KernelCache::key(kernel, "sm_90a", "13.0"), kKey);
  kernel.contract = false;
  kernel.source += " ";
  EXPECT_NE(KernelCache::key(kernel, "sm_90a", "13.0"), kKey);
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
  std::string other = KernelCache::key(scaleKernel("scale", 3), "sm_90a", "13.0");
  std::string place = entry.string();
  place.replace(place.size() - kKey.size(), kKey.size(), other);
  write(place, whole);
  EXPECT_FALSE(cache.find(other));

  write(entry, whole);
  expectSample(cache.find(kKey));
}

TEST_F(KernelCacheTest, ADamagedEntryIsReplaced) {
  KernelCache cache(folder);
  cache.keep(kKey, sample());
  write(entries()[0], "nonsense");
  cache.keep(kKey, sample());
  expectSample(cache.find(kKey));
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
      cache.keep(KernelCache::key(scaleKernel("scale", i), "sm_90a", "13.0"), sample(10000));
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
      std::string key = KernelCache::key(scaleKernel("scale", which), "sm_90a", "13.0");
      size_t bytes = size_t(30000 * (which + 1));
      if (std::optional<Cubin> found = cache.find(key))
        isSound &= found->image == sample(bytes).image;
      cache.keep(key, sample(bytes));
      std::optional<Cubin> found = cache.find(key);
      isSound &= found && found->image == sample(bytes).image;
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

TEST_F(KernelCacheTest, CompilesThroughIt) {
  LMC_REQUIRE_NVRTC();
  std::vector<CudaKernel> kernels = {scaleKernel("twice", 2), scaleKernel("thrice", 3),
                                     scaleKernel("twice", 2)};
  KernelCache cache(folder);
  auto made = compileCuda(kernels, "sm_90a", cache);
  ASSERT_TRUE(bool(made)) << llvm::toString(made.takeError());
  ASSERT_EQ(made->size(), 3u);
  EXPECT_EQ((*made)[1].kernel.name, "thrice");
  EXPECT_EQ((*made)[0].cubin.image, (*made)[2].cubin.image);
  EXPECT_EQ(entries().size(), 2u);

  // What the cache holds is used as it is.
  std::string key = KernelCache::key(kernels[1], "sm_90a", (*Nvrtc::get())->version());
  cache.keep(key, sample());
  auto again = compileCuda(kernels, "sm_90a", cache);
  ASSERT_TRUE(bool(again)) << llvm::toString(again.takeError());
  EXPECT_EQ((*again)[0].cubin.image, (*made)[0].cubin.image);
  EXPECT_EQ((*again)[1].cubin.image, sample().image);
}

TEST_F(KernelCacheTest, OfManyErrorsTheFirstKernelsIsTold) {
  LMC_REQUIRE_NVRTC();
  std::vector<CudaKernel> kernels = {scaleKernel("fine", 2), scaleKernel("bad", 3),
                                     scaleKernel("worse", 4)};
  kernels[1].source += "int x = nothing;\n";
  kernels[2].source += "int x = nothing;\n";
  auto made = compileCuda(kernels, "sm_90a", KernelCache(folder));
  ASSERT_FALSE(bool(made));
  std::string message = llvm::toString(made.takeError());
  EXPECT_TRUE(llvm::StringRef(message).starts_with("kernel 'bad' does not compile")) << message;
}
