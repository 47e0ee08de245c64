// Token files for the tests, written byte by byte from the formats' descriptions,
// so that a mistake shared by reader and writer shows.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace lmc::test {

// A folder for the test's files, removed with it.
class DataTest : public testing::Test {
protected:
  std::filesystem::path folder;

  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "lmc-data-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string path(const std::string &name) const { return (folder / name).string(); }

  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  static std::string read(const std::string &path) {
    std::ostringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
  }

  // Names in the folder, hidden and temporary ones too.
  size_t filesInFolder() const {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  }
};

inline void putInteger(std::string &bytes, uint64_t value, int width) {
  for (int i = 0; i < width; ++i)
    bytes += static_cast<char>(value >> (8 * i));
}

inline std::string integers(const std::vector<uint64_t> &values, int width) {
  std::string bytes;
  for (uint64_t value : values)
    putInteger(bytes, value, width);
  return bytes;
}

// nanoGPT: bare uint16.
inline std::string nanoGptBytes(const std::vector<uint64_t> &tokens) { return integers(tokens, 2); }

// llm.c: 256 int32 of header, then tokens of `width` bytes.
inline std::string llmCBytes(int32_t magic, int32_t version, const std::vector<uint64_t> &tokens,
                             int width) {
  std::vector<uint64_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens.size();
  return integers(header, 4) + integers(tokens, width);
}

// lmc with the given header fields; the checksum is left 0.
inline std::string lmcBytes(const std::vector<uint64_t> &tokens, int width, uint64_t vocabulary,
                            const std::vector<uint64_t> &starts, uint64_t endOfDocument = 0) {
  std::string bytes = "LMCTOKEN";
  putInteger(bytes, 1, 4);
  putInteger(bytes, width, 4);
  putInteger(bytes, vocabulary, 4);
  putInteger(bytes, endOfDocument, 4);
  putInteger(bytes, tokens.size(), 8);
  putInteger(bytes, starts.size(), 8);
  bytes.resize(64);
  bytes += integers(tokens, width);
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return bytes + integers(starts, 8);
}

// The codes of types in an index of Megatron's.
enum MegatronCode { kUInt8 = 1, kInt8, kInt16, kInt32, kInt64, kFloat64, kFloat32, kUInt16 };

// The index of Megatron's format: sequences of `lengths` tokens of `width` bytes, and the first
// sequence of each document, followed by the number of sequences.
inline std::string megatronIndexBytes(MegatronCode code, int width,
                                      const std::vector<uint64_t> &lengths,
                                      const std::vector<uint64_t> &documents) {
  std::string bytes("MMIDIDX\0\0", 9);
  putInteger(bytes, 1, 8);
  putInteger(bytes, code, 1);
  putInteger(bytes, lengths.size(), 8);
  putInteger(bytes, documents.size(), 8);
  std::vector<uint64_t> pointers;
  uint64_t end = 0;
  for (uint64_t length : lengths) {
    pointers.push_back(end);
    end += length * width;
  }
  return bytes + integers(lengths, 4) + integers(pointers, 8) + integers(documents, 8);
}

} // namespace lmc::test
