#include "runtime/device/cpu/AlignedMemory.h"
#include "runtime/device/cpu/CpuMachine.h"
#include "test/runtime/device/cpu/Values.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace lmc::cpu;
using lmc::cpu::test::Values;

namespace {

struct Shape {
  int64_t batch, seq, heads, kvHeads, headDim, window;
  int64_t document = 0; // mean length of documents; 0: no document mask
};

// Documents of random length, at least one token each, in every sequence.
std::vector<int32_t> randomStarts(const Shape &shape, std::mt19937_64 &random) {
  std::vector<int32_t> starts;
  if (shape.document == 0)
    return starts;
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t i = 0, start = 0; i < shape.seq; ++i) {
      if (random() % uint64_t(shape.document) == 0)
        start = i;
      starts.push_back(int32_t(start));
    }
  return starts;
}

// Everything that attention and its gradient read and write.
struct Problem {
  Shape shape;
  double scale;
  Values q, k, v, dout, out, lse, dq, dk, dv, workspace;
  std::vector<int32_t> starts; // empty: no document mask
  std::vector<float> cos, sin; // empty: dq and dk are not rotated back

  Problem(Shape s, Storage storage, std::mt19937_64 &random)
      : shape(s), scale(1 / std::sqrt(double(s.headDim))),
        q(Values::random(storage, s.batch * s.seq * s.heads * s.headDim, random, 1.5)),
        k(Values::random(storage, s.batch * s.seq * s.kvHeads * s.headDim, random, 1.5)),
        v(Values::random(storage, k.size(), random)),
        dout(Values::random(storage, q.size(), random)), out(storage, q.size()),
        lse(sums(storage), s.batch * s.seq * s.heads), dq(storage, q.size()), dk(storage, k.size()),
        dv(storage, k.size()), workspace(Storage::F32, storage == Storage::BF16 ? q.size() : 0),
        starts(randomStarts(s, random)) {}

  static Storage sums(Storage storage) {
    return storage == Storage::F64 ? Storage::F64 : Storage::F32;
  }

  AttentionArgs forward() {
    return {q.data(),  k.data(),    v.data(),      out.data(),    lse.data(),   shape.batch,
            shape.seq, shape.heads, shape.kvHeads, shape.headDim, shape.window, scale,
            queries(), keys(),      keys(),        mask()};
  }
  AttentionGradArgs backward() {
    return {forward(), dout.data(), dq.data(), dk.data(),  dv.data(), workspace.data(),
            queries(), keys(),      keys(),    table(cos), table(sin)};
  }
  static const float *table(const std::vector<float> &values) {
    return values.empty() ? nullptr : values.data();
  }
  const int32_t *mask() const { return starts.empty() ? nullptr : starts.data(); }
  // Elements of a row.
  int64_t queries() const { return shape.heads * shape.headDim; }
  int64_t keys() const { return shape.kvHeads * shape.headDim; }

  void run(const KernelSet &set, int threads) {
    const auto &kernels = set.attention[int(q.storage)];
    AttentionArgs f = forward();
    AttentionGradArgs g = backward();
    int64_t bytes =
        (int64_t(std::max(kernels.scratchBytes(f), kernels.gradScratchBytes(g))) + 63) / 64 * 64;
    AlignedMemory scratch;
    scratch.reserve(bytes * threads);
    // Whatever was in the scratch before must not matter.
    std::fill(scratch.data(), scratch.data() + bytes * threads, char(0xff));
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t task = 0; task < kernels.tasks(f); ++task)
      kernels.run(f, task, scratch.at(omp_get_thread_num() * bytes));
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t task = 0; task < kernels.gradTasks(g); ++task)
      kernels.gradRun(g, task, scratch.at(omp_get_thread_num() * bytes));
  }
};

// The definition, in double, with the whole row of probabilities.
struct Expected {
  std::vector<double> out, lse, dq, dk, dv;

