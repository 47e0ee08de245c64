#include "runtime/device/cpu/Resolver.h"
#include "runtime/device/cpu/commands/Rows.h"

#include <cmath>

namespace lmc::cpu {

namespace {
// A matrix of heads of head_dim elements, and where the largest of each head of each row go.
struct LargestOf {
  const char *x;
  int64_t heads, pitch, column; // `column`: that of the first head in the table
};

// Sets, for each row of the matrices, the elements of `largest` [rows, columns] to the largest
// absolute values of heads. Null: does nothing.
void findLargest(int threads, Storage storage, std::initializer_list<LargestOf> matrices,
                 int64_t rows, int64_t headDim, char *largest, int64_t columns) {
  if (!largest)
    return;
  withTypeOf(storage, [&](auto element) {
    using T = decltype(element);
    forRows(threads, rows, [&](int64_t row) {
      for (const LargestOf &matrix : matrices)
        for (int64_t head = 0; head < matrix.heads; ++head) {
          const T *x = reinterpret_cast<const T *>(matrix.x) + row * matrix.pitch + head * headDim;
          RealOf<T> most = 0;
          for (int64_t i = 0; i < headDim; ++i)
            if (const RealOf<T> value = std::abs(widened(x[i])); !(value <= most) && most == most)
              most = value; // NaN stays
          reinterpret_cast<RealOf<T> *>(largest)[row * columns + matrix.column + head] = most;
        }
    });
  });
}
} // namespace

// Returns the operands that attention and its gradient have in common.
template <typename Op> static AttentionArgs attentionArgs(Resolver &at, const Op &op) {
  const int64_t keys = int64_t(op.kv_heads()) * op.head_dim();
  return {at.address(op.q()),
          at.address(op.k()),
          at.address(op.v()),
          at.address(op.out()),
          at.address(op.lse()),
          op.batch(),
          op.seq(),
          op.heads(),
          op.kv_heads(),
          op.head_dim(),
          op.window(),
          op.scale(),
          at.pitch(op.q(), int64_t(op.heads()) * op.head_dim()),
          at.pitch(op.k(), keys),
          at.pitch(op.v(), keys),
          at.address<const int32_t>(op.starts())};
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::Attention &op) {
  const AttentionArgs args = attentionArgs(at, op);
  const AttentionKernels &kernels = kernelSet().attention[int(at.storage(op.q()))];
  at.needScratch(kernels.scratchBytes(args));
  return BoundCommand([&at, &kernels, args, storage = at.storage(op.q()),
                       out = at.address(op.out()), largest = at.address(op.largest())] {
    at.forTasks(kernels.tasks(args),
                [&](int64_t task, void *scratch) { kernels.run(args, task, scratch); });
    findLargest(at.threads, storage, {{out, args.heads, args.heads * args.headDim, 0}},
                args.batch * args.seq, args.headDim, largest, args.heads);
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &command,
                             const plan::AttentionGrad &op) {
  const int64_t keys = int64_t(op.kv_heads()) * op.head_dim();
  const AttentionGradArgs args{attentionArgs(at, op),
                               at.address(op.dout()),
                               at.address(op.dq()),
                               at.address(op.dk()),
                               at.address(op.dv()),
                               at.address(command.workspace()),
                               at.pitch(op.dq(), int64_t(op.heads()) * op.head_dim()),
                               at.pitch(op.dk(), keys),
                               at.pitch(op.dv(), keys),
                               at.address<const float>(op.cos()),
                               at.address<const float>(op.sin())};
  const AttentionKernels &kernels = kernelSet().attention[int(at.storage(op.q()))];
  at.needScratch(kernels.gradScratchBytes(args));
  return BoundCommand([&at, &kernels, args, storage = at.storage(op.q()), dq = at.address(op.dq()),
                       dk = at.address(op.dk()), dv = at.address(op.dv()),
                       largest = at.address(op.largest())] {
    at.forTasks(kernels.gradTasks(args),
                [&](int64_t task, void *scratch) { kernels.gradRun(args, task, scratch); });
    const int64_t heads = args.heads, kvHeads = args.kvHeads;
    findLargest(at.threads, storage,
                {{dq, heads, args.dqPitch, 0},
                 {dk, kvHeads, args.dkPitch, heads},
                 {dv, kvHeads, args.dvPitch, heads + kvHeads}},
                args.batch * args.seq, args.headDim, largest, heads + 2 * kvHeads);
  });
}

} // namespace lmc::cpu
