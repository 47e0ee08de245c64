// What every device promises (runtime/device/Device.h). The suite runs on each device of
// `kDevices`; a check that a device cannot do is skipped and says why.
#include "test/ground/plan/PlanBuilder.h"

#include "ground/plan/FloatConvert.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/device/Ranges.h"
#include "test/simt/SimtDevice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <unistd.h>

using namespace lmc;
using lmc::test::PlanBuilder;
using plan::DType;

namespace {

// A kernel for each kind of device: `c` is what a CPU's module exports, `cuda` the source of a
// kernel that is launched with `blocks` blocks of `threads` threads.
struct KernelText {
  const char *entry, *c, *cuda;
  uint32_t blocks, threads;
};

// A plan that a device must refuse to load.
struct BadPlan {
  std::function<void(PlanBuilder &)> build;
  const char *message; // a part of the error
};

struct TestDevice {
  const char *name;
  const char *target; // of the plans
  // Results must not depend on `variant`: the number of threads of a CPU, the order in which the
  // SIMT device runs the threads of a kernel.
  Result<std::unique_ptr<Device>> (*open)(const PlanFile &plan, int variant);
  // Adds a kernel to the plan and returns its index.
  uint32_t (*addKernel)(PlanBuilder &b, const KernelText &text);
  std::vector<BadPlan> (*badPlans)();
  const char *skipped; // why no check can run; null: they can
  const char *noSpeed; // why its peak FLOP/s mean nothing; null: they do
  bool ownKernels;     // attention and scatter_add need no kernels of the plan
};

void PrintTo(const TestDevice &device, std::ostream *to) { *to << device.name; }

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

// d = 2 x for 105 elements, ten at a time; what calls[i] holds grows by how many elements chunk i
// has.
const KernelText kDoubleRows = {"doubleRows", R"(
#include <stdint.h>
void doubleRows(void *const *args, int64_t begin, int64_t end) {
  const float *x = args[0];
  const int32_t *before = args[1];
  float *d = args[2];
  int32_t *calls = args[3];
  for (int64_t i = begin; i < end; ++i)
    d[i] = 2 * x[i];
  calls[begin / 10] = before[begin / 10] + (int32_t)(end - begin);
}
)",
                                R"(
extern "C" __global__ void __launch_bounds__(32)
doubleRows(const float *x, const int *before, float *d, int *calls) {
  const int begin = blockIdx.x * 10, end = begin + 10 < 105 ? begin + 10 : 105;
  const int i = begin + threadIdx.x;
  if (i < end)
    storeOne(d + i, 2 * loadOne(x + i));
  if (threadIdx.x == 0)
    storeOne(calls + blockIdx.x, loadOne(before + blockIdx.x) + (end - begin));
}
)",
                                11, 32};

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
          {addProductWithWideBias, "a bias in F32 and a result in BF16; compile the plan again"}};
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

class Conformance : public testing::TestWithParam<TestDevice> {
protected:
  void SetUp() override {
    if (GetParam().skipped)
      GTEST_SKIP() << GetParam().skipped;
    b.plan.target = GetParam().target;
  }

  // Opens the plan as it has been built, and a device for it.
  void open(int variant = 1) {
    device = nullptr;
    plan = nullptr;
    auto file = b.open();
    ASSERT_TRUE(file) << file.error().message;
    plan = std::move(*file);
    auto opened = GetParam().open(*plan, variant);
    ASSERT_TRUE(opened) << opened.error().message;
    device = std::move(*opened);
  }

  // Opens, loads, and records the plan's only function.
  void record(int variant = 1) {
    ASSERT_NO_FATAL_FAILURE(open(variant));
    auto loaded = device->load(*plan);
    ASSERT_TRUE(loaded) << loaded.error().message;
    auto recorded = device->record(0);
    ASSERT_TRUE(recorded) << recorded.error().message;
    executable = std::move(*recorded);
  }

  void run() {
    auto submitted = device->submit(*executable);
    ASSERT_TRUE(submitted) << submitted.error().message;
    auto done = device->synchronize();
    ASSERT_TRUE(done) << done.error().message;
  }

  template <typename T> void write(uint32_t slice, const std::vector<T> &values) {
    auto copied = device->copyIn(int(slice), values.data(), values.size() * sizeof(T));
    ASSERT_TRUE(copied) << copied.error().message;
  }

  template <typename T> std::vector<T> read(uint32_t slice) {
    std::vector<T> values((*plan)->slices()->Get(slice)->bytes() / sizeof(T));
    auto copied = device->copyOut(int(slice), values.data(), values.size() * sizeof(T));
    EXPECT_TRUE(copied) << copied.error().message;
    return values;
  }

  // Write and read floats of `dtype` as f64.
  void writeFloats(DType dtype, uint32_t slice, const std::vector<double> &values) {
    std::vector<char> bytes(values.size() * byteWidth(dtype));
    convertFloats(DType::F64, values.data(), dtype, bytes.data(), values.size());
    write(slice, bytes);
  }
  std::vector<double> readFloats(DType dtype, uint32_t slice) {
    const std::vector<char> bytes = read<char>(slice);
    std::vector<double> values(bytes.size() / byteWidth(dtype));
    convertFloats(dtype, bytes.data(), DType::F64, values.data(), values.size());
    return values;
  }

  // A launch of a kernel that does all or a part of a command; the first `inputs` of `args` are
  // only read.
  std::unique_ptr<plan::LaunchT> launchOf(const KernelText &text, std::vector<uint32_t> args,
                                          uint32_t inputs) {
    auto launch = std::make_unique<plan::LaunchT>();
    launch->kernel = GetParam().addKernel(b, text);
    launch->args = std::move(args);
    launch->inputs = inputs;
    launch->items = launch->chunk = 1;
    return launch;
  }

  // Adds a launch to those that do the last command.
  void addLaunch(const KernelText &text, std::vector<uint32_t> args, uint32_t inputs) {
    b.plan.functions[0]->commands.back()->launches.push_back(
        launchOf(text, std::move(args), inputs));
  }

  // Gives the last command a kernel of one thread, on a device that has none of its own: `text` has
  // the parameters and the body. The host driver tells kernels apart by their names: none may begin
  // with the name of another.
  void addLoops(const std::string &entry, const std::string &text, std::vector<uint32_t> args,
                uint32_t inputs) {
    if (GetParam().ownKernels)
      return;
    const size_t body = text.find('{');
    const std::string cuda = "extern \"C\" __global__ void __launch_bounds__(32) " + entry +
                             text.substr(0, body) + "{ if (threadIdx.x > 0) return;" +
                             text.substr(body + 1);
    addLaunch({entry.c_str(), "", cuda.c_str(), 1, 32}, std::move(args), inputs);
  }

  PlanBuilder b;
  std::unique_ptr<PlanFile> plan;
  std::unique_ptr<Device> device;
  std::unique_ptr<Executable> executable;
};

