#include "runtime/device/simt/SimtDevice.h"
#include "runtime/device/cpu/AlignedMemory.h"
#include "runtime/device/cpu/Gemm.h"
#include "runtime/plan/FloatConvert.h"
#include "runtime/device/simt/SimtKernel.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>

namespace lmc::simt {
namespace {

struct SimtExecutable final : Executable {
  std::vector<std::function<Result<void>()>> commands;
};

cpu::Storage storageOf(plan::DType dtype) {
  return dtype == plan::DType::BF16  ? cpu::Storage::BF16
         : dtype == plan::DType::F64 ? cpu::Storage::F64
                                     : cpu::Storage::F32;
}

class SimtDevice final : public Device {
public:
  explicit SimtDevice(uint64_t seed) : seed(seed), gemms(1) {}

  DeviceInfo info(plan::DType) const override {
    DeviceInfo info;
    info.name = "SIMT executor";
    return info;
  }
  Result<void> load(const PlanFile &file) override;
  uint64_t allocatedBytes() const override {
    uint64_t bytes = 0;
    for (const cpu::AlignedMemory &arena : arenas)
      bytes += arena.bytes();
    return bytes;
  }
  Result<std::unique_ptr<Executable>> record(int index) override;
  Result<void> submit(Executable &executable) override {
    for (const auto &command : static_cast<SimtExecutable &>(executable).commands)
      LMC_TRY(command());
    return {};
  }
  Result<void> synchronize() override { return {}; }
  Result<void> copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset) override {
    std::memcpy(address(uint32_t(slice)) + offset, source, bytes);
    return {};
  }
  Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset) override {
    std::memcpy(target, address(uint32_t(slice)) + offset, bytes);
    return {};
  }

private:
  using Step = std::function<Result<void>()>;
  using Launches = flatbuffers::Vector<flatbuffers::Offset<plan::Launch>>;

  const plan::Slice &slice(uint32_t index) const { return *plan->slices()->Get(index); }
  char *address(uint32_t index) {
    return arenas[slice(index).arena()].data() + slice(index).offset();
  }
  Argument argument(uint32_t index, Access access) {
    const plan::Slice &at = slice(index);
    return {address(index), at.bytes(), access, at.pitch() ? at.rows() : 1, at.pitch()};
  }
  // Results of a plan's own kernels are written whole; a template's may be parts of a workspace.
  Result<void> resolveLaunch(const plan::Launch &launch, Access results, const std::string &source,
                             std::vector<Step> &steps);
  Result<void> resolveLaunches(const Launches *launches, const std::string &source,
                               std::vector<Step> &steps);
  Result<void> resolveGemm(const plan::Gemm &gemm, std::vector<Step> &steps);
  Result<void> resolve(const plan::Command &command, std::vector<Step> &steps);
  Step fillOf(const plan::Fill &fill);
  Step copyOf(const plan::Copy &copy);

  uint64_t seed, launched = 0;
  cpu::GemmCache gemms;
  const plan::Plan *plan = nullptr;
  std::vector<cpu::AlignedMemory> arenas;
  std::vector<Result<Kernel>> kernels;
};

Result<void> SimtDevice::load(const PlanFile &file) {
  plan = &*file;
  std::vector<Source> sources;
  for (const auto *kernel : *plan->kernels()) {
    if (!kernel->source() || !kernel->grid())
      return Error{fmt::format("kernel {} of the plan has no CUDA source", kernel->name()->str())};
    Source source;
    source.name = kernel->entry()->str();
    source.text = kernel->source()->str();
    for (uint32_t i = 0; i < 3; ++i)
      source.grid[i] = kernel->grid()->Get(i);
    source.threads = kernel->threads();
    source.sharedBytes = kernel->shared_bytes();
    sources.push_back(source);
  }
  kernels = compile(sources);
  for (const auto *arena : *plan->arenas()) {
    arenas.emplace_back();
    if (!arenas.back().tryReserve(std::max<uint64_t>(arena->bytes(), 1)))
      return Error{"not enough memory for the plan"};
    if (arenas.size() > 1) // all but `state`, which starts as zeros
      fillGarbage(arenas.back().data(), arena->bytes(), seed, arenas.size());
  }
  return {};
}

Result<void> SimtDevice::resolveLaunch(const plan::Launch &launch, Access results,
                                       const std::string &source, std::vector<Step> &steps) {
  const Result<Kernel> &kernel = kernels[launch.kernel()];
  if (!kernel)
    return kernel.error();
  std::vector<Argument> arguments;
  for (uint32_t slice : *launch.args())
    arguments.push_back(
        argument(slice, arguments.size() < launch.inputs() ? Access::Read : results));
  steps.push_back([=, this, kernel = *kernel]() -> Result<void> {
    RunResult run = simt::run(kernel, arguments, Order::of(seed * 1000003 + launched++));
    if (!run.failure.empty())
      return Error{fmt::format("{} ({})", run.failure, source), ExitCode::Failure};
    return {};
  });
  return {};
}

