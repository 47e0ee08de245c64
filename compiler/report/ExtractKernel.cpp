#include "compiler/report/ExtractKernel.h"

#include "compiler/codegen/DeviceLibrary.h"
#include "compiler/report/HostReference.h"
#include "runtime/plan/PlanFile.h"

#include "mlir/Parser/Parser.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using llvm::formatv;

namespace lmc {
namespace {

// The texts of compiler/report/extract.
constexpr struct {
  const char *stem, *text;
} kTexts[] = {
#include "extract_texts.inc"
};

std::string textOf(StringRef stem) {
  for (const auto &entry : kTexts)
    if (stem == entry.stem)
      return entry.text;
  llvm_unreachable("a file of compiler/report/extract");
}

template <typename... Args> llvm::Error fail(const char *format, Args &&...args) {
  return llvm::createStringError(formatv(format, std::forward<Args>(args)...).str());
}

// One tensor of the program.
struct Array {
  std::string name;
  const char *type; // of host::Type
  std::vector<int64_t> shape;
  int64_t rows = 1, pitch = 0; // elements; pitch 0: dense
  bool isInput = true;
  int64_t bound = 1; // of integers
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
  double bytes = 0, flops = 0;

  std::string print(const plan::Plan &plan, StringRef name) const;

private:
  std::string kernels() const;
  std::string tables() const;
};

} // namespace

//===-- The text ----------------------------------------------------------------------------===//

static bool isInclude(StringRef line) { return line.trim().starts_with("#include"); }

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
  for (const Array &array : arrays) {
    std::string shape = llvm::join(llvm::map_range(array.shape, [](int64_t n) {
                                     return std::to_string(n);
                                   }), ", ");
    text += formatv("    {{\"{0}\", host::Type::{1}, {{{2}}, {3}, {4}, {5}, {6}, {{}},\n", array.name,
                    array.type, shape, array.rows, array.pitch, array.isInput ? "true" : "false",
                    array.bound);
  }
  text += formatv("};\n\nconstexpr double kBytes = {0}, kFlops = {1};\nconstexpr size_t kLaunches = "
                  "{2};\nconst char *const launchNames[] = {{",
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
    text += formatv("  case {0}: {{\n    auto *entry = reinterpret_cast<const void *>(kernel{1}::{2});\n"
                    "    void *arguments[] = {{{3}};\n"
                    "    static const cudaError_t room = cudaFuncSetAttribute(\n"
                    "        entry, cudaFuncAttributeMaxDynamicSharedMemorySize, {4});\n"
                    "    host::check(room, \"shared memory\");\n"
                    "    host::check(cudaLaunchKernel(entry, dim3({5}, {6}, {7}), dim3({8}), arguments, "
                    "{4}, nullptr),\n                \"{2}\");\n    return;\n  }\n",
                    i, space, kernel.entry()->str(), args, kernel.shared_bytes(),
                    kernel.grid()->Get(0), kernel.grid()->Get(1), kernel.grid()->Get(2),
                    kernel.threads());
  }
  return text + "  }\n}\n\nstatic void launchAll() {\n  for (size_t i = 0; i < kLaunches; ++i)\n"
                "    launch(i);\n}\n\n";
}

std::string Program::print(const plan::Plan &plan, StringRef name) const {
  std::string arch = plan.target()->str();
  arch.erase(0, arch.find(':') + 1);
  return formatv("// {0}, out of a plan for {1}, with a check and a bench.\n"
                 "//   nvcc -std=c++17 -O2 -fmad={2} -arch={1} {0}.cu -o {0} && ./{0}\n\n",
                 name, arch, main == "attention" ? "true" : "false") // as CudaKernel::contract
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

static llvm::Expected<Program> programOf(const plan::Kernel &kernel, MLIRContext &context) {
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(kernel.region()->string_view(), &context);
  if (!module || module->getOps<kern::KernelOp>().empty())
    return fail("kernel '{0}': its region in the plan cannot be read", kernel.name()->str());
  kern::KernelOp op = *module->getOps<kern::KernelOp>().begin();
  Block &body = op.getBody().front();

  Program program;
  Launch launch{&kernel, {}};
  auto add = [&](Value tensor, const llvm::Twine &name, bool isInput) {
    auto type = cast<RankedTensorType>(tensor.getType());
    size_t number = program.arrays.size();
    Array array{name.str(), hostType(type.getElementType()), type.getShape().vec()};
    array.isInput = isInput;
    array.bound = integerBound(op);
    if (op.getArgRows() && op.getArgPitches()) {
      array.rows = std::max<int64_t>(1, (*op.getArgRows())[number]);
      array.pitch = (*op.getArgPitches())[number];
    }
    launch.args.push_back(number);
    program.arrays.push_back(std::move(array));
  };
  for (auto [i, argument] : llvm::enumerate(body.getArguments()))
    add(argument, "in" + llvm::Twine(i), true);
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands()))
    add(value, "out" + llvm::Twine(i), false);
  program.launches.push_back(std::move(launch));

  llvm::Expected<std::string> reference = hostReference(op);
  if (!reference)
    return reference.takeError();
  program.reference = std::move(*reference);
  // Two units in the last place of bf16; sums of f32 in another order.
  program.constants = roundsToBf16(op) ? "constexpr double kRelative = 0.016, kAbsolute = 0.016;\n\n"
                                       : "constexpr double kRelative = 1e-4, kAbsolute = 1e-5;\n\n";
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

  // The number of the array, which the constant kNAME then has; -1 for a slice that is absent.
  void add(StringRef name, int64_t slice, bool isInput, int64_t bound = 1);
  void add(const flatbuffers::Vector<flatbuffers::Offset<plan::Launch>> &launches);
  void constant(StringRef type, StringRef name, const llvm::Twine &value) {
    program.constants += formatv("constexpr {0} k{1} = {2};\n", type, name, value.str());
  }

  Program program;