INSTANTIATE_TEST_SUITE_P(Devices, Conformance, testing::ValuesIn(kDevices),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace

TEST_P(Conformance, RunsLaunchesInChunks) {
  uint32_t x = b.slice(DType::F32, {105}), d = b.slice(DType::F32, {105});
  uint32_t calls = b.slice(DType::I32, {11});
  auto launch = launchOf(kDoubleRows, {x, calls, d, calls}, 2);
  launch->items = 105;
  launch->chunk = 10;
  b.command(*launch);
  for (int variant : {1, 2, 7}) {
    ASSERT_NO_FATAL_FAILURE(record(variant));
    std::vector<float> in(105);
    std::iota(in.begin(), in.end(), 1.0f);
    write(x, in);
    run();
    run();
    const auto out = read<float>(d);
    for (size_t i = 0; i < 105; ++i)
      EXPECT_EQ(out[i], 2 * in[i]);
    const auto counts = read<int32_t>(calls);
    for (size_t i = 0; i < 11; ++i)
      EXPECT_EQ(counts[i], i == 10 ? 10 : 20) << "two runs of each chunk";
  }
}

TEST_P(Conformance, TimesEachCommandOfARun) {
  uint32_t x = b.slice(DType::F32, {105}), d = b.slice(DType::F32, {105});
  uint32_t calls = b.slice(DType::I32, {11});
  auto launch = launchOf(kDoubleRows, {x, calls, d, calls}, 2);
  launch->items = 105;
  launch->chunk = 10;
  b.command(*launch);
  plan::CopyT copy;
  copy.x = d;
  copy.d = x;
  b.command(copy);
  ASSERT_NO_FATAL_FAILURE(record());
  write(x, std::vector<float>(105, 1));
  run();
  auto times = device->submitTimed(*executable);
  ASSERT_TRUE(times) << times.error().message;
  ASSERT_EQ(times->size(), 2u);
  EXPECT_EQ((*times)[0].start, 0);
  EXPECT_GT((*times)[0].seconds, 0);
  EXPECT_GE((*times)[1].start, (*times)[0].start + (*times)[0].seconds);
  EXPECT_EQ(read<float>(x), std::vector<float>(105, 4)) << "the run in submit, and the timed one";
  EXPECT_EQ(read<int32_t>(calls)[0], 20);
}

// With one rank, a collective of any kind copies x to d. The second run may be captured.
TEST_P(Conformance, RunsCollectives) {
  const uint32_t x = b.slice(DType::F32, {105}), gathered = b.slice(DType::F32, {105});
  const uint32_t reduced = b.slice(DType::F32, {105}), copied = b.slice(DType::F32, {105});
  auto collective = [&](plan::CollectiveKind kind, plan::Axis axis, uint32_t from, uint32_t to) {
    plan::CollectiveT op;
    op.kind = kind;
    op.axis = axis;
    op.x = from;
    op.d = to;
    b.command(op);
  };
  collective(plan::CollectiveKind::AllGather, plan::Axis::Shard, x, gathered);
  collective(plan::CollectiveKind::ReduceScatter, plan::Axis::Shard, gathered, reduced);
  collective(plan::CollectiveKind::AllReduce, plan::Axis::Replicate, reduced, reduced);
  plan::CopyT copy;
  copy.x = reduced;
  copy.d = copied;
  b.command(copy);
  for (int variant : {1, 2, 3, 6}) {
    ASSERT_NO_FATAL_FAILURE(record(variant));
    for (float first : {1.0f, 7.0f, 9.0f}) {
      std::vector<float> in(105);
      std::iota(in.begin(), in.end(), first);
      write(x, in);
      ASSERT_NO_FATAL_FAILURE(run());
      EXPECT_EQ(read<float>(copied), in) << "variant " << variant;
    }
    executable = nullptr;
    device = nullptr;
  }
}

// A collective that a later command waits for, with others between them.
TEST_P(Conformance, RunsACollectiveBesideOtherCommands) {
  const uint32_t x = b.slice(DType::F32, {105}), other = b.slice(DType::F32, {105});
  const uint32_t copied = b.slice(DType::F32, {105});
  auto copy = [&](uint32_t from, uint32_t to) {
    plan::CopyT op;
    op.x = from;
    op.d = to;
    b.command(op);
  };
  plan::CollectiveT sum;
  sum.kind = plan::CollectiveKind::AllReduce;
  sum.x = sum.d = x;
  b.command(sum); // beside the next command
  b.plan.functions[0]->commands[0]->stream = 1;
  copy(other, copied);
  plan::WaitT wait;
  b.command(wait);
  copy(x, copied);
  for (int variant : {1, 2, 3, 6}) {
    ASSERT_NO_FATAL_FAILURE(record(variant));
    write(other, std::vector<float>(105, 0));
    for (float value : {1.0f, 7.0f, 9.0f}) {
      write(x, std::vector<float>(105, value));
      ASSERT_NO_FATAL_FAILURE(run());
      EXPECT_EQ(read<float>(copied), std::vector<float>(105, value)) << "variant " << variant;
    }
    executable = nullptr;
    device = nullptr;
  }
}

TEST_P(Conformance, RefusesPlansThatItCannotRun) {
  for (const BadPlan &bad : GetParam().badPlans()) {
    b = PlanBuilder();
    b.plan.target = GetParam().target;
    bad.build(b);
    ASSERT_NO_FATAL_FAILURE(open());
    auto loaded = device->load(*plan);
    ASSERT_FALSE(loaded) << bad.message;
    EXPECT_NE(loaded.error().message.find(bad.message), std::string::npos)
        << loaded.error().message;
  }
}

TEST_P(Conformance, SaysWhatDoesNotFit) {
  b.plan.arenas[1]->bytes = 1ull << 50;
  ASSERT_NO_FATAL_FAILURE(open());
  auto loaded = device->load(*plan);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ExitCode::DoesNotFit);
  EXPECT_NE(loaded.error().message.find("workspace 1048576.00 GiB"), std::string::npos)
      << loaded.error().message;
}

TEST(OpenDevice, SaysWhatIsMissingForAGpu) {
  PlanBuilder b;
  b.plan.target = "cuda:sm_90a";
  auto plan = b.open();
  ASSERT_TRUE(plan);
  ::setenv("LMC_CUDA_DRIVER", "/no/libcuda.so.1", 1);
  auto device = openDevice(**plan, {.threads = 1});
  ::unsetenv("LMC_CUDA_DRIVER");
  ASSERT_FALSE(device);
  EXPECT_NE(device.error().message.find("--target=cpu"), std::string::npos)
      << device.error().message;
}

TEST_P(Conformance, CopiesStayInsideTheirSlice) {
  uint32_t x = b.slice(DType::F32, {4});
  b.slice(DType::F32, {4}, 1);
  ASSERT_NO_FATAL_FAILURE(open());
  char data[32] = {};
  EXPECT_FALSE(device->copyIn(int(x), data, 4)) << "nothing is loaded";
  EXPECT_FALSE(device->record(0)) << "nothing is loaded";
  ASSERT_TRUE(device->load(*plan));
  EXPECT_EQ(device->allocatedBytes(), 64u + 64u);
  EXPECT_TRUE(device->copyIn(int(x), data, 8, 8));
  EXPECT_FALSE(device->copyIn(int(x), data, 9, 8));
  EXPECT_FALSE(device->copyOut(int(x), data, 1, ~0ull));
  EXPECT_FALSE(device->copyOut(9, data, 1));
  EXPECT_FALSE(device->copyOut(-1, data, 1));
  EXPECT_FALSE(device->record(1));
  EXPECT_FALSE(device->record(-1));
}

// Copies and runs are executed in the order in which they are enqueued; a host buffer may be used
// again after a wait for a mark behind its copy.
TEST_P(Conformance, OrdersCopiesAndRuns) {
  uint32_t x = b.slice(DType::F32, {105}), d = b.slice(DType::F32, {105});
  uint32_t calls = b.slice(DType::I32, {11});
  auto launch = launchOf(kDoubleRows, {x, calls, d, calls}, 2);
  launch->items = 105;
  launch->chunk = 10;
  b.command(*launch);
  ASSERT_NO_FATAL_FAILURE(record());
  constexpr uint64_t kBytes = 105 * sizeof(float);
  auto in = device->hostBuffer(2 * kBytes), out = device->hostBuffer(3 * kBytes);
  ASSERT_TRUE(in && out);
  ASSERT_EQ((*in)->bytes(), 2 * kBytes);
  EXPECT_EQ(std::vector<char>((*in)->data(), (*in)->data() + 2 * kBytes),
            std::vector<char>(2 * kBytes))
      << "host buffers start as zeros";
  auto *values = reinterpret_cast<float *>((*in)->data());
  auto *results = reinterpret_cast<float *>((*out)->data());
  auto begin = device->makeMark(), end = device->makeMark();
  ASSERT_TRUE(begin && end);
  EXPECT_TRUE(device->wait(**begin)) << "it was never placed";
  auto place = [&](uint32_t slice) { return *rangeInSlice(&**plan, int(slice), kBytes, 0); };
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 210; ++i)
      values[i] = float(i + 1000 * round);
    ASSERT_TRUE(device->place(**begin));
    ASSERT_TRUE(device->upload(place(x), **in, 0));
    ASSERT_TRUE(device->submit(*executable));
    ASSERT_TRUE(device->download(place(d), **out, 0));
    ASSERT_TRUE(device->upload(place(x), **in, kBytes));
    ASSERT_TRUE(device->submit(*executable));
    ASSERT_TRUE(device->download(place(d), **out, kBytes));
    ASSERT_TRUE(device->download(place(x), **out, 2 * kBytes));
    ASSERT_TRUE(device->place(**end));
    ASSERT_TRUE(device->wait(**end));
    auto reached = device->reached(**end);
    ASSERT_TRUE(reached);
    EXPECT_TRUE(*reached);
    auto seconds = device->secondsBetween(**begin, **end);
    ASSERT_TRUE(seconds);
    EXPECT_GE(*seconds, 0);
    EXPECT_LT(*seconds, 60);
    for (int i = 0; i < 315; ++i)
      EXPECT_EQ(results[i], i < 210 ? 2 * float(i + 1000 * round) : float(i - 105 + 1000 * round));
  }
}

