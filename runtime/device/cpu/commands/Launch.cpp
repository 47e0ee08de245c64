#include "runtime/device/cpu/Resolver.h"

#include <algorithm>

namespace lmc::cpu {

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::Launch &op) {
  std::vector<void *> args;
  for (uint32_t slice : *op.args())
    args.push_back(at.address(slice));
  const int64_t items = int64_t(op.items()), chunk = int64_t(op.chunk());
  const int64_t chunks = (items + chunk - 1) / chunk;
  return BoundCommand([=, entry = at.entries[op.kernel()],
                       parts = std::min<int64_t>(at.threads, chunks)] {
    auto runChunks = [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i)
        entry(args.data(), i * chunk, std::min(items, (i + 1) * chunk));
    };
    if (parts <= 1)
      return runChunks(0, chunks);
      // OpenMP may give fewer threads than requested; the loop still computes every part.
#pragma omp parallel for num_threads(int(parts)) schedule(static)
    for (int64_t part = 0; part < parts; ++part)
      runChunks(chunks * part / parts, chunks * (part + 1) / parts);
  });
}

} // namespace lmc::cpu
