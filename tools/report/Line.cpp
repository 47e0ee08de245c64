#include "tools/report/Line.h"

namespace lmc {

void Line::Bucket::append(const Bucket &next) {
  if (next.least.value < least.value)
    least = next.least;
  if (next.most.value > most.value)
    most = next.most;
  end = next.end;
  sum += next.sum;
  count += next.count;
}

void Line::add(const RunPosition &at, double value) {
  const LinePoint point{at, value};
  if (total++ == 0)
    first = point;
  last = point;
  if (buckets.empty() || buckets.back().count == size) {
    if (buckets.size() == kMaxBuckets) {
      // If the number of buckets is odd, the last one has no neighbour, and stays half full.
      for (size_t i = 0; i < buckets.size(); i += 2) {
        buckets[i / 2] = buckets[i];
        if (i + 1 < buckets.size())
          buckets[i / 2].append(buckets[i + 1]);
      }
      buckets.resize((buckets.size() + 1) / 2);
      size *= 2;
    }
    if (buckets.empty() || buckets.back().count == size)
      buckets.push_back({point, point, at, 0, 0});
  }
  buckets.back().append({point, point, at, value, 1});
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