TEST_P(Conformance, HostBuffersAreCopiedInsideTheirBounds) {
  uint32_t x = b.slice(DType::F32, {4});
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_TRUE(device->load(*plan));
  auto buffer = device->hostBuffer(16);
  ASSERT_TRUE(buffer);
  const ArenaRange all = *rangeInSlice(&**plan, int(x), 16, 0);
  const uint64_t arena = (*plan)->arenas()->Get(0)->bytes();
  EXPECT_TRUE(device->upload(all, **buffer, 0));
  EXPECT_TRUE(device->synchronize());
  for (const auto &[range, offset] : std::vector<std::pair<ArenaRange, uint64_t>>{
           {all, 1}, {all, ~0ull}, {{0, arena - 8, 16}, 0}, {{0, ~0ull, 16}, 0}, {{7, 0, 16}, 0}}) {
    EXPECT_FALSE(device->upload(range, **buffer, offset));
    EXPECT_FALSE(device->download(range, **buffer, offset));
  }
  EXPECT_TRUE(device->synchronize()) << "a refused copy is not a failure of the device";
}

TEST_P(Conformance, LoadsOnePlanAndRunsItsOwnFunctions) {
  b.slice(DType::F32, {4});
  ASSERT_NO_FATAL_FAILURE(record());
  EXPECT_FALSE(device->load(*plan));
  std::unique_ptr<PlanFile> first = std::move(plan);
  std::unique_ptr<Device> owner = std::move(device);
  std::unique_ptr<Executable> executableOfFirst = std::move(executable);
  ASSERT_NO_FATAL_FAILURE(record());
  EXPECT_FALSE(device->submit(*executableOfFirst));
  EXPECT_TRUE(device->submit(*executable));
}

TEST_P(Conformance, MultipliesAndCopies) {
  uint32_t a = b.slice(DType::F32, {2, 3}), w = b.slice(DType::F32, {4, 3});
  uint32_t d = b.slice(DType::F32, {2, 4}), e = b.slice(DType::F32, {2, 4});
  plan::GemmT gemm;
  gemm.a = a;
  gemm.b = w;
  gemm.d = d;
  gemm.c = int(d);
  gemm.m = 2;
  gemm.n = 4;
  gemm.k = 3;
  gemm.transpose_b = true;
  b.command(gemm);
  plan::CopyT copy;
  copy.x = d;
  copy.d = e;
  b.command(copy);
  ASSERT_NO_FATAL_FAILURE(record(2));
  write(a, std::vector<float>{1, 2, 3, 4, 5, 6});
  write(w, std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1, 0.5, 0.5, 0.5});
  write(d, std::vector<float>(8, 10.0f));
  ASSERT_NO_FATAL_FAILURE(run());
  EXPECT_EQ(read<float>(e), (std::vector<float>{11, 12, 13, 13, 14, 15, 16, 17.5}));
}

// d of each product lies behind that of the one before.
TEST_P(Conformance, MultipliesStacks) {
  plan::GemmT gemm;
  gemm.a = b.slice(DType::F32, {4, 2});
  gemm.b = b.slice(DType::F32, {6, 2});
  gemm.d = b.slice(DType::F32, {4, 3});
  gemm.c = int(gemm.d);
  gemm.m = 2;
  gemm.n = 3;
  gemm.k = 2;
  gemm.batch = 2;
  gemm.transpose_b = true;
  b.command(gemm);
  ASSERT_NO_FATAL_FAILURE(record());
  write(gemm.a, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  write(gemm.b, std::vector<float>{1, 0, 0, 1, 1, 1, 2, 0, 0, 2, 2, 2});
  write(gemm.d, std::vector<float>(12, 100.0f));
  ASSERT_NO_FATAL_FAILURE(run());
  EXPECT_EQ(read<float>(gemm.d),
            (std::vector<float>{101, 102, 103, 103, 104, 107, 110, 112, 122, 114, 116, 130}));
}

// The bias is added before the result is rounded: 257 is no bf16, and 257 + 1 is.
TEST_P(Conformance, AddsBiases) {
  for (DType dtype : {DType::BF16, DType::F32, DType::F64}) {
    executable = nullptr;
    b = PlanBuilder();
    b.plan.target = GetParam().target;
    plan::GemmT gemm;
    gemm.a = b.slice(dtype, {2, 3});
    gemm.b = b.slice(dtype, {4, 3});
    gemm.d = b.slice(dtype, {2, 4});
    gemm.bias = int(b.slice(dtype, {4}));
    gemm.m = 2;
    gemm.n = 4;
    gemm.k = 3;
    gemm.transpose_b = true;
    b.command(gemm);
    ASSERT_NO_FATAL_FAILURE(record());
    writeFloats(dtype, gemm.a, {16, 1, 0, 1, 2, 3});
    writeFloats(dtype, gemm.b, {16, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0});
    writeFloats(dtype, uint32_t(gemm.bias), {1, 2, 3, 4});
    ASSERT_NO_FATAL_FAILURE(run());
    EXPECT_EQ(readFloats(dtype, gemm.d), (std::vector<double>{258, 2, 19, 5, 19, 5, 4, 6}))
        << plan::EnumNameDType(dtype);
  }
}

// The residual is added before the result is rounded, and keeps its values.
TEST_P(Conformance, AddsResiduals) {
  for (DType dtype : {DType::BF16, DType::F32, DType::F64})
    for (bool hasBias : {false, true}) {
      executable = nullptr;
      b = PlanBuilder();
      b.plan.target = GetParam().target;
      plan::GemmT gemm;
      gemm.a = b.slice(dtype, {2, 3});
      gemm.b = b.slice(dtype, {4, 3});
      gemm.d = b.slice(dtype, {2, 4});
      gemm.c = int(b.slice(dtype, {2, 4}));
      if (hasBias)
        gemm.bias = int(b.slice(dtype, {4}));
      gemm.m = 2;
      gemm.n = 4;
      gemm.k = 3;
      gemm.transpose_b = true;
      b.command(gemm);
      ASSERT_NO_FATAL_FAILURE(record());
      const std::vector<double> residual{1, 2, 3, 4, 5, 6, 7, 8};
      writeFloats(dtype, gemm.a, {16, 1, 0, 1, 2, 3});
      writeFloats(dtype, gemm.b, {16, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0});
      writeFloats(dtype, uint32_t(gemm.c), residual);
      writeFloats(dtype, gemm.d, std::vector<double>(8, 100));
      if (hasBias)
        writeFloats(dtype, uint32_t(gemm.bias), {2, 0, 0, -1});
      ASSERT_NO_FATAL_FAILURE(run());
      ASSERT_NO_FATAL_FAILURE(run()); // what d holds does not count
      EXPECT_EQ(readFloats(dtype, gemm.d), hasBias
                                               ? (std::vector<double>{260, 2, 19, 4, 25, 9, 8, 9})
                                               : (std::vector<double>{258, 2, 19, 5, 23, 9, 8, 10}))
          << plan::EnumNameDType(dtype);
      EXPECT_EQ(readFloats(dtype, uint32_t(gemm.c)), residual) << plan::EnumNameDType(dtype);
    }
}

// Both sides' rows may lie apart: columns 1 and 2 of a [3, 4] matrix go to columns 0 and 1.
TEST_P(Conformance, CopiesRows) {
  uint32_t x = b.slice(DType::F32, {3, 4}), d = b.slice(DType::F32, {3, 4});
  plan::CopyT copy;
  copy.x = b.columns(x, 1, 2);
  copy.d = b.columns(d, 0, 2);
  b.command(copy);
  ASSERT_NO_FATAL_FAILURE(record());
  std::vector<float> values(12);
  std::iota(values.begin(), values.end(), 0.0f);
  write(x, values);
  ASSERT_NO_FATAL_FAILURE(run());
  EXPECT_EQ(read<float>(d), (std::vector<float>{1, 2, 0, 0, 5, 6, 0, 0, 9, 10, 0, 0}));
}

// Two sequences of 8 tokens, 4 heads of 8 that share 2 key/value heads, a window of 5.
constexpr int64_t kTokens = 16, kSequence = 8, kHeads = 4, kKvHeads = 2, kHeadDim = 8, kWindow = 5;
constexpr double kScale = 0.25;

// One thread for each token and head.
static const KernelText kAttention = {"attention", "", R"(
extern "C" __global__ void __launch_bounds__(32)
attention(const float *q, const float *k, const float *v, float *out, float *lse) {
  const int at = blockIdx.x * 32 + threadIdx.x, token = at / 4, head = at % 4, i = token % 8;
  float scores[8], sum = 0;
  for (int j = 0; j <= i; ++j) {
    float score = 0;
    for (int c = 0; c < 8; ++c)
      score += loadOne(q + token * 32 + head * 8 + c) *
               loadOne(k + (token - i + j) * 16 + head / 2 * 8 + c);
    scores[j] = i - j < 5 ? expf(0.25f * score) : 0;
    sum += scores[j];
  }
  for (int c = 0; c < 8; ++c) {
    float mean = 0;
    for (int j = 0; j <= i; ++j)
      mean += scores[j] * loadOne(v + (token - i + j) * 16 + head / 2 * 8 + c);
    storeOne(out + token * 32 + head * 8 + c, mean / sum);
  }
  storeOne(lse + at, logf(sum));
}
)",
                                      2, 32};

