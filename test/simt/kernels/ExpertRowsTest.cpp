// The kernels that sort rows by expert and take them there and back, against plain loops.
#include "compiler/targets/cuda/templates/ExpertRowsTemplates.h"
#include "test/runtime/device/cpu/Values.h"
#include "test/simt/kernels/Draw.h"
#include "test/simt/kernels/KernelArgument.h"
#include "test/simt/kernels/KernelCheck.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace lmc;
using namespace lmc::simt;
using codegen::CudaKernel;
using codegen::ExpertRowsShape;
using cpu::Storage;

namespace {

class ExpertRows {
public:
  ExpertRows(const ExpertRowsShape &shape, const std::vector<int32_t> &experts, uint64_t seed = 1)
      : shape(shape), experts(experts), random(seed),
        type(shape.type == DataType::F64   ? Storage::F64
             : shape.type == DataType::F32 ? Storage::F32
                                           : Storage::BF16),
        real(shape.type == DataType::F64 ? Storage::F64 : Storage::F32),
        rows(size_t(shape.rows()), -2), places(experts.size(), -2),
        offsets(size_t(shape.experts) + 1, -1) {}

  // `rank` is only read with several groups.
  void checkSort(int64_t rank = 0) {
    const auto kernels = sortRowsKernels(shape);
    std::vector<int32_t> workspace(size_t(shape.sortBytes() / 4), -1);
    cpu::test::Values own(real, 1);
    own.set(0, double(rank));
    std::vector<KernelArgument> first{{experts, Access::Read}};
    if (shape.groups > 1)
      first.push_back({own, Access::Read});
    std::vector<KernelArgument> second = first;
    first.push_back({workspace, Access::ReadWrite});
    ASSERT_NO_FATAL_FAILURE(run(kernels[0], first));
    second.push_back(first.back());
    second.back().access = Access::Read;
    const size_t made = second.size();
    second.push_back({offsets, Access::ReadWrite});
    second.push_back({rows, Access::ReadWrite});
    second.push_back({places, Access::ReadWrite});
    ASSERT_NO_FATAL_FAILURE(run(kernels[1], second));
    second[made].to(offsets);
    second[made + 1].to(rows);
    second[made + 2].to(places);

    const auto least = int32_t(rank % shape.groups * shape.experts);
    const auto end = least + int32_t(shape.experts);
    std::vector<int32_t> sorted; // all choices of this group's experts
    for (int32_t c = 0; c < int32_t(experts.size()); ++c)
      if (experts[size_t(c)] >= least && experts[size_t(c)] < end)
        sorted.push_back(c);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](int32_t a, int32_t b) { return experts[size_t(a)] < experts[size_t(b)]; });
    std::vector<int32_t> expectedRows(rows.size(), -1), expectedPlaces(places.size(), -1);
    for (int64_t row = 0; row < shape.rows() && shape.first + row < int64_t(sorted.size()); ++row) {
      expectedRows[size_t(row)] = sorted[size_t(shape.first + row)];
      expectedPlaces[size_t(expectedRows[size_t(row)])] = int32_t(row);
    }
    EXPECT_EQ(rows, expectedRows);
    EXPECT_EQ(places, expectedPlaces);
    for (int32_t e = 0; e <= int32_t(shape.experts); ++e) {
      const auto before = std::ranges::count_if(
          sorted, [&](int32_t choice) { return experts[size_t(choice)] < least + e; });
      ASSERT_EQ(offsets[size_t(e)],
                std::clamp(int64_t(before) - shape.first, int64_t(0), shape.rows()));
    }
  }

  // Both ways; the sort must have run.
  void checkRows() {
    using cpu::test::Values;
    const int64_t columns = shape.columns, choices = shape.choices(), k = shape.chosen;
    const int64_t held = shape.rows();
    const Values x = Values::random(type, shape.tokens * columns, random);
    Values y = Values::random(type, held * columns, random);
    const Values weights = Values::random(real, choices, random);
    // What is not written stays NaN.
    std::vector<double> taken(size_t(held * columns), NAN), back(size_t(shape.tokens * columns));
    std::vector<double> out(back.size()), dy(taken), dweights(static_cast<size_t>(choices));
    for (int64_t row = 0; row < held; ++row) {
      const int64_t choice = rows[size_t(row)], token = choice / k;
      for (int64_t c = 0; c < columns && choice < 0; ++c)
        y.set(row * columns + c, NAN);
      for (int64_t c = 0; c < columns && choice >= 0; ++c) {
        const size_t at = size_t(row * columns + c), of = size_t(token * columns + c);
        taken[at] = x[int64_t(of)];
        back[of] += y[int64_t(at)];
        out[of] += weights[choice] * y[int64_t(at)];
        dy[at] = weights[choice] * x[int64_t(of)];
        dweights[size_t(choice)] += x[int64_t(of)] * y[int64_t(at)];
      }
    }
    const double allowed = allowedError();
    const KernelArgument ofRows(rows, Access::Read), ofPlaces(places, Access::Read);
    const KernelArgument ofX(x, Access::Read), ofY(y, Access::Read),
        ofWeights(weights, Access::Read);
    check(takeRowsKernel(shape), {ofX, ofRows}, type, taken, 0);
    check(takeRowsGradKernel(shape), {ofY, ofPlaces}, type, back, allowed);
    check(combineRowsKernel(shape), {ofY, ofWeights, ofPlaces}, type, out, allowed);
    std::vector<KernelArgument> arguments{
        ofX, ofY, ofWeights, ofRows, ofPlaces, empty(type, held * columns), empty(real, choices)};
    ASSERT_NO_FATAL_FAILURE(run(combineRowsGradKernel(shape), arguments));
    compare(arguments[5], type, dy, allowed);
    compare(arguments[6], real, dweights, real == Storage::F64 ? 1e-13 : 1e-5);
  }

  // The sort must have run.
  void checkSwiglu() {
    using cpu::test::Values;
    const int64_t columns = shape.columns, held = shape.rows(), own = offsets.back();
    Values x = Values::random(type, held * 2 * columns, random, 3);
    Values dy = Values::random(type, held * columns, random);
    std::vector<double> y(size_t(held * columns), NAN), dx(size_t(held * 2 * columns), NAN);
    for (int64_t row = 0; row < held; ++row)
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t gateAt = row * 2 * columns + c, upAt = gateAt + columns,
                      at = row * columns + c;
        if (row >= own) { // is not read
          x.set(gateAt, NAN);
          x.set(upAt, NAN);
          dy.set(at, NAN);
          continue;
        }
        const double gate = x[gateAt], up = x[upAt], s = 1 / (1 + std::exp(-gate));
        y[size_t(at)] = gate * s * up;
        dx[size_t(gateAt)] = dy[at] * up * s * (1 + gate * (1 - s));
        dx[size_t(upAt)] = dy[at] * gate * s;
      }
    const codegen::ExpertRowsShape halves{held, 1, shape.experts, columns, shape.type};
    const KernelArgument ofX(x, Access::Read), ofDy(dy, Access::Read),
        ofOffsets(offsets, Access::Read);
    check(expertSwigluKernel(halves), {ofX, ofOffsets}, type, y, allowedError());
    check(expertSwigluGradKernel(halves), {ofDy, ofX, ofOffsets}, type, dx, allowedError());
  }

