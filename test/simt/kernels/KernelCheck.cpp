#include "test/simt/kernels/KernelCheck.h"

#include "ground/plan/FloatConvert.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;

namespace lmc::simt {
namespace {

constexpr int64_t kAlignment = 256;

using CpuEntry = void (*)(void *const *, int64_t, int64_t);

template <typename T> double readAs(const char *place) {
  T value;
  std::memcpy(&value, place, sizeof(T));
  return double(value);
}

template <typename T> void writeAs(char *place, double value) {
  const T as = T(value);
  std::memcpy(place, &as, sizeof(T));
}

// Of 16 bits, as `read` and `write` convert them.
template <float read(uint16_t)> double readHalf(const char *place) {
  uint16_t bits;
  std::memcpy(&bits, place, sizeof(bits));
  return read(bits);
}

template <uint16_t write(float)> void writeHalf(char *place, double value) {
  const uint16_t bits = write(float(value));
  std::memcpy(place, &bits, sizeof(bits));
}

// Of 8 bits.
template <float read(uint8_t)> double readCode(const char *place) {
  return read(static_cast<uint8_t>(*place));
}
template <uint8_t write(float)> void writeCode(char *place, double value) {
  *place = static_cast<char>(write(float(value)));
}

} // namespace

Buffer::Buffer(RankedTensorType type, int64_t rows, int64_t pitchElements)
    : type(type), elements(type.getNumElements()), width(type.getElementTypeBitWidth() / 8),
      rows(std::max<int64_t>(rows, 1)), pitch(pitchElements * width) {
  const int64_t bytes = pitch ? this->rows * pitch : elements * width;
  storage.assign(bytes + 2 * kAlignment, 0x5a);
  auto use = [&](double (*reads)(const char *), void (*writes)(char *, double)) {
    read = reads;
    write = writes;
  };
  const Type t = elementType();
  if (t.isBF16())
    use(readHalf<fromBFloat16>, writeHalf<toBFloat16>);
  else if (t.isF16())
    use(readHalf<fromFloat16>, writeHalf<toFloat16>);
  else if (isa<Float8E4M3FNType>(t))
    use(readCode<fromE4M3>, writeCode<toE4M3>);
  else if (isa<Float8E5M2Type>(t))
    use(readCode<fromE5M2>, writeCode<toE5M2>);
  else if (t.isF32())
    use(readAs<float>, writeAs<float>);
  else if (t.isF64())
    use(readAs<double>, writeAs<double>);
  else if (t.isInteger(8))
    use(readAs<int8_t>, writeAs<int8_t>);
  else if (t.isInteger(32))
    use(readAs<int32_t>, writeAs<int32_t>);
  else
    use(readAs<int64_t>, writeAs<int64_t>);
}

void *Buffer::data() const {
  auto start = reinterpret_cast<uintptr_t>(storage.data());
  return reinterpret_cast<void *>((start + kAlignment - 1) / kAlignment * kAlignment);
}

Argument Buffer::argument(Access access) const {
  Argument argument;
  argument.data = data();
  argument.bytes = uint64_t(size() * width);
  argument.access = access;
  if (pitch) {
    argument.rows = uint64_t(rows);
    argument.pitch = uint64_t(pitch);
  }
  return argument;
}

char *Buffer::address(int64_t element) const {
  const int64_t run = size() / rows;
  return static_cast<char *>(data()) +
         (pitch ? element / run * pitch + element % run * width : element * width);
}

namespace {

// The arguments of a kernel, inputs first.
struct Buffers {
  std::vector<Buffer> all;
  size_t inputs;

