#include "passes/buffers/BufferView.h"

#include "dialects/interfaces/TensorBytes.h"

using namespace mlir;
using namespace lmc;

// Returns the number of bytes from the start to the end of `view`, whose runs have `bytes` bytes in
// total.
static int64_t extentOf(const BufferView &view, uint64_t bytes) {
  return view.pitch ? (view.rows - 1) * view.pitch + int64_t(bytes) / view.rows : int64_t(bytes);
}

bool lmc::regionsOverlap(const BufferView &a, uint64_t aBytes, const BufferView &b,
                         uint64_t bBytes) {
  if (a.buffer != b.buffer || a.offset >= b.offset + extentOf(b, bBytes) ||
      b.offset >= a.offset + extentOf(a, aBytes))
    return false;
  if (a.pitch == 0 || a.pitch != b.pitch)
    return true;
  // Both views are columns of one matrix. They are disjoint if they have no column in common.
  bool aFirst = a.offset <= b.offset;
  const BufferView &low = aFirst ? a : b, &high = aFirst ? b : a;
  int64_t lowRun = int64_t(aFirst ? aBytes : bBytes) / low.rows;
  int64_t highRun = int64_t(aFirst ? bBytes : aBytes) / high.rows;
  int64_t column = (high.offset - low.offset) % a.pitch;
  return column < lowRun || column + highRun > a.pitch;
}

bool lmc::runsAreRows(RankedTensorType type, const BufferView &view) {
  if (view.pitch == 0)
    return true;
  int64_t rows = 1;
  for (int64_t extent : type.getShape().drop_back(type.getRank() ? 1 : 0)) {
    if (rows == view.rows)
      return true;
    rows *= extent;
  }
  return rows == view.rows && type.getRank() > 0;
}

std::optional<BufferView> lmc::compose(const BufferView &view, RankedTensorType type,
                                       const BufferView &region, uint64_t regionBytes) {
  if (region.pitch == 0)
    return BufferView{region.buffer, region.offset + view.offset, view.rows, view.pitch};
  int64_t run = int64_t(regionBytes) / region.rows, row = view.offset / run,
          column = view.offset % run, bytes = int64_t(byteSize(type));
  BufferView composed{region.buffer, region.offset + row * region.pitch + column, 1, 0};
  if (view.pitch == 0 && column + bytes <= run)
    return composed;
  if (view.pitch == 0 ? column != 0 || bytes % run != 0 : view.pitch != run)
    return std::nullopt;
  composed.rows = view.pitch ? view.rows : bytes / run;
  composed.pitch = region.pitch;
  if (!runsAreRows(type, composed))
    return std::nullopt;
  return composed;
}

std::optional<BufferView> lmc::viewOfSlice(OffsetSizeAndStrideOpInterface slice,
                                           RankedTensorType whole, BufferView view) {
  auto isOne = [](int64_t stride) { return stride == 1; };
  auto isZero = [](int64_t offset) { return offset == 0; };
  ArrayRef<int64_t> offsets = slice.getStaticOffsets(), sizes = slice.getStaticSizes();
  if (!llvm::all_of(slice.getStaticStrides(), isOne) ||
      (view.pitch && view.rows != whole.getDimSize(0)))
    return std::nullopt;
  int64_t width = whole.getElementTypeBitWidth() / 8;
  int64_t rowBytes = int64_t(byteSize(whole)) / whole.getDimSize(0);
  int64_t pitch = view.pitch ? view.pitch : rowBytes;
  view.offset += offsets[0] * pitch;
  if (llvm::all_of(offsets.drop_front(), isZero) &&
      sizes.drop_front() == whole.getShape().drop_front()) {
    if (view.pitch)
      view.rows = sizes[0];
    return view;
  }
  if (whole.getRank() != 2)
    return std::nullopt;
  view.offset += offsets[1] * width;
  view.rows = sizes[0];
  view.pitch = sizes[0] == 1 ? 0 : pitch;
  return view;
}
