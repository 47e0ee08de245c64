// The attention kernels' source on the executor, beside a reference in f64 and the CPU's kernels.
#include "compiler/targets/cuda/templates/AttentionTemplates.h"
#include "ground/plan/FloatConvert.h"
#include "runtime/device/cpu/kernels/Kernels.h"
#include "test/simt/kernels/Draw.h"
#include "test/simt/kernels/KernelCheck.h"

#include "llvm/Support/FormatVariadic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <span>

using namespace lmc;
using namespace lmc::simt;
using codegen::AttentionPart;
using codegen::AttentionShape;
using codegen::AttentionTile;
using codegen::GlobalBytes;

namespace {

// Memory that begins at whole sectors, as a device's does.
template <typename T> struct SectorAllocator {
  using value_type = T;
  static constexpr std::align_val_t kSector{32};
  SectorAllocator() = default;
  template <typename U> SectorAllocator(const SectorAllocator<U> &) {}
  T *allocate(size_t count) { return static_cast<T *>(::operator new(count * sizeof(T), kSector)); }
  void deallocate(T *p, size_t) { ::operator delete(p, kSector); }
  bool operator==(const SectorAllocator &) const { return true; }
};
template <typename T> using DeviceVector = std::vector<T, SectorAllocator<T>>;

// Elements of the compute dtype in memory, rows `pitch` elements apart. All starts as NaN, and
// what is between two rows stays so.
struct Matrix {
  DataType type;
  int64_t rows, width, pitch;
  DeviceVector<char> bytes;
  int64_t offset = 0; // elements, of the first row

  Matrix(DataType type, int64_t rows, int64_t width, int64_t pitch)
      : type(type), rows(rows), width(width), pitch(pitch),
        bytes(size_t(rows * pitch * elementBytes(type)), char(0xff)) {}

  static int64_t elementBytes(DataType type) { return type == DataType::BF16 ? 2 : 4; }
  char *address(int64_t row, int64_t column) {
    return bytes.data() + (offset + row * pitch + column) * elementBytes(type);
  }
  double at(int64_t row, int64_t column) {
    auto as = [&](auto value) {
      std::memcpy(&value, address(row, column), sizeof(value));
      return value;
    };
    return type == DataType::BF16 ? fromBFloat16(as(uint16_t())) : as(float());
  }
  void set(int64_t row, int64_t column, float value) {
    auto put = [&](auto as) { std::memcpy(address(row, column), &as, sizeof(as)); };
    type == DataType::BF16 ? put(toBFloat16(value)) : put(value);
  }
  // Columns [first, first + columns) as an argument of a launch.
  Argument columns(int64_t first, int64_t columns, Access access) {
    uint64_t element = uint64_t(elementBytes(type));
    Argument argument;
    argument.data = address(0, first);
    argument.bytes = uint64_t(rows * columns) * element;
    argument.access = access;
    argument.rows = uint64_t(rows);
    argument.pitch = uint64_t(pitch) * element;
    return argument;
  }
  void fillRandom(unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < width; ++column)
        set(row, column, normal(generator));
  }
};

// Elements between the rows of q, k and v, which are in one tensor, and of the output and its
// gradient.
struct Spacing {
  int64_t qkv = 8, out = 0, dout = 0;
};

// Inputs and results of both directions: q, k and v are columns of one tensor, as merged linears
// leave them, and so are their gradients.
struct Problem {
  AttentionShape shape;
  int64_t tokens, width, kvWidth;
  Matrix qkv, out, dout, dqkv;
  DeviceVector<float> lse, delta, cos, sin, largest, gradLargest;
  DeviceVector<int32_t> starts;

  explicit Problem(AttentionShape given, unsigned seed = 1, Spacing spacing = {})
      : shape(given), tokens(shape.batch * shape.seq), width(shape.heads * shape.headDim),
        kvWidth(shape.kvHeads * shape.headDim),
        qkv(shape.type, tokens, width + 2 * kvWidth, width + 2 * kvWidth + spacing.qkv),
        out(shape.type, tokens, width, width + spacing.out),
        dout(shape.type, tokens, width, width + spacing.dout), dqkv(qkv),
        lse(size_t(tokens * shape.heads)), delta(lse), cos(size_t(shape.seq * shape.headDim / 2)),
        sin(cos), largest(size_t(shape.largest ? tokens * shape.heads : 0)),
        gradLargest(size_t(shape.largest ? tokens * (shape.heads + 2 * shape.kvHeads) : 0)),
        starts(size_t(tokens)) {
    shape.qPitch = shape.kPitch = shape.vPitch = qkv.pitch;
    shape.dqPitch = shape.dkPitch = shape.dvPitch = dqkv.pitch;
    shape.outPitch = out.pitch;
    shape.doutPitch = dout.pitch;
    qkv.fillRandom(seed);
    dout.fillRandom(seed + 1);
    std::mt19937 generator(seed + 2);
    for (int64_t token = 0, start = 0; token < tokens; ++token) {
      int64_t position = token % shape.seq;
      if (position == 0 || generator() % 41 == 0)
        start = position;
      starts[size_t(token)] = int32_t(start);
    }
    for (int64_t i = 0; i < int64_t(cos.size()); ++i) {
      int64_t position = i / (shape.headDim / 2), pair = i % (shape.headDim / 2);
      double angle = double(position) * std::pow(1e4, -2.0 * double(pair) / double(shape.headDim));
      cos[size_t(i)] = float(std::cos(angle));
      sin[size_t(i)] = float(std::sin(angle));
    }
  }