private:
  // Relative to the largest value.
  double allowedError() const {
    return type == Storage::F64 ? 1e-13 : type == Storage::F32 ? 1e-5 : 4e-3;
  }

  static KernelArgument empty(Storage storage, int64_t elements) {
    return KernelArgument(cpu::test::Values(storage, elements), Access::ReadWrite);
  }

  // Compares a result. Where NaN is expected, nothing must have been written.
  static void compare(const KernelArgument &argument, Storage storage, std::vector<double> expected,
                      double bound) {
    cpu::test::Values result(storage, int64_t(expected.size()));
    argument.to(result);
    for (size_t i = 0; i < expected.size(); ++i)
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(result[int64_t(i)])) << "element " << i << " was written";
        expected[i] = 0;
        result.set(int64_t(i), 0);
      }
    EXPECT_LE(cpu::test::error(result, expected), bound);
  }

  // Runs a kernel whose last argument is its result.
  void check(const CudaKernel &kernel, std::vector<KernelArgument> arguments, Storage storage,
             const std::vector<double> &expected, double bound) {
    SCOPED_TRACE(kernel.name);
    arguments.push_back(empty(storage, int64_t(expected.size())));
    ASSERT_NO_FATAL_FAILURE(run(kernel, arguments));
    compare(arguments.back(), storage, expected, bound);
  }

  // Runs a kernel, and holds it to the bytes that it says it moves.
  void run(const CudaKernel &text, std::vector<KernelArgument> &arguments) {
    auto kernel = std::move(compile(std::vector<Source>{sourceOf(text)}).front());
    ASSERT_TRUE(bool(kernel)) << kernel.error().message;
    std::vector<Argument> passed;
    for (KernelArgument &each : arguments)
      passed.push_back({each.lines.data(), each.size, each.access});
    const RunResult result = runTwice(*kernel, passed, 1, /*count=*/true);
    ASSERT_EQ(result.failure, "");
    EXPECT_FALSE(result.atomics);
    uint64_t read = 0, written = 0;
    for (const Traffic &each : result.traffic) {
      read += each.distinctLoaded;
      written += each.distinctStored;
    }
    if (shape.groups == 1) {
      EXPECT_EQ(read, text.bytes.read) << text.name;
      EXPECT_EQ(written, text.bytes.written) << text.name;
    } else { // what is left out depends on the choices
      EXPECT_LE(read, text.bytes.read) << text.name;
      EXPECT_LE(written, text.bytes.written) << text.name;
    }
  }

  const ExpertRowsShape shape;
  const std::vector<int32_t> experts;
  std::mt19937_64 random;
  const Storage type, real;
  std::vector<int32_t> rows, places, offsets;
};

