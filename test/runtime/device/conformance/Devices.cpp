// The devices that the suite runs on.
#include "test/runtime/device/conformance/Conformance.h"

#include "runtime/comm/LocalWorld.h"
#include "test/simt/SimtDevice.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <unistd.h>

using namespace lmc;
using namespace lmc::test;

namespace {

// A shared object of the C source, as the compiler would put into a plan.
std::vector<uint8_t> compileC(const std::string &source) {
  const std::string base = testing::TempDir() + "/lmc-kernel-" + std::to_string(getpid());
  std::ofstream(base + ".c") << source;
  const std::string command = "cc -O1 -shared -fPIC -o " + base + ".so " + base + ".c";
  if (std::system(command.c_str()) != 0)
    return {};
  std::ifstream file(base + ".so", std::ios::binary);
  std::vector<uint8_t> image{std::istreambuf_iterator<char>(file), {}};
  std::remove((base + ".c").c_str());
  std::remove((base + ".so").c_str());
  return image;
}

plan::KernelT &addKernel(PlanBuilder &b, const std::string &entry, std::vector<uint8_t> image,
                         std::vector<std::string> features = {}) {
  auto module = std::make_unique<plan::ModuleT>();
  module->target = b.plan.target;
  module->features = std::move(features);
  module->image = std::move(image);
  auto kernel = std::make_unique<plan::KernelT>();
  kernel->name = entry;
  kernel->entry = entry;
  kernel->module_ = uint32_t(b.plan.modules.size());
  b.plan.modules.push_back(std::move(module));
  b.plan.kernels.push_back(std::move(kernel));
  return *b.plan.kernels.back();
}

uint32_t addCpuKernel(PlanBuilder &b, const KernelText &text) {
  addKernel(b, text.entry, compileC(text.c));
  return uint32_t(b.plan.kernels.size() - 1);
}

uint32_t addCudaKernel(PlanBuilder &b, const KernelText &text) {
  plan::KernelT &kernel = addKernel(b, text.entry, {});
  kernel.source = std::string("#include \"lmc/vector_io.cuh\"\nusing namespace lmc;\n") + text.cuda;
  kernel.grid = {text.blocks, 1, 1};
  kernel.threads = text.threads;
  return uint32_t(b.plan.kernels.size() - 1);
}

std::vector<BadPlan> badCpuPlans() {
  const std::vector<uint8_t> good = compileC(kDoubleRows.c), garbage(100, 7);
  return {
      {[=](PlanBuilder &b) { addKernel(b, "doubleRows", good, {"warp-drive"}); }, "'warp-drive'"},
      {[=](PlanBuilder &b) { addKernel(b, "tripleRows", good); }, "no kernel 'tripleRows'"},
      {[=](PlanBuilder &b) { addKernel(b, "doubleRows", garbage); }, "does not load"},
      {[=](PlanBuilder &b) { addKernel(b, "doubleRows", {}); }, "have no code"},
  };
}

std::vector<BadPlan> badSimtPlans() {
  auto withText = [](const char *entry, const char *text) {
    return [=](PlanBuilder &b) { addCudaKernel(b, {entry, "", text, 1, 32}); };
  };
  return {
      {[](PlanBuilder &b) { addKernel(b, "doubleRows", {}); }, "'doubleRows' has no CUDA source"},
      {withText("tripleRows", kDoubleRows.cuda), "tripleRows"},
      {withText("doubleRows", "seven"), "seven"},
  };
}

// A kernel whose code is only a name: the host driver finds the source of a kernel by the bytes of
// its module.
uint32_t addHostCudaKernel(PlanBuilder &b, const KernelText &text) {
  const uint32_t index = addCudaKernel(b, text);
  const std::string code = text.entry;
  b.plan.modules[b.plan.kernels[index]->module_]->image.assign(code.begin(), code.end());
  return index;
}

// A bf16 product with a bias in f32, which cuBLASLt does not add.
void addProductWithWideBias(PlanBuilder &b) {
  plan::GemmT gemm;
  gemm.a = b.slice(DType::BF16, {2, 3});
  gemm.b = b.slice(DType::BF16, {3, 4});
  gemm.d = b.slice(DType::BF16, {2, 4});
  gemm.bias = int(b.slice(DType::F32, {4}));
  gemm.m = 2;
  gemm.n = 4;
  gemm.k = 3;
  b.command(gemm);
}

std::vector<BadPlan> badHostCudaPlans() {
  return {{[](PlanBuilder &b) { addCudaKernel(b, kDoubleRows); }, "have no code"},
          {addProductWithWideBias, "and the plan has a bias in F32; compile the plan again"}};
}

// A world of one rank.
World *loneWorld() {
  static const auto worlds = makeLocalWorlds(1, 1);
  return worlds.front().get();
}

// Opens the CUDA device on the stand-ins of test/hostdriver, started anew for `plan`.
Result<std::unique_ptr<Device>> openOnHostDriver(const PlanFile &plan, int variant) {
  const std::string folder = LMC_HOST_LIBRARIES,
                    path = testing::TempDir() + "/lmc-host.plan." + std::to_string(getpid());
  const auto bytes = plan.contents();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char *>(bytes.data()), std::streamsize(bytes.size()));
  const std::pair<const char *, std::string> environment[] = {
      {"LMC_CUDA_DRIVER", folder + "/libcuda-host.so"},
      {"LMC_CUBLASLT", folder + "/libcublaslt-host.so"},
      {"LMC_NCCL", folder + "/libnccl-host.so"},
      {"LMC_HOST_PLAN", path},
      {"LMC_HOST_SEED", std::to_string(variant)}};
  for (const auto &[name, value] : environment)
    ::setenv(name, value.c_str(), 1);
  void *library = ::dlopen((folder + "/libcuda-host.so").c_str(), RTLD_NOW);
  if (!library)
    return Error{::dlerror()};
  reinterpret_cast<void (*)()>(::dlsym(library, "lmcHostReset"))();
  reinterpret_cast<int (*)(unsigned)>(::dlsym(library, "cuInit"))(0);
  return openDevice(
      plan,
      {.world = loneWorld(), .hostCollectives = variant % 3 == 0, .graphs = variant % 2 == 0});
}

