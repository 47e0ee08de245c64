#include "compiler/cost/Roofline.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace lmc::cost {

std::string_view boundName(Bound bound) {
  static constexpr std::string_view names[] = {"matrix units", "memory bandwidth", "vector units",
                                               "launch latency", "links"};
  static_assert(std::size(names) == kNumBounds);
  return names[size_t(bound)];
}

double visiblePairs(int64_t seq, int64_t window) {
  double s = double(seq), w = window > 0 ? double(std::min(window, seq)) : s;
  return w * (w + 1) / 2 + (s - w) * w;
}

Estimate roofline(double computeSeconds, Bound unit, double flops, double bytes,
                  const DeviceSpec &spec) {
  double memorySeconds = bytes / spec.bandwidthFor(bytes);
  Estimate result{0, unit, flops, bytes};
  double busy = computeSeconds;
  if (memorySeconds >= busy) {
    busy = memorySeconds;
    result.bound = Bound::MemoryBandwidth;
  }
  if (spec.launchSeconds >= busy)
    result.bound = Bound::Launch;
  result.seconds = spec.launchSeconds + busy;
  return result;
}

// The product is cut into tiles of tileRows x tileColumns, and dimension k into `splits` parts. A
// unit (an SM, a thread) computes one part of one tile at a time, so `units` units work in waves:
//
//   waves = ceil(tiles * splits / units)
//   seconds = waves * units * 2 * tileRows * tileColumns * (k / splits + fixedDepth) / sustained
//
// fixedDepth is the cost of filling the pipeline and of writing a tile, in elements of k. If there
// are several parts, their sums are added through memory in f32. `splits` is the fastest number, as
// in libraries. Kernels of experts do not split k.
//
// With `uneven`, m is the mean number of rows of many products. The last tile of each product is
// half empty on average. So m rows take max(1, m / tileRows + 1 / 2) tiles, not ceil(m / tileRows).
Estimate estimate(const GemmWork &work, const DeviceSpec &spec) {
  const GemmModel &model = work.eightBits ? spec.gemmFp8 : spec.gemm[size_t(work.input)];
  const double width = work.eightBits ? 1 : double(elementBytes(work.input));
  double m = double(work.m), n = double(work.n), k = double(work.k), batch = double(work.batch);
  const double rowTiles = work.uneven ? std::max(1.0, m / double(model.tileRows) + 0.5)
                                      : std::ceil(m / double(model.tileRows));
  const int64_t maxSplits = work.experts ? 1 : model.maxSplits;
  double tiles = batch * rowTiles * std::ceil(n / double(model.tileColumns));
  double tileRate = model.sustained / double(model.units); // FLOP/s of a unit
  double bytes = batch * (width * (m * k + k * n) + double(elementBytes(work.output)) * m * n);
  bytes += double(work.zeros) * double(elementBytes(work.output)) * m * n;
  double best = INFINITY;
  for (int64_t splits = 1; splits <= maxSplits; splits *= 2) {
    double parts = double(splits);
    double waves = std::ceil(tiles * parts / double(model.units));
    double seconds = waves * 2 * double(model.tileRows * model.tileColumns) *
                     (k / parts + model.fixedDepth) / tileRate;
    if (splits > 1) {
      double sums = batch * 2 * 4 * m * n * parts;
      seconds += sums / spec.bandwidthFor(sums);
    }
    best = std::min(best, seconds);
  }
  if (work.residual)
    bytes += batch * double(elementBytes(work.output)) * m * n;
  if (work.accumulate) {
    // A tile reads the old d and writes the new d after its arithmetic. So the time of this traffic
    // is added to the time of the arithmetic.
    double old = batch * double(elementBytes(work.output)) * m * n;
    bytes += old;
    best += 2 * old / spec.bandwidthFor(bytes);
  }
  return roofline(best, Bound::MatrixUnits, batch * 2 * m * n * k, bytes, spec);
}

size_t attentionModelOf(const AttentionWork &work, const DeviceSpec &spec) {
  size_t nearest = 0;
  double best = INFINITY;
  for (size_t i = 0; i < spec.attention.size(); ++i) {
    const AttentionModel &candidate = spec.attention[i];
    const double distance =
        std::abs(std::log2(double(candidate.headDim) / double(work.headDim))) +
        (candidate.dtype == work.dtype ? 0 : 100);
    if (distance < best) {
      best = distance;
      nearest = i;
    }
  }
  return nearest;
}

// Forward: q k^T and p v take 2 d FLOP each per visible pair of query and key. d is the head
// dimension. Backward: five such products (q k^T, dv, dp, dq and dk) take 2.5 times as many FLOP.
Estimate estimate(const AttentionWork &work, const DeviceSpec &spec) {
  const AttentionModel &model = spec.attention[attentionModelOf(work, spec)];
  double b = double(work.batch), s = double(work.seq), h = double(work.heads),
         kv = double(work.kvHeads), d = double(work.headDim);
  double flops = 4 * b * h * d * visiblePairs(work.seq, work.window) * (work.backward ? 2.5 : 1);
  double rate = work.backward ? model.backward * s / (s + model.backwardHalfLength)
                              : model.forward * s / (s + model.forwardHalfLength);
  rate *= spec.peakOf(work.dtype) / spec.peakOf(model.dtype);
  double width = double(elementBytes(work.dtype));
  double statistics = b * s * h * double(std::max<int64_t>(4, elementBytes(work.dtype)));
  // Forward moves q, k, v and out; backward also moves dout, dq, dk and dv.
  double bytes = width * b * s * d * (work.backward ? 4 * h + 4 * kv : 2 * h + 2 * kv) + statistics;
  return roofline(flops / rate, Bound::MatrixUnits, flops, bytes, spec);
}

Estimate estimate(const KernelWork &work, const DeviceSpec &spec) {
  return roofline(work.flops / spec.vectorFlops, Bound::VectorUnits, work.flops,
                  work.readBytes + work.writtenBytes, spec);
}

Estimate estimate(const ScatterWork &work, const DeviceSpec &spec) {
  double elements = double(work.rows) * double(work.columns);
  KernelWork kernel{elements * double(work.inputWidth + work.outputWidth),
                    elements * double(work.outputWidth), elements};
  if (!work.accumulate)
    kernel.writtenBytes += double(work.vocabulary) * double(work.columns * work.outputWidth);
  return estimate(kernel, spec);
}

Estimate estimate(const CollectiveWork &work, const DeviceSpec &spec) {
  const double ranks = double(work.group.devicesPerNode * work.group.nodes);
  const double once = work.bytes * (ranks - 1) / ranks;
  if (work.isAllReduce)
    return {allReduceSeconds(work.bytes, work.group, spec), Bound::Links, 0, 2 * once};
  return {allGatherSeconds(work.bytes, work.group, spec), Bound::Links, 0, once};
}

Estimate estimate(const SwigluWork &work, const DeviceSpec &spec) {
  return sumOf({estimate(work.product, spec), estimate(work.rows, spec)});
}

Estimate sumOf(const std::vector<Estimate> &kernels) {
  Estimate sum;
  double longest = 0;
  for (const Estimate &kernel : kernels) {
    sum.seconds += kernel.seconds;
    sum.flops += kernel.flops;
    sum.bytes += kernel.bytes;
    if (kernel.seconds > longest) {
      longest = kernel.seconds;
      sum.bound = kernel.bound;
    }
  }
  return sum;
}

Estimate estimate(const Work &work, const DeviceSpec &spec) {
  return std::visit([&](const auto &known) { return estimate(known, spec); }, work);
}

} // namespace lmc::cost
