#include "ground/support/File.h"

#include "test/runtime/checkpoint/TestFolder.h"

#include <sys/stat.h>

using namespace lmc;
using namespace lmc::test;

TEST(File, MapsWhatWasWritten) {
  TestFolder folder;
  std::string text(100'000, 'a');
  text[99'999] = 'z';
  write(folder / "a", text);
  auto mapped = MappedFile::open(folder / "a");
  ASSERT_OK(mapped);
  MappedFile moved = std::move(*mapped);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char *>(moved.data()), moved.size()), text);
  write(folder / "empty", "");
  auto empty = MappedFile::open(folder / "empty");
  ASSERT_OK(empty);
  EXPECT_EQ(empty->size(), 0u);
}

TEST(File, ErrorsNamePathReasonAndWhoseMistake) {
  TestFolder folder;
  auto missing = MappedFile::open(folder / "none");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message,
            "cannot read " + folder / "none" + ": No such file or directory");
  EXPECT_EQ(missing.error().code, ExitCode::UserError);
  auto unwritable = File::create(folder / "none/a");
  ASSERT_FALSE(unwritable);
  EXPECT_EQ(unwritable.error().code, ExitCode::Failure);
  write(folder / "a", "12345");
  EXPECT_ERROR(readTextFile(folder / "a", 4), "5 bytes, more than the 4");
}

TEST(File, FifoIsRefusedInsteadOfWaitedFor) {
  TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_ERROR(File::openForReading(folder / "fifo"), "not a regular file");
}

TEST(File, FoldersAreMadeAndPublished) {
  TestFolder folder;
  ASSERT_OK(makeFolders(folder / "a/b/../c/"));
  ASSERT_OK(makeFolders(folder / "a/c"));
  EXPECT_TRUE(exists(folder / "a/c"));
  write(folder / "a/c/x", "old");
  ASSERT_OK(makeFolders(folder / "a/new"));
  write(folder / "a/new/x", "new");
  ASSERT_OK(publishFolder(folder / "a/new", folder / "a/c", folder / "a/aside"));
  EXPECT_EQ(read(folder / "a/c/x"), "new");
  EXPECT_EQ(*listFolder(folder / "a"), std::vector<std::string>{"c"});
  ASSERT_OK(publishFolder(folder / "a/c", folder / "a/d", folder / "a/aside"));
  EXPECT_EQ(*listFolder(folder / "a"), std::vector<std::string>{"d"});
  EXPECT_ERROR(publishFolder(folder / "a/none", folder / "a/d", folder / "a/aside"),
               "No such file");
  EXPECT_EQ(read(folder / "a/d/x"), "new");
}
