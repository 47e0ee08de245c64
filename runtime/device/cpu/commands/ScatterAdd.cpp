#include "runtime/device/cpu/commands/ScatterAdd.h"
#include "runtime/device/cpu/commands/Rows.h"

namespace lmc::cpu {
namespace {

template <typename X, typename D>
void scatterColumns(const ScatterAddArgs &args, int64_t from, int64_t to) {
  const X *x = static_cast<const X *>(args.x);
  D *d = static_cast<D *>(args.d);
  if (!args.accumulate)
    for (int64_t row = 0; row < args.vocabulary; ++row)
      std::fill(d + row * args.columns + from, d + row * args.columns + to, D(0));
  for (int64_t t = 0; t < args.rows; ++t) {
    int64_t id = args.ids[t];
    if (id < 0 || id >= args.vocabulary)
      continue;
    const X *source = x + t * args.columns;
    D *target = d + id * args.columns;
    for (int64_t column = from; column < to; ++column)
      target[column] += D(widened(source[column]));
  }
}

} // namespace

void scatterAdd(const ScatterAddArgs &args, int threads) {
  // Each thread gets a multiple of kStep columns, and so writes whole cache lines.
  constexpr int64_t kStep = 16;
  const int64_t steps = (args.columns + kStep - 1) / kStep;
  const int64_t parts = std::min<int64_t>(threads, steps);
#pragma omp parallel for num_threads(threads) schedule(static) if (parts > 1)
  for (int64_t part = 0; part < parts; ++part) {
    int64_t from = steps * part / parts * kStep;
    int64_t to = std::min(args.columns, steps * (part + 1) / parts * kStep);
    withTypeOf(args.xStorage, [&](auto x) {
      if (args.dStorage == Storage::F64)
        scatterColumns<decltype(x), double>(args, from, to);
      else
        scatterColumns<decltype(x), float>(args, from, to);
    });
  }
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::ScatterAdd &op) {
  const ScatterAddArgs args{at.address<const int32_t>(op.ids()),
                            at.address(op.x()),
                            at.address(op.d()),
                            at.storage(op.x()),
                            at.storage(op.d()),
                            int64_t(op.rows()),
                            int64_t(op.columns()),
                            int64_t(op.vocabulary()),
                            op.accumulate()};
  return BoundCommand([args, threads = at.threads] { scatterAdd(args, threads); });
}

} // namespace lmc::cpu
