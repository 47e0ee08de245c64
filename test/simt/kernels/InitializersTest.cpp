// The initialisers' kernels make what the runtime makes on the CPU.
#include "compiler/targets/cuda/templates/InitializerTemplates.h"
#include "ground/plan/FloatConvert.h"
#include "runtime/step/Initializer.h"
#include "runtime/step/NormalStream.h"
#include "test/ground/plan/PlanBuilder.h"
#include "test/simt/kernels/KernelCheck.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace lmc;
using namespace lmc::simt;
using codegen::InitializerShape;

namespace {

// As in compiler/targets/cuda/device/initialize.cuh and plan.fbs.
struct Record {
  uint64_t first, elements, seed, stream;
  double value;
};

const uint64_t kSeed = 0x123456789abcdefull;
const char *const kName = "model.embed_tokens.weight";

plan::DType dtypeOf(DataType type) {
  return type == DataType::F64   ? plan::DType::F64
         : type == DataType::F32 ? plan::DType::F32
                                 : plan::DType::BF16;
}

// Memory that is aligned to a page, where elements may begin anywhere.
struct Bytes {
  explicit Bytes(uint64_t size, uint64_t offset) : storage(size + 4096 + offset) {
    auto address = reinterpret_cast<uintptr_t>(storage.data());
    data = storage.data() + (4096 - address % 4096) % 4096 + offset;
  }
  std::vector<char> storage;
  char *data;
};

// The first byte in which they differ; -1: none.
int64_t difference(const std::string &a, const std::string &b) {
  if (a.size() != b.size())
    return int64_t(std::min(a.size(), b.size()));
  auto at = std::mismatch(a.begin(), a.end(), b.begin()).first;
  return at == a.end() ? -1 : at - a.begin();
}

class Initializers : public testing::Test {
protected:
  // Elements [first, first + elements), `offset` elements behind a page's start.
  std::string made(const InitializerShape &shape, uint64_t first, uint64_t elements, double value,
                   uint64_t offset, const void *source = nullptr, uint64_t sourceOffset = 0) {
    Source text = sourceOf(codegen::initializerKernel(shape, "initialize"));
    text.grid = {3, 1, 1}; // any will do
    text.threads = 64;
    auto kernel = compile(text);
    if (!kernel) {
      ADD_FAILURE() << kernel.error().message;
      return "";
    }
    uint64_t width = byteWidth(dtypeOf(shape.destination));
    uint64_t sourceWidth = byteWidth(dtypeOf(shape.source));
    Record record{first, elements, kSeed, XXH64(kName, std::strlen(kName), 0), value};
    Bytes out(elements * width, offset * width);
    Bytes from(elements * sourceWidth, sourceOffset * sourceWidth);
    std::vector<Argument> arguments{{&record, sizeof(record), Access::Read}};
    if (source) {
      std::memcpy(from.data, source, elements * sourceWidth);
      arguments.push_back({from.data, elements * sourceWidth, Access::Read});
    }
    arguments.push_back({out.data, elements * width, Access::Write});
    RunResult result = runTwice(*kernel, arguments, 1, /*count=*/true);
    EXPECT_EQ(result.failure, "");
    codegen::GlobalBytes bytes = codegen::initializerBytes(shape, int64_t(elements)), distinct;
    uint64_t stored = 0;
    for (const Traffic &traffic : result.traffic) {
      distinct.read += traffic.distinctLoaded;
      distinct.written += traffic.distinctStored;
      stored += traffic.stored;
    }
    EXPECT_EQ(distinct.read, bytes.read);
    EXPECT_EQ(distinct.written, bytes.written);
    EXPECT_EQ(stored, bytes.written) << "once";
    if (source) {
      EXPECT_EQ(result.traffic[1].loaded, result.traffic[1].distinctLoaded) << "once";
    }
    return std::string(out.data, elements * width);
  }

  // The same from the runtime.
  std::string expected(const plan::InitializerT &initializer, DataType type,
                       std::vector<uint64_t> shape, uint64_t first, uint64_t elements) {
    lmc::test::PlanBuilder builder;
    uint32_t slice = builder.slice(dtypeOf(type), shape);
    builder.variable(kName, plan::VariableKind::Table, slice).initializer =
        std::make_unique<plan::InitializerT>(initializer);
    auto opened = builder.open();
    if (!opened) {
      ADD_FAILURE() << opened.error().message;
      return "";
    }
    std::string bytes(elements * byteWidth(dtypeOf(type)), 0);
    auto made = initialElements(*(**opened)->variables()->Get(0), *(**opened)->slices()->Get(slice),
                                kSeed, first, elements, bytes.data());
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return bytes;
  }
};

} // namespace