  explicit Buffers(kern::KernelOp kernel) {
    Block &body = kernel.getBody().front();
    std::vector<RankedTensorType> types;
    for (Type type : body.getArgumentTypes())
      types.push_back(cast<RankedTensorType>(type));
    inputs = types.size();
    for (Type type : body.getTerminator()->getOperandTypes())
      types.push_back(cast<RankedTensorType>(type));
    for (size_t i = 0; i < types.size(); ++i) {
      int64_t pitch = kernel.getArgPitches() ? (*kernel.getArgPitches())[i] : 0;
      int64_t rows = kernel.getArgRows() ? (*kernel.getArgRows())[i] : 1;
      all.emplace_back(types[i], pitch ? rows : 1, pitch);
    }
  }

  // Numbers around 1, or around 0; integers are indices into some dimension or just outside, but
  // those of 8 bits are codes, and any.
  void randomize(uint64_t seed, bool positive) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<double> normal;
    auto integer = [&](int64_t low, int64_t high) {
      return double(low + int64_t(generator() % uint64_t(high - low + 1)));
    };
    for (size_t i = 0; i < inputs; ++i) {
      const Type type = all[i].elementType();
      for (int64_t e = 0; e < all[i].size(); ++e) {
        const double value = normal(generator);
        all[i].set(e, type.isInteger(8)       ? integer(-128, 127)
                      : !isa<FloatType>(type) ? integer(-1, indexBound)
                      : positive              ? std::abs(value) + 0.01
                                              : value);
      }
    }
  }

  std::vector<Argument> arguments() const {
    std::vector<Argument> list;
    for (size_t i = 0; i < all.size(); ++i)
      list.push_back(all[i].argument(i < inputs ? Access::Read : Access::Write));
    return list;
  }

