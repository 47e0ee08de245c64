#include "compiler/algorithms/BlockRecompute.h"

#include "compiler/algorithms/Femtoseconds.h"
#include "compiler/algorithms/MinCut.h"

using namespace lmc;

// The price perByte of cheapest() is 1 or a difference of times (below 2^62 fs), and perTime is at
// most 2^56 bytes. So perByte * bytes + perTime * time < 2^119, and no 128-bit sum overflows.
static constexpr uint64_t kMaxBytes = uint64_t(1) << 56;

Result<void> BlockRecomputeProblem::check() const {
  auto isValue = [&](int value) { return value >= 0 && size_t(value) < values.size(); };
  uint64_t bytes = 0;
  for (size_t v = 0; v < values.size(); ++v) {
    if (values[v].op < -1 || values[v].op >= int(ops.size()))
      return userError("value {} is made by an op that does not exist", v);
    if (values[v].bytes >= kMaxBytes || (bytes += values[v].bytes) >= kMaxBytes)
      return Error{"the values have 2^56 bytes or more"};
  }
  double seconds = 0;
  for (size_t op = 0; op < ops.size(); ++op) {
    if (!(ops[op].seconds >= 0))
      return userError("op {} takes no time that could be measured", op);
    if ((seconds += ops[op].seconds) > kMaxPlannedSeconds)
      return Error{"the ops take more than an hour"};
    for (int value : ops[op].reads) {
      if (!isValue(value))
        return userError("op {} reads a value that does not exist", op);
      if (values[size_t(value)].op >= int(op))
        return userError("op {} reads a value made by no op before it", op);
    }
  }
  std::vector<bool> seen(values.size());
  for (int value : needed) {
    if (!isValue(value))
      return Error{"a value is needed that does not exist"};
    if (seen[size_t(value)])
      return userError("value {} is needed twice", value);
    seen[size_t(value)] = true;
  }
  return {};
}

static int64_t femtosecondsOf(const BlockRecomputeProblem &problem, const std::vector<int> &ops) {
  int64_t sum = 0;
  for (int op : ops)
    sum += toFemtoseconds(problem.ops[size_t(op)].seconds);
  return sum;
}

Result<void> BlockRecomputeOption::verify(const BlockRecomputeProblem &problem) const {
  // Sets `marks` at the indices in `list`. Returns false when `list` does not ascend or has an
  // index out of range.
  auto mark = [](const std::vector<int> &list, std::vector<bool> &marks) {
    int last = -1;
    for (int entry : list) {
      if (entry <= last || size_t(entry) >= marks.size())
        return false;
      marks[size_t(last = entry)] = true;
    }
    return true;
  };
  std::vector<bool> isKept(problem.values.size()), runsAgain(problem.ops.size());
  if (!mark(kept, isKept))
    return Error{"the kept values are not in ascending order"};
  if (!mark(recomputed, runsAgain))
    return Error{"the recomputed ops are not in ascending order"};

  std::vector<bool> read(problem.values.size()), useful(problem.ops.size());
  for (int value : problem.needed)
    read[size_t(value)] = true;
  for (int op : recomputed) {
    if (!problem.ops[size_t(op)].allowed)
      return userError("op {} may not be run again", op);
    for (int value : problem.ops[size_t(op)].reads)
      read[size_t(value)] = true;
  }
  uint64_t bytes = 0;
  for (size_t v = 0; v < problem.values.size(); ++v) {
    int op = problem.values[v].op;
    bool made = op >= 0 && runsAgain[size_t(op)];
    if (read[v] && op >= 0 && !isKept[v] && !made)
      return userError("value {} is neither kept nor made again", v);
    if (isKept[v] && op < 0)
      return userError("value {} is kept though it is an input", v);
    if (isKept[v] && !read[v])
      return userError("value {} is kept though nobody reads it", v);
    if (isKept[v] && made)
      return userError("value {} is kept though it is made again", v);
    if (isKept[v])
      bytes += problem.values[v].bytes;
    if (read[v] && made)
      useful[size_t(op)] = true;
  }
  for (int op : recomputed)
    if (!useful[size_t(op)])
      return userError("op {} is run again though nobody reads its results", op);
  if (bytes != keptBytes)
    return userError("the kept values have {} bytes, not {}", bytes, keptBytes);
  if (toSeconds(femtosecondsOf(problem, recomputed)) != seconds)
    return Error{"the recomputed ops do not take the seconds stated"};
  return {};
}

namespace {

class Hull {
public:
  struct Point {
    BlockRecomputeOption option;
    CutCapacity bytes, time; // bytes kept and femtoseconds of recomputation
  };