  explicit Expected(const Problem &p)
      : out(size_t(p.q.size())), lse(size_t(p.lse.size())), dq(out.size()), dk(size_t(p.k.size())),
        dv(dk.size()) {
    const Shape &s = p.shape;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.seq; ++i) {
          const int64_t kvHead = h / (s.heads / s.kvHeads);
          const int64_t row = ((b * s.seq + i) * s.heads + h) * s.headDim;
          auto keyRow = [&](int64_t j) {
            return ((b * s.seq + j) * s.kvHeads + kvHead) * s.headDim;
          };
          int64_t from = s.window ? std::max<int64_t>(0, i - s.window + 1) : 0;
          if (!p.starts.empty())
            from = std::max<int64_t>(from, p.starts[size_t(b * s.seq + i)]);
          std::vector<double> weights(size_t(i + 1)), weightGrads(size_t(i + 1));
          double sum = 0;
          for (int64_t j = from; j <= i; ++j) {
            double score = 0;
            for (int64_t d = 0; d < s.headDim; ++d)
              score += p.q[row + d] * p.k[keyRow(j) + d];
            sum += weights[size_t(j)] = std::exp(score * p.scale);
          }
          lse[size_t(row / s.headDim)] = std::log(sum);
          double correction = 0;
          for (int64_t j = from; j <= i; ++j) {
            weights[size_t(j)] /= sum;
            for (int64_t d = 0; d < s.headDim; ++d) {
              out[size_t(row + d)] += weights[size_t(j)] * p.v[keyRow(j) + d];
              dv[size_t(keyRow(j) + d)] += weights[size_t(j)] * p.dout[row + d];
              weightGrads[size_t(j)] += p.dout[row + d] * p.v[keyRow(j) + d];
            }
            correction += weights[size_t(j)] * weightGrads[size_t(j)];
          }
          for (int64_t j = from; j <= i; ++j) {
            double scoreGrad = p.scale * weights[size_t(j)] * (weightGrads[size_t(j)] - correction);
            for (int64_t d = 0; d < s.headDim; ++d) {
              dq[size_t(row + d)] += scoreGrad * p.k[keyRow(j) + d];
              dk[size_t(keyRow(j) + d)] += scoreGrad * p.q[row + d];
            }
          }
        }
  }
};

const Shape kShapes[] = {
    {1, 1, 1, 1, 16, 0},    {2, 7, 2, 2, 64, 0},    {1, 64, 4, 1, 32, 0},    {1, 65, 8, 8, 16, 0},
    {2, 130, 4, 1, 64, 0},  {1, 200, 8, 1, 48, 0},  {1, 129, 2, 2, 128, 0},  {1, 150, 2, 1, 64, 1},
    {1, 150, 4, 2, 64, 33}, {1, 260, 2, 1, 32, 64}, {1, 140, 2, 2, 96, 500}, {1, 90, 2, 1, 20, 0},
    {1, 70, 1, 1, 37, 11},
    // With documents of about so many tokens: shorter and longer than a tile and than the window.
    {2, 70, 2, 2, 64, 0, 1},    {2, 200, 4, 1, 64, 0, 9},   {1, 300, 4, 4, 48, 0, 40},
    {2, 257, 8, 1, 64, 0, 100}, {1, 260, 2, 1, 32, 64, 30}, {1, 310, 4, 2, 96, 20, 70},
    {3, 65, 2, 1, 37, 11, 16},  {1, 400, 2, 2, 128, 0, 150},
};

} // namespace

TEST(Attention, MatchesTheDefinition) {
  for (Storage storage : {Storage::F32, Storage::BF16, Storage::F64})
    for (const Shape &shape : kShapes) {
      std::mt19937_64 random(1);
      Problem problem(shape, storage, random);
      Expected expected(problem);
      for (const KernelSet *set : kernelSets()) {
        SCOPED_TRACE(testing::Message()
                     << set->name << ", storage " << int(storage) << ", seq " << shape.seq
                     << ", heads " << shape.heads << "/" << shape.kvHeads << " of " << shape.headDim
                     << ", window " << shape.window << ", documents of " << shape.document);
        for (Values *result : {&problem.out, &problem.dq, &problem.dk, &problem.dv})
          std::fill(result->bytes.begin(), result->bytes.end(), char(0xff));
        problem.run(*set, 2);
        const double tolerance = lmc::cpu::test::tolerance(storage);
        EXPECT_LE(lmc::cpu::test::error(problem.out, expected.out), tolerance);
        EXPECT_LE(lmc::cpu::test::error(problem.lse, expected.lse),
                  storage == Storage::F64 ? 1e-10 : 1e-5);
        EXPECT_LE(lmc::cpu::test::error(problem.dv, expected.dv), tolerance);
        // One visible key: the exact gradient is 0 and only rounding is left.
        if (shape.seq > 1 && shape.window != 1 && shape.document != 1) {
          EXPECT_LE(lmc::cpu::test::error(problem.dq, expected.dq), 2 * tolerance);
          EXPECT_LE(lmc::cpu::test::error(problem.dk, expected.dk), 2 * tolerance);
        }
      }
    }
}