  template <typename T> static Argument all(DeviceVector<T> &values, Access access) {
    return {values.data(), values.size() * sizeof(T), access};
  }
  Argument q() { return qkv.columns(0, width, Access::Read); }
  Argument k() { return qkv.columns(width, kvWidth, Access::Read); }
  Argument v() { return qkv.columns(width + kvWidth, kvWidth, Access::Read); }
  void addOptional(std::vector<Argument> &arguments, bool gradient) {
    if (shape.documents)
      arguments.push_back(all(starts, Access::Read));
    if (gradient && shape.rope) {
      arguments.push_back(all(cos, Access::Read));
      arguments.push_back(all(sin, Access::Read));
    }
  }
  // Two kernels write the largest values of the gradient, each its columns.
  void addLargest(std::vector<Argument> &arguments, DeviceVector<float> &values, Access access) {
    if (shape.largest)
      arguments.push_back(all(values, access));
  }
  std::vector<Argument> arguments(AttentionPart part) {
    std::vector<Argument> list{q(), k(), v()};
    if (part == AttentionPart::Forward) {
      addOptional(list, false);
      list.push_back(out.columns(0, width, Access::Write));
      list.push_back(all(lse, Access::Write));
      addLargest(list, largest, Access::Write);
      return list;
    }
    if (part == AttentionPart::GradQueries)
      list.push_back(out.columns(0, width, Access::Read));
    list.push_back(all(lse, Access::Read));
    list.push_back(dout.columns(0, width, Access::Read));
    if (part == AttentionPart::GradKeys)
      list.push_back(all(delta, Access::Read));
    addOptional(list, true);
    if (part == AttentionPart::GradQueries) {
      list.push_back(dqkv.columns(0, width, Access::Write));
      list.push_back(all(delta, Access::Write));
    } else {
      list.push_back(dqkv.columns(width, kvWidth, Access::Write));
      list.push_back(dqkv.columns(width + kvWidth, kvWidth, Access::Write));
    }
    addLargest(list, gradLargest, Access::ReadWrite);
    return list;
  }

  // Columns [first, first + columns), rows one after the other.
  static std::vector<double> values(Matrix &matrix, int64_t first, int64_t columns) {
    std::vector<double> all;
    for (int64_t row = 0; row < matrix.rows; ++row)
      for (int64_t c = 0; c < columns; ++c)
        all.push_back(matrix.at(row, first + c));
    return all;
  }

  // The first key that query `i` of sequence `b` sees.
  int64_t firstKey(int64_t b, int64_t i) const {
    int64_t first = shape.window ? std::max<int64_t>(0, i - shape.window + 1) : 0;
    return shape.documents ? std::max<int64_t>(first, starts[size_t(b * shape.seq + i)]) : first;
  }
};

// Gradients of q or k before the rotation, from those behind it.
void rotateBack(const Problem &p, std::vector<double> &x, int64_t heads) {
  int64_t half = p.shape.headDim / 2;
  for (int64_t row = 0; row < p.tokens * heads; ++row)
    for (int64_t c = 0; c < half; ++c) {
      size_t at = size_t(row / heads % p.shape.seq * half + c);
      double &low = x[size_t(row * 2 * half + c)], &high = x[size_t(row * 2 * half + half + c)];
      double turned = low * p.cos[at] + high * p.sin[at];
      high = high * p.cos[at] - low * p.sin[at];
      low = turned;
    }
}

struct Results {
  std::vector<double> out, lse, dq, dk, dv;
};