TEST_P(Conformance, Attends) {
  plan::AttentionT op;
  op.q = b.slice(DType::F32, {kTokens, kHeads * kHeadDim});
  op.k = b.slice(DType::F32, {kTokens, kKvHeads * kHeadDim});
  op.v = b.slice(DType::F32, {kTokens, kKvHeads * kHeadDim});
  op.out = b.slice(DType::F32, {kTokens, kHeads * kHeadDim});
  op.lse = b.slice(DType::F32, {kTokens, kHeads});
  op.batch = kTokens / kSequence;
  op.seq = kSequence;
  op.heads = kHeads;
  op.kv_heads = kKvHeads;
  op.head_dim = kHeadDim;
  op.scale = kScale;
  op.window = kWindow;
  b.command(op);
  if (!GetParam().ownKernels)
    addLaunch(kAttention, {op.q, op.k, op.v, op.out, op.lse}, 3);
  ASSERT_NO_FATAL_FAILURE(record(2));
  auto wave = [](size_t count, double step) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = float(std::sin(step * double(i + 1)));
    return values;
  };
  const auto q = wave(kTokens * kHeads * kHeadDim, 0.7),
             k = wave(kTokens * kKvHeads * kHeadDim, 1.3),
             v = wave(kTokens * kKvHeads * kHeadDim, 2.1);
  write(op.q, q);
  write(op.k, k);
  write(op.v, v);
  ASSERT_NO_FATAL_FAILURE(run());
  const auto out = read<float>(op.out), lse = read<float>(op.lse);
  for (int64_t token = 0; token < kTokens; ++token)
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t i = token % kSequence, kvHead = head / (kHeads / kKvHeads);
      double sum = 0, mean[kHeadDim] = {};
      for (int64_t j = std::max<int64_t>(0, i - kWindow + 1); j <= i; ++j) {
        const int64_t row = ((token - i + j) * kKvHeads + kvHead) * kHeadDim;
        double score = 0;
        for (int64_t c = 0; c < kHeadDim; ++c)
          score += double(q[size_t((token * kHeads + head) * kHeadDim + c)]) * k[size_t(row + c)];
        const double weight = std::exp(kScale * score);
        sum += weight;
        for (int64_t c = 0; c < kHeadDim; ++c)
          mean[c] += weight * v[size_t(row + c)];
      }
      EXPECT_NEAR(lse[size_t(token * kHeads + head)], std::log(sum), 1e-5);
      for (int64_t c = 0; c < kHeadDim; ++c)
        EXPECT_NEAR(out[size_t((token * kHeads + head) * kHeadDim + c)], mean[c] / sum, 1e-5);
    }
}

// d[5, 3] = 0, a thread for each element.
static const KernelText kZero = {"zero", "", R"(
extern "C" __global__ void __launch_bounds__(32) zero(float *d) {
  if (threadIdx.x < 15)
    storeOne(d + threadIdx.x, 0.0f);
}
)",
                                 1, 32};

// d[ids[t], :] += x[t, :] for x[4, 3], a thread for each column.
static const KernelText kAddRows = {"addRows", "", R"(
extern "C" __global__ void __launch_bounds__(32) addRows(const int *ids, const float *x, float *d) {
  for (int t = 0; t < 4 && threadIdx.x < 3; ++t) {
    const unsigned id = loadOne(ids + t);
    if (id < 5)
      storeOne(d + id * 3 + threadIdx.x,
               loadOne(d + id * 3 + threadIdx.x) + loadOne(x + t * 3 + threadIdx.x));
  }
}
)",
                                    1, 32};

