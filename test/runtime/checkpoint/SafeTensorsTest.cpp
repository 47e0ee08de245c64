#include "runtime/checkpoint/SafeTensors.h"

#include "TestFolder.h"
#include "test/Draws.h"

#include <cstring>
#include <random>

using namespace lmc;
using namespace lmc::test;

namespace {

struct Tensor {
  TensorView view;
  std::string contents;
};

// One of each dtype, of sizes that leave their successors unaligned, with a
// scalar and an empty one.
std::vector<Tensor> sampleTensors() {
  std::vector<Tensor> tensors;
  std::mt19937_64 random(1);
  auto add = [&](std::string name, plan::DType dtype, std::vector<uint64_t> shape, size_t bytes) {
    std::string contents(bytes, '\0');
    for (char &byte : contents)
      byte = static_cast<char>(random());
    tensors.push_back({{std::move(name), dtype, std::move(shape), nullptr, bytes}, contents});
  };
  add("flags", plan::DType::I8, {3}, 3);
  add("weight", plan::DType::F32, {5, 7}, 140);
  add("empty", plan::DType::F32, {0, 4}, 0);
  add("half", plan::DType::BF16, {2, 3, 1}, 12);
  add("scalar", plan::DType::F64, {}, 8);
  add("naïve \"quoted\"", plan::DType::I32, {2}, 8);
  return tensors;
}

std::vector<TensorView> views(const std::vector<Tensor> &tensors) {
  std::vector<TensorView> result;
  for (const Tensor &tensor : tensors)
    result.push_back(tensor.view);
  return result;
}

FetchTensor fetchFrom(const std::vector<Tensor> &tensors) {
  return [&](size_t index, void *data) {
    std::memcpy(data, tensors[index].contents.data(), tensors[index].contents.size());
    return Result<void>();
  };
}

std::string fileOf(const std::string &header, const std::string &data) {
  uint64_t length = header.size();
  return std::string(reinterpret_cast<char *>(&length), sizeof length) + header + data;
}

std::string contentsOf(const SafeTensorsFile::Entry &entry) {
  return std::string(static_cast<const char *>(entry.data), entry.bytes);
}

} // namespace

TEST(SafeTensors, RoundTripIsBitForBit) {
  TestFolder folder;
  std::vector<Tensor> tensors = sampleTensors();
  FileDigest digest;
  ASSERT_OK(writeSafeTensors(folder / "a", views(tensors), fetchFrom(tensors),
                             {{"format", "pt"}, {"by", "lmc"}}, &digest));
  auto file = SafeTensorsFile::open(folder / "a");
  ASSERT_OK(file);
  ASSERT_EQ((*file)->entries().size(), tensors.size());
  for (const Tensor &tensor : tensors) {
    const SafeTensorsFile::Entry *entry = (*file)->find(tensor.view.name);
    ASSERT_NE(entry, nullptr) << tensor.view.name;
    EXPECT_EQ(entry->dtype, tensor.view.dtype);
    EXPECT_EQ(entry->shape, tensor.view.shape);
    EXPECT_EQ(contentsOf(*entry), tensor.contents);
  }
  EXPECT_EQ((*file)->find("other"), nullptr);
  EXPECT_EQ((*file)->metadata().at("by"), "lmc");

  std::string bytes = read(folder / "a");
  EXPECT_EQ(digest.bytes, bytes.size());
  uint64_t headerBytes;
  std::memcpy(&headerBytes, bytes.data(), sizeof headerBytes);
  EXPECT_EQ((8 + headerBytes) % 64, 0u);
  auto predicted = safeTensorsBytes("a", views(tensors), {{"format", "pt"}, {"by", "lmc"}});
  ASSERT_OK(predicted);
  EXPECT_EQ(*predicted, bytes.size());
}

TEST(SafeTensors, NoTensorsAtAll) {
  TestFolder folder;
  ASSERT_OK(writeSafeTensors(folder / "a", {}, nullptr, {}));
  auto file = SafeTensorsFile::open(folder / "a");
  ASSERT_OK(file);
  EXPECT_TRUE((*file)->entries().empty());
}

// The bytes that safetensors 0.8.0 for Python wrote for
//   save({"b": f32 [[1, -2.5, 3.25]], "a": i32 [1, -2], "h": f16 [0.5], "s": f64 7},
//        metadata={"format": "pt"})
static const std::string kPythonFile =
    fileOf(R"({"__metadata__":{"format":"pt"},"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
           R"("b":{"dtype":"F32","shape":[1,3],"data_offsets":[8,20]},)"
           R"("a":{"dtype":"I32","shape":[2],"data_offsets":[20,28]},)"
           R"("h":{"dtype":"F16","shape":[1],"data_offsets":[28,30]}}      )",
           std::string("\0\0\0\0\0\0\x1c\x40\0\0\x80\x3f\0\0\x20\xc0\0\0\x50\x40"
                       "\x01\0\0\0\xfe\xff\xff\xff\0\x38",
                       30));