// Tokens [from, to) of `values`, a row of `columns` each.
static Values rows(const Values &values, int64_t from, int64_t to, int64_t columns) {
  Values part(values.storage, (to - from) * columns);
  const size_t width = part.bytes.size() / size_t((to - from) * columns);
  std::memcpy(part.bytes.data(), values.bytes.data() + size_t(from * columns) * width,
              part.bytes.size());
  return part;
}

static std::vector<double> numbers(const Values &values) {
  std::vector<double> all;
  for (int64_t i = 0; i < values.size(); ++i)
    all.push_back(values[i]);
  return all;
}

// The gradients of what rope rotated are those of its results, rotated back.
TEST(Attention, RotatesGradientsBack) {
  for (Storage storage : {Storage::F32, Storage::BF16, Storage::F64}) {
    std::mt19937_64 random(12);
    Problem plain({2, 150, 4, 2, 24, 40, 30}, storage, random), rotated = plain;
    const int64_t seq = 150, half = 12;
    std::uniform_real_distribution<double> angles(-3, 3);
    for (int64_t i = 0; i < seq * half; ++i) {
      double angle = angles(random);
      rotated.cos.push_back(float(std::cos(angle)));
      rotated.sin.push_back(float(std::sin(angle)));
    }
    plain.run(kernelSet(), 2);
    rotated.run(kernelSet(), 2);
    auto back = [&](const Values &x, int64_t columns) {
      std::vector<double> y = numbers(x);
      for (int64_t i = 0; i < x.size(); ++i) {
        const int64_t table = i / columns % seq * half + i % half;
        const double c = rotated.cos[size_t(table)], s = rotated.sin[size_t(table)];
        const bool low = i % (2 * half) < half;
        y[size_t(i)] = low ? x[i] * c + x[i + half] * s : x[i] * c - x[i - half] * s;
      }
      return y;
    };
    const double tolerance = lmc::cpu::test::tolerance(storage);
    EXPECT_LE(lmc::cpu::test::error(rotated.dq, back(plain.dq, plain.queries())), tolerance);
    EXPECT_LE(lmc::cpu::test::error(rotated.dk, back(plain.dk, plain.keys())), tolerance);
    EXPECT_GT(lmc::cpu::test::error(rotated.dk, numbers(plain.dk)), 0.1);
    EXPECT_EQ(rotated.dv.bytes, plain.dv.bytes);
  }
}

// What a document's tokens get and give is what they would if it stood alone.
TEST(Attention, DocumentsOfASequenceAreEachAlone) {
  for (Storage storage : {Storage::F32, Storage::BF16, Storage::F64})
    for (int64_t window : {0, 33}) {
      std::mt19937_64 random(9);
      const int64_t ends[] = {0, 90, 91, 190};
      Problem together({1, 190, 4, 2, 32, window}, storage, random);
      for (int document = 0; document < 3; ++document)
        for (int64_t i = ends[document]; i < ends[document + 1]; ++i)
          together.starts.push_back(int32_t(ends[document]));
      together.run(kernelSet(), 2);
      for (int document = 0; document < 3; ++document) {
        SCOPED_TRACE(testing::Message() << "storage " << int(storage) << ", window " << window
                                        << ", document " << document);
        const int64_t from = ends[document], to = ends[document + 1];
        Problem alone({1, to - from, 4, 2, 32, window}, storage, random);
        alone.q = rows(together.q, from, to, together.queries());
        alone.k = rows(together.k, from, to, together.keys());
        alone.v = rows(together.v, from, to, together.keys());
        alone.dout = rows(together.dout, from, to, together.queries());
        alone.run(kernelSet(), 2);
        const double tolerance = lmc::cpu::test::tolerance(storage);
        auto differ = [&](const Values &whole, const Values &part, int64_t columns) {
          return lmc::cpu::test::error(rows(whole, from, to, columns), numbers(part));
        };
        EXPECT_LE(differ(together.out, alone.out, together.queries()), tolerance);
        EXPECT_LE(differ(together.lse, alone.lse, 4), tolerance);
        EXPECT_LE(differ(together.dv, alone.dv, together.keys()), tolerance);
        if (to - from > 1) { // of one token they are rounding alone
          EXPECT_LE(differ(together.dq, alone.dq, together.queries()), tolerance);
          EXPECT_LE(differ(together.dk, alone.dk, together.keys()), tolerance);
        }
      }
    }
}

