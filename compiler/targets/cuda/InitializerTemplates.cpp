#include "compiler/targets/cuda/InitializerTemplates.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::codegen;
using llvm::formatv;

// The grid of every initializer kernel. Each thread writes several words, so the grid does not
// depend on the variable's size: it has enough thread blocks to fill any GPU and few enough to be
// cheap for small variables.
static constexpr uint32_t kBlocks = 1024, kThreads = 256;

static bool isRope(InitializerKind kind) {
  return kind == InitializerKind::RopeCos || kind == InitializerKind::RopeSin;
}

static StringRef kindName(InitializerKind kind) {
  switch (kind) {
  case InitializerKind::Normal:
    return "normal";
  case InitializerKind::Constant:
    return "constant";
  case InitializerKind::RopeCos:
    return "rope_cos";
  case InitializerKind::RopeSin:
    return "rope_sin";
  case InitializerKind::Copy:
    return "copy";
  }
  return "";
}

std::string lmc::codegen::initializerKernelName(const InitializerShape &shape) {
  std::string name =
      formatv("initialize_{0}_{1}", kindName(shape.kind), shortName(shape.destination));
  if (shape.kind == InitializerKind::Copy)
    name += formatv("_of_{0}", shortName(shape.source));
  if (isRope(shape.kind)) {
    ArrayRef<uint8_t> bytes(reinterpret_cast<const uint8_t *>(shape.frequencies.data()),
                            shape.frequencies.size() * sizeof(double));
    name += formatv("_{0}_{1}", shape.frequencies.size(),
                    llvm::utohexstr(llvm::xxh3_64bits(bytes), /*LowerCase=*/true, 16));
  }
  return name;
}

// Returns the formula that the kernel computes, for its comment.
static std::string commentOf(const InitializerShape &shape) {
  switch (shape.kind) {
  case InitializerKind::Normal:
    return "out[j] = value * z(first + j), z standard normal, a function of seed, stream and place";
  case InitializerKind::Constant:
    return "out[j] = value";
  case InitializerKind::RopeCos:
  case InitializerKind::RopeSin:
    return formatv("out[p, c] = {0}(p * frequencies[c]) * value; columns: {1}",
                   shape.kind == InitializerKind::RopeSin ? "sin" : "cos",
                   shape.frequencies.size());
  case InitializerKind::Copy:
    return "out[j] = source[j], rounded";
  }
  return "";
}

static std::string bodyOf(const InitializerShape &shape) {
  const char *type = cudaName(shape.destination);
  switch (shape.kind) {
  case InitializerKind::Normal:
    return formatv("  lmc::initializeNormal<{0}>(how, out);\n", type);
  case InitializerKind::Constant:
    return formatv("  lmc::initializeConstant<{0}>(how, out);\n", type);
  case InitializerKind::Copy:
    return formatv("  lmc::initializeCopy<{0}, {1}>(how, source, out);\n", cudaName(shape.source),
                   type);
  case InitializerKind::RopeCos:
  case InitializerKind::RopeSin:
    break;
  }
  std::string body;
  llvm::raw_string_ostream out(body);
  out << formatv("  static constexpr double frequencies[{0}] = {{\n", shape.frequencies.size());
  for (double frequency : shape.frequencies)
    out << "      " << llvm::format("%a", frequency) << ",\n";
  out << formatv("  };\n  lmc::initializeRope<{0}, {1}, {2}>(how, frequencies, out);\n", type,
                 shape.kind == InitializerKind::RopeSin ? "true" : "false",
                 shape.frequencies.size());
  return body;
}

CudaKernel lmc::codegen::initializerKernel(const InitializerShape &shape) {
  std::string source = shape.kind == InitializerKind::Copy
                           ? formatv("const {0} *source, ", cudaName(shape.source)).str()
                           : "";
  CudaKernel kernel;
  kernel.name = initializerKernelName(shape);
  kernel.hero = "initializer";
  kernel.source = formatv("// First values of a variable: {0}.\n"
                          "#include \"lmc/initialize.cuh\"\n\n"
                          "extern \"C\" __global__ void __launch_bounds__({1}, 1) {2}(\n"
                          "    const lmc::InitializerRecord *how, {3}{4} *out) {{\n{5}}\n",
                          commentOf(shape), kThreads, kernel.name, source,
                          cudaName(shape.destination), bodyOf(shape));
  kernel.grid = {kBlocks, 1, 1};
  kernel.threads = kThreads;
  return kernel;
}

GlobalBytes lmc::codegen::initializerBytes(const InitializerShape &shape, int64_t elements) {
  constexpr uint64_t recordBytes = 40; // size of InitializerRecord in initialize.cuh
  auto bytes = [&](DataType type) { return uint64_t(elements * elementBytes(type)); };
  bool copies = shape.kind == InitializerKind::Copy;
  return {recordBytes + (copies ? bytes(shape.source) : 0), bytes(shape.destination)};
}

static std::optional<InitializerKind> kernelKind(lm::InitKind kind) {
  switch (kind) {
  case lm::InitKind::None:
  case lm::InitKind::Zeros:
    return std::nullopt;
  case lm::InitKind::Normal:
    return InitializerKind::Normal;
  case lm::InitKind::Ones:
  case lm::InitKind::Constant:
    return InitializerKind::Constant;
  case lm::InitKind::RopeCos:
    return InitializerKind::RopeCos;
  case lm::InitKind::RopeSin:
    return InitializerKind::RopeSin;
  case lm::InitKind::CopyOf:
    return InitializerKind::Copy;
  }
  llvm_unreachable("initial values are of a known kind");
}

std::optional<InitializerShape> lmc::codegen::initializerShape(lm::InitAttr init, Type destination,
                                                               Type source) {
  std::optional<InitializerKind> kind = kernelKind(init.getKind());
  std::optional<DataType> to = dataTypeOf(destination);
  if (!kind || !to)
    return std::nullopt;
  InitializerShape shape{*kind, *to, *to, {}};
  if (shape.kind == InitializerKind::Copy) {
    std::optional<DataType> from = dataTypeOf(source);
    if (!from)
      return std::nullopt;
    shape.source = *from;
  }
  if (DenseF64ArrayAttr frequencies = init.getFrequencies())
    shape.frequencies.assign(frequencies.asArrayRef().begin(), frequencies.asArrayRef().end());
  return shape;
}

std::vector<CudaKernel> lmc::codegen::initializerKernels(ModuleOp plan) {
  std::vector<CudaKernel> kernels;
  llvm::StringSet<> known;
  SymbolTable symbols(plan);
  auto elementType = [](plan_ir::VariableOp variable) {
    return cast<RankedTensorType>(variable.getType()).getElementType();
  };
  for (auto variable : plan.getOps<plan_ir::VariableOp>()) {
    if (variable.getAnonymous())
      continue;
    SmallVector<lm::InitAttr> inits{variable.getInit()};
    if (ArrayAttr parts = variable.getPartsAttr())
      for (auto part : parts.getAsRange<lm::PartAttr>())
        inits.push_back(part.getInit());
    for (lm::InitAttr init : inits) {
      Type source;
      if (StringAttr name = init.getSource())
        if (auto origin = symbols.lookup<plan_ir::VariableOp>(name))
          source = elementType(origin);
      auto shape = initializerShape(init, elementType(variable), source);
      if (shape && known.insert(initializerKernelName(*shape)).second)
        kernels.push_back(initializerKernel(*shape));
    }
  }
  return kernels;
}