private:
  const plan::Plan &plan;
  llvm::DenseMap<uint32_t, size_t> arrayOf; // by slice
};
} // namespace

void CommandProgram::add(StringRef name, int64_t slice, bool isInput, int64_t bound) {
  std::string constantName = name.str();
  constantName[0] = llvm::toUpper(constantName[0]);
  constant("int", constantName,
           slice < 0 ? "-1" : llvm::Twine(program.arrays.size()).str());
  if (slice < 0)
    return;
  const plan::Slice &from = *plan.slices()->Get(uint32_t(slice));
  Array array{name.str(), hostType(from.dtype())};
  if (from.shape())
    array.shape.assign(from.shape()->begin(), from.shape()->end());
  array.rows = int64_t(from.rows());
  array.pitch = int64_t(from.pitch() / byteWidth(from.dtype()));
  array.isInput = isInput;
  array.bound = bound;
  arrayOf[uint32_t(slice)] = program.arrays.size();
  program.arrays.push_back(std::move(array));
}

void CommandProgram::add(
    const flatbuffers::Vector<flatbuffers::Offset<plan::Launch>> &launches) {
  for (const plan::Launch *launch : launches) {
    Launch made{plan.kernels()->Get(launch->kernel()), {}};
    for (uint32_t slice : *launch->args())
      made.args.push_back(arrayOf.lookup(slice));
    program.launches.push_back(std::move(made));
  }
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
static void addAttention(CommandProgram &to, const Op &op, bool isGradient, double products) {
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
  to.constant("bool", "IsGradient", isGradient ? "true" : "false");
  to.program.main = "attention";
  to.program.flops = 2 * products * op.head_dim() * visiblePairs(op.seq(), op.window()) *
                     op.heads() * op.batch();
  to.add(*op.launches());
}

static Program programOf(const plan::Plan &plan, const plan::Attention &op) {
  CommandProgram made(plan);
  for (const char *name : {"dout", "dq", "dk", "dv", "cos", "sin"})
    made.add(name, -1, false);
  addAttention(made, op, /*isGradient=*/false, 2);
  return std::move(made.program);
}

static Program programOf(const plan::Plan &plan, const plan::AttentionGrad &op) {
  CommandProgram made(plan);
  made.add("dout", op.dout(), true);
  made.add("dq", op.dq(), false);
  made.add("dk", op.dk(), false);
  made.add("dv", op.dv(), false);
  made.add("delta", op.workspace(), false);
  made.add("cos", op.cos(), true);
  made.add("sin", op.sin(), true);
  addAttention(made, op, /*isGradient=*/true, 5);
  return std::move(made.program);
}

static Program programOf(const plan::Plan &plan, const plan::ScatterAdd &op) {
  CommandProgram made(plan);
  made.add("ids", op.ids(), true, int64_t(op.vocabulary()));
  made.add("x", op.x(), true);
  made.add("workspace", op.workspace(), false);
  made.add("d", op.d(), false);
  made.constant("int64_t", "Rows", llvm::Twine(op.rows()));
  made.constant("int64_t", "Columns", llvm::Twine(op.columns()));
  made.constant("int64_t", "Vocabulary", llvm::Twine(op.vocabulary()));
  made.constant("bool", "Accumulate", op.accumulate() ? "true" : "false");
  made.program.main = "scatter_add";
  made.program.bytes = double(plan.slices()->Get(op.x())->bytes()) +
                       double(plan.slices()->Get(op.d())->bytes()) * (op.accumulate() ? 2 : 1);
  made.add(*op.launches());
  return std::move(made.program);
}

template <typename Op>
static bool launches(const Op *op, uint32_t kernel) {
  return op && op->launches() &&
         llvm::any_of(*op->launches(),
                      [&](const plan::Launch *launch) { return launch->kernel() == kernel; });
}

// The first command that is done with the kernel.
static llvm::Expected<Program> commandOf(const plan::Plan &plan, uint32_t kernel) {
  for (const plan::Function *function : *plan.functions())
    for (const plan::Command *command : *function->commands()) {
      if (auto *op = command->body_as_Attention(); launches(op, kernel))
        return programOf(plan, *op);
      if (auto *op = command->body_as_AttentionGrad(); launches(op, kernel))
        return programOf(plan, *op);
      if (auto *op = command->body_as_ScatterAdd(); launches(op, kernel))
        return programOf(plan, *op);
    }
  return fail("kernel '{0}' makes first values, which nothing stand-alone is compared with",
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
                                          : commandOf(plan, i);
    if (!program)
      return program.takeError();
    return program->print(plan, name);
  }
  return fail("the plan has no kernel '{0}'; --kernels lists them", name);
}

} // namespace lmc