// In f64, straight from the definition.
struct Reference : Results {
  explicit Reference(Problem &p) {
    const AttentionShape &shape = p.shape;
    out.resize(size_t(p.tokens * p.width));
    dq = out;
    dk.resize(size_t(p.tokens * p.kvWidth));
    dv = dk;
    lse.resize(p.lse.size());
    for (int64_t b = 0; b < shape.batch; ++b)
      for (int64_t h = 0; h < shape.heads; ++h)
        for (int64_t i = 0; i < shape.seq; ++i)
          addQuery(p, b, h, i);
    if (shape.rope) {
      rotateBack(p, dq, shape.heads);
      rotateBack(p, dk, shape.kvHeads);
    }
  }

private:
  void addQuery(Problem &p, int64_t b, int64_t h, int64_t i) {
    const AttentionShape &shape = p.shape;
    int64_t d = shape.headDim, token = b * shape.seq + i, column = h * d;
    int64_t kvHead = h / (shape.heads / shape.kvHeads);
    int64_t kColumn = p.width + kvHead * d, vColumn = kColumn + p.kvWidth;
    int64_t first = p.firstKey(b, i), count = i + 1 - first;
    std::vector<double> weights(size_t(count), 0.0);
    double most = -1e300, sum = 0;
    for (int64_t j = 0; j < count; ++j) {
      int64_t key = b * shape.seq + first + j;
      double score = 0;
      for (int64_t c = 0; c < d; ++c)
        score += p.qkv.at(token, column + c) * p.qkv.at(key, kColumn + c);
      weights[size_t(j)] = score * shape.scale;
      most = std::max(most, weights[size_t(j)]);
    }
    for (double &weight : weights) {
      weight = std::exp(weight - most);
      sum += weight;
    }
    for (double &weight : weights)
      weight /= sum;
    lse[size_t(token * shape.heads + h)] = most + std::log(sum);
    double *o = &out[size_t(token * p.width + column)];
    for (int64_t j = 0; j < count; ++j)
      for (int64_t c = 0; c < d; ++c)
        o[c] += weights[size_t(j)] * p.qkv.at(b * shape.seq + first + j, vColumn + c);
    double delta = 0;
    for (int64_t c = 0; c < d; ++c)
      delta += o[c] * p.dout.at(token, column + c);
    for (int64_t j = 0; j < count; ++j) {
      int64_t key = b * shape.seq + first + j;
      size_t keyAt = size_t(key * p.kvWidth + kvHead * d);
      double gradient = -delta;
      for (int64_t c = 0; c < d; ++c) {
        gradient += p.dout.at(token, column + c) * p.qkv.at(key, vColumn + c);
        dv[keyAt + size_t(c)] += weights[size_t(j)] * p.dout.at(token, column + c);
      }
      gradient *= weights[size_t(j)] * shape.scale;
      for (int64_t c = 0; c < d; ++c) {
        dq[size_t(token * p.width + column + c)] += gradient * p.qkv.at(key, kColumn + c);
        dk[keyAt + size_t(c)] += gradient * p.qkv.at(token, column + c);
      }
    }
  }
};

// Every row of `width` elements is within `tolerance` of what is expected, by L2 norms and
// relative to the larger of the row and a row on average, or within `least`.
void expectRows(const char *what, const std::vector<double> &expected, int64_t width,
                double tolerance, double least,
                const std::function<double(int64_t row, int64_t column)> &at) {
  double squares = 0;
  for (double value : expected)
    squares += value * value;
  int64_t rows = int64_t(expected.size()) / width;
  double average = squares / double(rows);
  for (int64_t row = 0; row < rows; ++row) {
    double error = 0, norm = 0;
    for (int64_t column = 0; column < width; ++column) {
      double value = expected[size_t(row * width + column)], got = at(row, column);
      norm += value * value;
      error += (got - value) * (got - value);
    }
    // Written so that NaN fails.
    if (!(std::sqrt(error) <= tolerance * std::sqrt(std::max(norm, average)) + least)) {
      ADD_FAILURE() << what << ", row " << row << ": error " << std::sqrt(error) << " of "
                    << std::sqrt(norm);
      return;
    }
  }
}

const codegen::CudaArch &arch() { return *codegen::findCudaArch("sm_90a"); }

// Runs a kernel twice in different orders; they must agree bit for bit.
void launch(Problem &p, AttentionPart part, const AttentionTile *tile,
            std::vector<Traffic> *traffic = nullptr) {
  codegen::CudaKernel kernel = attentionKernel(part, tile, p.shape, arch(), "attention");
  auto compiled = compile(sourceOf(kernel));
  ASSERT_TRUE(bool(compiled)) << compiled.error().message;
  RunResult result = runTwice(*compiled, p.arguments(part), 1, traffic != nullptr);
  EXPECT_EQ(result.failure, "");
  if (!traffic)
    return;
  *traffic = result.traffic;
  GlobalBytes distinct;
  for (const Traffic &argument : result.traffic) {
    distinct.read += argument.distinctLoaded;
    distinct.written += argument.distinctStored;
  }
  EXPECT_EQ(distinct.read, kernel.bytes.read);
  EXPECT_EQ(distinct.written, kernel.bytes.written);
}

// What a kernel moves of an argument, in bytes. `stray`: words of 4 bytes, each in a sector of its
// own, because a token's values of all heads lie together.
struct Moved {
  std::string name;
  uint64_t loaded = 0, stored = 0;
  bool stray = false;
};

