// The place of a tensor in a buffer: one run of bytes, or equally spaced runs (columns of a wider
// tensor).
#pragma once

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

#include <optional>

namespace lmc {

struct BufferView {
  unsigned buffer = 0;
  int64_t offset = 0; // bytes
  int64_t rows = 1, pitch = 0; // pitch > 0: `rows` runs of bytes, `pitch` bytes apart

  friend bool operator==(const BufferView &, const BufferView &) = default;
};

// Returns true if two regions of one buffer have a byte in common.
bool regionsOverlap(const BufferView &a, uint64_t aBytes, const BufferView &b, uint64_t bBytes);

// Returns true if each run of a view of `type` is a number of whole rows, that is, if `view.rows`
// is a product of leading dimensions of `type` without the last one.
bool runsAreRows(mlir::RankedTensorType type, const BufferView &view);

// Returns what `view`, a view of a dense buffer of `regionBytes` bytes, becomes when the buffer
// becomes `region` of another buffer. Returns nothing if the view's bytes would not be equally
// spaced runs.
std::optional<BufferView> compose(const BufferView &view, mlir::RankedTensorType type,
                                  const BufferView &region, uint64_t regionBytes);

// Returns the region that a slice covers of a tensor of type `whole` that lies at `view`. Returns
// nothing unless the slice is rows of the tensor or a rectangle of a matrix.
std::optional<BufferView> viewOfSlice(mlir::OffsetSizeAndStrideOpInterface slice,
                                      mlir::RankedTensorType whole, BufferView view);

} // namespace lmc
