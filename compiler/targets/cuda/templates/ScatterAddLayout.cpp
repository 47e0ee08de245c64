#include "compiler/targets/cuda/templates/ScatterAddLayout.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace lmc::codegen;

ScatterAddLayout lmc::codegen::scatterAddLayout(int64_t rows, int64_t columns, int64_t vocabulary,
                                                int64_t sumBytes) {
  ScatterAddLayout layout{tokenSortTiles(rows, vocabulary)};
  layout.ranges = llvm::divideCeil(rows, layout.range);

  auto place = [&](int64_t bytes) {
    int64_t offset = layout.bytes;
    layout.bytes += llvm::alignTo(bytes, 64);
    return offset;
  };
  for (int64_t buffer = 0; buffer < std::min<int64_t>(layout.passes, 2); ++buffer) {
    layout.keys[buffer] = place(rows * 4);
    layout.tokens[buffer] = place(rows * 4);
  }
  layout.counts = place(layout.countBytes());
  layout.partials = place(layout.ranges * columns * sumBytes);
  return layout;
}