// Of each argument, in their order, by the algorithm: a block has its rows of q and of the
// gradients, or of k and v, for itself; of what it walks over, it reads the tiles of which its
// rows see something (k and v, or q, dout, lse and delta of all heads that share a key).
std::vector<Moved> movedBy(const Problem &p, const AttentionTile &tile) {
  const AttentionShape &shape = p.shape;
  const bool byKeys = tile.part == AttentionPart::GradKeys;
  const int64_t own = byKeys ? tile.keys : tile.queries, step = byKeys ? tile.queries : tile.keys;
  uint64_t walked = 0; // rows of heads
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t first = 0; first < shape.seq; first += own) {
      const int64_t last = std::min(first + own, shape.seq) - 1;
      int64_t begin = byKeys ? first : p.firstKey(b, first), end = last + 1;
      while (byKeys && end < shape.seq && p.firstKey(b, end) <= last)
        ++end;
      walked += uint64_t(std::min((end + step - 1) / step * step, shape.seq) - begin / step * step);
    }
  walked *= uint64_t(shape.heads);
  const uint64_t row = uint64_t(shape.headDim) * 2; // bytes of a head's row
  const uint64_t queries = uint64_t(p.tokens * shape.heads);
  const uint64_t keys = uint64_t(p.tokens * shape.kvHeads);
  std::vector<Moved> moved;
  auto add = [&](std::vector<Moved> some) { moved.insert(moved.end(), some.begin(), some.end()); };
  if (byKeys)
    add({{"q", walked * row},
         {"k", keys * row},
         {"v", keys * row},
         {"lse", walked * 4, 0, true},
         {"dout", walked * row},
         {"delta", walked * 4, 0, true}});
  else
    add({{"q", queries * row}, {"k", walked * row}, {"v", walked * row}});
  if (tile.part == AttentionPart::GradQueries) // dout once more, for delta
    add({{"out", queries * row}, {"lse", queries * 4, 0, true}, {"dout", 2 * queries * row}});
  if (shape.documents)
    add({{"starts"}});
  if (shape.rope && tile.part != AttentionPart::Forward)
    for (const char *table : {"cos", "sin"}) // half as many columns, of f32
      add({{table, (byKeys ? keys : queries) * row}});
  if (tile.part == AttentionPart::Forward)
    add({{"out", 0, queries * row}, {"lse", 0, queries * 4, true}});
  else if (byKeys)
    add({{"dk", 0, keys * row}, {"dv", 0, keys * row}});
  else
    add({{"dq", 0, queries * row}, {"delta", 0, queries * 4, true}});
  if (shape.largest)
    add({{"largest", 0, (byKeys ? 2 * keys : queries) * 4, true}});
  return moved;
}

void expectMoved(Problem &p, AttentionPart part) {
  const AttentionTile *tile = chooseAttentionTile(part, p.shape, arch());
  ASSERT_NE(tile, nullptr);
  std::vector<Traffic> traffic;
  launch(p, part, tile, &traffic);
  std::vector<Moved> moved = movedBy(p, *tile);
  ASSERT_EQ(moved.size(), traffic.size());
  for (size_t i = 0; i < moved.size(); ++i) {
    const Moved &want = moved[i];
    const Traffic &got = traffic[i];
    SCOPED_TRACE("part " + std::to_string(int(part)) + ", " + want.name);
    EXPECT_EQ(got.stored, want.stored);
    EXPECT_EQ(got.distinctStored, want.stored);
    EXPECT_EQ(got.storeSectors * (want.stray ? 4 : 32), got.stored);
    // Of `starts` a mask's tiles take single words, again and again, from the caches.
    if (want.name == "starts")
      continue;
    EXPECT_EQ(got.loaded, want.loaded);
    EXPECT_EQ(got.loadSectors * (want.stray ? 4 : 32), got.loaded);
  }
}

// The heads of each row of a result have these largest values, exactly; NaN is the largest.
// `perRow`: values of a row.
void expectLargest(Problem &p, Matrix &result, int64_t first, int64_t heads,
                   const DeviceVector<float> &largest, int64_t perRow, int64_t column) {
  if (!p.shape.largest)
    return;
  for (int64_t row = 0; row < p.tokens; ++row)
    for (int64_t head = 0; head < heads; ++head) {
      double most = 0;
      for (int64_t c = 0; c < p.shape.headDim; ++c) {
        const double value = std::fabs(result.at(row, first + head * p.shape.headDim + c));
        most = value > most || std::isnan(value) ? value : most;
      }
      const double found = largest[size_t(row * perRow + column + head)];
      ASSERT_TRUE(found == most || (std::isnan(found) && std::isnan(most)))
          << "row " << row << ", head " << head << " of " << heads << ": " << found << ", not "
          << most;
    }
}

double toleranceOf(DataType type) { return type == DataType::BF16 ? 0.02 : 2e-6; }