// One document from the start on is no mask.
TEST(Attention, OneDocumentIsNoMask) {
  for (int64_t window : {0, 21}) {
    std::mt19937_64 random(3);
    Problem plain({2, 150, 4, 2, 32, window}, Storage::F32, random), masked = plain;
    masked.starts.assign(300, 0);
    plain.run(kernelSet(), 2);
    masked.run(kernelSet(), 2);
    EXPECT_EQ(plain.out.bytes, masked.out.bytes);
    EXPECT_EQ(plain.dq.bytes, masked.dq.bytes);
    EXPECT_EQ(plain.dk.bytes, masked.dk.bytes);
    EXPECT_EQ(plain.dv.bytes, masked.dv.bytes);
  }
}

// What is no start of a document spoils its own sequence at most.
TEST(Attention, SenselessStartsStayInTheirSequence) {
  std::mt19937_64 random(6);
  Problem sound({3, 130, 4, 2, 32, 0, 20}, Storage::F32, random), damaged = sound;
  for (int64_t i = 130; i < 260; ++i)
    damaged.starts[size_t(i)] = int32_t(random());
  sound.run(kernelSet(), 2);
  damaged.run(kernelSet(), 2);
  for (int64_t from : {0, 260}) {
    auto same = [&](const Values &x, const Values &y, int64_t columns) {
      return rows(x, from, from + 130, columns).bytes == rows(y, from, from + 130, columns).bytes;
    };
    EXPECT_TRUE(same(sound.out, damaged.out, sound.queries()));
    EXPECT_TRUE(same(sound.dq, damaged.dq, sound.queries()));
    EXPECT_TRUE(same(sound.dk, damaged.dk, sound.keys()));
    EXPECT_TRUE(same(sound.dv, damaged.dv, sound.keys()));
  }
}

// q, k and v, and their gradients, as columns of one matrix.
TEST(Attention, TakesRowsThatLieApart) {
  for (Storage storage : {Storage::F32, Storage::BF16, Storage::F64}) {
    std::mt19937_64 random(7);
    Problem dense({2, 100, 4, 2, 32, 0}, storage, random);
    dense.run(kernelSet(), 2);
    Problem apart = dense;
    const int64_t rows = 200, width = apart.queries() + 2 * apart.keys();
    Values packed(storage, rows * width), packedGrad(storage, rows * width);
    const size_t element = packed.bytes.size() / size_t(rows * width);
    auto at = [&](Values &matrix, int64_t row, int64_t column) {
      return matrix.bytes.data() + size_t(row * width + column) * element;
    };
    int64_t column = 0;
    for (auto [part, columns] : {std::pair{&dense.q, apart.queries()},
                                 {&dense.k, apart.keys()}, {&dense.v, apart.keys()}}) {
      for (int64_t row = 0; row < rows; ++row)
        std::memcpy(at(packed, row, column), part->bytes.data() + size_t(row * columns) * element,
                    size_t(columns) * element);
      column += columns;
    }
    AttentionArgs forward = apart.forward();
    AttentionGradArgs backward = apart.backward();
    forward.q = backward.q = at(packed, 0, 0);
    forward.k = backward.k = at(packed, 0, apart.queries());
    forward.v = backward.v = at(packed, 0, apart.queries() + apart.keys());
    backward.dq = at(packedGrad, 0, 0);
    backward.dk = at(packedGrad, 0, apart.queries());
    backward.dv = at(packedGrad, 0, apart.queries() + apart.keys());
    for (int64_t *pitch : {&forward.qPitch, &forward.kPitch, &forward.vPitch, &backward.qPitch,
                           &backward.kPitch, &backward.vPitch, &backward.dqPitch,
                           &backward.dkPitch, &backward.dvPitch})
      *pitch = width;
    std::fill(apart.out.bytes.begin(), apart.out.bytes.end(), char(0xff));
    const auto &kernels = kernelSet().attention[int(storage)];
    AlignedMemory scratch;
    scratch.reserve(
        int64_t(std::max(kernels.scratchBytes(forward), kernels.gradScratchBytes(backward))) + 64);
    for (int64_t task = 0; task < kernels.tasks(forward); ++task)
      kernels.run(forward, task, scratch.data());
    for (int64_t task = 0; task < kernels.gradTasks(backward); ++task)
      kernels.gradRun(backward, task, scratch.data());
    EXPECT_EQ(apart.out.bytes, dense.out.bytes);
    column = 0;
    for (auto [part, columns] : {std::pair{&dense.dq, apart.queries()},
                                 {&dense.dk, apart.keys()}, {&dense.dv, apart.keys()}}) {
      for (int64_t row = 0; row < rows; ++row)
        ASSERT_EQ(std::memcmp(at(packedGrad, row, column),
                              part->bytes.data() + size_t(row * columns) * element,
                              size_t(columns) * element),
                  0);
      column += columns;
    }
  }
}

