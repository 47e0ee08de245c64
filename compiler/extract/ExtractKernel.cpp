#include "compiler/extract/ExtractKernel.h"

#include "compiler/targets/cuda/DeviceLibrary.h"
#include "compiler/extract/HostReference.h"
#include "runtime/plan/PlanFile.h"

#include "mlir/Parser/Parser.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using llvm::formatv;

namespace lmc {
namespace {

// The texts of compiler/extract/text, and the runtime's NormalStream.
constexpr struct {
  const char *stem, *text;
} kTexts[] = {
#include "extract_texts.inc"
};

std::string textOf(StringRef stem) {
  for (const auto &entry : kTexts)
    if (stem == entry.stem)
      return entry.text;
  llvm_unreachable("a text that is embedded");
}

template <typename... Args> llvm::Error fail(const char *format, Args &&...args) {
  return llvm::createStringError(formatv(format, std::forward<Args>(args)...).str());
}

// One tensor of the program: host::Array of the harness, with its Draw and Tolerance.
struct Array {
  std::string name;
  const char *type; // of host::Type
  std::vector<int64_t> shape;
  int64_t rows = 1, pitch = 0; // elements; pitch 0: dense
  bool isInput = true;
  int64_t least = 0, bound = 1;
  bool isPositive = false;
  double relative = 0, absolute = 0;

  std::string print() const;
};

struct Launch {
  const plan::Kernel *kernel;
  std::vector<size_t> args; // arrays
};

// The program's parts, and how they are put together.
struct Program {
  std::vector<Array> arrays;
  std::vector<Launch> launches;
  std::string constants; // of the main text
  std::string reference;
  std::string main; // stem of its text
  std::string options = "-std=c++17 -O2 -fmad=false"; // for nvcc
  double bytes = 0, flops = 0;

