#include "test/simt/SimtKernel.h"
#include "ground/support/File.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <sys/file.h>
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

std::string contentsOf(const std::string &folder) {
  std::string all;
  if (auto names = listFolder(folder))
    for (const std::string &name : *names)
      if (auto text = readTextFile(folder + "/" + name, 1 << 22))
        all += name + "\n" + *text;
  return all;
}

// What follows the text of a kernel: the symbols that the executor looks up, and the end of the
// kernel's namespace. {0} is the hash of the kernel's object, and {1} is the kernel's name.
const char *const kSymbols = "extern \"C\" {{\n"
                             "extern const int lmcParameters_{0} = lmcParameters({1});\n"
                             "void lmcEntry_{0}(void *const *args) {{ lmcCall({1}, args); }}\n"
                             "}}\n}}\n";

// Returns a hash of everything except the kernel's text that an object depends on: headers,
// compiler flags, the compiler.
const std::string &commonHash() {
  static const std::string hash = [] {
    std::string all = std::string(kFlags) + kSymbols;
    all += LMC_SIMT_COMPILER " " LMC_SIMT_COMPILER_VERSION;
    for (const char *folder : {LMC_SOURCE_DIR "/test/simt/shim", LMC_SOURCE_DIR "/test/simt/shim/lmc",
                               LMC_SOURCE_DIR "/compiler/targets/cuda/device"})
      all += contentsOf(folder);
    return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
  }();
  return hash;
}

// A kernel, and the object to which it is compiled.
struct Unit {
  const Source *source;
  std::string hash;     // of everything that the object depends on
  std::string messages; // of the compiler, if it failed

  explicit Unit(const Source &kernel) : source(&kernel) {
    const std::string all = commonHash() + kernel.name + "\n" + kernel.text;
    XXH128_hash_t sum = XXH3_128bits(all.data(), all.size());
    hash = fmt::format("{:016x}{:016x}", sum.high64, sum.low64);
  }
  std::string path(const char *ending) const {
    return fmt::format(LMC_SIMT_FOLDER "/{}.{}", hash, ending);
  }
};

// Returns a C++ file with the kernels, each in a namespace of its own and followed by the two
// symbols that the executor looks up. The kernels' headers come first. A line of a kernel has the
// number that it has in the kernel's own text.
std::string hostText(std::span<Unit> units) {
  std::set<std::string> headers;
  std::string kernels;
  for (const Unit &unit : units) {
    kernels += fmt::format("namespace kernel_{} {{\n#line 1 \"{}\"\n", unit.hash, unit.path("cu"));
    std::istringstream lines(unit.source->text);
    for (std::string line; std::getline(lines, line); kernels += '\n') {
      // Two kernels of one name may be in one file, and so their functions are of C++.
      const std::string_view external = "extern \"C\" __global__";
      if (line.starts_with("#include"))
        headers.insert(line);
      else if (line.starts_with(external))
        kernels += line.substr(external.find("__global__"));
      else
        kernels += line;
    }
    kernels += fmt::format(fmt::runtime(kSymbols), unit.hash, unit.source->name);
  }
  return fmt::format("{}\nextern \"C\" {{\nlmc::simt::Machine *lmcMachine;\n}}\n{}",
                     fmt::join(headers, "\n"), kernels);
}

