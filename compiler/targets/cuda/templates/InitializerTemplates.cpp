#include "compiler/targets/cuda/templates/InitializerTemplates.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::codegen;
using llvm::formatv;
using lm::InitKind;

// The grid of every initializer kernel. It fills any GPU, and costs little for small variables.
static constexpr uint32_t kBlocks = 1024, kThreads = 256;

static bool isRope(InitKind kind) { return kind == InitKind::RopeCos || kind == InitKind::RopeSin; }

// Returns a name such as "initialize_normal_f32". It omits the frequencies of RoPE tables.
static std::string nameOf(const InitializerShape &shape) {
  bool copies = shape.kind == InitKind::CopyOf;
  StringRef kind = copies ? "copy" : stringifyInitKind(shape.kind);
  std::string name = formatv("initialize_{0}_{1}", kind, shortName(shape.destination));
  if (copies)
    name += formatv("_of_{0}", shortName(shape.source));
  return name;
}

std::string lmc::codegen::initializerKey(const InitializerShape &shape) {
  std::string key = nameOf(shape);
  llvm::raw_string_ostream out(key);
  for (double frequency : shape.frequencies)
    out << llvm::format(" %a", frequency);
  return key;
}

static std::string commentOf(const InitializerShape &shape) {
  if (shape.kind == InitKind::Normal)
    return "out[j] = value * z(first + j), z standard normal, a function of seed, stream and place";
  if (shape.kind == InitKind::CopyOf)
    return "out[j] = source[j], rounded";
  if (isRope(shape.kind))
    return formatv("out[p, c] = {0}(p * frequencies[c]) * value; columns: {1}",
                   shape.kind == InitKind::RopeSin ? "sin" : "cos", shape.frequencies.size());
  return "out[j] = value";
}

static std::string bodyOf(const InitializerShape &shape) {
  const char *type = cudaName(shape.destination);
  if (shape.kind == InitKind::Normal)
    return formatv("  lmc::initializeNormal<{0}>(how, out);\n", type);
  if (shape.kind == InitKind::CopyOf)
    return formatv("  lmc::initializeCopy<{0}, {1}>(how, source, out);\n", cudaName(shape.source),
                   type);
  if (!isRope(shape.kind))
    return formatv("  lmc::initializeConstant<{0}>(how, out);\n", type);
  std::string body;
  llvm::raw_string_ostream out(body);
  out << formatv("  static constexpr double frequencies[{0}] = {{\n", shape.frequencies.size());
  for (double frequency : shape.frequencies)
    out << "      " << llvm::format("%a", frequency) << ",\n";
  out << formatv("  };\n  lmc::initializeRope<{0}, {1}, {2}>(how, frequencies, out);\n", type,
                 shape.kind == InitKind::RopeSin, shape.frequencies.size());
  return body;
}

CudaKernel lmc::codegen::initializerKernel(const InitializerShape &shape, const std::string &name) {
  std::string source = shape.kind == InitKind::CopyOf
                           ? formatv("const {0} *source, ", cudaName(shape.source)).str()
                           : "";
  CudaKernel kernel;
  kernel.name = name;
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
  bool copies = shape.kind == InitKind::CopyOf;
  return {recordBytes + (copies ? bytes(shape.source) : 0), bytes(shape.destination)};
}

std::optional<InitializerShape> lmc::codegen::initializerShape(lm::InitAttr init, Type destination,
                                                               Type source) {
  InitKind kind = init.getKind();
  std::optional<DataType> to = dataTypeOf(destination);
  if (kind == InitKind::None || kind == InitKind::Zeros || !to)
    return std::nullopt;
  InitializerShape shape{kind == InitKind::Ones ? InitKind::Constant : kind, *to, *to, {}};
  if (kind == InitKind::CopyOf) {
    std::optional<DataType> from = dataTypeOf(source);
    if (!from)
      return std::nullopt;
    shape.source = *from;
  }
  if (DenseF64ArrayAttr frequencies = init.getFrequencies())
    shape.frequencies.assign(frequencies.asArrayRef().begin(), frequencies.asArrayRef().end());
  return shape;
}

std::vector<std::pair<std::string, CudaKernel>> lmc::codegen::initializerKernels(ModuleOp plan) {
  std::vector<std::pair<std::string, CudaKernel>> kernels;
  llvm::StringSet<> known;
  llvm::StringMap<unsigned> shared; // number of kernels per name
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
      if (!shape || !known.insert(initializerKey(*shape)).second)
        continue;
      std::string name = nameOf(*shape);
      if (unsigned number = ++shared[name]; number > 1)
        name += "_" + std::to_string(number);
      kernels.push_back({initializerKey(*shape), initializerKernel(*shape, name)});
    }
  }
  return kernels;
}