Result<void> SimtDevice::resolveLaunches(const Launches *launches, const std::string &source,
                                         std::vector<Step> &steps) {
  if (!launches || launches->size() == 0)
    return Error{fmt::format("a command of the plan has no kernels ({})", source)};
  for (const auto *launch : *launches)
    LMC_TRY(resolveLaunch(*launch, Access::ReadWrite, source, steps));
  return {};
}

Result<void> SimtDevice::resolveGemm(const plan::Gemm &gemm, std::vector<Step> &steps) {
  cpu::GemmShape shape;
  shape.m = int64_t(gemm.m());
  shape.n = int64_t(gemm.n());
  shape.k = int64_t(gemm.k());
  shape.transposeA = gemm.transpose_a();
  shape.transposeB = gemm.transpose_b();
  shape.accumulate = gemm.c() >= 0;
  shape.hasBias = gemm.bias() >= 0;
  shape.input = storageOf(slice(gemm.a()).dtype());
  shape.output = storageOf(slice(gemm.d()).dtype());
  const void *bias = nullptr;
  if (shape.hasBias) {
    shape.bias = storageOf(slice(uint32_t(gemm.bias())).dtype());
    bias = address(uint32_t(gemm.bias()));
  }
  auto found = gemms.find(shape);
  if (!found)
    return found.error();
  steps.push_back([product = *found, a = address(gemm.a()), b = address(gemm.b()),
                   d = address(gemm.d()), bias]() -> Result<void> {
    product->run(a, b, d, bias);
    return {};
  });
  return {};
}

SimtDevice::Step SimtDevice::fillOf(const plan::Fill &fill) {
  const plan::DType dtype = slice(fill.d()).dtype();
  uint64_t element = 0;
  auto set = [&](auto value) { std::memcpy(&element, &value, sizeof(value)); };
  const float single = float(fill.value());
  if (dtype == plan::DType::F64)
    set(fill.value());
  else if (dtype == plan::DType::F32)
    set(single);
  else if (dtype == plan::DType::BF16)
    set(toBFloat16(single));
  else if (dtype == plan::DType::I32)
    set(int32_t(fill.value()));
  else
    set(int8_t(fill.value()));
  const Argument to = argument(fill.d(), Access::Write);
  return [=, width = byteWidth(dtype)]() -> Result<void> {
    std::string bytes(to.bytes, 0);
    for (uint64_t i = 0; i < to.bytes; i += width)
      std::memcpy(bytes.data() + i, &element, width);
    Memory::setBytes(to, bytes);
    return {};
  };
}

SimtDevice::Step SimtDevice::copyOf(const plan::Copy &copy) {
  const Argument from = argument(copy.x(), Access::Read), to = argument(copy.d(), Access::Write);
  return [=]() -> Result<void> {
    Memory::setBytes(to, Memory::bytesOf(from));
    return {};
  };
}

Result<void> SimtDevice::resolve(const plan::Command &command, std::vector<Step> &steps) {
  const std::string source = command.source() ? command.source()->str() : "";
  switch (command.body_type()) {
  case plan::CommandBody::Launch:
    return resolveLaunch(*command.body_as_Launch(), Access::Write, source, steps);
  case plan::CommandBody::Gemm:
    return resolveGemm(*command.body_as_Gemm(), steps);
  case plan::CommandBody::Attention:
    return resolveLaunches(command.body_as_Attention()->launches(), source, steps);
  case plan::CommandBody::AttentionGrad:
    return resolveLaunches(command.body_as_AttentionGrad()->launches(), source, steps);
  case plan::CommandBody::ScatterAdd:
    return resolveLaunches(command.body_as_ScatterAdd()->launches(), source, steps);
  case plan::CommandBody::Fill:
    steps.push_back(fillOf(*command.body_as_Fill()));
    return {};
  case plan::CommandBody::Copy:
    steps.push_back(copyOf(*command.body_as_Copy()));
    return {};
  case plan::CommandBody::NONE:
    break;
  }
  return Error{"a command of the plan has no body"};
}

Result<std::unique_ptr<Executable>> SimtDevice::record(int index) {
  auto executable = std::make_unique<SimtExecutable>();
  for (const auto *command : *plan->functions()->Get(uint32_t(index))->commands())
    LMC_TRY(resolve(*command, executable->commands));
  return std::unique_ptr<Executable>(std::move(executable));
}

} // namespace

std::unique_ptr<Device> makeSimtDevice(uint64_t seed) { return std::make_unique<SimtDevice>(seed); }

} // namespace lmc::simt
