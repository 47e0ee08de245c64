#include "runtime/step/Initializer.h"

#include "ground/plan/FloatConvert.h"
#include "runtime/step/NormalStream.h"
#include "test/runtime/loop/TinyPlan.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <xxhash.h>

#include <cmath>

namespace lmc {
namespace {

using plan::DType;
using plan::InitializerKind;

// A variable with its slice, as in a plan.
struct Described {
  flatbuffers::FlatBufferBuilder variableBuilder, sliceBuilder;

  Described(InitializerKind kind, DType dtype, std::vector<uint64_t> shape, double scale = 1,
            std::vector<double> values = {}) {
    plan::VariableT variable;
    variable.name = "x";
    variable.initializer = std::make_unique<plan::InitializerT>();
    variable.initializer->kind = kind;
    variable.initializer->stddev = 0.02;
    variable.initializer->scale = scale;
    variable.initializer->values = std::move(values);
    variableBuilder.Finish(plan::Variable::Pack(variableBuilder, &variable));
    plan::SliceT slice;
    slice.dtype = dtype;
    slice.shape = std::move(shape);
    sliceBuilder.Finish(plan::Slice::Pack(sliceBuilder, &slice));
  }

  template <typename T> std::vector<T> elements(uint64_t begin, uint64_t count) {
    std::vector<T> out(count);
    auto made =
        initialElements(*flatbuffers::GetRoot<plan::Variable>(variableBuilder.GetBufferPointer()),
                        *flatbuffers::GetRoot<plan::Slice>(sliceBuilder.GetBufferPointer()), 5,
                        begin, count, out.data());
    EXPECT_TRUE(bool(made)) << made.error().message;
    return out;
  }
};

TEST(Initializer, ConstantsFillEveryDType) {
  EXPECT_EQ(Described(InitializerKind::Ones, DType::F32, {3}).elements<float>(0, 3),
            (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(Described(InitializerKind::Constant, DType::F64, {2}, 0.1).elements<double>(0, 2),
            (std::vector<double>{0.1, 0.1}));
  EXPECT_EQ(Described(InitializerKind::Constant, DType::BF16, {2}, -2).elements<uint16_t>(0, 2),
            (std::vector<uint16_t>{0xC000, 0xC000}));
  EXPECT_EQ(Described(InitializerKind::Zeros, DType::I32, {2}).elements<int32_t>(0, 2),
            (std::vector<int32_t>{0, 0}));
}

TEST(Initializer, RopeTablesAreCosAndSinOfPositionTimesFrequency) {
  std::vector<double> frequencies = {1.0, 0.01};
  auto cosine = Described(InitializerKind::RopeCos, DType::F64, {100, 2}, 2, frequencies)
                    .elements<double>(0, 200);
  auto sine = Described(InitializerKind::RopeSin, DType::F32, {100, 2}, 1, frequencies)
                  .elements<float>(3, 150);
  for (size_t i = 0; i < 200; ++i)
    EXPECT_DOUBLE_EQ(cosine[i], 2 * std::cos(double(i / 2) * frequencies[i % 2]));
  for (size_t i = 0; i < 150; ++i)
    EXPECT_FLOAT_EQ(sine[i], float(std::sin(double((i + 3) / 2) * frequencies[(i + 3) % 2])));
}

TEST(Initializer, NormalIsKeyedByTheNamesHash) {
  std::vector<float> expected(10);
  fillNormal(5, XXH64("x", 1, 0), 7, 10, 0.02, expected.data());
  EXPECT_EQ(Described(InitializerKind::Normal, DType::F32, {100}).elements<float>(7, 10), expected);
}

TEST(Initializer, ARopeTableWithoutAFrequencyPerColumnIsAnError) {
  Described rope(InitializerKind::RopeCos, DType::F32, {4, 3}, 1, {1.0, 0.5});
  std::vector<float> out(12);
  EXPECT_ERROR(initialElements(
                   *flatbuffers::GetRoot<plan::Variable>(rope.variableBuilder.GetBufferPointer()),
                   *flatbuffers::GetRoot<plan::Slice>(rope.sliceBuilder.GetBufferPointer()), 5, 0,
                   12, out.data()),
               "'x': a rope table needs one frequency per column");
}

// Memory of a plan's slices, and nothing that runs.
class SliceMemory : public Device {
public:
  explicit SliceMemory(const plan::PlanT &plan) {
    for (const auto &slice : plan.slices)
      slices.emplace_back(slice->bytes, '\x55');
  }
  std::vector<std::vector<char>> slices;

  DeviceInfo info(DType) const override { return {}; }
  Result<void> load(const PlanFile &) override { return {}; }
  uint64_t allocatedBytes() const override { return 0; }
  Result<std::unique_ptr<Executable>> record(int) override { return Error{"runs nothing"}; }
  Result<void> submit(Executable &) override { return Error{"runs nothing"}; }
  Result<std::vector<CommandTime>> submitTimed(Executable &, const AfterCommand &) override {
    return Error{"runs nothing"};
  }
  Result<std::unique_ptr<HostBuffer>> hostBuffer(uint64_t) override { return Error{"no copies"}; }
  Result<void> upload(const ArenaRange &, const HostBuffer &, uint64_t) override {
    return Error{"no copies"};
  }
  Result<void> download(const ArenaRange &, HostBuffer &, uint64_t) override {
    return Error{"no copies"};
  }
  Result<std::unique_ptr<Mark>> makeMark() override { return Error{"no marks"}; }
  Result<void> place(Mark &) override { return Error{"no marks"}; }
  Result<void> wait(Mark &) override { return Error{"no marks"}; }
  Result<bool> reached(Mark &) override { return Error{"no marks"}; }
  Result<double> secondsBetween(const Mark &, const Mark &) override { return Error{"no marks"}; }
  Result<void> synchronize() override { return {}; }
  Result<void> copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset) override {
    if (offset + bytes > slices.at(slice).size())
      return Error{"copyIn beyond the slice"};
    std::memcpy(slices[slice].data() + offset, source, bytes);
    return {};
  }
  Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset) override {
    if (offset + bytes > slices.at(slice).size())
      return Error{"copyOut beyond the slice"};
    std::memcpy(target, slices[slice].data() + offset, bytes);
    return {};
  }
};

// The tiny plan's state with a weight of `elements` elements, made by `threads` threads.
std::vector<std::vector<char>> fill(uint64_t elements, int threads) {
  test::TestFolder folder;
  test::TinyPlan tiny;
  // The compiler's arenas don't matter here: only the first two slices are used.
  uint64_t offset = 0;
  for (size_t i : {0, 1}) {
    auto &slice = *tiny.plan.slices[i];
    slice.shape = {elements};
    slice.bytes = elements * byteWidth(slice.dtype);
    slice.offset = offset;
    offset += (slice.bytes + 63) / 64 * 64;
  }
  tiny.plan.slices.resize(2);
  tiny.plan.variables.resize(2);
  tiny.plan.functions.clear();
  tiny.plan.kernels.clear();
  tiny.plan.arenas[0]->bytes = offset;
  auto bytes = tiny.bytes();
  auto plan = PlanFile::fromBytes(bytes.data(), bytes.size(), "tiny");
  EXPECT_TRUE(bool(plan)) << plan.error().message;
  SliceMemory device(tiny.plan);
  int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  auto made = initializeVariables(**plan, device, 1234, [](auto &) { return true; });
  EXPECT_TRUE(bool(made)) << made.error().message;
  auto copied = refreshCopies(**plan, device);
  EXPECT_TRUE(bool(copied)) << copied.error().message;
  omp_set_num_threads(before);
  return device.slices;
}

// Larger than the chunks that the work is cut into, and no multiple of them.
constexpr uint64_t kManyElements = (uint64_t{1} << 22) + 12345;

TEST(Initializer, ThreadsDoNotChangeABit) {
  EXPECT_EQ(fill(kManyElements, 1), fill(kManyElements, 3));
}

TEST(Initializer, CopiesAreTheRoundedSource) {
  auto slices = fill(kManyElements, 2);
  const auto *source = reinterpret_cast<const float *>(slices[1].data());
  const auto *copy = reinterpret_cast<const uint16_t *>(slices[0].data());
  double square = 0;
  for (uint64_t i = 0; i < kManyElements; ++i) {
    ASSERT_EQ(copy[i], toBFloat16(source[i])) << i;
    square += double(source[i]) * source[i];
  }
  // The plan's standard deviation is 0.5; its estimate is off by 0.5 / sqrt(2 n).
  EXPECT_NEAR(std::sqrt(square / kManyElements), 0.5, 5 * 0.5 / std::sqrt(2.0 * kManyElements));
}

} // namespace
} // namespace lmc