void expectForward(Problem &p, const std::vector<double> &out, const std::vector<double> &lse) {
  double tolerance = toleranceOf(p.shape.type);
  expectRows("out", out, p.shape.headDim, tolerance, 1e-5, [&](int64_t row, int64_t column) {
    int64_t at = row * p.shape.headDim + column;
    return p.out.at(at / p.width, at % p.width);
  });
  expectRows("lse", lse, 1, 2e-6, 1e-5, [&](int64_t row, int64_t) { return p.lse[size_t(row)]; });
  expectLargest(p, p.out, 0, p.shape.heads, p.largest, p.shape.heads, 0);
}

void expectGradient(Problem &p, const char *what, const std::vector<double> &expected,
                    int64_t first, int64_t width) {
  // The output's rounding to bf16, 2^-9 of it, reaches every row of a query's gradient through
  // delta, be the row ever so small: by 2^-9 sqrt(headDim) for numbers of the normal distribution.
  // Rows of keys are sums over the heads of their group; those of values have no delta.
  const double rounding =
      std::ldexp(std::sqrt(double(p.shape.headDim) * double(p.width) / double(width)), -9);
  const bool hasDelta = llvm::StringRef(what) != "dv";
  expectRows(what, expected, p.shape.headDim, toleranceOf(p.shape.type),
             p.shape.type == DataType::BF16 && hasDelta ? rounding : 1e-5,
             [&](int64_t row, int64_t column) {
               int64_t at = row * p.shape.headDim + column;
               return p.dqkv.at(at / width, first + at % width);
             });
  expectLargest(p, p.dqkv, first, width / p.shape.headDim, p.gradLargest,
                p.shape.heads + 2 * p.shape.kvHeads, first / p.shape.headDim);
}

// One for each part; null: the plain kernels.
using Variants = std::array<const AttentionTile *, 3>;
constexpr AttentionPart kParts[] = {AttentionPart::Forward, AttentionPart::GradQueries,
                                    AttentionPart::GradKeys};

void launchAll(Problem &p, const Variants &variants) {
  std::vector<Source> sources;
  for (AttentionPart part : kParts)
    sources.push_back(
        sourceOf(attentionKernel(part, variants[size_t(part)], p.shape, arch(), "attention")));
  compile(sources); // together, which is faster than one by one
  for (AttentionPart part : kParts)
    launch(p, part, variants[size_t(part)]);
}

void expectAll(Problem &p, const Results &r) {
  expectForward(p, r.out, r.lse);
  expectGradient(p, "dq", r.dq, 0, p.width);
  expectGradient(p, "dk", r.dk, p.width, p.kvWidth);
  expectGradient(p, "dv", r.dv, p.width + p.kvWidth, p.kvWidth);
}

// All three parts by these variants, against the reference.
void check(const AttentionShape &shape, const Variants &variants) {
  Problem p(shape);
  launchAll(p, variants);
  expectAll(p, Reference(p));
}

// What the gradients need of the kernels before them, from the reference.
void takeForward(Problem &p, const Reference &r) {
  p.lse.assign(r.lse.begin(), r.lse.end());
  p.delta.assign(p.delta.size(), 0);
  for (int64_t token = 0; token < p.tokens; ++token)
    for (int64_t column = 0; column < p.width; ++column) {
      float out = float(r.out[size_t(token * p.width + column)]);
      p.out.set(token, column, out);
      p.delta[size_t(token * p.shape.heads + column / p.shape.headDim)] +=
          out * float(p.dout.at(token, column));
    }
}

AttentionShape shapeOf(int64_t batch, int64_t seq, int64_t heads, int64_t kvHeads, int64_t headDim,
                       int64_t window = 0, bool documents = false, bool rope = false,
                       DataType type = DataType::BF16) {
  AttentionShape shape;
  shape.type = type;
  shape.batch = batch;
  shape.seq = seq;
  shape.heads = heads;
  shape.kvHeads = kvHeads;
  shape.headDim = headDim;
  shape.window = window;
  shape.documents = documents;
  shape.rope = rope;
  shape.scale = 1 / std::sqrt(double(headDim));
  return shape;
}

Variants chosenFor(const Problem &p, const char *archName = "sm_90a") {
  Variants variants;
  for (AttentionPart part : kParts)
    variants[size_t(part)] = chooseAttentionTile(part, p.shape, *codegen::findCudaArch(archName));
  return variants;
}

// By the variants that are chosen for the shape.
void checkChosen(const AttentionShape &shape) {
  Variants variants = chosenFor(Problem(shape)); // which sets the pitches
  EXPECT_THAT(variants, testing::Each(testing::NotNull()));
  check(shape, variants);
}

