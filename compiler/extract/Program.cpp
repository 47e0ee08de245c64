#include "compiler/extract/Program.h"

#include "compiler/targets/cuda/DeviceLibrary.h"
#include "ground/plan/PlanFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

using llvm::ArrayRef;
using llvm::enumerate;
using llvm::Expected;
using llvm::formatv;
using llvm::SmallVector;
using llvm::StringRef;
using llvm::Twine;

namespace lmc::extract {

// The file names and texts of compiler/extract/text, and of the runtime's NormalStream.cpp.
static constexpr struct {
  const char *stem, *text;
} kTexts[] = {
#include "extract_texts.inc"
};

bool hasText(StringRef stem) {
  return llvm::any_of(kTexts, [&](const auto &entry) { return stem == entry.stem; });
}

std::string textOf(StringRef stem) {
  for (const auto &entry : kTexts)
    if (stem == entry.stem)
      return entry.text;
  llvm_unreachable("a text that is embedded");
}

void Array::allowRoundingTo(StringRef precision) {
  if (precision == "BF16") // two units in the last place
    relative = absolute = 0.016;
  else if (precision == "F8E4M3" || precision == "F8E5M2") // the next code
    relative = precision == "F8E4M3" ? 0.13 : 0.26,
    absolute = precision == "F8E4M3" ? 0x1p-9 : 0x1p-16;
  else if (precision == "F64") // allows sums in another order
    relative = absolute = 1e-10;
  else
    relative = 1e-4, absolute = 1e-5;
}

std::string Array::print() const {
  std::string extents =
      llvm::join(llvm::map_range(shape, [](int64_t n) { return std::to_string(n); }), ", ");
  return formatv("{{\"{0}\", host::Type::{1}, {{{2}}, {3}, {4}, {5}, {{{6}, {7}, {8}}, "
                 "{{{9}, {10}}, {{}}",
                 name, type, extents, rows, pitch, boolText(isInput), least, bound,
                 boolText(isPositive), llvm::format("%g", relative), llvm::format("%g", absolute));
}

// Each kernel has a namespace, because helper functions of two kernels may have the same name.
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

// Returns the predicted seconds of a launch of `kernel`, or 0 if `costs` is empty.
static double secondsOf(const plan::Plan &plan, const plan::Kernel &kernel,
                        ArrayRef<cost::KernelCost> costs) {
  for (size_t i = 0; i < costs.size(); ++i)
    if (plan.kernels()->Get(unsigned(i)) == &kernel)
      return costs[i].launch.seconds;
  return 0;
}

std::string Program::tables(const plan::Plan &plan, ArrayRef<cost::KernelCost> costs) const {
  std::string text = "static std::vector<host::Array> arrays = {\n";
  for (const Array &array : arrays)
    text += "    " + array.print() + ",\n";
  text += formatv("};\n\nconstexpr double kBytes = {0}, kFlops = {1};\n"
                  "constexpr size_t kLaunches = {2};\nconst char *const launchNames[] = {{",
                  llvm::format("%.17g", bytes), llvm::format("%.17g", flops), launches.size());
  for (const Launch &launch : launches)
    text += "\"" + launch.kernel->name()->str() + "\", ";
  text += "};\nconst double launchPredictions[] = {"; // seconds; 0: no prediction
  for (const Launch &launch : launches)
    text += formatv("{0}, ", llvm::format("%.17g", secondsOf(plan, *launch.kernel, costs)));
  text += "};\n\nstatic void launch(size_t number) {\n  switch (number) {\n";
  std::vector<const plan::Kernel *> done;
  for (auto [i, launch] : llvm::enumerate(launches)) {
    const plan::Kernel &kernel = *launch.kernel;
    auto known = llvm::find(done, &kernel);
    size_t space = size_t(known - done.begin());
    if (known == done.end())
      done.push_back(&kernel);
    std::string args = llvm::join(
        llvm::map_range(launch.args,
                        [](size_t array) { return formatv("&arrays[{0}].device", array).str(); }),
        ", ");
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

std::string Program::print(const plan::Plan &plan, StringRef name,
                           ArrayRef<cost::KernelCost> costs) const {
  std::string arch = plan.target()->str();
  arch.erase(0, arch.find("sm_") + 3);
  // With -arch instead of -gencode, nvcc would also make code for the architecture's family. That
  // code never runs, and the compile would take a third longer.
  return formatv("// {0}, out of a plan for sm_{1}, with a check and a bench.\n"
                 "//   nvcc {2} -gencode=arch=compute_{1},code=sm_{1} {0}.cu -o {0} && ./{0}\n"
                 "// With the argument hold it runs for four seconds, with any other it only checks.\n\n",
                 name, arch, options)
             .str() +
         kernels() + textOf("heat") + "\n" + textOf("harness") + "\n" + tables(plan, costs) +
         constants + reference + "\n" + textOf(main) + "\n" + textOf("finish");
}

void CommandProgram::constant(StringRef type, StringRef name, const Twine &value) {
  program.constants +=
      formatv("constexpr {0} k{1} = {2};\n", type,
              llvm::convertToCamelFromSnakeCase(name, /*capitalizeFirst=*/true), value.str());
}

void CommandProgram::add(StringRef name, int64_t slice, bool isInput, int64_t bound) {
  if (slice < 0) {
    constant("int", name, "-1");
    return;
  }
  const plan::Slice &from = *plan.slices()->Get(uint32_t(slice));
  Array array{name.str(), plan::EnumNameDType(from.dtype()), {}};
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
  constant("int", array.name, Twine(program.arrays.size()));
  program.arrays.push_back(std::move(array));
}

Expected<Program> CommandProgram::launching(const plan::Command &command,
                                            std::optional<size_t> only) {
  for (auto [number, launch] : enumerate(*command.launches())) {
    if (only && number != *only)
      continue;
    Launch made{plan.kernels()->Get(launch->kernel()), {}};
    for (auto [i, slice] : enumerate(*launch->args())) {
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

} // namespace lmc::extract
