// Folders and file systems for tests, removed with the object.
#pragma once

#include "ground/support/File.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <sys/mount.h>

namespace lmc::test {

// An empty folder of its own.
class TestFolder {
public:
  TestFolder() {
    path = (std::filesystem::temp_directory_path() / "lmc-test-XXXXXX").string();
    if (!::mkdtemp(path.data()))
      ADD_FAILURE() << "mkdtemp: " << std::strerror(errno);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TestFolder(const TestFolder &) = delete;
  TestFolder &operator=(const TestFolder &) = delete;
  std::string operator/(const std::string &name) const { return path + "/" + name; }
  std::string path;
};

// A small disk of its own (tmpfs); needs the right to mount.
class TestDisk {
public:
  explicit TestDisk(size_t bytes) {
    std::string options = "size=" + std::to_string(bytes);
    mounted = ::mount("lmc-test", folder.path.c_str(), "tmpfs", 0, options.c_str()) == 0;
    problem = mounted ? "" : std::strerror(errno);
  }
  ~TestDisk() {
    if (mounted && ::umount2(folder.path.c_str(), MNT_DETACH) != 0)
      ADD_FAILURE() << "umount: " << std::strerror(errno);
  }
  bool makeReadOnly() {
    return ::mount("lmc-test", folder.path.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }
  const std::string &path() const { return folder.path; }
  bool mounted;
  std::string problem;

private:
  TestFolder folder;
};

inline std::string read(const std::string &path) {
  Result<std::string> text = readTextFile(path, uint64_t(1) << 30);
  if (!text)
    ADD_FAILURE() << text.error().message;
  return text ? *text : "";
}

inline void write(const std::string &path, const std::string &text) {
  Result<void> written = writeTextFile(path, text);
  if (!written)
    ADD_FAILURE() << written.error().message;
}

} // namespace lmc::test

// ASSERT that a Result holds no error, printing it when it does.
#define ASSERT_OK(expr)                                                                            \
  do {                                                                                             \
    if (auto &&result = (expr); !result)                                                           \
      FAIL() << result.error().message;                                                            \
  } while (false)

// EXPECT that a Result is an error whose message holds `text`.
#define EXPECT_ERROR(expr, text)                                                                   \
  do {                                                                                             \
    if (auto &&result = (expr); result)                                                            \
      ADD_FAILURE() << #expr << " succeeded";                                                      \
    else                                                                                           \
      EXPECT_NE(result.error().message.find(text), std::string::npos) << result.error().message;   \
  } while (false)
