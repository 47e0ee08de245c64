#include "compiler/cost/Muon.h"

#include <algorithm>

namespace lmc::cost {

double orthogonalizeSeconds(const MuonWork &work, const CostModel &model) {
  const int64_t small = std::min(work.rows, work.columns),
                large = std::max(work.rows, work.columns);
  const DataType sums = work.dtype == DataType::F64 ? DataType::F64 : DataType::F32;
  const double width = double(elementBytes(work.dtype)), wide = double(elementBytes(sums));
  // Returns the seconds of a kernel that reads matrix x and a product of dtype `sums` and writes x.
  auto combined = [&](int64_t elements) {
    return estimate(KernelWork{double(elements) * (width + wide), double(elements) * width, 0},
                    model.spec)
        .seconds;
  };
  GemmWork gram{small, small, large, work.dtype, work.dtype},
      square{small, small, small, work.dtype, sums}, moved{small, large, small, work.dtype, sums};
  double step = combined(work.matrices * small * small) + combined(work.matrices * small * large);
  for (GemmWork *product : {&gram, &square, &moved}) {
    product->batch = work.matrices;
    step += model.gemm(*product).seconds;
  }
  // One kernel reads x for its norm. Another one reads x, divides it by the norm, and writes x.
  const double bytes = double(work.matrices * small * large) * width;
  const double normalized = estimate(KernelWork{2 * bytes, bytes, 0}, model.spec).seconds;
  return normalized + double(work.steps) * step;
}

static double bytesOf(const MuonWork &work) {
  return double(work.matrices * work.rows * work.columns) * double(elementBytes(work.dtype));
}

static double copySeconds(double bytes, const CostModel &model) {
  return estimate(KernelWork{bytes, bytes, 0}, model.spec).seconds;
}

double stackedSeconds(const MuonWork &work, const CostModel &model) {
  return copySeconds(bytesOf(work), model) + orthogonalizeSeconds(work, model);
}

double ownersSeconds(const MuonWork &work, const Group &group, const CostModel &model) {
  const int64_t ranks = group.devicesPerNode * group.nodes;
  MuonWork own = work;
  own.matrices = (work.matrices + ranks - 1) / ranks;
  const double bytes = bytesOf(own);
  // A rank copies all matrices into one stack, and then copies its own matrices out of the stack.
  return copySeconds(double(ranks + 1) * bytes, model) + orthogonalizeSeconds(own, model) +
         estimate(CollectiveWork{/*isAllReduce=*/false, double(ranks) * bytes, group}, model.spec)
             .seconds;
}

} // namespace lmc::cost