TEST(SafeTensors, ReadsWhatPythonWrites) {
  TestFolder folder;
  ASSERT_EQ(kPythonFile.size(), 294u);
  write(folder / "a", kPythonFile);
  auto opened = SafeTensorsFile::open(folder / "a");
  ASSERT_OK(opened);
  const SafeTensorsFile &file = **opened;
  EXPECT_EQ(file.metadata().at("format"), "pt");
  float b[3];
  ASSERT_EQ(file.find("b")->bytes, sizeof b);
  std::memcpy(b, file.find("b")->data, sizeof b);
  EXPECT_EQ(b[0], 1.0f);
  EXPECT_EQ(b[1], -2.5f);
  EXPECT_EQ(b[2], 3.25f);
  EXPECT_EQ(file.find("b")->shape, (std::vector<uint64_t>{1, 3}));
  int32_t a[2];
  std::memcpy(a, file.find("a")->data, sizeof a);
  EXPECT_EQ(a[0], 1);
  EXPECT_EQ(a[1], -2);
  double s;
  std::memcpy(&s, file.find("s")->data, sizeof s);
  EXPECT_EQ(s, 7.0);
  EXPECT_TRUE(file.find("s")->shape.empty());
  EXPECT_EQ(file.find("h")->storage, "F16");
  EXPECT_EQ(file.find("h")->dtype, plan::DType::F16);
}

TEST(SafeTensors, WriterRefusesWhatNoReaderWouldTake) {
  TestFolder folder;
  auto fetch = [](size_t, void *) { return Result<void>(); };
  TensorView good{"a", plan::DType::F32, {2}, nullptr, 8};
  TensorView wrongBytes{"a", plan::DType::F32, {2}, nullptr, 9};
  TensorView notText{"\xff", plan::DType::F32, {2}, nullptr, 8};
  TensorView reserved{"__metadata__", plan::DType::F32, {2}, nullptr, 8};
  TensorView huge{"a", plan::DType::F32, {uint64_t(1) << 62, 4}, nullptr, 0};
  EXPECT_ERROR(writeSafeTensors(folder / "a", {good, good}, fetch, {}), "two tensors named 'a'");
  EXPECT_ERROR(writeSafeTensors(folder / "a", {wrongBytes}, fetch, {}), "cannot have 9 bytes");
  EXPECT_ERROR(writeSafeTensors(folder / "a", {notText}, fetch, {}), "not UTF-8");
  EXPECT_ERROR(writeSafeTensors(folder / "a", {reserved}, fetch, {}), "__metadata__");
  EXPECT_ERROR(writeSafeTensors(folder / "a", {huge}, fetch, {}), "cannot have 0 bytes");
  auto failing = [](size_t, void *) -> Result<void> { return Error{"device lost"}; };
  EXPECT_ERROR(writeSafeTensors(folder / "a", {good}, failing, {}), "device lost");
  EXPECT_FALSE(exists(folder / "a"));
}

TEST(SafeTensors, EveryTruncationIsRefused) {
  TestFolder folder;
  std::vector<Tensor> tensors = sampleTensors();
  ASSERT_OK(writeSafeTensors(folder / "whole", views(tensors), fetchFrom(tensors), {}));
  std::string bytes = read(folder / "whole");
  for (size_t size = 0; size < bytes.size(); size += 16) {
    write(folder / "cut", bytes.substr(0, size));
    EXPECT_FALSE(SafeTensorsFile::open(folder / "cut")) << size;
  }
  write(folder / "cut", bytes.substr(0, bytes.size() - 1));
  EXPECT_ERROR(SafeTensorsFile::open(folder / "cut"), "damaged or not a safetensors file");
  write(folder / "longer", bytes + '\0');
  EXPECT_ERROR(SafeTensorsFile::open(folder / "longer"), "before it does");
}

