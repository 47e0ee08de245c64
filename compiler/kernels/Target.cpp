#include "compiler/kernels/Target.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace lmc::codegen {

static llvm::SmallVector<const Target *> &registry() {
  static llvm::SmallVector<const Target *> targets;
  return targets;
}

TargetCode kernelsWithoutCode(mlir::ModuleOp plan) {
  TargetCode code;
  code.modules.emplace_back();
  for (auto kernel : plan.getOps<kern::KernelOp>())
    code.kernels.push_back({kernel, 0});
  return code;
}

void registerTarget(const Target &target) {
  if (!llvm::is_contained(registry(), &target))
    registry().push_back(&target);
}

llvm::ArrayRef<const Target *> targets() { return registry(); }

const Target *findTarget(llvm::StringRef device) {
  for (const Target *target : targets())
    if (target->name() == device.split(':').first)
      return target;
  return nullptr;
}

std::unique_ptr<cost::CostModel> costModelOf(llvm::StringRef device, cost::DeviceSpec spec) {
  if (const Target *target = findTarget(device))
    return target->costModel(device, std::move(spec));
  return std::make_unique<cost::CostModel>(std::move(spec));
}

Result<void> checkDeviceName(const std::string &device) {
  const Target *target = findTarget(device);
  if (target && target->isDevice(device))
    return {};
  llvm::SmallVector<llvm::StringRef> devices;
  for (const Target *known : targets())
    devices.push_back(known->devices());
  return Error{"it must be " + llvm::join(devices, " or ")};
}

} // namespace lmc::codegen