// The launches of a command run in order: first zeros, then sums. An id outside of the vocabulary
// adds nothing.
TEST_P(Conformance, AddsRows) {
  plan::ScatterAddT op;
  op.ids = b.slice(DType::I32, {4});
  op.x = b.slice(DType::F32, {4, 3});
  op.d = b.slice(DType::F32, {5, 3});
  op.rows = 4;
  op.columns = 3;
  op.vocabulary = 5;
  b.command(op);
  if (!GetParam().ownKernels) {
    b.plan.functions[0]->commands.back()->workspace = int(b.slice(DType::I8, {4 * 8}, 1));
    addLaunch(kZero, {op.d}, 0);
    addLaunch(kAddRows, {op.ids, op.x, op.d}, 2);
  }
  ASSERT_NO_FATAL_FAILURE(record(2));
  write(op.ids, std::vector<int32_t>{3, -1, 0, 3});
  write(op.x, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  write(op.d, std::vector<float>(15, 99.0f));
  ASSERT_NO_FATAL_FAILURE(run());
  EXPECT_EQ(read<float>(op.d),
            (std::vector<float>{7, 8, 9, 0, 0, 0, 0, 0, 0, 11, 13, 15, 0, 0, 0}));
}

// Six tokens choose two of four experts. Expert 2 is never among the best: it gets no choice.
TEST_P(Conformance, Routes) {
  constexpr int kRows = 6, kExperts = 4, kChosen = 2;
  struct Router {
    bool normalize, sigmoid;
    std::vector<float> bias;
    double scale;
  };
  const std::vector<float> kBias{-0.4f, 0.3f, 0, 0.1f};
  for (const Router &router : {Router{false, false, {}, 1}, Router{true, false, {}, 1},
                               Router{false, true, {}, 1}, Router{true, false, kBias, 0.5},
                               Router{true, true, kBias, 2.5}, Router{false, true, kBias, 2}}) {
    SCOPED_TRACE(testing::Message() << "normalize " << router.normalize << ", sigmoid "
                                    << router.sigmoid << ", bias " << !router.bias.empty());
    b = PlanBuilder();
    b.plan.target = GetParam().target;
    plan::RouteT route;
    route.logits = b.slice(DType::F32, {kRows, kExperts});
    route.weights = b.slice(DType::F32, {kRows, kChosen});
    route.experts = b.slice(DType::I32, {kRows, kChosen});
    route.counts = b.slice(DType::F32, {kExperts});
    route.mass = b.slice(DType::F32, {kExperts});
    plan::RouteGradT grad;
    grad.logits = route.logits;
    grad.experts = route.experts;
    grad.dweights = b.slice(DType::F32, {kRows, kChosen});
    grad.dlogits = b.slice(DType::F32, {kRows, kExperts});
    auto describe = [&](auto &op) {
      op.tokens = kRows;
      op.count = kExperts;
      op.chosen = kChosen;
      op.normalize = router.normalize;
      op.sigmoid = router.sigmoid;
      op.scale = router.scale;
    };
    describe(route);
    describe(grad);
    std::vector<uint32_t> args{route.logits}, gradArgs{grad.logits, grad.experts, grad.dweights};
    if (!router.bias.empty()) {
      route.bias = int(b.slice(DType::F32, {kExperts}));
      args.push_back(uint32_t(route.bias));
    }
    if (!router.sigmoid) {
      grad.dmass = int(b.slice(DType::F32, {kExperts}));
      gradArgs.push_back(uint32_t(grad.dmass));
    }
    const auto inputs = uint32_t(args.size()), gradInputs = uint32_t(gradArgs.size());
    args.insert(args.end(), {route.weights, route.experts, route.counts, route.mass});
    gradArgs.push_back(grad.dlogits);
    // The beginning of both kernels. It says what the router is, and defines how p becomes the
    // probabilities of token t, and whole their sum.
    const std::string body = std::string(" {\n") +
                             "constexpr bool normalize = " + (router.normalize ? "true" : "false") +
                             ", sigmoid = " + (router.sigmoid ? "true" : "false") +
                             ";\nconstexpr float scale = " + std::to_string(router.scale) + "f;" +
                             R"(
      auto load = [&](int t, float *p) {
        float whole = 0;
        for (int e = 0; e < 4; ++e) {
          const float x = expf(loadOne(logits + t * 4 + e));
          whole += p[e] = sigmoid ? x / (1 + x) : x;
        }
        for (int e = 0; e < 4; ++e)
          p[e] /= sigmoid ? 1 : whole;
        return sigmoid ? whole : 1;
      };
)";
    b.command(route);
    if (!GetParam().ownKernels)
      b.plan.functions[0]->commands.back()->workspace = int(b.slice(DType::I8, {kExperts * 8}, 1));
    addLoops("route_forward",
             std::string("(const float *logits, ") +
                 (router.bias.empty() ? "" : "const float *bias, ") +
                 "float *weights, int *experts, float *counts, float *mass)" + body +
                 (router.bias.empty() ? "const float *bias = nullptr;" : "") + R"(
      for (int e = 0; e < 4; ++e) {
        storeOne(counts + e, 0.0f);
        storeOne(mass + e, 0.0f);
      }
      for (int t = 0; t < 6; ++t) {
        float p[4], score[4];
        const float whole = load(t, p);
        for (int e = 0; e < 4; ++e) {
          score[e] = p[e] + (bias ? loadOne(bias + e) : 0.0f);
          storeOne(mass + e, loadOne(mass + e) + p[e] / whole);
        }
        int first = 0, second = -1;
        for (int e = 1; e < 4; ++e)
          first = score[e] > score[first] ? e : first;
        for (int e = 0; e < 4; ++e)
          second = e != first && (second < 0 || score[e] > score[second]) ? e : second;
        const float factor = scale / (normalize ? p[first] + p[second] : 1.0f);
        storeOne(experts + t * 2, first);
        storeOne(experts + t * 2 + 1, second);
        storeOne(weights + t * 2, factor * p[first]);
        storeOne(weights + t * 2 + 1, factor * p[second]);
        storeOne(counts + first, loadOne(counts + first) + 1);
        storeOne(counts + second, loadOne(counts + second) + 1);
      }
    })",
             args, inputs);
    b.command(grad);
    addLoops("route_grad",
             std::string("(const float *logits, const int *experts, const float *dweights, ") +
                 (router.sigmoid ? "" : "const float *dmass, ") + "float *dlogits)" + body +
                 (router.sigmoid ? "const float *dmass = nullptr;" : "") + R"(
      for (int t = 0; t < 6; ++t) {
        float p[4], dp[4], inner = 0;
        load(t, p);
        const int first = loadOne(experts + t * 2), second = loadOne(experts + t * 2 + 1);
        const float dfirst = scale * loadOne(dweights + t * 2);
        const float dsecond = scale * loadOne(dweights + t * 2 + 1);
        for (int e = 0; e < 4; ++e)
          dp[e] = dmass ? loadOne(dmass + e) : 0.0f;
        const float sum = normalize ? p[first] + p[second] : 1.0f;
        const float along = normalize ? (dfirst * p[first] + dsecond * p[second]) / sum : 0.0f;
        dp[first] += (dfirst - along) / sum;
        dp[second] += (dsecond - along) / sum;
        for (int e = 0; e < 4; ++e)
          inner += p[e] * dp[e];
        for (int e = 0; e < 4; ++e)
          storeOne(dlogits + t * 4 + e, p[e] * (sigmoid ? (1 - p[e]) * dp[e] : dp[e] - inner));
      }
    })",
             gradArgs, gradInputs);
    ASSERT_NO_FATAL_FAILURE(record(2));

    std::vector<float> logits, dweights, dmass{0.5f, -1, 2, 0.25f};
    for (int t = 0; t < kRows; ++t)
      for (int e = 0; e < kExperts; ++e)
        logits.push_back(e == 2 ? -3 : float(std::sin(1.7 * (t * kExperts + e))));
    for (int c = 0; c < kRows * kChosen; ++c)
      dweights.push_back(float(std::cos(0.9 * c)));
    write(route.logits, logits);
    write(grad.dweights, dweights);
    if (!router.bias.empty())
      write(uint32_t(route.bias), router.bias);
    if (!router.sigmoid)
      write(uint32_t(grad.dmass), dmass);
    else
      dmass.assign(kExperts, 0);
    ASSERT_NO_FATAL_FAILURE(run());

    // What the gradient is of: the sum of dweights * weights and dmass * mass, with the experts
    // that are chosen at `logits`.
    std::vector<int32_t> experts;
    auto probabilitiesOf = [&](const std::vector<double> &x, int t) {
      std::vector<double> p(kExperts);
      double total = 0;
      for (int e = 0; e < kExperts; ++e) {
        const double power = std::exp(x[size_t(t * kExperts + e)]);
        total += p[size_t(e)] = router.sigmoid ? power / (1 + power) : power;
      }
      for (double &each : p)
        each /= router.sigmoid ? 1 : total;
      return p;
    };
    auto weightsOf = [&](const std::vector<double> &p, int t) {
      const double x = p[size_t(experts[size_t(2 * t)])], y = p[size_t(experts[size_t(2 * t + 1)])];
      const double factor = router.scale / (router.normalize ? x + y : 1);
      return std::pair(x * factor, y * factor);
    };
    const std::vector<double> at(logits.begin(), logits.end());
    std::vector<float> counts(kExperts), mass(kExperts);
    const std::vector<float> weights = read<float>(route.weights);
    int biased = 0; // tokens whose experts are not those without the bias
    for (int t = 0; t < kRows; ++t) {
      const std::vector<double> p = probabilitiesOf(at, t);
      std::vector<double> score = p;
      for (size_t e = 0; e < router.bias.size(); ++e)
        score[e] += router.bias[e];
      auto orderBy = [](const std::vector<double> &values) {
        std::vector<int32_t> order{0, 1, 2, 3};
        std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
          return values[size_t(x)] > values[size_t(y)];
        });
        order.resize(kChosen);
        return order;
      };
      biased += orderBy(score) != orderBy(p);
      for (int32_t each : orderBy(score)) {
        experts.push_back(each);
        counts[size_t(each)] += 1;
      }
      const double whole = std::accumulate(p.begin(), p.end(), 0.0);
      for (size_t e = 0; e < kExperts; ++e)
        mass[e] += float(p[e] / whole);
      const auto [first, second] = weightsOf(p, t);
      EXPECT_NEAR(weights[size_t(2 * t)], first, 1e-5);
      EXPECT_NEAR(weights[size_t(2 * t + 1)], second, 1e-5);
    }
    EXPECT_EQ(biased > 0, !router.bias.empty()) << "a bias changes some choices";
    EXPECT_EQ(read<int32_t>(route.experts), experts);
    EXPECT_EQ(read<float>(route.counts), counts);
    EXPECT_EQ(counts[2], 0) << "the case has an expert without choices";
    const std::vector<float> foundMass = read<float>(route.mass);
    for (size_t e = 0; e < kExperts; ++e)
      EXPECT_NEAR(foundMass[e], mass[e], 1e-5);
    auto objective = [&](const std::vector<double> &x) {
      double sum = 0;
      for (int t = 0; t < kRows; ++t) {
        const std::vector<double> p = probabilitiesOf(x, t);
        const auto [first, second] = weightsOf(p, t);
        sum += dweights[size_t(2 * t)] * first + dweights[size_t(2 * t + 1)] * second;
        for (size_t e = 0; e < kExperts; ++e)
          sum += dmass[e] * p[e];
      }
      return sum;
    };
    const std::vector<float> dlogits = read<float>(grad.dlogits);
    for (size_t i = 0; i < dlogits.size(); ++i) {
      std::vector<double> up = at, down = at;
      up[i] += 1e-4;
      down[i] -= 1e-4;
      EXPECT_NEAR(dlogits[i], (objective(up) - objective(down)) / 2e-4, 1e-5) << i;
    }
    executable = nullptr;
    device = nullptr;
  }
}