// Whatever a flipped header says, a file that opens has its tensors inside it.
TEST(SafeTensors, DrawnFlipsOfHeadersNeverPointOutsideTheFile) {
  const int64_t count = drawCount(3000);
  TestFolder folder;
  std::vector<Tensor> tensors = sampleTensors();
  ASSERT_OK(writeSafeTensors(folder / "whole", views(tensors), fetchFrom(tensors), {}));
  std::string bytes = read(folder / "whole");
  uint64_t headerBytes;
  std::memcpy(&headerBytes, bytes.data(), sizeof headerBytes);
  std::mt19937_64 random(7);
  int refused = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::string flipped = bytes;
    for (uint64_t flips = 1 + random() % 3; flips > 0; --flips)
      flipped[random() % (8 + headerBytes)] ^= static_cast<char>(1 << random() % 8);
    // Thousands of files: neither fsynced nor truncated, which would flush too.
    std::filesystem::remove(folder / "flipped");
    auto out = File::create(folder / "flipped");
    ASSERT_OK(out);
    ASSERT_OK(out->write(flipped.data(), flipped.size()));
    ASSERT_OK(out->close());
    auto file = SafeTensorsFile::open(folder / "flipped");
    if (!file) {
      ++refused;
      continue;
    }
    uint64_t total = 0, sum = 0;
    for (const SafeTensorsFile::Entry &entry : (*file)->entries()) {
      total += entry.bytes;
      for (unsigned char byte : contentsOf(entry))
        sum += byte;
    }
    uint64_t length;
    std::memcpy(&length, flipped.data(), sizeof length);
    EXPECT_EQ(total, flipped.size() - 8 - length) << sum;
  }
  EXPECT_GT(refused, count / 3);
}

TEST(SafeTensors, HostileHeadersAreNamed) {
  struct Case {
    std::string header, message;
  };
  std::string deep(100'000, '[');
  std::string dimensions;
  for (int i = 0; i < 65; ++i)
    dimensions += i ? ",1" : "1";
  const std::vector<Case> cases = {
      {"", "no JSON"},
      {"[]", "an array where none belongs"},
      {"7", "a number where none belongs"},
      {"{} x", "no JSON"},
      {R"({"a":null})", "a null"},
      {R"({"a":)" + deep, "an array where none belongs"},
      {R"({"a":{"dtype":)" + deep, "an array where none belongs"},
      {R"({"a":{"dtype":{"dtype":"F32"}}})", "an object where none belongs"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "lacks its dtype, shape or offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "lacks"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", "more than two offsets"},
      {R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", "unknown dtype 'F99'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", "unknown field 'x'"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "has 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "a negative number"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "not a 64-bit integer"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551616]}})",
       "not a 64-bit integer"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
       "has 0 bytes"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]}})",
       "has 8 bytes"},
      {R"({"a":{"dtype":"I8","shape":[)" + dimensions + R"(],"data_offsets":[0,1]}})",
       "more than 64 dimensions"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "lies at bytes 8 to 0 of 8"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", "lies at bytes 4 to 12"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "end 4 bytes before"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "gap or overlaps"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "gap or overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "two tensors named 'a'"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "two dtypes"},
      {R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})", "two shapes"},
      {R"({"__metadata__":{"a":1}})", "a number where none belongs"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", "two metadata entries named 'a'"},
      {R"({"__metadata__":{},"__metadata__":{}})", "two objects named '__metadata__'"},
      {"{\"\xff\":1}", "no JSON"},
  };
  TestFolder folder;
  for (const Case &hostile : cases) {
    SCOPED_TRACE(hostile.header.substr(0, 80));
    write(folder / "a", fileOf(hostile.header, std::string(8, '\0')));
    EXPECT_ERROR(SafeTensorsFile::open(folder / "a"), hostile.message);
  }
  // The cases above fail for their own reason only if this one passes.
  write(folder / "a",
        fileOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, '\0')));
  EXPECT_TRUE(SafeTensorsFile::open(folder / "a"));
}

TEST(SafeTensors, HeaderLengthBeyondTheFileIsRefused) {
  TestFolder folder;
  for (uint64_t length : {uint64_t(3), uint64_t(100), UINT64_MAX, UINT64_MAX - 7}) {
    write(folder / "a", std::string(reinterpret_cast<char *>(&length), sizeof length) + "{}");
    EXPECT_ERROR(SafeTensorsFile::open(folder / "a"), "does not fit");
  }
}

TEST(SafeTensors, OtherFilesAreRefused) {
  TestFolder folder;
  EXPECT_ERROR(SafeTensorsFile::open(folder / "none"), "No such file");
  EXPECT_ERROR(SafeTensorsFile::open(folder.path), "Is a directory");
  EXPECT_ERROR(SafeTensorsFile::open("/dev/zero"), "not a regular file");
  write(folder / "empty", "");
  EXPECT_ERROR(SafeTensorsFile::open(folder / "empty"), "only 0 bytes");
}