// Each token chooses different experts of all groups, the first ones more often.
std::vector<int32_t> drawnChoices(const ExpertRowsShape &shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int64_t experts = shape.experts * shape.groups;
  std::vector<int32_t> all(static_cast<size_t>(experts)), choices;
  std::iota(all.begin(), all.end(), 0);
  for (int64_t token = 0; token < shape.tokens; ++token)
    for (int64_t j = 0; j < shape.chosen; ++j) {
      const auto left = uint64_t(experts - j);
      const auto at = uint64_t(j) + random() % (1 + random() % left);
      std::swap(all[size_t(j)], all[at]);
      choices.push_back(all[size_t(j)]);
    }
  return choices;
}

void checkShape(const ExpertRowsShape &shape, uint64_t seed, int64_t rank = 0) {
  ExpertRows rows(shape, drawnChoices(shape, seed), seed);
  ASSERT_NO_FATAL_FAILURE(rows.checkSort(rank));
  rows.checkRows();
  rows.checkSwiglu();
}

} // namespace

TEST(ExpertRowsKernels, SortAndMoveRows) {
  checkShape({200, 2, 8, 64, DataType::BF16}, 1);
  checkShape({77, 8, 60, 40, DataType::F32}, 2);
  checkShape({33, 3, 5, 7, DataType::F64}, 3);
  checkShape({1, 1, 1, 1, DataType::BF16}, 4);
}

TEST(ExpertRowsKernels, SortManyTiles) {
  ExpertRows rows({6000, 4, 128, 1, DataType::F32},
                  drawnChoices({6000, 4, 128, 1, DataType::F32}, 5));
  rows.checkSort();
}

TEST(ExpertRowsKernels, SortWhereOneExpertGetsAll) {
  for (int32_t expert : {0, 6})
    ExpertRows({500, 1, 7, 3, DataType::F32}, std::vector<int32_t>(500, expert)).checkSort();
}

// Each rank sorts the choices of its own experts, of which it may hold only some.
TEST(ExpertRowsKernels, SortAndMoveRowsOfAGroup) {
  ExpertRowsShape shape{90, 3, 4, 24, DataType::BF16};
  shape.groups = 3;
  for (int64_t rank : {0, 1, 5})
    checkShape(shape, 6, rank);
  shape.type = DataType::F64;
  for (const auto &[first, held] : {std::pair(0, 40), std::pair(40, 40), std::pair(250, 20)}) {
    shape.first = first;
    shape.held = held;
    checkShape(shape, 7, /*rank=*/3);
  }
}

// No token chooses an expert of the rank, or all choose one of them.
TEST(ExpertRowsKernels, SortWhereAGroupGetsNothingOrAll) {
  ExpertRowsShape shape{500, 1, 7, 3, DataType::F32};
  shape.groups = 2;
  for (int64_t rank : {0, 1}) {
    ExpertRows rows(shape, std::vector<int32_t>(500, 9));
    ASSERT_NO_FATAL_FAILURE(rows.checkSort(rank));
    rows.checkRows();
    rows.checkSwiglu();
  }
}

TEST(ExpertRowsKernels, DrawnShapes) {
  for (int64_t seed = 1, last = drawCount(8); seed <= last; ++seed) {
    Draw draw{uint64_t(seed)};
    ExpertRowsShape shape;
    shape.tokens = draw.extent(400);
    shape.experts = draw.extent(200);
    shape.chosen = std::min(shape.experts, draw.between(1, 8));
    shape.columns = draw.extent(600);
    shape.type = draw.pick({DataType::BF16, DataType::F32, DataType::F64});
    if (draw.between(0, 1)) {
      shape.groups = draw.between(2, 4);
      shape.held = draw.between(1, shape.choices());
      shape.first = draw.between(0, shape.choices() - shape.held);
    }
    SCOPED_TRACE("seed " + std::to_string(seed));
    checkShape(shape, uint64_t(seed), draw.between(0, 9));
    if (HasFatalFailure())
      return;
  }
}
