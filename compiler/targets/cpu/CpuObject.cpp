#include "compiler/targets/cpu/CpuObject.h"

#include "compiler/kernels/KernelCache.h"
#include "compiler/targets/cpu/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

#include "lld/Common/Driver.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/SubtargetFeature.h"
#include "llvm/Transforms/Utils/Cloning.h"

#include <mutex>

LLD_HAS_DRIVER(elf)

using namespace mlir;

namespace lmc::codegen {
namespace {

template <typename... Args> llvm::Error error(const char *format, Args &&...args) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 llvm::formatv(format, std::forward<Args>(args)...).str());
}

// The CPU features that kernels may use, by LLVM's names and by those of /proc/cpuinfo (Linux,
// arch/x86/include/asm/cpufeatures.h).
struct Feature {
  const char *llvm, *linux;
};
constexpr Feature kFeatures[] = {
    {"sse3", "pni"},
    {"ssse3", "ssse3"},
    {"sse4.1", "sse4_1"},
    {"sse4.2", "sse4_2"},
    {"popcnt", "popcnt"},
    {"avx", "avx"},
    {"f16c", "f16c"},
    {"fma", "fma"},
    {"avx2", "avx2"},
    {"bmi", "bmi1"},
    {"bmi2", "bmi2"},
    {"lzcnt", "abm"},
    {"movbe", "movbe"},
    {"adx", "adx"},
    {"gfni", "gfni"},
    {"avxvnni", "avx_vnni"},
    {"xop", "xop"},
    {"fma4", "fma4"},
    {"tbm", "tbm"},
    {"avx512f", "avx512f"},
    {"avx512cd", "avx512cd"},
    {"avx512bw", "avx512bw"},
    {"avx512dq", "avx512dq"},
    {"avx512vl", "avx512vl"},
    {"avx512ifma", "avx512ifma"},
    {"avx512vbmi", "avx512vbmi"},
    {"avx512vbmi2", "avx512_vbmi2"},
    {"avx512vnni", "avx512_vnni"},
    {"avx512bitalg", "avx512_bitalg"},
    {"avx512vpopcntdq", "avx512_vpopcntdq"},
    {"avx512bf16", "avx512_bf16"},
    {"avx512fp16", "avx512_fp16"},
};

// Returns true for a function of libm or libc that the shared object may import.
bool isLibraryFunction(llvm::StringRef name) {
  static const llvm::StringSet<> names = {
      "exp",   "expf",   "log",   "logf",   "tanh",   "tanhf",   "sin",    "sinf",   "cos",
      "cosf",  "erf",    "erff",  "pow",    "powf",   "exp2",    "exp2f",  "log2",   "log2f",
      "log1p", "log1pf", "expm1", "expm1f", "memcpy", "memmove", "memset", "sincos", "sincosf"};
  return names.contains(name);
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machineFor(const std::string &name) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  std::string message;
  const llvm::Target *backend = llvm::TargetRegistry::lookupTarget(triple, message);
  if (!backend)
    return error("no code generator for {0}: {1}", triple.str(), message);
  llvm::SubtargetFeatures features;
  std::string cpu = name;
  if (name == "native") {
    cpu = llvm::sys::getHostCPUName();
    for (auto &[feature, enabled] : llvm::sys::getHostCPUFeatures())
      features.AddFeature(feature, enabled);
  } else {
    std::unique_ptr<llvm::MCSubtargetInfo> info(backend->createMCSubtargetInfo(triple, "", ""));
    if (!info || !info->isCPUStringValid(cpu))
      return error("unknown CPU '{0}' for {1}; use native, x86-64, x86-64-v3, x86-64-v4 or a CPU "
                   "name of LLVM's",
                   cpu, triple.getArchName());
  }
  std::unique_ptr<llvm::TargetMachine> machine(backend->createTargetMachine(
      triple, cpu, features.getString(), llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt,
      llvm::CodeGenOptLevel::Default));
  if (!machine)
    return error("cannot generate code for CPU '{0}'", cpu);
  return machine;
}

// Lets only one thread link at a time, because the linker keeps its state in global variables.
std::mutex linkerMutex;

llvm::Error writeFile(const std::string &path, llvm::StringRef bytes) {
  std::error_code code;
  llvm::raw_fd_ostream file(path, code);
  if (code)
    return error("cannot write {0}: {1}", path, code.message());
  file << bytes;
  file.close();
  if (!file.has_error())
    return llvm::Error::success();
  std::string text = file.error().message();
  file.clear_error();
  return error("cannot write {0}: {1}", path, text);
}

