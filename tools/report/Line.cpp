#include "tools/report/Line.h"

namespace lmc {

void Line::add(const RunPosition &at, double value) {
  const LinePoint point{at, value};
  if (total++ == 0)
    first = point;
  last = point;
  if (buckets.empty() || buckets.back().count == size) {
    if (buckets.size() == kMaxBuckets) {
      // A last bucket without a neighbour stays as it is, and is then half full.
      for (size_t i = 0; i < buckets.size(); i += 2) {
        Bucket merged = buckets[i];
        if (i + 1 < buckets.size()) {
          const Bucket &next = buckets[i + 1];
          if (next.least.value < merged.least.value)
            merged.least = next.least;
          if (next.most.value > merged.most.value)
            merged.most = next.most;
          merged.end = next.end;
          merged.sum += next.sum;
          merged.count += next.count;
        }
        buckets[i / 2] = merged;
      }
      buckets.resize((buckets.size() + 1) / 2);
      size *= 2;
    }
    if (buckets.empty() || buckets.back().count == size)
      buckets.push_back({point, point, at, 0, 0});
  }
  Bucket &bucket = buckets.back();
  if (value < bucket.least.value)
    bucket.least = point;
  if (value > bucket.most.value)
    bucket.most = point;
  bucket.end = at;
  bucket.sum += value;
  ++bucket.count;
}

std::vector<LinePoint> Line::points() const {
  std::vector<LinePoint> result;
  auto append = [&](const LinePoint &point) {
    if (result.empty() || result.back().at.step < point.at.step)
      result.push_back(point);
  };
  if (total > 0)
    append(first);
  for (const Bucket &bucket : buckets) {
    const bool rises = bucket.least.at.step < bucket.most.at.step;
    append(rises ? bucket.least : bucket.most);
    append(rises ? bucket.most : bucket.least);
  }
  if (total > 0)
    append(last);
  return result;
}

std::vector<LinePoint> Line::means() const {
  std::vector<LinePoint> result;
  result.reserve(buckets.size());
  for (const Bucket &bucket : buckets)
    result.push_back({bucket.end, bucket.sum / static_cast<double>(bucket.count)});
  return result;
}

} // namespace lmc