// Six tokens of five columns, two choices each of four experts with three columns. All values are
// small whole numbers, so that sums are exact.
TEST_P(Conformance, MultipliesRowsByTheirExperts) {
  constexpr int kRows = 6, kChosen = 2, kChoices = kRows * kChosen, kExperts = 4;
  constexpr int kInner = 5, kColumns = 3;
  const std::vector<int32_t> drawn[] = {{3, 0, 0, 1, 3, 1, 1, 0, 3, 1, 0, 3},  // none on expert 2
                                        {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}}; // all on expert 2
  for (const std::vector<int32_t> &experts : drawn)
    for (bool accumulate : {false, true}) {
      b = PlanBuilder();
      b.plan.target = GetParam().target;
      auto matrix = [&](uint64_t rows, uint64_t columns) {
        return b.slice(DType::F32, {rows, columns});
      };
      plan::SortRowsT sort;
      sort.experts = b.slice(DType::I32, {kChoices});
      sort.offsets = b.slice(DType::I32, {kExperts + 1});
      sort.rows = b.slice(DType::I32, {kChoices});
      sort.places = b.slice(DType::I32, {kChoices});
      sort.choices = kChoices;
      sort.count = kExperts;
      b.command(sort);
      if (!GetParam().ownKernels)
        b.plan.functions[0]->commands.back()->workspace =
            int(b.slice(DType::I8, {kExperts * 4}, 1));
      addLoops("sort_rows", R"((const int *experts, int *offsets, int *rows, int *places) {
        int row = 0;
        for (int e = 0; e < 4; ++e) {
          storeOne(offsets + e, row);
          for (int c = 0; c < 12; ++c)
            if (loadOne(experts + c) == e) {
              storeOne(rows + row, c);
              storeOne(places + c, row++);
            }
        }
        storeOne(offsets + 4, row);
      })",
               {sort.experts, sort.offsets, sort.rows, sort.places}, 1);
      auto sized = [](auto op, uint64_t columns) {
        op.tokens = kRows;
        op.chosen = kChosen;
        op.columns = columns;
        return op;
      };
      auto take = sized(plan::TakeRowsT(), kInner);
      take.x = matrix(kRows, kInner);
      take.rows = sort.rows;
      take.y = matrix(kChoices, kInner);
      b.command(take);
      addLoops("take_rows_forward", R"((const float *x, const int *rows, float *y) {
        for (int r = 0; r < 12; ++r)
          for (int i = 0; i < 5; ++i)
            storeOne(y + r * 5 + i, loadOne(x + loadOne(rows + r) / 2 * 5 + i));
      })",
               {take.x, take.rows, take.y}, 2);
      auto expert = [](auto op) {
        op.rows = kChoices;
        op.experts = kExperts;
        op.inner = kInner;
        op.columns = kColumns;
        return op;
      };
      auto linear = expert(plan::ExpertLinearT());
      linear.x = take.y;
      linear.weight = matrix(kExperts * kColumns, kInner);
      linear.offsets = sort.offsets;
      linear.y = matrix(kChoices, kColumns);
      b.command(linear);
      // Devices take one of the two ways: the next command the other one.
      for (const char *name : {"expert_linear_forward", "expert_linear_other_way"})
        addLoops(name,
                 R"((const float *x, const float *weight, const int *offsets, float *y) {
        for (int e = 0; e < 4; ++e)
          for (int r = loadOne(offsets + e); r < loadOne(offsets + e + 1); ++r)
            for (int i = 0; i < 3; ++i) {
              float sum = 0;
              for (int j = 0; j < 5; ++j)
                sum += loadOne(x + r * 5 + j) * loadOne(weight + (e * 3 + i) * 5 + j);
              storeOne(y + r * 3 + i, sum);
            }
      })",
                 {linear.x, linear.weight, linear.offsets, linear.y}, 3);
      auto combine = sized(plan::CombineRowsT(), kColumns);
      combine.y = linear.y;
      combine.weights = matrix(kRows, kChosen);
      combine.places = sort.places;
      combine.out = matrix(kRows, kColumns);
      b.command(combine);
      addLoops("combine_rows_forward",
               R"((const float *y, const float *weights, const int *places, float *out) {
        for (int t = 0; t < 6; ++t)
          for (int i = 0; i < 3; ++i)
            storeOne(out + t * 3 + i,
                     loadOne(weights + 2 * t) * loadOne(y + loadOne(places + 2 * t) * 3 + i) +
                         loadOne(weights + 2 * t + 1) *
                             loadOne(y + loadOne(places + 2 * t + 1) * 3 + i));
      })",
               {combine.y, combine.weights, combine.places, combine.out}, 3);
      auto combineGrad = sized(plan::CombineRowsGradT(), kColumns);
      combineGrad.dout = matrix(kRows, kColumns);
      combineGrad.y = linear.y;
      combineGrad.weights = combine.weights;
      combineGrad.rows = sort.rows;
      combineGrad.places = int(sort.places);
      combineGrad.dy = matrix(kChoices, kColumns);
      combineGrad.dweights = matrix(kRows, kChosen);
      b.command(combineGrad);
      addLoops(
          "combine_rows_grad",
          R"((const float *dout, const float *y, const float *weights, const int *rows,
                   const int *places, float *dy, float *dweights) {
        for (int r = 0; r < 12; ++r) {
          const int c = loadOne(rows + r);
          float sum = 0;
          for (int i = 0; i < 3; ++i) {
            const float d = loadOne(dout + c / 2 * 3 + i);
            sum += d * loadOne(y + r * 3 + i);
            storeOne(dy + r * 3 + i, loadOne(weights + c) * d);
          }
          storeOne(dweights + c, sum);
        }
      })",
          {combineGrad.dout, combineGrad.y, combineGrad.weights, combineGrad.rows, sort.places,
           combineGrad.dy, combineGrad.dweights},
          5);
      // The gradient of the rows: dy w_e, which has 5 columns and sums over 3.
      auto back = expert(plan::ExpertLinearT());
      std::swap(back.inner, back.columns);
      back.transposed = true;
      back.x = combineGrad.dy;
      back.weight = linear.weight;
      back.offsets = sort.offsets;
      back.y = matrix(kChoices, kInner);
      b.command(back);
      for (const char *name : {"expert_linear_back", "expert_linear_of_other_kind"})
        addLoops(name,
                 R"((const float *x, const float *weight, const int *offsets, float *y) {
        for (int e = 0; e < 4; ++e)
          for (int r = loadOne(offsets + e); r < loadOne(offsets + e + 1); ++r)
            for (int j = 0; j < 5; ++j) {
              float sum = 0;
              for (int i = 0; i < 3; ++i)
                sum += loadOne(x + r * 3 + i) * loadOne(weight + (e * 3 + i) * 5 + j);
              storeOne(y + r * 5 + j, sum);
            }
      })",
                 {back.x, back.weight, back.offsets, back.y}, 3);
      auto grad = expert(plan::ExpertLinearGradT());
      grad.dy = combineGrad.dy;
      grad.x = take.y;
      grad.offsets = sort.offsets;
      grad.d = matrix(kExperts * kColumns, kInner);
      grad.accumulate = accumulate;
      b.command(grad);
      addLoops("expert_linear_grad",
               R"((const float *dy, const float *x, const int *offsets, float *d) {
        for (int e = 0; e < 4; ++e)
          for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 5; ++j) {
              float *to = d + (e * 3 + i) * 5 + j;
              float sum = )" +
                   std::string(accumulate ? "loadOne(to)" : "0.0f") + R"(;
              for (int r = loadOne(offsets + e); r < loadOne(offsets + e + 1); ++r)
                sum += loadOne(dy + r * 3 + i) * loadOne(x + r * 5 + j);
              storeOne(to, sum);
            }
      })",
               {grad.dy, grad.x, grad.offsets, grad.d}, 3);
      auto takeGrad = sized(plan::TakeRowsGradT(), kInner);
      takeGrad.dy = back.y;
      takeGrad.places = sort.places;
      takeGrad.dx = matrix(kRows, kInner);
      b.command(takeGrad);
      addLoops("take_rows_grad", R"((const float *dy, const int *places, float *dx) {
        for (int t = 0; t < 6; ++t)
          for (int j = 0; j < 5; ++j)
            storeOne(dx + t * 5 + j, loadOne(dy + loadOne(places + 2 * t) * 5 + j) +
                                         loadOne(dy + loadOne(places + 2 * t + 1) * 5 + j));
      })",
               {takeGrad.dy, takeGrad.places, takeGrad.dx}, 2);
      ASSERT_NO_FATAL_FAILURE(record(2));

      auto values = [](int count, int factor) {
        std::vector<float> numbers;
        for (int i = 0; i < count; ++i)
          numbers.push_back(float(i * factor % 7 - 3));
        return numbers;
      };
      const std::vector<float> x = values(kRows * kInner, 2), weights = values(kChoices, 5),
                               weight = values(kExperts * kColumns * kInner, 3),
                               dout = values(kRows * kColumns, 4),
                               before = values(kExperts * kColumns * kInner, 6);
      write(sort.experts, experts);
      write(take.x, x);
      write(linear.weight, weight);
      write(combine.weights, weights);
      write(combineGrad.dout, dout);
      write(grad.d, before);
      ASSERT_NO_FATAL_FAILURE(run());

      // The same choice by choice, without any order of rows.
      std::vector<float> out(kRows * kColumns), dx(kRows * kInner), dweights(kChoices),
          dweight(before.size());
      if (accumulate)
        dweight = before;
      for (int c = 0; c < kChoices; ++c)
        for (int i = 0; i < kColumns; ++i) {
          const size_t t = size_t(c / kChosen), w = size_t(experts[size_t(c)] * kColumns + i);
          const float d = dout[t * kColumns + size_t(i)];
          float sum = 0;
          for (size_t j = 0; j < kInner; ++j) {
            sum += x[t * kInner + j] * weight[w * kInner + j];
            dx[t * kInner + j] += weights[size_t(c)] * d * weight[w * kInner + j];
            dweight[w * kInner + j] += weights[size_t(c)] * d * x[t * kInner + j];
          }
          out[t * kColumns + size_t(i)] += weights[size_t(c)] * sum;
          dweights[size_t(c)] += d * sum;
        }
      std::vector<int32_t> order(kChoices), offsets{0};
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t one, int32_t other) {
        return experts[size_t(one)] < experts[size_t(other)];
      });
      for (int e = 0; e < kExperts; ++e)
        offsets.push_back(offsets.back() + int32_t(std::count(experts.begin(), experts.end(), e)));
      EXPECT_EQ(read<int32_t>(sort.rows), order);
      EXPECT_EQ(read<int32_t>(sort.offsets), offsets);
      EXPECT_EQ(read<float>(combine.out), out);
      EXPECT_EQ(read<float>(combineGrad.dweights), dweights);
      EXPECT_EQ(read<float>(takeGrad.dx), dx);
      EXPECT_EQ(read<float>(grad.d), dweight);
      executable = nullptr;
      device = nullptr;
    }
}

