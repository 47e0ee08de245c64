#include "runtime/device/cuda/Collectives.h"

#include <fmt/format.h>

namespace lmc::cuda {
namespace {

class HostCollectives final : public Collectives {
public:
  HostCollectives(const Driver &driver, World &world) : driver(driver), world(world) {}

  bool byHost() const override { return true; }

  Result<void> start(const CollectiveCall &call, CUstream stream, CUevent) override {
    Communicator &group = world.along(call.axis);
    const bool inPlace = call.kind == plan::CollectiveKind::AllReduce;
    const uint64_t bytes = call.dBytes + (inPlace ? 0 : call.xBytes);
    if (bytes > reserved) {
      LMC_TRY(allocatePinned(
          driver, bytes, fmt::format("allocate {} bytes of pinned memory for a collective", bytes),
          staging));
      reserved = bytes;
    }
    char *d = static_cast<char *>(staging.get()), *x = inPlace ? d : d + call.dBytes;
    LMC_CUDA(driver, cuMemcpyDtoHAsync(x, call.x, call.xBytes, stream), "copy to the host");
    LMC_CUDA(driver, cuStreamSynchronize(stream), "run what a collective waits for");
    LMC_TRY(
        group.run(call.kind, x, call.xBytes, d, call.dBytes / byteWidth(call.dtype), call.dtype));
    LMC_CUDA(driver, cuMemcpyHtoDAsync(call.d, d, call.dBytes, stream), "copy to the GPU");
    LMC_CUDA(driver, cuStreamSynchronize(stream), "copy to the GPU");
    return {};
  }

private:
  const Driver &driver;
  World &world;
  PinnedMemory staging;
  uint64_t reserved = 0;
};

} // namespace

std::unique_ptr<Collectives> makeHostCollectives(const Driver &driver, World &world) {
  return std::make_unique<HostCollectives>(driver, world);
}

} // namespace lmc::cuda
