// The transpose of 8-bit floats on the CPU. Plans for a CPU have no such commands: its matrix
// products take factors of either layout. The tests of CUDA's kernels compare them with these.
#include "ground/plan/FloatConvert.h"
#include "runtime/device/cpu/Resolver.h"
#include "runtime/device/cpu/commands/Rows.h"

namespace lmc::cpu {

// Sets y, uint8 [columns, rows], to the transpose of x, uint8 [rows, columns].
static void transpose(int threads, int64_t rows, int64_t columns, const char *x, char *y) {
  forRows(threads, columns, [=](int64_t column) {
    for (int64_t row = 0; row < rows; ++row)
      y[column * rows + row] = x[row * columns + column];
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::Transpose &op) {
  const auto rows = int64_t(op.rows()), columns = int64_t(op.columns());
  return BoundCommand([=, threads = at.threads, x = at.address(op.x()), y = at.address(op.y())] {
    transpose(threads, rows, columns, x, y);
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::QuantizeTransposed &op) {
  const auto rows = int64_t(op.rows()), columns = int64_t(op.columns());
  const plan::DType from = at.memory.slice(op.x()).dtype(),
                    to = at.memory.slice(op.codes()).dtype();
  return BoundCommand([=, threads = at.threads, x = at.address(op.x()),
                       scale = at.address<const float>(op.scale()), codes = at.address(op.codes()),
                       transposed = at.address(op.transposed())] {
    const auto rowBytes = int64_t(byteWidth(from)) * columns;
    forRows(threads, rows, [=](int64_t row) {
      std::vector<float> values(static_cast<size_t>(columns));
      convertFloats(from, x + row * rowBytes, plan::DType::F32, values.data(), values.size());
      for (float &value : values)
        value /= *scale;
      convertFloats(plan::DType::F32, values.data(), to, codes + row * columns, values.size());
    });
    transpose(threads, rows, columns, codes, transposed);
  });
}

} // namespace lmc::cpu