// Four of six rows are of an expert. The others hold NaN, and what is computed of them stays as it
// is.
TEST_P(Conformance, ComputesSwigluOfTheRowsOfExperts) {
  constexpr size_t kRows = 6, kOwn = 4, kColumns = 5;
  plan::ExpertSwigluT forward;
  forward.x = b.slice(DType::F32, {kRows, 2 * kColumns});
  forward.offsets = b.slice(DType::I32, {3});
  forward.y = b.slice(DType::F32, {kRows, kColumns});
  forward.rows = kRows;
  forward.experts = 2;
  forward.columns = kColumns;
  b.command(forward);
  addLoops("expert_swiglu_forward", R"((const float *x, const int *offsets, float *y) {
    for (int r = 0; r < loadOne(offsets + 2); ++r)
      for (int i = 0; i < 5; ++i) {
        const float g = loadOne(x + r * 10 + i);
        storeOne(y + r * 5 + i, g / (1 + expf(-g)) * loadOne(x + r * 10 + 5 + i));
      }
  })",
           {forward.x, forward.offsets, forward.y}, 2);
  plan::ExpertSwigluGradT grad;
  grad.dy = b.slice(DType::F32, {kRows, kColumns});
  grad.x = forward.x;
  grad.offsets = forward.offsets;
  grad.dx = b.slice(DType::F32, {kRows, 2 * kColumns});
  grad.rows = kRows;
  grad.experts = 2;
  grad.columns = kColumns;
  b.command(grad);
  addLoops("expert_swiglu_grad",
           R"((const float *dy, const float *x, const int *offsets, float *dx) {
    for (int r = 0; r < loadOne(offsets + 2); ++r)
      for (int i = 0; i < 5; ++i) {
        const float g = loadOne(x + r * 10 + i), d = loadOne(dy + r * 5 + i);
        const float s = 1 / (1 + expf(-g));
        storeOne(dx + r * 10 + i, d * loadOne(x + r * 10 + 5 + i) * s * (1 + g * (1 - s)));
        storeOne(dx + r * 10 + 5 + i, d * g * s);
      }
  })",
           {grad.dy, grad.x, grad.offsets, grad.dx}, 3);
  ASSERT_NO_FATAL_FAILURE(record(2));

  std::vector<float> x(kRows * 2 * kColumns, NAN), dy(kRows * kColumns, NAN);
  for (size_t i = 0; i < kOwn * 2 * kColumns; ++i)
    x[i] = float(i * 5 % 13) / 2 - 3;
  for (size_t i = 0; i < kOwn * kColumns; ++i)
    dy[i] = float(i * 4 % 7) - 3;
  write(forward.x, x);
  write(forward.offsets, std::vector<int32_t>{0, 1, int32_t(kOwn)});
  write(forward.y, std::vector<float>(dy.size(), 7));
  write(grad.dy, dy);
  write(grad.dx, std::vector<float>(x.size(), 8));
  ASSERT_NO_FATAL_FAILURE(run());

  auto swiglu = [](double gate, double up) { return gate / (1 + std::exp(-gate)) * up; };
  const std::vector<float> y = read<float>(forward.y), dx = read<float>(grad.dx);
  for (size_t r = 0; r < kRows; ++r)
    for (size_t i = 0; i < kColumns; ++i) {
      const size_t gateAt = r * 2 * kColumns + i, upAt = gateAt + kColumns, at = r * kColumns + i;
      if (r >= kOwn) {
        EXPECT_EQ(y[at], 7);
        EXPECT_EQ(dx[gateAt], 8);
        EXPECT_EQ(dx[upAt], 8);
        continue;
      }
      const double gate = x[gateAt], up = x[upAt], step = 1e-4;
      EXPECT_NEAR(y[at], swiglu(gate, up), 1e-5);
      EXPECT_NEAR(dx[gateAt],
                  dy[at] * (swiglu(gate + step, up) - swiglu(gate - step, up)) / (2 * step), 1e-5);
      EXPECT_NEAR(dx[upAt], dy[at] * swiglu(gate, 1), 1e-5);
    }
}