// Compiles the kernels to one object, which gets the names of the objects of all of them. Returns
// "" or the compiler's messages. Files are written under unique names and then renamed, because
// another process may build the same object at the same time.
std::string buildObject(std::span<Unit> units) {
  const std::string mine = fmt::format("{}.{}.{}", units.front().path("so"), getpid(),
                                       std::hash<std::thread::id>()(std::this_thread::get_id()));
  auto put = [&](const std::string &text, const std::string &path) {
    std::ofstream(mine + ".text") << text;
    std::filesystem::rename(mine + ".text", path);
  };
  for (const Unit &unit : units)
    put(unit.source->text, unit.path("cu"));
  put(hostText(units), mine + ".cu");
  const std::string command = fmt::format(
      "{} {} -include CudaOnHost.h -I {} -I {}/include -x c++ {}.cu -o {} 2>&1", LMC_SIMT_COMPILER,
      kFlags, LMC_SOURCE_DIR "/test/simt/shim", LMC_SIMT_FOLDER, mine, mine);
  FILE *pipe = popen(command.c_str(), "r");
  if (!pipe)
    return "cannot start " LMC_SIMT_COMPILER;
  std::string messages;
  char buffer[4096];
  while (size_t read = fread(buffer, 1, sizeof(buffer), pipe))
    messages.append(buffer, read);
  const bool failed = pclose(pipe) != 0;
  std::filesystem::remove(mine + ".cu");
  if (failed)
    return messages.empty() ? "the compiler failed" : messages;
  for (const Unit &unit : units) {
    std::filesystem::create_hard_link(mine, mine + ".name");
    std::filesystem::rename(mine + ".name", unit.path("so"));
  }
  std::filesystem::remove(mine);
  return "";
}

// Holds a lock among processes: a file with this path, which remains.
class FileLock {
public:
  explicit FileLock(const std::string &path)
      : file(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    if (file >= 0)
      flock(file, LOCK_EX);
  }
  ~FileLock() {
    if (file >= 0)
      close(file);
  }
  FileLock(const FileLock &) = delete;

private:
  int file;
};

// Compiles the kernels together, because the compiler reads their headers anew for each file. If
// that fails, it compiles each alone, so that messages are of the kernel that has the mistake.
// Ranks that start together have the same kernels: one compiles them, and the others wait.
void build(std::span<Unit> units) {
  const FileLock lock(units.front().path("lock"));
  if (std::ranges::all_of(units, [](const Unit &unit) { return exists(unit.path("so")); }))
    return;
  std::string messages = buildObject(units);
  if (units.size() == 1)
    units.front().messages = messages;
  else if (!messages.empty())
    for (Unit &unit : units)
      unit.messages = buildObject(std::span(&unit, 1));
}

Result<Kernel> load(const Unit &unit) {
  const Source &source = *unit.source;
  if (!unit.messages.empty())
    return userError("{}: {}", source.name, unit.messages);
  void *library = dlopen(unit.path("so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return userError("{}: {}", source.name, dlerror());
  *static_cast<Machine **>(dlsym(library, "lmcMachine")) = machine();
  Kernel kernel;
  kernel.name = source.name;
  kernel.parameters =
      *static_cast<const int *>(dlsym(library, ("lmcParameters_" + unit.hash).c_str()));
  kernel.launch.entry =
      reinterpret_cast<void (*)(void *const *)>(dlsym(library, ("lmcEntry_" + unit.hash).c_str()));
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
  std::vector<Unit> all(sources.begin(), sources.end()), missing;
  std::set<std::string> seen;
  for (const Unit &unit : all)
    if (!exists(unit.path("so")) && seen.insert(unit.hash).second)
      missing.push_back(unit);
  const size_t processors = std::max(1u, std::thread::hardware_concurrency());
  // More than eight kernels in a file save little, and leave processors without work at the end.
  const size_t each = std::clamp<size_t>((missing.size() + processors - 1) / processors, 1, 8);
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t from; (from = each * next++) < missing.size();)
      build(std::span(missing).subspan(from, std::min(each, missing.size() - from)));
  };
  {
    std::vector<std::jthread> workers(std::min(missing.size(), processors));
    for (std::jthread &worker : workers)
      worker = std::jthread(work);
  }
  std::map<std::string, std::string> messages;
  for (Unit &unit : missing)
    messages[unit.hash] = unit.messages;
  std::vector<Result<Kernel>> kernels;
  for (Unit &unit : all) {
    unit.messages = messages[unit.hash];
    kernels.push_back(load(unit));
  }
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
