// A line of a chart that keeps a limited number of points, for any number of values.
//
// Consecutive values form buckets of equal size. A bucket keeps its minimum, maximum and sum. If
// there are more than kMaxBuckets buckets, every two neighbours are merged. The minimum and maximum
// of each bucket are points of the line, so a spike of one step stays visible. With one bucket per
// column of pixels, each column spans the exact range of its values (M4, Jugel et al., VLDB 2014).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lmc {

// The position of a value on the three x axes of the report.
struct RunPosition {
  double step = 0;    // optimizer steps
  double tokens = 0;  // tokens trained on, including those of the step
  double seconds = 0; // seconds of steps, validations and saves so far
};

struct LinePoint {
  RunPosition at;
  double value = 0;
};

class Line {
public:
  static constexpr size_t kMaxBuckets = 999;
  static constexpr size_t kMaxPoints = 2 * kMaxBuckets + 2;

  // Adds a value, which must be finite. Positions must not decrease from call to call.
  void add(const RunPosition &at, double value);

  bool empty() const { return total == 0; }

  // Returns the first value, the minimum and maximum of each bucket, and the last value, in order.
  // If the line has at most kMaxBuckets values, returns all of them.
  std::vector<LinePoint> points() const;

  // Returns the mean of each bucket, at the position of the bucket's last value.
  std::vector<LinePoint> means() const;

  // Returns the number of values of each bucket except the last one.
  int64_t bucketSize() const { return size; }

private:
  struct Bucket {
    LinePoint least, most;
    RunPosition end;
    double sum = 0;
    int64_t count = 0;

    void append(const Bucket &next); // adds the values of the bucket that follows
  };
  std::vector<Bucket> buckets;
  int64_t size = 1, total = 0;
  LinePoint first, last;
};

} // namespace lmc