const TestDevice kDevices[] = {
    {"cpu", "cpu:test",
     [](const PlanFile &plan, int threads) {
       return openDevice(plan, {.threads = threads, .world = loneWorld()});
     },
     addCpuKernel, badCpuPlans, nullptr, nullptr, true},
    {"simt", "cuda:sm_90a",
     [](const PlanFile &, int variant) -> Result<std::unique_ptr<Device>> {
       return simt::makeSimtDevice(uint64_t(variant), loneWorld());
     },
     addCudaKernel, badSimtPlans,
#ifdef __SANITIZE_THREAD__
     "the thread sanitizer cannot follow its fibers",
#else
     nullptr,
#endif
     "how long it takes says nothing about a GPU", false},
    {"cuda", "cuda:sm_90a", openOnHostDriver, addHostCudaKernel, badHostCudaPlans,
#if !defined(LMC_HAS_HOST_DRIVER)
     "the host driver is not built: it needs CUDA's headers",
#elif defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
     "the sanitizers cannot follow its fibers",
#else
     nullptr,
#endif
     "the host driver's time says nothing about a GPU", false},
};

} // namespace

static const auto deviceName = [](const testing::TestParamInfo<TestDevice> &info) {
  return std::string(info.param.name);
};
INSTANTIATE_TEST_SUITE_P(Devices, Conformance, testing::ValuesIn(kDevices), deviceName);
INSTANTIATE_TEST_SUITE_P(Devices, OwnKernels, testing::Values(kDevices[0]), deviceName);