  int64_t indexBound = 1; // indices are in [-1, indexBound]
};

// The largest extent that an index may mean.
int64_t indexBoundOf(kern::KernelOp kernel) {
  int64_t bound = 1;
  for (Type type : kernel.getBody().front().getArgumentTypes())
    for (int64_t extent : cast<RankedTensorType>(type).getShape())
      bound = std::max(bound, extent);
  return std::min<int64_t>(bound, 127);
}

// "" or where `got` is too far from `want`. Sums in another order differ by a few units of the
// last place of their largest terms, which are of the size of the result's elements. In bf16 and
// f16 an element in a thousand may differ by a unit of the last place of such a term instead of its
// own: where a term is rounded itself, and the sum behind it takes it to the other side of a tie.
// So may one in 8 bits, which is then the next code.
std::string compare(const Buffer &got, const Buffer &want) {
  const bool half = want.elementType().isBF16() || want.elementType().isF16();
  double squares = 0;
  int64_t finite = 0;
  for (int64_t e = 0; e < want.size(); ++e)
    if (std::isfinite(want.at(e))) {
      squares += want.at(e) * want.at(e);
      ++finite;
    }
  const double rms = std::sqrt(squares / double(std::max<int64_t>(finite, 1)));
  const bool exact = !isa<FloatType>(want.elementType());
  const bool isCode = isEightBits(want.elementType());
  const double unit = isCode ? (isa<Float8E5M2Type>(want.elementType()) ? 0.25 : 0.125) : 0;
  int64_t tiesLeft = half || isCode ? 1 + want.size() / 1000 : 0;
  for (int64_t e = 0; e < want.size(); ++e) {
    const double a = got.at(e), b = want.at(e);
    if ((std::isnan(a) && std::isnan(b)) || a == b)
      continue;
    if (!std::isfinite(b)) // where every difference would be allowed
      return "element " + std::to_string(e) + " is " + std::to_string(a) + " and on the CPU " +
             std::to_string(b);
    const double allowed = exact ? 0 : (half ? 1.0 / 128 : 1e-5) * std::abs(b) + 2e-5 * rms;
    if (tiesLeft > 0 && std::abs(a - b) > allowed &&
        std::abs(a - b) <= allowed + (isCode ? unit * std::abs(b) : rms / 128)) {
      --tiesLeft;
      continue;
    }
    if (!(std::abs(a - b) <= allowed))
      return "element " + std::to_string(e) + " is " + std::to_string(a) + " and on the CPU " +
             std::to_string(b);
  }
  return "";
}

class CpuLibrary {
public:
  explicit CpuLibrary(ModuleOp module) {
    // Without the functions of a plan.
    OwningOpRef<ModuleOp> kernels = ModuleOp::create(module.getLoc());
    for (kern::KernelOp kernel : module.getOps<kern::KernelOp>())
      kernels->push_back(kernel->clone());
    llvm::Expected<codegen::CpuImage> image = codegen::buildCpuImage(*kernels, {});
    if (!image) {
      message = llvm::toString(image.takeError());
      return;
    }
    int file = memfd_create("kernels", MFD_CLOEXEC);
    if (write(file, image->object.data(), image->object.size()) != ssize_t(image->object.size()))
      message = "cannot write the image";
    library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
    close(file);
    if (!library)
      message = dlerror();
  }
  ~CpuLibrary() {
    if (library)
      dlclose(library);
  }
  CpuEntry find(StringRef name) const {
    return reinterpret_cast<CpuEntry>(dlsym(library, name.str().c_str()));
  }
  std::string message;

private:
  void *library = nullptr;
};

void runOnCpu(CpuEntry entry, const Buffers &buffers, int64_t items) {
  std::vector<void *> args;
  for (const Buffer &buffer : buffers.all)
    args.push_back(buffer.data());
  entry(args.data(), 0, items);
}

// Result `result` lies over input `input` (with -1, every argument has memory of its own).
std::string checkOnce(const Kernel &simt, const CheckedKernel &checked, CpuEntry entry,
                      kern::KernelOp kernel, uint64_t seed, bool positive, int result, int input,
                      std::vector<Traffic> *traffic) {
  Buffers want(kernel), got(kernel);
  want.indexBound = got.indexBound = indexBoundOf(kernel);
  want.randomize(seed, positive);
  got.randomize(seed, positive);
  runOnCpu(entry, want, checked.shape.items);
  std::vector<Argument> arguments = got.arguments();
  if (result >= 0)
    arguments[got.inputs + result].data = arguments[input].data;
  RunResult run = runTwice(simt, arguments, seed, traffic != nullptr);
  std::string place = result < 0 ? "" : " (result " + std::to_string(result) + " over input " +
                                            std::to_string(input) + ")";
  if (!run.failure.empty())
    return run.failure + place;
  if (traffic)
    *traffic = run.traffic;
  for (size_t i = got.inputs; i < got.all.size(); ++i) {
    const Buffer &buffer =
        result >= 0 && i == got.inputs + result ? got.all[input] : got.all[i];
    if (std::string why = compare(buffer, want.all[i]); !why.empty())
      return checked.name + ": result " + std::to_string(i - got.inputs) + ", " + why + place +
             (positive ? " (positive inputs)" : "");
  }
  return "";
}

bool sameLayout(const Buffer &a, const Buffer &b) {
  Argument x = a.argument(Access::Read), y = b.argument(Access::Read);
  return x.bytes == y.bytes && x.rows == y.rows && x.pitch == y.pitch;
}

std::string check(const Kernel &simt, CheckedKernel &checked, CpuEntry entry,
                  kern::KernelOp kernel, uint64_t seed) {
  if (!entry)
    return checked.name + ": the CPU's image does not have it";
  for (bool positive : {true, false})
    if (std::string why = checkOnce(simt, checked, entry, kernel, seed, positive, -1, -1,
                                    positive ? nullptr : &checked.traffic);
        !why.empty())
      return why;
  Buffers layout(kernel);
  Block &body = kernel.getBody().front();
  const auto region = llvm::cantFail(codegen::analyzeRegion(kernel.getHero(), body));
  for (size_t result = 0; result + layout.inputs < layout.all.size(); ++result)
    for (size_t input = 0; input < layout.inputs; ++input)
      if (codegen::mayShareBuffer(region, body, unsigned(result), unsigned(input)) &&
          sameLayout(layout.all[input], layout.all[layout.inputs + result]) &&
          // Another type of the same width would be read as what it is not.
          layout.all[input].elementType() == layout.all[layout.inputs + result].elementType())
        if (std::string why =
                checkOnce(simt, checked, entry, kernel, seed, true, int(result), int(input), nullptr);
            !why.empty())
          return why;
  return "";
}

void describe(CheckedKernel &checked, kern::KernelOp kernel, const codegen::RegionInfo &info) {
  checked.name = kernel.getSymName().str();
  checked.hero = kernel.getHero();
  checked.shape = info.shape;
  const unsigned rank = unsigned(info.shape.domain.size());
  int64_t points = 1;
  for (int64_t extent : info.shape.domain)
    points *= extent;
  Block &body = kernel.getBody().front();
  checked.inputs = body.getNumArguments();
  SmallVector<Type> types(body.getArgumentTypes());
  llvm::append_range(types, body.getTerminator()->getOperandTypes());
  for (Type type : types) {
    auto tensor = cast<RankedTensorType>(type);
    const int64_t width = tensor.getElementTypeBitWidth() / 8;
    const int64_t lane = info.shape.domain.empty() ? 1 : info.shape.domain.back();
    // Other results of reductions along the lane lack its dimension.
    const bool isResult = checked.arguments.size() >= checked.inputs;
    const size_t number = checked.arguments.size() - checked.inputs;
    const bool alongLane =
        isResult && llvm::any_of(info.outputs, [&](const codegen::Output &output) {
          return output.result == number && (checked.hero == kern::Hero::ColumnReduction ||
                                             (rank > 0 && output.place.isFunctionOfDim(rank - 1)));
        });
    checked.arguments.push_back({uint64_t(tensor.getNumElements() * width), uint64_t(width),
                                 tensor.getNumElements() >= points, lane * width % 32 == 0,
                                 alongLane});
  }
  for (const codegen::Access &access : info.accesses) {
    ArgumentFacts &argument = checked.arguments[access.input];
    ++argument.places;
    argument.alongLane |= rank > 0 && access.point.isFunctionOfDim(rank - 1);
    argument.alongRows |= llvm::is_contained(access.dynamic, true);
    argument.alongRows |= info.isOuter(access.point);
  }
}

} // namespace