  std::string print(const plan::Plan &plan, StringRef name) const;

private:
  std::string kernels() const;
  std::string tables() const;
};

} // namespace

//===-- The text ----------------------------------------------------------------------------===//

static bool isInclude(StringRef line) { return line.trim().starts_with("#include"); }

static const char *boolText(bool value) { return value ? "true" : "false"; }

std::string Array::print() const {
  std::string extents =
      llvm::join(llvm::map_range(shape, [](int64_t n) { return std::to_string(n); }), ", ");
  return formatv("{{\"{0}\", host::Type::{1}, {{{2}}, {3}, {4}, {5}, {{{6}, {7}, {8}}, "
                 "{{{9}, {10}}, {{}}",
                 name, type, extents, rows, pitch, boolText(isInput), least, bound,
                 boolText(isPositive), llvm::format("%g", relative), llvm::format("%g", absolute));
}

// Headers once, then each kernel in a namespace of its own, as their helpers may share names.
std::string Program::kernels() const {
  std::string includes, bodies;
  std::vector<const plan::Kernel *> done;
  for (const Launch &launch : launches) {
    if (llvm::is_contained(done, launch.kernel))
      continue;
    bodies += formatv("namespace kernel{0} {{\n", done.size());
    done.push_back(launch.kernel);
    SmallVector<StringRef> lines;
    StringRef(launch.kernel->source()->c_str()).split(lines, '\n');
    for (StringRef line : lines)
      (isInclude(line) ? includes : bodies) += (line + "\n").str();
    bodies += "} // namespace\n\n";
  }
  return codegen::inlineDeviceHeaders(includes) + "\n" + bodies;
}

std::string Program::tables() const {
  std::string text = "static std::vector<host::Array> arrays = {\n";
  for (const Array &array : arrays)
    text += "    " + array.print() + ",\n";
  text += formatv("};\n\nconstexpr double kBytes = {0}, kFlops = {1};\n"
                  "constexpr size_t kLaunches = {2};\nconst char *const launchNames[] = {{",
                  llvm::format("%.17g", bytes), llvm::format("%.17g", flops), launches.size());
  for (const Launch &launch : launches)
    text += "\"" + launch.kernel->name()->str() + "\", ";
  text += "};\n\nstatic void launch(size_t number) {\n  switch (number) {\n";
  std::vector<const plan::Kernel *> done;
  for (auto [i, launch] : llvm::enumerate(launches)) {
    const plan::Kernel &kernel = *launch.kernel;
    auto known = llvm::find(done, &kernel);
    size_t space = size_t(known - done.begin());
    if (known == done.end())
      done.push_back(&kernel);
    std::string args = llvm::join(llvm::map_range(launch.args, [](size_t array) {
                                    return formatv("&arrays[{0}].device", array).str();
                                  }), ", ");
    text +=
        formatv("  case {0}: {{\n"
                "    auto *entry = reinterpret_cast<const void *>(kernel{1}::{2});\n"
                "    void *arguments[] = {{{3}};\n"
                "    static const cudaError_t room = cudaFuncSetAttribute(\n"
                "        entry, cudaFuncAttributeMaxDynamicSharedMemorySize, {4});\n"
                "    host::check(room, \"shared memory\");\n"
                "    host::check(cudaLaunchKernel(entry, dim3({5}, {6}, {7}), dim3({8}),\n"
                "                                 arguments, {4}, nullptr),\n"
                "                \"{2}\");\n    return;\n  }\n",
                i, space, kernel.entry()->str(), args, kernel.shared_bytes(), kernel.grid()->Get(0),
                kernel.grid()->Get(1), kernel.grid()->Get(2), kernel.threads());
  }
  return text + "  }\n}\n\nstatic void launchAll() {\n  for (size_t i = 0; i < kLaunches; ++i)\n"
                "    launch(i);\n}\n\n";
}

std::string Program::print(const plan::Plan &plan, StringRef name) const {
  std::string arch = plan.target()->str();
  arch.erase(0, arch.find(':') + 1);
  return formatv("// {0}, out of a plan for {1}, with a check and a bench.\n"
                 "//   nvcc {2} -arch={1} {0}.cu -o {0} && ./{0}\n\n",
                 name, arch, options)
             .str() +
         kernels() + textOf("harness") + "\n" + tables() + constants + reference + "\n" +
         textOf(main);
}

//===-- Kernels of a region -----------------------------------------------------------------===//

static const char *hostType(Type type) {
  if (type.isF64())
    return "F64";
  if (type.isBF16())
    return "BF16";
  if (type.isInteger(8))
    return "I8";
  if (type.isInteger(32))
    return "I32";
  return type.isInteger(64) ? "I64" : "F32";
}

// What a result of a region, in f64 on the host, may differ by; `absolute` of reals is in parts of
// the size that the result's values typically have.
static void setTolerance(Array &array, Value result) {
  Type element = cast<RankedTensorType>(result.getType()).getElementType();
  if (element.isInteger()) {
    array.absolute = element.isInteger(8) ? 1 : 0; // a code may be rounded either way
    return;
  }
  FloatType precision = precisionOf(result);
  if (precision.isBF16()) // two units in the last place
    array.relative = array.absolute = 0.016;
  else if (precision.isF64()) // sums in another order, here and below
    array.relative = array.absolute = 1e-10;
  else
    array.relative = 1e-4, array.absolute = 1e-5;
}

static llvm::Expected<Program> programOf(const plan::Kernel &kernel, MLIRContext &context) {
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(kernel.region()->string_view(), &context);
  if (!module || module->getOps<kern::KernelOp>().empty())
    return fail("kernel '{0}': its region in the plan cannot be read", kernel.name()->str());
  kern::KernelOp op = *module->getOps<kern::KernelOp>().begin();
  Block &body = op.getBody().front();

  Program program;
  Launch launch{&kernel, {}};
  auto add = [&](Value tensor, const llvm::Twine &name) -> Array & {
    auto type = cast<RankedTensorType>(tensor.getType());
    size_t number = program.arrays.size();
    Array array{name.str(), hostType(type.getElementType()), type.getShape().vec()};
    if (op.getArgRows() && op.getArgPitches()) {
      array.rows = std::max<int64_t>(1, (*op.getArgRows())[number]);
      array.pitch = (*op.getArgPitches())[number];
    }
    launch.args.push_back(number);
    return program.arrays.emplace_back(std::move(array));
  };
  for (auto [i, argument] : llvm::enumerate(body.getArguments())) {
    Array &array = add(argument, "in" + llvm::Twine(i));
    const bool isCode = StringRef(array.type) == "I8"; // -128 is none of a signed one
    array.least = isCode ? -127 : 0;
    array.bound = isCode ? 128 : integerBound(op);
    array.isPositive = isPositive(argument);
  }
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
    Array &array = add(value, "out" + llvm::Twine(i));
    array.isInput = false;
    setTolerance(array, value);
  }
  program.launches.push_back(std::move(launch));