// Bit for bit, wherever a piece begins and lies.
TEST_F(Initializers, NormalsAreTheCpus) {
  plan::InitializerT normal;
  normal.kind = plan::InitializerKind::Normal;
  normal.stddev = 0.02;
  for (DataType type : {DataType::F32, DataType::BF16, DataType::F64}) {
    InitializerShape shape{lm::InitKind::Normal, type, type, {}};
    for (auto [first, elements, offset] : {std::array<uint64_t, 3>{0, 1000, 0},
                                           {0, 1, 1},
                                           {5, 777, 3},
                                           {2, 64, 1},
                                           {1000, 3, 0},
                                           {(uint64_t(1) << 35) + 6, 50, 0}})
      EXPECT_EQ(difference(made(shape, first, elements, normal.stddev, offset),
                           expected(normal, type, {8}, first, elements)),
                -1)
          << int(type) << ": " << elements << " from " << first << " at " << offset;
  }
}

TEST_F(Initializers, ConstantsAreTheCpus) {
  plan::InitializerT constant;
  constant.kind = plan::InitializerKind::Constant;
  constant.scale = 1.0 / 3;
  for (DataType type : {DataType::F32, DataType::BF16, DataType::F64})
    for (uint64_t offset : {0, 1, 7})
      EXPECT_EQ(
          difference(made({lm::InitKind::Constant, type, type, {}}, 0, 101, constant.scale, offset),
                     expected(constant, type, {101}, 0, 101)),
          -1);
}

// cos and sin are the host's here; a device's may differ by 2 units in the last place of f64.
TEST_F(Initializers, RopeTablesAreTheCpus) {
  const uint64_t columns = 5, rows = 301;
  std::vector<double> frequencies;
  for (uint64_t j = 0; j < columns; ++j)
    frequencies.push_back(std::pow(10000.0, -double(j) / double(columns)));
  for (bool sine : {false, true})
    for (DataType type : {DataType::F32, DataType::F64}) {
      plan::InitializerT rope;
      rope.kind = sine ? plan::InitializerKind::RopeSin : plan::InitializerKind::RopeCos;
      rope.scale = 1.1;
      rope.values = frequencies;
      InitializerShape shape{sine ? lm::InitKind::RopeSin : lm::InitKind::RopeCos, type, type,
                             frequencies};
      EXPECT_EQ(difference(made(shape, 0, rows * columns, rope.scale, 0),
                           expected(rope, type, {rows, columns}, 0, rows * columns)),
                -1);
      EXPECT_EQ(difference(made(shape, 7, 100, rope.scale, 1),
                           expected(rope, type, {rows, columns}, 7, 100)),
                -1);
    }
}

TEST_F(Initializers, CopiesRoundAsTheCpu) {
  const uint64_t elements = 333;
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> wide(elements);
  for (double &x : wide)
    x = normal(random);
  for (auto [from, to] : {std::pair{DataType::F32, DataType::BF16},
                          {DataType::F32, DataType::F32},
                          {DataType::BF16, DataType::F32},
                          {DataType::F64, DataType::F32},
                          {DataType::F64, DataType::F64}}) {
    std::string source(elements * byteWidth(dtypeOf(from)), 0);
    convertFloats(plan::DType::F64, wide.data(), dtypeOf(from), source.data(), elements);
    std::string rounded(elements * byteWidth(dtypeOf(to)), 0);
    convertFloats(dtypeOf(from), source.data(), dtypeOf(to), rounded.data(), elements);
    InitializerShape shape{lm::InitKind::CopyOf, to, from, {}};
    for (auto [offset, sourceOffset] :
         {std::pair<uint64_t, uint64_t>{0, 0}, {1, 0}, {3, 3}, {0, 2}})
      EXPECT_EQ(
          difference(made(shape, 0, elements, 1, offset, source.data(), sourceOffset), rounded), -1)
          << int(from) << " to " << int(to) << " at " << sourceOffset << " and " << offset;
  }
}

TEST(InitializerKernels, HaveAKeyPerShape) {
  auto key = [](std::vector<double> frequencies) {
    return codegen::initializerKey(
        {lm::InitKind::RopeCos, DataType::F32, DataType::F32, std::move(frequencies)});
  };
  EXPECT_EQ(key({1, 0.5}), key({1, 0.5}));
  EXPECT_NE(key({1, 0.5}), key({1, 0.25}));
  EXPECT_NE(key({1, 0.5}), key({1}));
}
