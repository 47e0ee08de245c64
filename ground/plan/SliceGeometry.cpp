#include "ground/plan/SliceGeometry.h"

#include <algorithm>
#include <tuple>

namespace lmc {
namespace {

struct Interval {
  uint64_t begin, end;
};

bool strided(const plan::Slice &slice) { return slice.pitch() > 0 && slice.rows() > 1; }

uint64_t runBytes(const plan::Slice &slice) { return slice.bytes() / slice.rows(); }

// Sorts the intervals, and joins intervals that overlap or touch.
void normalize(std::vector<Interval> &intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin);
  std::vector<Interval> joined;
  for (const Interval &interval : intervals) {
    if (interval.begin == interval.end)
      continue;
    if (!joined.empty() && interval.begin <= joined.back().end)
      joined.back().end = std::max(joined.back().end, interval.end);
    else
      joined.push_back(interval);
  }
  intervals = std::move(joined);
}

// Adds the byte offsets that the slice's runs cover, modulo the pitch, as intervals in [0, pitch).
void addResidues(const plan::Slice &slice, std::vector<Interval> &residues) {
  uint64_t pitch = slice.pitch(), begin = slice.offset() % pitch, end = begin + runBytes(slice);
  if (end <= pitch) {
    residues.push_back({begin, end});
  } else {
    residues.push_back({begin, pitch});
    residues.push_back({0, end - pitch});
  }
}

// Returns the number of bytes in [0, limit) whose offset modulo `pitch` is in `residue`.
uint64_t countBelow(uint64_t limit, uint64_t pitch, const Interval &residue) {
  uint64_t width = residue.end - residue.begin, last = limit % pitch;
  return limit / pitch * width + (last > residue.begin ? std::min(last - residue.begin, width) : 0);
}

} // namespace

uint64_t extentOf(const plan::Slice &slice) {
  return strided(slice) ? (slice.rows() - 1) * slice.pitch() + runBytes(slice) : slice.bytes();
}

uint64_t endOf(const plan::Slice &slice) { return slice.offset() + extentOf(slice); }

uint64_t unionBytes(const std::vector<const plan::Slice *> &slices) {
  if (slices.size() == 1)
    return slices[0]->bytes();
  uint64_t pitch = 0, sum = 0;
  bool onePitch = true;
  std::vector<Interval> extents;
  std::vector<uint64_t> cuts;
  for (const plan::Slice *slice : slices) {
    extents.push_back({slice->offset(), endOf(*slice)});
    cuts.push_back(extents.back().begin);
    cuts.push_back(extents.back().end);
    sum += slice->bytes();
    if (!strided(*slice))
      continue;
    onePitch &= pitch == 0 || pitch == slice->pitch();
    pitch = slice->pitch();
  }
  if (pitch == 0 || !onePitch) {
    normalize(extents);
    uint64_t covered = 0;
    for (const Interval &extent : extents)
      covered += extent.end - extent.begin;
    return std::min(sum, covered);
  }
  // Each cut begins or ends a slice. Between adjacent cuts, coverage repeats every `pitch` bytes.
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  uint64_t total = 0;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    std::vector<Interval> residues;
    for (const plan::Slice *slice : slices) {
      if (slice->offset() > cuts[i] || endOf(*slice) < cuts[i + 1])
        continue;
      if (strided(*slice))
        addResidues(*slice, residues);
      else
        residues.push_back({0, pitch});
    }
    normalize(residues);
    for (const Interval &residue : residues)
      total += countBelow(cuts[i + 1], pitch, residue) - countBelow(cuts[i], pitch, residue);
  }
  return total;
}

bool overlap(const plan::Slice &a, const plan::Slice &b) {
  if (a.arena() != b.arena() || a.offset() >= endOf(b) || b.offset() >= endOf(a))
    return false;
  if (a.pitch() == 0 || a.pitch() != b.pitch())
    return true;
  // The slices have the same pitch. They are disjoint if the runs of one lie in the other's gaps.
  const auto &[low, high] = a.offset() <= b.offset() ? std::tie(a, b) : std::tie(b, a);
  uint64_t column = (high.offset() - low.offset()) % a.pitch();
  return column < runBytes(low) || column + runBytes(high) > a.pitch();
}

CopyRuns copyRuns(const plan::Slice &d, const plan::Slice &x) {
  if (!d.pitch() && !x.pitch())
    return {d.bytes(), 1, d.bytes(), d.bytes()};
  const uint64_t rows = d.pitch() ? d.rows() : x.rows(), bytes = d.bytes() / rows;
  return {bytes, rows, d.pitch() ? d.pitch() : bytes, x.pitch() ? x.pitch() : bytes};
}

} // namespace lmc