  explicit Hull(const BlockRecomputeProblem &problem) : problem(problem) {
    for (const BlockRecomputeProblem::Value &value : problem.values)
      allBytes += value.bytes;
  }

  // Returns the fastest option; if several are fastest, the one of them with the fewest bytes. The
  // prices make one femtosecond cost more than the bytes of all values together.
  Point fastest() const { return cheapest(1, allBytes + 1); }
  // Returns the option with the fewest bytes; if several have the fewest, the fastest of them.
  Point smallest() const { return cheapest(1, 0); }

  // Appends the corners of the hull between the corners `left` and `right`, in order. Uses the
  // prices at which `left` and `right` cost the same. The cheapest option at these prices is a
  // corner between `left` and `right` if it costs less than `left`. Otherwise, no corner is between
  // `left` and `right`. The recursion is at most as deep as the number of corners.
  void between(const Point &left, const Point &right, std::vector<Point> &points) const {
    CutCapacity perByte = right.time - left.time, perTime = left.bytes - right.bytes;
    Point middle = cheapest(perByte, perTime);
    if (perByte * middle.bytes + perTime * middle.time >=
        perByte * left.bytes + perTime * left.time)
      return;
    between(left, middle, points);
    points.push_back(middle);
    between(middle, right, points);
  }

private:
  // Returns the option with the minimum of perByte * bytes + perTime * time, by a minimum cut.
  // minCut() returns the minimum cut with the smallest source side. This has three consequences:
  // * A value or op that nothing reads is never on the source side.
  // * Of all cheapest options, the returned one has the minimum time.
  // * If perTime / perByte rises, nodes leave the source side but none joins it, because only arcs
  //   into the sink get a larger capacity (Gallo, Grigoriadis and Tarjan 1989). So faster corners
  //   of the hull recompute fewer ops, and there are at most (number of ops) + 1 corners.
  Point cheapest(CutCapacity perByte, CutCapacity perTime) const {
    constexpr int kSource = 0, kSink = 1, kFirst = 2;
    auto ofOp = [&](int op) { return kFirst + op; };
    auto ofValue = [&](int value) { return kFirst + int(problem.ops.size()) + value; };
    MinCutProblem cut;
    cut.source = kSource;
    cut.sink = kSink;
    cut.nodes = ofValue(int(problem.values.size()));
    for (int value : problem.needed)
      cut.arcs.push_back({kSource, ofValue(value), kUncuttable});
    for (int v = 0; v < int(problem.values.size()); ++v)
      if (int op = problem.values[size_t(v)].op; op >= 0)
        cut.arcs.push_back(
            {ofValue(v), ofOp(op), perByte * CutCapacity(problem.values[size_t(v)].bytes)});
    for (int u = 0; u < int(problem.ops.size()); ++u) {
      const BlockRecomputeProblem::Op &op = problem.ops[size_t(u)];
      for (int value : op.reads)
        cut.arcs.push_back({ofOp(u), ofValue(value), kUncuttable});
      cut.arcs.push_back(
          {ofOp(u), kSink,
           op.allowed ? perTime * CutCapacity(toFemtoseconds(op.seconds)) : kUncuttable});
    }

    // There is always a cut, because all needed values can be kept.
    std::vector<bool> sourceSide = minCut(cut)->sourceSide;
    Point point;
    for (int u = 0; u < int(problem.ops.size()); ++u)
      if (sourceSide[size_t(ofOp(u))])
        point.option.recomputed.push_back(u);
    for (int v = 0; v < int(problem.values.size()); ++v)
      if (int op = problem.values[size_t(v)].op;
          op >= 0 && sourceSide[size_t(ofValue(v))] && !sourceSide[size_t(ofOp(op))]) {
        point.option.kept.push_back(v);
        point.option.keptBytes += problem.values[size_t(v)].bytes;
      }
    point.bytes = point.option.keptBytes;
    point.time = femtosecondsOf(problem, point.option.recomputed);
    point.option.seconds = toSeconds(int64_t(point.time));
    return point;
  }

  const BlockRecomputeProblem &problem;
  CutCapacity allBytes = 0;
};

} // namespace

std::vector<BlockRecomputeOption> lmc::blockRecomputeOptions(const BlockRecomputeProblem &problem) {
  Hull hull(problem);
  Hull::Point first = hull.fastest(), last = hull.smallest();
  std::vector<Hull::Point> points = {first};
  if (last.bytes < first.bytes) {
    hull.between(first, last, points);
    points.push_back(last);
  }
  std::vector<BlockRecomputeOption> options;
  for (Hull::Point &point : points)
    options.push_back(std::move(point.option));
  return options;
}