// What the CPU's kernels make of the inputs of `p`.
Results resultsOfCpu(const Problem &p) {
  Problem onCpu = p;
  // Their outputs are dense.
  for (Matrix *matrix : {&onCpu.out, &onCpu.dout}) {
    *matrix = Matrix(p.shape.type, p.tokens, p.width, p.width);
    Matrix from = matrix == &onCpu.out ? p.out : p.dout;
    for (int64_t row = 0; row < p.tokens; ++row)
      for (int64_t column = 0; column < p.width; ++column)
        matrix->set(row, column, float(from.at(row, column)));
  }
  const AttentionShape &shape = p.shape;
  const bool half = shape.type == DataType::BF16;
  const auto &kernels =
      cpu::kernelSet().attention[size_t(half ? cpu::Storage::BF16 : cpu::Storage::F32)];
  const int32_t *starts = shape.documents ? onCpu.starts.data() : nullptr;
  cpu::AttentionArgs args{onCpu.q().data,   onCpu.k().data, onCpu.v().data, onCpu.out.bytes.data(),
                          onCpu.lse.data(), shape.batch,    shape.seq,      shape.heads,
                          shape.kvHeads,    shape.headDim,  shape.window,   shape.scale,
                          shape.qPitch,     shape.kPitch,   shape.vPitch,   starts};
  auto scratch = [](size_t bytes) {
    return std::unique_ptr<void, decltype(&std::free)>(
        std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
  };
  auto forwardScratch = scratch(kernels.scratchBytes(args));
  for (int64_t task = 0; task < kernels.tasks(args); ++task)
    kernels.run(args, task, forwardScratch.get());
  std::vector<float> sums(size_t(p.tokens * p.width));
  auto column = [&](int64_t first) { return onCpu.dqkv.address(0, first); };
  cpu::AttentionGradArgs grad{args,
                              onCpu.dout.bytes.data(),
                              column(0),
                              column(p.width),
                              column(p.width + p.kvWidth),
                              sums.data(),
                              shape.dqPitch,
                              shape.dkPitch,
                              shape.dvPitch};
  if (shape.rope) {
    grad.cos = onCpu.cos.data();
    grad.sin = onCpu.sin.data();
  }
  auto gradScratch = scratch(kernels.gradScratchBytes(grad));
  for (int64_t task = 0; task < kernels.gradTasks(grad); ++task)
    kernels.gradRun(grad, task, gradScratch.get());

  Results r;
  r.out = Problem::values(onCpu.out, 0, p.width);
  r.lse.assign(onCpu.lse.begin(), onCpu.lse.end());
  r.dq = Problem::values(onCpu.dqkv, 0, p.width);
  r.dk = Problem::values(onCpu.dqkv, p.width, p.kvWidth);
  r.dv = Problem::values(onCpu.dqkv, p.width + p.kvWidth, p.kvWidth);
  return r;
}

// A shape with so many rows of heads that a check takes about a second.
AttentionShape drawShape(Draw &draw, DataType type, int64_t headDim) {
  const int64_t group = draw.pick({1, 4, 8}), kvHeads = draw.between(1, group == 8 ? 1 : 2);
  const int64_t batch = draw.between(1, 2), seq = draw.extent(600 / (batch * group * kvHeads));
  // None, small, large, more than there is.
  const int64_t window = draw.pick(
      {int64_t(0), int64_t(0), draw.between(1, 20), std::max<int64_t>(seq * 3 / 4, 1), 2 * seq});
  AttentionShape shape = shapeOf(batch, seq, group * kvHeads, kvHeads, headDim, window,
                                 draw.oneIn(2), draw.oneIn(2), type);
  shape.largest = draw.oneIn(2);
  return shape;
}

std::string textOf(const AttentionShape &shape) {
  return llvm::formatv("batch {0}, seq {1}, heads {2}, kv heads {3}, head size {4}, window {5}"
                       "{6}{7}{12}, {8}, rows of qkv {9} apart, of out {10}, of its gradient {11}",
                       shape.batch, shape.seq, shape.heads, shape.kvHeads, shape.headDim,
                       shape.window, shape.documents ? ", documents" : "",
                       shape.rope ? ", rope" : "", shape.type == DataType::BF16 ? "bf16" : "f32",
                       shape.qPitch, shape.outPitch, shape.doutPitch,
                       shape.largest ? ", largest" : "")
      .str();
}

// The variants chosen for the shape, or the plain kernels where none is, against the reference
// and the CPU's kernels.
void checkDrawn(const AttentionShape &shape, uint64_t seed, const Spacing &spacing,
                const char *archName = "sm_90a") {
  Problem p(shape, unsigned(seed), spacing);
  SCOPED_TRACE("seed " + std::to_string(seed) + " on " + archName + ": " + textOf(p.shape));
  launchAll(p, chosenFor(p, archName));
  {
    SCOPED_TRACE("beside the reference");
    expectAll(p, Reference(p));
  }
  SCOPED_TRACE("beside the CPU");
  expectAll(p, resultsOfCpu(p));
}

// Each variant by itself, which the parameter numbers.
class EveryTile : public testing::TestWithParam<size_t> {};

std::string nameOf(const testing::TestParamInfo<size_t> &info) {
  const AttentionTile &tile = codegen::attentionTiles()[info.param];
  const char *part = tile.part == AttentionPart::Forward       ? "Forward"
                     : tile.part == AttentionPart::GradQueries ? "GradQueries"
                                                               : "GradKeys";
  return std::string(part) + "Of" + std::to_string(tile.headDim) + "With" +
         std::to_string(tile.queries) + "x" + std::to_string(tile.keys) +
         (tile.inRegisters ? "InRegisters" : "") + (tile.warpgroups ? "OfWarpgroups" : "") + "By" +
         std::to_string(tile.blocks);
}

} // namespace