TEST(Attention, BitsDependOnNeitherThreadsNorRuns) {
  for (Storage storage : {Storage::F32, Storage::BF16}) {
    std::mt19937_64 random(4);
    Problem problem({2, 200, 4, 2, 64, 0, 50}, storage, random);
    std::vector<std::vector<char>> first;
    for (int threads : {1, 2, 2, 5}) {
      problem.run(kernelSet(), threads);
      std::vector<std::vector<char>> results = {problem.out.bytes, problem.lse.bytes,
                                                problem.dq.bytes, problem.dk.bytes,
                                                problem.dv.bytes};
      if (first.empty())
        first = results;
      EXPECT_EQ(results, first) << threads << " threads";
    }
  }
}

// Scores far beyond what exp can hold: only differences count.
TEST(Attention, SurvivesLargeScores) {
  std::mt19937_64 random(5);
  Problem problem({1, 100, 1, 1, 32, 0}, Storage::F32, random);
  for (int64_t i = 0; i < problem.q.size(); ++i)
    problem.q.set(i, problem.q[i] * 300);
  problem.run(kernelSet(), 1);
  for (Values *result : {&problem.out, &problem.lse, &problem.dq, &problem.dk, &problem.dv})
    for (int64_t i = 0; i < result->size(); ++i)
      ASSERT_TRUE(std::isfinite((*result)[i]));
}

TEST(Attention, ExponentialIsExactToTwoUlps) {
  for (const KernelSet *set : kernelSets()) {
    std::vector<float> x, e;
    for (double at = -125.9; at < 10; at += 0.000377)
      x.push_back(float(at));
    x.insert(x.end(), {0.0f, -0.0f, -127.0f, -1e30f, -INFINITY, NAN});
    e.resize(x.size());
    set->exp2F32(x.data(), e.data(), int64_t(x.size()));
    double worst = 0;
    for (size_t i = 0; i + 6 < x.size(); ++i)
      worst = std::max(worst, std::abs(double(e[i]) / std::exp2(double(x[i])) - 1));
    EXPECT_LE(worst, 2.4e-7) << set->name;
    size_t n = x.size();
    EXPECT_EQ(e[n - 6], 1.0f);
    EXPECT_EQ(e[n - 5], 1.0f);
    EXPECT_EQ(e[n - 4], 0.0f);
    EXPECT_EQ(e[n - 3], 0.0f);
    EXPECT_EQ(e[n - 2], 0.0f);
    EXPECT_TRUE(std::isnan(e[n - 1]));
    std::vector<double> xs(x.begin(), x.end()), es(x.size());
    set->exp2F64(xs.data(), es.data(), int64_t(xs.size()));
    for (size_t i = 0; i + 6 < xs.size(); ++i)
      ASSERT_NEAR(es[i] / std::exp2(xs[i]), 1, 1e-15);
  }
}