std::vector<CheckedKernel> checkKernels(ModuleOp module, uint64_t seed) {
  std::vector<CheckedKernel> all;
  std::vector<kern::KernelOp> kernels;
  std::vector<Source> sources;
  for (kern::KernelOp kernel : module.getOps<kern::KernelOp>()) {
    CheckedKernel &checked = all.emplace_back();
    llvm::Expected<codegen::RegionInfo> info = codegen::analyzeKernel(kernel);
    if (info)
      describe(checked, kernel, *info);
    else
      llvm::consumeError(info.takeError()); // printing fails as well
    llvm::Expected<codegen::CudaKernel> printed = codegen::printCudaKernel(kernel);
    kernels.push_back(kernel);
    if (!printed) {
      checked.failure =
          kernel.getSymName().str() + " is not printed: " + llvm::toString(printed.takeError());
      sources.push_back({checked.name, "extern \"C\" __global__ void " + checked.name + "() {}"});
      continue;
    }
    checked.cuda = *printed;
    sources.push_back(sourceOf(*printed));
  }
  auto fail = [&](const std::string &why) {
    for (CheckedKernel &checked : all)
      checked.failure = why;
    return all;
  };
  CpuLibrary library(module);
  if (!library.message.empty())
    return fail(library.message);
  std::vector<Result<Kernel>> compiled = compile(sources);
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].failure.empty())
      all[i].failure = compiled[i] ? check(*compiled[i], all[i],
                                           library.find(kernels[i].getSymName()), kernels[i], seed)
                                   : compiled[i].error().message;
  return all;
}

} // namespace lmc::simt