llvm::Expected<std::vector<uint8_t>> link(llvm::ArrayRef<std::string> objects) {
  llvm::SmallString<128> directory;
  if (std::error_code code = llvm::sys::fs::createUniqueDirectory("lmc-link", directory))
    return error("cannot make a temporary directory: {0}", code.message());
  auto remove = llvm::scope_exit([&] { llvm::sys::fs::remove_directories(directory); });
  const std::string output = (directory + "/kernels.so").str();
  std::vector<std::string> inputs;
  for (const std::string &object : objects) {
    inputs.push_back((directory + "/" + std::to_string(inputs.size()) + ".o").str());
    if (llvm::Error e = writeFile(inputs.back(), object))
      return e;
  }
  std::string messages;
  llvm::raw_string_ostream log(messages);
  {
    std::lock_guard lock(linkerMutex);
    std::vector<const char *> arguments{"ld.lld",
                                        "-shared",
                                        "--build-id=none",
                                        "--hash-style=gnu",
                                        "-O1",
                                        "-z",
                                        "noexecstack",
                                        "-z",
                                        "separate-code",
                                        "--threads=1",
                                        "-soname",
                                        "kernels.so",
                                        "--strip-all",
                                        "--no-undefined-version",
                                        "-o",
                                        output.c_str()};
    for (const std::string &input : inputs)
      arguments.push_back(input.c_str());
    lld::Result result = lld::lldMain(arguments, log, log, {{lld::Gnu, &lld::elf::link}});
    if (result.retCode != 0)
      return error("linking the kernels failed: {0}", llvm::StringRef(log.str()).trim());
  }
  auto buffer = llvm::MemoryBuffer::getFile(output, /*IsText=*/false, false, /*IsVolatile=*/true);
  if (!buffer)
    return error("cannot read {0}: {1}", output, buffer.getError().message());
  auto bytes = (*buffer)->getBuffer();
  return std::vector<uint8_t>(bytes.bytes_begin(), bytes.bytes_end());
}

void optimise(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  // LLVM must not vectorise: the pass kern-lower-kernels has vectorised and unrolled the kernels.
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.LoopInterleaving = false;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

llvm::Error emit(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type,
                 llvm::SmallVectorImpl<char> &out) {
  llvm::raw_svector_ostream stream(out);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type))
    return error("the target cannot emit this kind of file");
  passes.run(module);
  return llvm::Error::success();
}

// Returns an object file with the code of `module`, which it optimizes. Appends to `assembly`.
llvm::Expected<std::string> compile(llvm::Module &module, llvm::TargetMachine &machine,
                                    std::string *assembly) {
  optimise(module, machine);
  if (assembly) {
    llvm::SmallVector<char, 0> text;
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
    if (llvm::Error e = emit(*copy, machine, llvm::CodeGenFileType::AssemblyFile, text))
      return e;
    assembly->append(text.begin(), text.end());
  }
  llvm::SmallVector<char, 0> object;
  if (llvm::Error e = emit(module, machine, llvm::CodeGenFileType::ObjectFile, object))
    return e;

  llvm::StringRef bytes(object.data(), object.size());
  auto parsed =
      llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(bytes, "kernel.o"));
  if (!parsed)
    return parsed.takeError();
  for (const llvm::object::SymbolRef &symbol : (*parsed)->symbols()) {
    auto flags = symbol.getFlags();
    auto name = symbol.getName();
    if (!flags || !name)
      return llvm::joinErrors(flags.takeError(), name.takeError());
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) && !name->empty() &&
        !isLibraryFunction(*name))
      return error("the kernels call '{0}', which is in neither libm nor libc", *name);
  }
  return bytes.str();
}

// Returns a module with `kernel` and the functions of libm that it calls. A kernel calls no other
// kernel.
std::unique_ptr<llvm::Module> moduleOf(const llvm::Function &kernel) {
  llvm::ValueToValueMapTy values;
  std::unique_ptr<llvm::Module> module =
      llvm::CloneModule(*kernel.getParent(), values,
                        [&](const llvm::GlobalValue *value) { return value == &kernel; });
  for (llvm::Function &function : llvm::make_early_inc_range(*module))
    if (function.isDeclaration() && function.use_empty())
      function.eraseFromParent();
  return module;
}

