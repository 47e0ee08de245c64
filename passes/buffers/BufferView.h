// Describes the place of a tensor in a buffer: one run of bytes, or equally spaced runs of bytes
// (such as columns of a wider tensor).
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

// Returns true if each run of a view of `type` contains whole rows of the tensor. The number of
// runs is then the product of some leading dimensions of `type`, never of all dimensions.
bool runsAreRows(mlir::RankedTensorType type, const BufferView &view);

// Suppose that a dense buffer of `regionBytes` bytes moves to `region` of another buffer. A tensor
// at `view` of the dense buffer then gets the returned view. Returns nullopt if its bytes would not
// be equally spaced runs.
std::optional<BufferView> compose(const BufferView &view, mlir::RankedTensorType type,
                                  const BufferView &region, uint64_t regionBytes);

// A tensor of type `whole` lies at `view`. Returns the region of a slice of this tensor. Returns
// nullopt unless the slice is rows of the tensor or a rectangle of a matrix.
std::optional<BufferView> viewOfSlice(mlir::OffsetSizeAndStrideOpInterface slice,
                                      mlir::RankedTensorType whole, BufferView view);

} // namespace lmc
