#include "test/simt/SimtKernel.h"
#include "ground/support/File.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <atomic>
#include <cstdio>
#include <dlfcn.h>
#include <thread>
#include <unistd.h>

namespace lmc::simt {
namespace {

const char *const kFlags =
    "-std=c++20 -O1 -g1 -fPIC -shared -w -fno-exceptions -fno-rtti -fno-strict-aliasing "
    // Multiplications and additions are not fused, so that rounding is as the source says. A
    // variable that is read before it is set holds a fixed pattern instead of a random value.
    "-ffp-contract=off -ftrivial-auto-var-init=pattern "
    LMC_FAST_LINKER " "
#ifdef __SANITIZE_ADDRESS__
    "-fsanitize=address -fno-omit-frame-pointer "
#endif
    ;

// Returns the text of a kernel, followed by the symbols that the executor looks up. The lines of
// the kernel keep their numbers.
std::string hostText(const Source &source) {
  return source.text + fmt::format("\nextern \"C\" {{\n"
                                   "lmc::simt::Machine *lmcMachine;\n"
                                   "extern const int lmcKernelParameters = lmcParameters({0});\n"
                                   "void lmcKernelEntry(void *const *args) {{ lmcCall({0}, args); }}\n"
                                   "}}\n",
                                   source.name);
}

std::string contentsOf(const std::string &folder) {
  std::string all;
  if (auto names = listFolder(folder))
    for (const std::string &name : *names)
      if (auto text = readTextFile(folder + "/" + name, 1 << 22))
        all += name + "\n" + *text;
  return all;
}

// Returns a hash of everything except the kernel's text that an object depends on: headers,
// compiler flags, the compiler.
const std::string &commonHash() {
  static const std::string hash = [] {
    std::string all = kFlags;
    all += LMC_SIMT_COMPILER " " LMC_SIMT_COMPILER_VERSION;
    for (const char *folder : {LMC_SOURCE_DIR "/test/simt/shim", LMC_SOURCE_DIR "/test/simt/shim/lmc",
                               LMC_SOURCE_DIR "/compiler/targets/cuda/device"})
      all += contentsOf(folder);
    return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
  }();
  return hash;
}

std::string objectPath(const std::string &text) {
  const std::string all = commonHash() + text;
  XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return fmt::format(LMC_SIMT_FOLDER "/{:016x}{:016x}.so", hash.high64, hash.low64);
}

// Compiles `text` to the file `object`. Returns "" or the compiler's messages. Files are written
// under unique names and then renamed, because another process may build the same object at the
// same time.
std::string buildObject(const std::string &text, const std::string &object) {
  const std::string source = object.substr(0, object.size() - 3) + ".cu";
  const std::string mine = fmt::format("{}.{}.{}", object, getpid(),
                                       std::hash<std::thread::id>()(std::this_thread::get_id()));
  if (auto written = writeTextFile(mine + ".cu", text); !written)
    return written.error().message;
  std::rename((mine + ".cu").c_str(), source.c_str());
  const std::string command =
      fmt::format("{} {} -include CudaOnHost.h -I {} -I {}/include -x c++ {} -o {} 2>&1",
                  LMC_SIMT_COMPILER, kFlags, LMC_SOURCE_DIR "/test/simt/shim", LMC_SIMT_FOLDER,
                  source, mine);
  FILE *pipe = popen(command.c_str(), "r");
  if (!pipe)
    return "cannot start " LMC_SIMT_COMPILER;
  std::string messages;
  char buffer[4096];
  while (size_t read = fread(buffer, 1, sizeof(buffer), pipe))
    messages.append(buffer, read);
  if (pclose(pipe) != 0)
    return messages.empty() ? "the compiler failed" : messages;
  std::rename(mine.c_str(), object.c_str());
  return "";
}

Result<Kernel> loadObject(const Source &source, const std::string &object) {
  void *library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return userError("{}: {}", source.name, dlerror());
  *static_cast<Machine **>(dlsym(library, "lmcMachine")) = machine();
  Kernel kernel;
  kernel.name = source.name;
  kernel.parameters = *static_cast<const int *>(dlsym(library, "lmcKernelParameters"));
  kernel.launch.entry =
      reinterpret_cast<void (*)(void *const *)>(dlsym(library, "lmcKernelEntry"));
  kernel.launch.grid = source.grid;
  kernel.launch.threads = source.threads;
  kernel.launch.sharedBytes = source.sharedBytes;
  return kernel;
}

bool isWritten(const Argument &argument) { return argument.access != Access::Read; }

bool overlap(const Argument &a, const Argument &b) {
  auto *p = static_cast<const char *>(a.data), *q = static_cast<const char *>(b.data);
  return p < q + b.extent() && q < p + a.extent();
}

// Returns the contents of all written arguments.
std::vector<std::string> contents(const std::vector<Argument> &arguments) {
  std::vector<std::string> all;
  for (const Argument &argument : arguments)
    all.push_back(isWritten(argument) ? Memory::bytesOf(argument) : "");
  return all;
}

void restore(const std::vector<Argument> &arguments, const std::vector<std::string> &bytes) {
  for (size_t i = 0; i < arguments.size(); ++i)
    if (isWritten(arguments[i]))
      Memory::setBytes(arguments[i], bytes[i]);
}

std::string difference(const std::vector<std::string> &a, const std::vector<std::string> &b) {
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t byte = 0; byte < a[i].size(); ++byte)
      if (a[i][byte] != b[i][byte])
        return fmt::format("argument {} at byte {} of {}", i, byte, a[i].size());
  return "";
}

} // namespace