// Returns the key of the object file of `module` in a cache. The module names the CPU and its
// features.
std::string keyOf(const llvm::Module &module) {
  llvm::SmallString<0> code;
  llvm::raw_svector_ostream stream(code);
  llvm::WriteBitcodeToFile(module, stream);
  // Change the version "cpu kernel 1" when optimise() or emit() changes.
  return KernelCache::key({"cpu kernel 1", LLVM_VERSION_STRING, code});
}

} // namespace

llvm::Expected<std::string> resolveCpu(const std::string &name) {
  auto machine = machineFor(name);
  if (!machine)
    return machine.takeError();
  return (*machine)->getTargetCPU().str();
}

llvm::Expected<CpuImage> buildCpuImage(ModuleOp kernels, const CpuTarget &target) {
  auto machineOrError = machineFor(target.cpu);
  if (!machineOrError)
    return machineOrError.takeError();
  llvm::TargetMachine &machine = **machineOrError;
  CpuImage image;
  image.cpu = machine.getTargetCPU().str();
  const llvm::MCSubtargetInfo &subtarget = *machine.getMCSubtargetInfo();
  bool x86 = machine.getTargetTriple().isX86();
  auto has = [&](llvm::StringRef feature) {
    return subtarget.checkFeatures(("+" + feature).str());
  };

  // AVX without AVX2 has no 256-bit integer arithmetic. Kernels then use 128-bit vectors.
  unsigned widest = !x86 ? 128 : has("avx512f") ? 512 : has("avx2") ? 256 : 128;
  image.vectorWidth = target.vectorWidth ? target.vectorWidth : widest;
  if (image.vectorWidth != 128 && image.vectorWidth != 256 && image.vectorWidth != 512)
    return error("a vector width of {0} bits; use 128, 256 or 512", image.vectorWidth);
  if (x86)
    for (const Feature &feature : kFeatures)
      if (has(feature.llvm))
        image.features.push_back(feature.linux);

  OwningOpRef<ModuleOp> lowered = kernels.clone();
  MLIRContext *context = kernels.getContext();
  registerBuiltinDialectTranslation(*context);
  registerLLVMDialectTranslation(*context);
  PassManager passes(context);
  buildKernelsToLLVM(passes, {.vectorWidth = image.vectorWidth, .fma = !x86 || has("fma")});
  std::string diagnostics;
  {
    ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Error) {
        if (!diagnostics.empty())
          diagnostics += "; ";
        diagnostics += diagnostic.str();
      }
      return success();
    });
    if (failed(passes.run(*lowered)))
      return error("cannot compile the kernels for the CPU: {0}", diagnostics);
  }

  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(*lowered, llvmContext, "kernels");
  if (!module)
    return error("cannot translate the kernels to LLVM IR");
  module->setTargetTriple(machine.getTargetTriple());
  module->setDataLayout(machine.createDataLayout());
  std::string width = std::to_string(image.vectorWidth);
  for (llvm::Function &function : *module) {
    function.addFnAttr(llvm::Attribute::NoUnwind);
    if (function.isDeclaration()) {
      // `function` belongs to libm. It may set errno, but kernels do not read errno.
      function.setMemoryEffects(llvm::MemoryEffects::none());
      function.addFnAttr(llvm::Attribute::WillReturn);
      continue;
    }
    // Without these two attributes, LLVM splits 512-bit vectors for CPUs that prefer shorter ones.
    function.addFnAttr("min-legal-vector-width", width);
    function.addFnAttr("prefer-vector-width", width);
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
  }
  const KernelCache cache(target.keepAssembly ? "" : target.cache);
  std::vector<std::string> objects;
  for (const llvm::Function &kernel : *module) {
    if (kernel.isDeclaration())
      continue;
    std::unique_ptr<llvm::Module> alone = moduleOf(kernel);
    const std::string key = keyOf(*alone);
    if (std::optional<std::string> known = cache.find(key)) {
      objects.push_back(std::move(*known));
      continue;
    }
    auto object = compile(*alone, machine, target.keepAssembly ? &image.assembly : nullptr);
    if (!object)
      return object.takeError();
    cache.keep(key, *object);
    objects.push_back(std::move(*object));
  }
  if (objects.empty()) { // a plan without kernels has a shared object without functions
    auto object = compile(*module, machine, nullptr);
    if (!object)
      return object.takeError();
    objects.push_back(std::move(*object));
  }
  auto linked = link(objects);
  if (!linked)
    return linked.takeError();
  image.object = std::move(*linked);
  return image;
}

} // namespace lmc::codegen