// With every kind of mask, and numbers of rows that fill some tiles, one of them in part. A plain
// run tries two shapes of each variant, and each shape with two of five variants.
TEST_P(EveryTile, GivesTheReferencesResultsInDrawnShapes) {
  const AttentionTile &tile = codegen::attentionTiles()[GetParam()];
  // What a variant is not for may spill, but is no less right. 80 rows end with a warp's band, and
  // not with a tile.
  std::array all = {shapeOf(1, 203, 2, 1, tile.headDim), shapeOf(2, 80, 2, 1, tile.headDim),
                    shapeOf(2, 149, 2, 1, tile.headDim, 70, true, true),
                    shapeOf(1, 149, 2, 1, tile.headDim - 8, 70, true, true),
                    shapeOf(1, 131, 2, 1, tile.headDim - 16, 0, false, true)};
  for (size_t i = 0; i < all.size(); ++i)
    all[i].largest = (i + GetParam()) % 2 == 0;
  std::ranges::rotate(all, all.begin() + long(GetParam() % all.size()));
  const auto shapes =
      std::span(all).first(size_t(std::min<int64_t>(drawCount(8), int64_t(all.size()))));
  std::vector<Source> sources;
  for (const AttentionShape &shape : shapes)
    sources.push_back(
        sourceOf(attentionKernel(tile.part, &tile, Problem(shape).shape, arch(), "attention")));
  compile(sources); // together, which is faster than one by one
  for (const AttentionShape &shape : shapes) {
    Problem p(shape);
    Reference r(p);
    if (tile.part == AttentionPart::Forward) {
      launch(p, tile.part, &tile);
      expectForward(p, r.out, r.lse);
      continue;
    }
    takeForward(p, r);
    launch(p, tile.part, &tile);
    if (tile.part == AttentionPart::GradQueries) {
      expectGradient(p, "dq", r.dq, 0, p.width);
      continue;
    }
    expectGradient(p, "dk", r.dk, p.width, p.kvWidth);
    expectGradient(p, "dv", r.dv, p.width + p.kvWidth, p.kvWidth);
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, EveryTile,
                         testing::Range<size_t>(0, codegen::attentionTiles().size()), nameOf);

TEST(Attention, SharesKeysAmongQueryHeads) {
  checkChosen(shapeOf(1, 97, 4, 4, 64));
  checkChosen(shapeOf(2, 97, 4, 1, 64));
  checkChosen(shapeOf(1, 65, 16, 2, 64));
}

// Of heads with fewer columns than a tile, too: nothing of other heads is read or stored.
TEST(Attention, MovesWhatTheAlgorithmMust) {
  for (const AttentionShape &shape :
       {shapeOf(1, 256, 8, 8, 64), shapeOf(2, 203, 16, 2, 64, 0, false, true),
        shapeOf(1, 300, 8, 2, 128, 70), shapeOf(2, 260, 8, 2, 64, 90, true, true),
        shapeOf(1, 150, 8, 4, 96, 0, true), shapeOf(1, 130, 8, 2, 80, 0, false, true),
        shapeOf(1, 150, 8, 4, 48, 60, true, true), shapeOf(1, 140, 8, 8, 112)}) {
    AttentionShape given = shape;
    given.largest = given.rope;
    Problem p(given, 1, {/*qkv=*/16});
    for (AttentionPart part :
         {AttentionPart::Forward, AttentionPart::GradQueries, AttentionPart::GradKeys})
      expectMoved(p, part);
  }
}

TEST(Attention, OfOneToken) { checkChosen(shapeOf(3, 1, 2, 1, 128, 0, false, true)); }

TEST(Attention, OfWholeTiles) { checkChosen(shapeOf(1, 256, 2, 1, 128)); }

TEST(Attention, SeesAWindow) {
  checkChosen(shapeOf(1, 300, 1, 1, 64, 1));
  checkChosen(shapeOf(1, 300, 1, 1, 64, 64));
  checkChosen(shapeOf(1, 128, 2, 1, 96, 500));
}

TEST(Attention, SeesOneDocument) {
  checkChosen(shapeOf(2, 260, 2, 1, 64, 0, true));
  checkChosen(shapeOf(1, 192, 2, 2, 128, 33, true, true));
}

TEST(Attention, InF32AndOfAnyHeadSize) {
  for (int64_t headDim : {2, 6, 64, 96}) {
    AttentionShape shape = shapeOf(1, 70, 4, 1, headDim, 0, false, true, DataType::F32);
    shape.largest = headDim != 64;
    check(shape, {});
  }
  check(shapeOf(2, 50, 2, 1, 256, 20, true, true, DataType::F32), {});
  check(shapeOf(1, 90, 2, 1, 80, 33, true, false, DataType::BF16), {});
}

// A step is left out if a maximum is NaN. Heads of 64 and of 192 columns: alone, and by pairs of
// warps.
TEST(Attention, WritesNaNAsTheLargestValue) {
  for (int64_t headDim : {64, 192})
    for (const char *archName : {"sm_90a", "sm_80", ""}) {
      SCOPED_TRACE(std::to_string(headDim) + " " + archName);
      AttentionShape shape =
          shapeOf(1, 70, 2, 1, headDim, 0, false, true, *archName ? DataType::BF16 : DataType::F32);
      shape.largest = true;
      Problem p(shape);
      p.qkv.set(69, p.width + p.kvWidth, std::nanf("")); // in v of the last token
      launchAll(p, *archName ? chosenFor(p, archName) : Variants{});
      expectLargest(p, p.out, 0, 2, p.largest, 2, 0);
      expectLargest(p, p.dqkv, 0, 2, p.gradLargest, 4, 0);
      expectLargest(p, p.dqkv, p.width, 1, p.gradLargest, 4, 2);
      expectLargest(p, p.dqkv, p.width + p.kvWidth, 1, p.gradLargest, 4, 3);
      const size_t last = 69;
      for (float value :
           {p.largest[2 * last], p.gradLargest[4 * last], p.gradLargest[4 * last + 2]})
        EXPECT_TRUE(std::isnan(value)) << value;
    }
}

// On sm_90a by warpgroups, on sm_80 by mma.sync. `./dev test long` tries 1,000 shapes with this test
// and the next.
TEST(Attention, OfDrawnShapesOnTensorCores) {
  for (int64_t seed = 1, last = drawCount(80); seed <= last; ++seed) {
    Draw draw{uint64_t(seed)};
    AttentionShape shape = drawShape(draw, DataType::BF16, draw.pick({64, 96, 128, 192, 256}));
    // Rows begin at multiples of 16 bytes.
    Spacing spacing{draw.pick({0, 8, 24}), draw.pick({0, 8}), draw.pick({0, 16})};
    const char *archName = draw.oneIn(4) ? "sm_80" : "sm_90a";
    EXPECT_THAT(chosenFor(Problem(shape, 1, spacing), archName), testing::Each(testing::NotNull()));
    checkDrawn(shape, uint64_t(seed), spacing, archName);
  }
}

// The columns of a tile that a head does not have are zeros. The head sizes are 8 and 0 modulo 16,
// for which the rotation of gradients takes different ways.
TEST(Attention, OfDrawnShapesInLargerTiles) {
  for (int64_t seed = 1, last = drawCount(45); seed <= last; ++seed) {
    Draw draw{uint64_t(seed)};
    const int64_t headDim =
        draw.pick({8, 24, 40, 48, 56, 72, 80, 88, 104, 112, 120, 144, 176, 208, 240});
    AttentionShape shape = drawShape(draw, DataType::BF16, headDim);
    Spacing spacing{draw.pick({0, 8, 24}), draw.pick({0, 8}), draw.pick({0, 16})};
    const char *archName = draw.oneIn(4) ? "sm_80" : "sm_90a";
    EXPECT_THAT(chosenFor(Problem(shape, 1, spacing), archName), testing::Each(testing::NotNull()));
    checkDrawn(shape, uint64_t(seed), spacing, archName);
  }
}

TEST(Attention, OfDrawnShapesByPlainKernels) {
  for (int64_t seed = 1, last = drawCount(12); seed <= last; ++seed) {
    Draw draw{uint64_t(seed)};
    const bool single = draw.oneIn(2);
    // In bf16 none of the head sizes that tensor cores have kernels for.
    AttentionShape shape = single ? drawShape(draw, DataType::F32, 2 * draw.between(1, 64))
                                  : drawShape(draw, DataType::BF16, 2 + 4 * draw.between(0, 31));
    Spacing spacing{draw.between(0, 9), draw.between(0, 3), draw.between(0, 3)};
    EXPECT_THAT(chosenFor(Problem(shape, 1, spacing)), testing::Each(testing::IsNull()));
    checkDrawn(shape, uint64_t(seed), spacing);
  }
}