  llvm::Expected<std::string> reference = hostReference(op);
  if (!reference)
    return reference.takeError();
  program.reference = std::move(*reference);
  program.main = "region";
  program.bytes = double(kernel.read_bytes() + kernel.written_bytes());
  program.flops = double(kernel.flops());
  return program;
}

//===-- Kernels of typed commands -----------------------------------------------------------===//

static const char *hostType(plan::DType type) {
  switch (type) {
  case plan::DType::F32:
    return "F32";
  case plan::DType::BF16:
    return "BF16";
  case plan::DType::F64:
    return "F64";
  case plan::DType::I32:
    return "I32";
  case plan::DType::I8:
    return "I8";
  }
  return "F32";
}

namespace {
// Adds a command's tensors and launches to a program.
class CommandProgram {
public:
  explicit CommandProgram(const plan::Plan &plan) : plan(plan) {}

  // The constant kNAME then has the array's number; -1 for a slice that is absent.
  void add(StringRef name, int64_t slice, bool isInput, int64_t bound = 1);
  void add(Array array);
  // The program, which launches them.
  llvm::Expected<Program>
  launching(const flatbuffers::Vector<flatbuffers::Offset<plan::Launch>> &launches);
  void constant(StringRef type, StringRef name, const llvm::Twine &value) {
    program.constants += formatv("constexpr {0} k{1} = {2};\n", type, name, value.str());
  }

  Program program;

private:
  const plan::Plan &plan;
  llvm::DenseMap<uint32_t, size_t> arrayOf; // by slice
};
} // namespace

static std::string capitalized(StringRef name) {
  return llvm::toUpper(name[0]) + name.drop_front().str();
}

void CommandProgram::add(StringRef name, int64_t slice, bool isInput, int64_t bound) {
  if (slice < 0) {
    constant("int", capitalized(name), "-1");
    return;
  }
  const plan::Slice &from = *plan.slices()->Get(uint32_t(slice));
  Array array{name.str(), hostType(from.dtype()), {}};
  if (from.shape())
    array.shape.assign(from.shape()->begin(), from.shape()->end());
  array.rows = int64_t(from.rows());
  array.pitch = int64_t(from.pitch() / byteWidth(from.dtype()));
  array.isInput = isInput;
  array.bound = bound;
  arrayOf[uint32_t(slice)] = program.arrays.size();
  add(std::move(array));
}

void CommandProgram::add(Array array) {
  constant("int", capitalized(array.name), llvm::Twine(program.arrays.size()));
  program.arrays.push_back(std::move(array));
}

llvm::Expected<Program>
CommandProgram::launching(const flatbuffers::Vector<flatbuffers::Offset<plan::Launch>> &launches) {
  for (const plan::Launch *launch : launches) {
    Launch made{plan.kernels()->Get(launch->kernel()), {}};
    for (auto [i, slice] : llvm::enumerate(*launch->args())) {
      auto known = arrayOf.find(slice);
      if (known == arrayOf.end())
        return fail("kernel '{0}': argument {1} is slice {2}, which is no operand of its command",
                    made.kernel->name()->str(), i, slice);
      made.args.push_back(known->second);
    }
    program.launches.push_back(std::move(made));
  }
  return std::move(program);
}

// Pairs of a query and a key that it sees, of one head of a sequence, without documents.
static double visiblePairs(uint64_t seq, uint64_t window) {
  double pairs = 0;
  for (uint64_t i = 0; i < seq; ++i)
    pairs += double(window ? std::min(i + 1, window) : i + 1);
  return pairs;
}

// `products`: matrix products per visible score.
template <typename Op>
static llvm::Expected<Program> attentionOf(CommandProgram &to, const Op &op, bool isGradient,
                                           double products) {
  to.add("q", op.q(), true);
  to.add("k", op.k(), true);
  to.add("v", op.v(), true);
  to.add("starts", op.starts(), true, 300); // less than 1: a document begins
  to.add("out", op.out(), isGradient);
  to.add("lse", op.lse(), isGradient);
  for (auto [name, value] : {std::pair<const char *, uint64_t>{"Batch", op.batch()},
                             {"Seq", op.seq()},
                             {"Heads", op.heads()},
                             {"Group", op.heads() / op.kv_heads()},
                             {"HeadDim", op.head_dim()},
                             {"Window", op.window()}})
    to.constant("int", name, llvm::Twine(value));
  to.constant("float", "Scale", formatv("float({0})", llvm::format("%.17g", op.scale())).str());
  to.constant("bool", "IsGradient", boolText(isGradient));
  to.program.main = "attention";
  to.program.options = "-std=c++17 -O2 -fmad=true"; // as CudaKernel::contract
  to.program.flops = 2 * products * op.head_dim() * visiblePairs(op.seq(), op.window()) *
                     op.heads() * op.batch();
  return to.launching(*op.launches());
}

static llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::Attention &op) {
  CommandProgram made(plan);
  for (const char *name : {"dout", "dq", "dk", "dv", "cos", "sin"})
    made.add(name, -1, false);
  return attentionOf(made, op, /*isGradient=*/false, 2);
}

static llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::AttentionGrad &op) {
  CommandProgram made(plan);
  made.add("dout", op.dout(), true);
  made.add("dq", op.dq(), false);
  made.add("dk", op.dk(), false);
  made.add("dv", op.dv(), false);
  made.add("delta", op.workspace(), false);
  made.add("cos", op.cos(), true);
  made.add("sin", op.sin(), true);
  return attentionOf(made, op, /*isGradient=*/true, 5);
}

static llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::ScatterAdd &op) {
  CommandProgram made(plan);
  made.add("ids", op.ids(), true, int64_t(op.vocabulary()));
  made.add("x", op.x(), true);
  made.add("workspace", op.workspace(), false);
  made.add("d", op.d(), false);
  made.constant("int64_t", "Rows", llvm::Twine(op.rows()));
  made.constant("int64_t", "Columns", llvm::Twine(op.columns()));
  made.constant("int64_t", "Vocabulary", llvm::Twine(op.vocabulary()));
  made.constant("bool", "Accumulate", boolText(op.accumulate()));
  made.program.main = "scatter_add";
  made.program.bytes = double(plan.slices()->Get(op.x())->bytes()) +
                       double(plan.slices()->Get(op.d())->bytes()) * (op.accumulate() ? 2 : 1);
  return made.launching(*op.launches());
}

//===-- Kernels of first values -------------------------------------------------------------===//

// runtime/train/NormalStream.cpp in a namespace of its own, as the device library has the like.
static std::string cpuNormals() {
  std::string includes = "#include <array>\n", body;
  SmallVector<StringRef> lines;
  std::string text = textOf("NormalStream");
  StringRef(text).split(lines, '\n');
  for (StringRef line : lines)
    if (!isInclude(line))
      body += (line + "\n").str();
    else if (line.contains('<'))
      includes += (line + "\n").str();
  return includes + "\nnamespace cpu {\n" + body + "} // namespace cpu\n\n";
}

// `double expected(int64_t i)`: element i before it is rounded to the variable's type, as
// runtime/train/Initializer.cpp has it.
static std::string expectedValue(const plan::Initializer &how) {
  std::string before, body;
  switch (how.kind()) {
  case plan::InitializerKind::Normal:
    before = cpuNormals();
    body = "  double value;\n"
           "  cpu::lmc::fillNormal(kSeed, kStream, uint64_t(i), 1, kValue, &value);\n"
           "  return value;\n";
    break;
  case plan::InitializerKind::RopeCos:
  case plan::InitializerKind::RopeSin:
    body = "  static const double frequencies[] = {\n";
    for (double frequency : *how.values())
      body += formatv("      {0},\n", llvm::format("%.17g", frequency));
    body +=
        formatv("  };\n  const double angle = double(i / {0}) * frequencies[i % {0}];\n"
                "  return std::{1}(angle) * kValue;\n",
                how.values()->size(), how.kind() == plan::InitializerKind::RopeCos ? "cos" : "sin");
    break;
  case plan::InitializerKind::CopyOf:
    body = "  return arrays[kSource].at(i);\n";
    break;
  default: // ones and constants
    body = "  (void)i;\n  return kValue;\n";
  }
  return "\n" + before + "static double expected(int64_t i) {\n" + body + "}\n";
}

// Of a rope table: cos and sin are of two libraries, so that rounding may go either way.
static double unitOf(plan::DType type) {
  return type == plan::DType::F64 ? 1e-15 : type == plan::DType::F32 ? 0x1p-23 : 0x1p-7;
}

static const plan::Variable *variableOf(const plan::Plan &plan, StringRef name) {
  for (const plan::Variable *variable : *plan.variables())
    if (name == variable->name()->c_str())
      return variable;
  return nullptr;
}

static llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::Variable &variable) {
  const plan::Initializer &how = *variable.initializer();
  const plan::Kernel &kernel = *plan.kernels()->Get(uint32_t(how.kernel()));
  const bool isCopy = how.kind() == plan::InitializerKind::CopyOf;
  const plan::Variable *source = isCopy ? variableOf(plan, how.source()->c_str()) : nullptr;
  CommandProgram made(plan);
  made.add({"how", "I64", {5}}); // lmc::InitializerRecord, of five words
  made.add("source", source ? int64_t(source->slice()) : -1, /*isInput=*/true);
  made.add("out", variable.slice(), /*isInput=*/false);
  Program &program = made.program;
  const plan::Slice &out = *plan.slices()->Get(variable.slice());
  if (how.kind() == plan::InitializerKind::RopeCos || how.kind() == plan::InitializerKind::RopeSin)
    program.arrays.back().relative = unitOf(out.dtype());
  const bool isNormal = how.kind() == plan::InitializerKind::Normal;
  made.constant("double", "Value",
                formatv("{0}", llvm::format("%.17g", isNormal ? how.stddev() : how.scale())).str());
  made.constant("uint64_t", "Seed", "1"); // any will do
  made.constant("uint64_t", "Stream",
                formatv("{0}ull", llvm::xxHash64(variable.name()->string_view())).str());
  program.reference = expectedValue(how);
  program.main = "initializer";
  // The reference's sums of products are rounded twice, as on the device.
  program.options = "-std=c++20 -O2 -Xcompiler=-ffp-contract=off -fmad=false";
  program.bytes = double(out.bytes());
  if (source)
    program.bytes += double(plan.slices()->Get(source->slice())->bytes());
  Launch launch{&kernel, {}};
  for (size_t i = 0; i < program.arrays.size(); ++i)
    launch.args.push_back(i);
  program.launches.push_back(std::move(launch));
  return std::move(program);
}

// The largest variable whose first values the kernel makes; null: none.
static const plan::Variable *initializedBy(const plan::Plan &plan, uint32_t kernel) {
  const plan::Variable *largest = nullptr;
  auto bytes = [&](const plan::Variable &variable) {
    return plan.slices()->Get(variable.slice())->bytes();
  };
  for (const plan::Variable *variable : *plan.variables())
    if (variable->initializer() && variable->initializer()->kernel() == int64_t(kernel) &&
        (!largest || bytes(*variable) > bytes(*largest)))
      largest = variable;
  return largest;
}

//===-- Any kernel --------------------------------------------------------------------------===//

template <typename Op>
static bool launches(const Op *op, uint32_t kernel) {
  return op && op->launches() &&
         llvm::any_of(*op->launches(),
                      [&](const plan::Launch *launch) { return launch->kernel() == kernel; });
}

// Of the first command that is done with the kernel, or of a variable that it initialises.
static llvm::Expected<Program> templateOf(const plan::Plan &plan, uint32_t kernel) {
  for (const plan::Function *function : *plan.functions())
    for (const plan::Command *command : *function->commands()) {
      if (auto *op = command->body_as_Attention(); launches(op, kernel))
        return programOf(plan, *op);
      if (auto *op = command->body_as_AttentionGrad(); launches(op, kernel))
        return programOf(plan, *op);
      if (auto *op = command->body_as_ScatterAdd(); launches(op, kernel))
        return programOf(plan, *op);
    }
  if (const plan::Variable *variable = initializedBy(plan, kernel))
    return programOf(plan, *variable);
  return fail("kernel '{0}' has no region, and no command or variable needs it",
              plan.kernels()->Get(kernel)->name()->str());
}

llvm::Expected<std::string> extractKernel(const plan::Plan &plan, StringRef name,
                                          MLIRContext &context) {
  for (uint32_t i = 0; i < plan.kernels()->size(); ++i) {
    const plan::Kernel &kernel = *plan.kernels()->Get(i);
    if (name != kernel.name()->c_str())
      continue;
    if (!kernel.grid() || !kernel.source())
      return fail("kernel '{0}' has no CUDA code in this plan, which is for {1}", name,
                  plan.target()->str());
    llvm::Expected<Program> program = kernel.region() && kernel.region()->size() > 0
                                          ? programOf(kernel, context)
                                          : templateOf(plan, i);
    if (!program)
      return program.takeError();
    return program->print(plan, name);
  }
  return fail("the plan has no kernel '{0}'; --kernels lists them", name);
}

} // namespace lmc