std::vector<Result<Kernel>> compile(std::span<const Source> sources) {
  std::vector<std::string> texts, objects, messages(sources.size());
  for (const Source &source : sources) {
    texts.push_back(hostText(source));
    objects.push_back(objectPath(texts.back()));
  }
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < sources.size();)
      if (!exists(objects[i]))
        messages[i] = buildObject(texts[i], objects[i]);
  };
  std::vector<std::thread> workers(
      std::min<size_t>(sources.size(), std::thread::hardware_concurrency()));
  for (std::thread &worker : workers)
    worker = std::thread(work);
  for (std::thread &worker : workers)
    worker.join();
  std::vector<Result<Kernel>> kernels;
  for (size_t i = 0; i < sources.size(); ++i)
    if (messages[i].empty())
      kernels.push_back(loadObject(sources[i], objects[i]));
    else
      kernels.push_back(userError("{}: {}", sources[i].name, messages[i]));
  return kernels;
}

Result<Kernel> compile(const Source &source) { return compile(std::span(&source, 1)).front(); }

RunResult run(const Kernel &kernel, const std::vector<Argument> &arguments, const Order &order,
              bool count) {
  if (size_t(kernel.parameters) != arguments.size())
    return {fmt::format("{}: it takes {} arguments, and {} are given", kernel.name,
                        kernel.parameters, arguments.size()),
            {},
            false};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument &a = arguments[i];
    bool alone = true;
    for (size_t j = 0; j < arguments.size(); ++j)
      alone &= i == j || !overlap(a, arguments[j]);
    if (a.access != Access::Write || !alone)
      continue;
    std::string garbage(a.bytes, 0);
    fillGarbage(garbage.data(), garbage.size(), order.garbage, uint64_t(i + 1) << 48);
    Memory::setBytes(a, garbage);
  }
  Memory memory(arguments, count);
  LaunchResult result = execute(kernel.launch, memory, order);
  if (!result.failure.empty())
    result.failure = kernel.name + ": " + result.failure;
  return {result.failure, memory.traffic(), result.atomics};
}

namespace {

struct Factor {
  void (*vary)(Order &order, const Order &other);
  const char *meaning;
};

// The possible causes of different results, tested in this order. A mistake that shows with an
// early cause may also show with a later one, so the likeliest cause comes first.
const Factor kFactors[] = {
    {[](Order &order, const Order &other) { order.threads = other.threads; },
     "the order in which threads of a block run: a barrier is missing, or threads add in no fixed "
     "order"},
    {[](Order &order, const Order &other) { order.blocks = other.blocks; },
     "the order in which blocks run: they add to one place in no fixed order"},
    {[](Order &order, const Order &) { order.lateCopies = !order.lateCopies; },
     "when asynchronous copies arrive: a copyAsyncWait is missing"},
    {[](Order &order, const Order &other) { order.garbage = other.garbage; },
     "what memory held before: shared memory, or a result, is read before it is written"},
};

// Returns the meaning of the factor whose change alone makes the results differ from `expected`,
// the results with order `base`.
std::string cause(const Kernel &kernel, const std::vector<Argument> &arguments,
                  const std::vector<std::string> &before, const std::vector<std::string> &expected,
                  const Order &base, uint64_t seed) {
  for (const Factor &factor : kFactors)
    for (uint64_t attempt = 1; attempt <= 4; ++attempt) {
      Order order = base;
      factor.vary(order, Order::of(seed + 100 + attempt));
      restore(arguments, before);
      RunResult again = run(kernel, arguments, order);
      if (!again.failure.empty() || !difference(expected, contents(arguments)).empty())
        return factor.meaning;
    }
  return "several of: the order of threads, of blocks, and what memory held before";
}

} // namespace

RunResult runTwice(const Kernel &kernel, const std::vector<Argument> &arguments, uint64_t seed,
                   bool count) {
  const Order first = Order::of(2 * seed), second = Order::of(2 * seed + 1);
  const std::vector<std::string> before = contents(arguments);
  RunResult result = run(kernel, arguments, first, count);
  if (!result.failure.empty())
    return result;
  const std::vector<std::string> expected = contents(arguments);
  restore(arguments, before);
  RunResult again = run(kernel, arguments, second);
  const std::string where = difference(expected, contents(arguments));
  if (!again.failure.empty())
    result.failure = again.failure;
  else if (!where.empty())
    result.failure = fmt::format(
        "{}: two runs give different results ({}); they depend on {}{}", kernel.name, where,
        cause(kernel, arguments, before, expected, first, seed),
        result.atomics ? " (it uses atomic operations)" : "");
  restore(arguments, expected);
  return result;
}

} // namespace lmc::simt