// Each way to compute the commands: by a product and a kernel behind it, and by one kernel. Where
// `both` is not set, one of the results is scratch memory.
TEST_P(Conformance, ComputesProductsWithSwiglu) {
  constexpr size_t kRows = 3, kInner = 4, kColumns = 5;
  const char *const kForwardRows = R"((const float *gu, float *a) {
    for (int i = 0; i < 15; ++i) {
      const float g = loadOne(gu + i / 5 * 10 + i % 5);
      storeOne(a + i, g / (1 + expf(-g)) * loadOne(gu + i / 5 * 10 + 5 + i % 5));
    }
  })";
  const char *const kForwardWhole = R"((const float *x, const float *w, float *gu, float *a) {
    for (int i = 0; i < 15; ++i) {
      float both[2] = {0, 0};
      for (int half = 0; half < 2; ++half) {
        for (int k = 0; k < 4; ++k)
          both[half] += loadOne(x + i / 5 * 4 + k) * loadOne(w + (half * 5 + i % 5) * 4 + k);
        storeOne(gu + i / 5 * 10 + half * 5 + i % 5, both[half]);
      }
      storeOne(a + i, both[0] / (1 + expf(-both[0])) * both[1]);
    }
  })";
  const char *const kGradientRows = R"((const float *gu, float *dgu, float *d) {
    for (int i = 0; i < 15; ++i) {
      const int gate = i / 5 * 10 + i % 5;
      const float g = loadOne(gu + gate), u = loadOne(gu + gate + 5), s = 1 / (1 + expf(-g));
      const float gradient = loadOne(d + i);
      storeOne(dgu + gate, gradient * u * s * (1 + g * (1 - s)));
      storeOne(dgu + gate + 5, gradient * g * s);
      storeOne(d + i, g * s * u);
    }
  })";
  const char *const kGradientWhole =
      R"((const float *dy, const float *w, const float *gu, float *dgu, float *a) {
    for (int i = 0; i < 15; ++i) {
      const int gate = i / 5 * 10 + i % 5;
      const float g = loadOne(gu + gate), u = loadOne(gu + gate + 5), s = 1 / (1 + expf(-g));
      float gradient = 0;
      for (int k = 0; k < 4; ++k)
        gradient += loadOne(dy + i / 5 * 4 + k) * loadOne(w + k * 5 + i % 5);
      storeOne(dgu + gate, gradient * u * s * (1 + g * (1 - s)));
      storeOne(dgu + gate + 5, gradient * g * s);
      storeOne(a + i, g * s * u);
    }
  })";
  auto matrix = [&](size_t rows, size_t columns) {
    return b.slice(DType::F32, {uint64_t(rows), uint64_t(columns)});
  };
  auto productOf = [&](uint32_t left, uint32_t weight, uint32_t result, size_t columns) {
    auto product = std::make_unique<plan::GemmT>();
    product->a = left;
    product->b = weight;
    product->d = result;
    product->m = kRows;
    product->n = columns;
    product->k = kInner;
    return product;
  };
  const uint32_t x = matrix(kRows, kInner), w = matrix(2 * kColumns, kInner);
  const uint32_t dy = matrix(kRows, kInner), down = matrix(kInner, kColumns);
  // With `both` first, then without; each twice, as devices take turns.
  std::vector<uint32_t> gu, a, dgu, again;
  for (int i = 0; i < 4; ++i) {
    gu.push_back(matrix(kRows, 2 * kColumns));
    a.push_back(matrix(kRows, kColumns));
    plan::LinearSwigluT forward;
    forward.product = productOf(x, w, gu.back(), 2 * kColumns);
    forward.product->transpose_b = true;
    forward.a = a.back();
    forward.both = i < 2;
    b.command(forward);
    addLoops(fmt::format("forward_rows{}", i), kForwardRows, {gu.back(), a.back()}, 1);
    addLoops(fmt::format("forward_whole{}", i), kForwardWhole, {x, w, gu.back(), a.back()}, 2);
    dgu.push_back(matrix(kRows, 2 * kColumns));
    again.push_back(matrix(kRows, kColumns));
  }
  for (int i = 0; i < 4; ++i) {
    plan::SwigluLinearGradT grad;
    grad.product = productOf(dy, down, again[size_t(i)], kColumns);
    grad.dgu = dgu[size_t(i)];
    grad.both = i < 2;
    b.command(grad);
    addLoops(fmt::format("gradient_rows{}", i), kGradientRows,
             {grad.dgu, grad.dgu, again[size_t(i)]}, 1);
    addLoops(fmt::format("gradient_whole{}", i), kGradientWhole,
             {dy, down, grad.dgu, grad.dgu, again[size_t(i)]}, 3);
  }
  ASSERT_NO_FATAL_FAILURE(record(2));

  auto values = [](size_t count, int factor) {
    std::vector<float> numbers;
    for (size_t i = 0; i < count; ++i)
      numbers.push_back(float(int(i) * factor % 7 - 3) / 4);
    return numbers;
  };
  const std::vector<float> left = values(kRows * kInner, 2),
                           weight = values(2 * kColumns * kInner, 3),
                           dout = values(kRows * kInner, 4), second = values(kInner * kColumns, 5),
                           halves = values(kRows * 2 * kColumns, 6);
  write(x, left);
  write(w, weight);
  write(dy, dout);
  write(down, second);
  for (uint32_t each : dgu)
    write(each, halves);
  ASSERT_NO_FATAL_FAILURE(run());
  auto silu = [](double gate) { return gate / (1 + std::exp(-gate)); };
  for (size_t r = 0; r < kRows; ++r)
    for (size_t c = 0; c < kColumns; ++c) {
      double both[2] = {0, 0}, gradient = 0;
      for (size_t k = 0; k < kInner; ++k) {
        for (size_t half = 0; half < 2; ++half)
          both[half] += left[r * kInner + k] * weight[(half * kColumns + c) * kInner + k];
        gradient += dout[r * kInner + k] * second[k * kColumns + c];
      }
      const size_t at = r * kColumns + c, gateAt = r * 2 * kColumns + c, upAt = gateAt + kColumns;
      const double gate = halves[gateAt], up = halves[upAt], step = 1e-4;
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(read<float>(a[i])[at], silu(both[0]) * both[1], 1e-5);
        EXPECT_NEAR(read<float>(dgu[i])[gateAt],
                    gradient * up * (silu(gate + step) - silu(gate - step)) / (2 * step), 1e-5);
        EXPECT_NEAR(read<float>(dgu[i])[upAt], gradient * silu(gate), 1e-5);
        if (i >= 2)
          continue;
        EXPECT_NEAR(read<float>(gu[i])[gateAt], both[0], 1e-5);
        EXPECT_NEAR(read<float>(gu[i])[upAt], both[1], 1e-5);
        EXPECT_NEAR(read<float>(again[i])[at], silu(gate) * up, 1e-5);
      }
    }
}

TEST_P(Conformance, KnowsItself) {
  ASSERT_NO_FATAL_FAILURE(open(2));
  DeviceInfo info = device->info(DType::F32);
  EXPECT_FALSE(info.name.empty());
  EXPECT_GT(info.memoryBytes, 1u << 20);
}

TEST_P(Conformance, KnowsItsSpeed) {
  if (GetParam().noSpeed)
    GTEST_SKIP() << GetParam().noSpeed;
  ASSERT_NO_FATAL_FAILURE(open(2));
  DeviceInfo single = device->info(DType::F32), twice = device->info(DType::F64);
  EXPECT_EQ(single.threads, 2);
  EXPECT_FALSE(single.peakSource.empty());
#if defined(__x86_64__)
  EXPECT_GT(single.peakFlops, 2 * 8 * 5e8);
#endif
  EXPECT_LE(twice.peakFlops, single.peakFlops);
}
