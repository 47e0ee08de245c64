// Writes the source of attention's kernels: constants, and a call of a device template.
#include "compiler/targets/cuda/templates/AttentionTemplates.h"
#include "compiler/targets/cuda/templates/CommandTemplates.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <limits>

using llvm::formatv;

namespace lmc::codegen {

static llvm::Error refuse(const std::string &why) {
  return llvm::createStringError("attention on CUDA: " + why);
}

static llvm::Error check(const AttentionShape &shape) {
  if (shape.type == DataType::F64)
    return refuse("f64 has no kernel there; compute in f32 or bf16, or on the CPU");
  if (shape.batch < 1 || shape.seq < 1 || shape.heads < 1 || shape.kvHeads < 1 || shape.window < 0)
    return refuse("an empty shape");
  if (shape.heads % shape.kvHeads != 0)
    return refuse(
        formatv("{0} query heads do not divide among {1} key heads", shape.heads, shape.kvHeads));
  if (shape.headDim < 2 || shape.headDim % 2 != 0 || shape.headDim > 256)
    return refuse(formatv("heads of {0}; even sizes up to 256 have a kernel", shape.headDim));
  if (!(shape.scale > 0) || !std::isfinite(float(shape.scale)))
    return refuse(formatv("a scale of {0}", shape.scale));
  // In the kernels, grid sizes and positions in a sequence are 32-bit integers.
  if (double(shape.batch) * double(shape.heads) * double(shape.seq) >
      double(std::numeric_limits<int32_t>::max()))
    return refuse("more than 2^31 rows of heads");
  return llvm::Error::success();
}

// Replaces each pitch of 0 by the row length, and a window of at least `seq` keys by 0 (no window).
static AttentionShape resolved(AttentionShape shape) {
  int64_t width = shape.heads * shape.headDim, kvWidth = shape.kvHeads * shape.headDim;
  for (int64_t *pitch : {&shape.qPitch, &shape.outPitch, &shape.doutPitch, &shape.dqPitch})
    if (*pitch == 0)
      *pitch = width;
  for (int64_t *pitch : {&shape.kPitch, &shape.vPitch, &shape.dkPitch, &shape.dvPitch})
    if (*pitch == 0)
      *pitch = kvWidth;
  if (shape.window >= shape.seq)
    shape.window = 0;
  return shape;
}

// Returns the number of (sequence, head) pairs that the grid processes together. Rows that their
// blocks share should fit half of the L2 cache. Pairs with the same key head always stay together.
static int64_t pairsTogether(AttentionPart part, const AttentionShape &shape,
                             const CudaArch &arch) {
  int64_t cache = arch.chip.cacheBytes / 2, group = shape.heads / shape.kvHeads;
  int64_t rowBytes = 2 * elementBytes(shape.type) * shape.headDim;
  bool byKeys = part == AttentionPart::GradKeys;
  int64_t shared = shape.seq * rowBytes * (byKeys ? group : 1);
  return std::max<int64_t>(1, cache / shared) * (byKeys ? 1 : group);
}

namespace {
// The name of an attention kernel in the device library, its CudaKernel::hero, and its parameters
// in launch order. A kernel leaves out parameters that its shape does not use, and passes nullptr
// to the device template instead.
struct PartText {
  const char *name, *hero;
  std::vector<llvm::StringRef> inputs, results;
};
} // namespace

static const PartText &textOf(AttentionPart part) {
  static const PartText parts[] = {
      {"Forward", "attention_forward", {"q", "k", "v", "starts"}, {"out", "lse", "largest"}},
      {"GradQueries",
       "attention_grad_queries",
       {"q", "k", "v", "out", "lse", "dout", "starts", "cos", "sin"},
       {"dq", "delta", "largest"}},
      {"GradKeys",
       "attention_grad_keys",
       {"q", "k", "v", "lse", "dout", "delta", "starts", "cos", "sin"},
       {"dk", "dv", "largest"}}};
  return parts[size_t(part)];
}

namespace {
struct Parameter {
  bool present;     // true if the shape uses the parameter
  const char *type; // the C++ type of its elements
  int64_t bytes;    // size of the elements, without the gaps between rows
};
} // namespace

static Parameter parameterOf(AttentionPart part, llvm::StringRef name,
                             const AttentionShape &shape) {
  const int64_t tokens = shape.batch * shape.seq;
  if (name == "starts")
    return {shape.documents, "lmc::i32", tokens * 4};
  if (name == "cos" || name == "sin")
    return {shape.rope, "float", shape.seq * shape.headDim / 2 * 4};
  if (name == "largest")
    return {shape.largest, "float",
            tokens * (part == AttentionPart::GradKeys ? 2 * shape.kvHeads : shape.heads) * 4};
  if (name == "lse" || name == "delta")
    return {true, "float", tokens * shape.heads * 4};
  const bool byKeys = name == "k" || name == "v" || name == "dk" || name == "dv";
  return {true, cudaName(shape.type),
          tokens * (byKeys ? shape.kvHeads : shape.heads) * shape.headDim *
              elementBytes(shape.type)};
}

GlobalBytes bytesOf(AttentionPart part, const AttentionShape &shape) {
  auto sum = [&](llvm::ArrayRef<llvm::StringRef> names) {
    uint64_t bytes = 0;
    for (llvm::StringRef name : names)
      if (Parameter parameter = parameterOf(part, name, shape); parameter.present)
        bytes += uint64_t(parameter.bytes);
    return bytes;
  };
  return {sum(textOf(part).inputs), sum(textOf(part).results)};
}

static std::string formulas(AttentionPart part, const AttentionShape &shape) {
  std::string mask = "j <= i";
  if (shape.window)
    mask += formatv(", i - j < {0}", shape.window);
  if (shape.documents)
    mask += ", j >= starts[i]";
  std::string text = formatv("//   s[i, j] = {0} q[i].k[j] for {1}\n", real(shape.scale), mask);
  if (part == AttentionPart::Forward)
    return text + "//   lse[i] = log sum_j exp(s[i, j])    "
                  "out[i] = sum_j exp(s[i, j] - lse[i]) v[j]\n";
  text += "//   p[i, j] = exp(s[i, j] - lse[i])    "
          "ds[i, j] = p[i, j] (dout[i].v[j] - delta[i])\n";
  std::string rotated = shape.rope ? ", rotated back by cos and sin" : "";
  if (part == AttentionPart::GradQueries)
    return text + formatv("//   delta[i] = dout[i].out[i]    dq[i] = {0} sum_j ds[i, j] k[j]{1}\n",
                          real(shape.scale), rotated)
                      .str();
  return text + formatv("//   dv[j] = sum_i p[i, j] dout[i]    dk[j] = {0} sum_i ds[i, j] q[i]{1}, "
                        "over the heads that share j\n",
                        real(shape.scale), rotated)
                    .str();
}

static bool isPadded(const AttentionTile *tile, const AttentionShape &shape) {
  return tile && tile->headDim != shape.headDim;
}

static std::string comment(AttentionPart part, const AttentionTile *tile,
                           const AttentionShape &shape, const std::string &name) {
  std::string text =
      formatv("// {0}: {1}\n", name, textOf(part).hero).str() + formulas(part, shape);
  text += formatv("// {0} [{1} * {2}, heads * {3}], {4} query and {5} key heads; lse and delta f32 "
                  "[{1} * {2}, {4}]\n",
                  shortName(shape.type), shape.batch, shape.seq, shape.headDim, shape.heads,
                  shape.kvHeads);
  if (isPadded(tile, shape))
    text += formatv("// Tiles have {0} columns; those from {1} on are zeros\n", tile->headDim,
                    shape.headDim);
  if (tile)
    text += formatv("// {0} queries x {1} keys at a time by {2} {3}, {4} tiles in {5}\n",
                    tile->queries, tile->keys, tile->warpgroups ? tile->warps / 4 : tile->warps,
                    tile->warpgroups ? "warpgroups" : "warps", tile->stages,
                    tile->warpgroups ? "shared memory" : "flight");
  else
    text += "// A warp per row, f32 arithmetic, no tensor cores\n";
  return text;
}

static std::string constants(AttentionPart part, const AttentionTile *tile,
                             const AttentionShape &shape, const CudaArch &arch) {
  std::string text = formatv(
      "struct Shape {{\n"
      "  static constexpr int batch = {0}, seq = {1}, heads = {2}, kvHeads = {3}, headDim = {4};\n"
      "  static constexpr int window = {5};\n"
      "  static constexpr bool documents = {6}, rope = {7}, largest = {8};\n"
      "  static constexpr int qPitch = {9}, kPitch = {10}, vPitch = {11}, outPitch = {12};\n",
      shape.batch, shape.seq, shape.heads, shape.kvHeads, shape.headDim, shape.window,
      shape.documents, shape.rope, shape.largest, shape.qPitch, shape.kPitch, shape.vPitch,
      shape.outPitch);
  if (part != AttentionPart::Forward)
    text += formatv("  static constexpr int doutPitch = {0}, dqPitch = {1}, dkPitch = {2}, "
                    "dvPitch = {3};\n",
                    shape.doutPitch, shape.dqPitch, shape.dkPitch, shape.dvPitch);
  text += formatv("  static constexpr float scale = {0};\n};\nstruct Tile {{\n", real(shape.scale));
  if (!tile)
    return text + formatv("  static constexpr int warps = {0};\n};\n", kPlainWarps).str();
  text += formatv("  static constexpr int queries = {0}, keys = {1}, warps = {2};\n", tile->queries,
                  tile->keys, tile->warps);
  const bool byKeys = part == AttentionPart::GradKeys;
  if (tile->warpgroups)
    text += formatv("  static constexpr int together = {0};\n", pairsTogether(part, shape, arch));
  else
    text += formatv("  static constexpr int {0} = {1}, together = {2};\n",
                    part == AttentionPart::Forward ? "slots" : "stages", tile->stages,
                    pairsTogether(part, shape, arch));
  if (!byKeys || tile->warpgroups)
    text += formatv("  static constexpr bool {0}Registers = {1};\n", byKeys ? "key" : "query",
                    tile->inRegisters);
  return text + "};\n";
}

CudaKernel attentionKernel(AttentionPart part, const AttentionTile *tile,
                           const AttentionShape &given, const CudaArch &arch,
                           const std::string &name) {
  AttentionShape shape = resolved(given);
  CudaKernel kernel;
  kernel.name = name;
  kernel.hero = textOf(part).hero;
  kernel.contract = true; // fma is safe: the kernel has no other ops that could change rounding
  kernel.threads = uint32_t(32 * (tile ? tile->warps : kPlainWarps));
  bool byKeys = part == AttentionPart::GradKeys;
  int64_t rows = !tile ? kPlainWarps : byKeys ? tile->keys : tile->queries;
  kernel.grid[0] = uint32_t(llvm::divideCeil(shape.seq, rows) * shape.batch *
                            (byKeys ? shape.kvHeads : shape.heads));
  kernel.sharedBytes = uint32_t(tile ? sharedBytesOf(*tile, shape) : plainSharedBytes(shape));
  kernel.bytes = bytesOf(part, shape);

  const PartText &text = textOf(part);
  llvm::SmallVector<std::string> parameters, arguments;
  auto add = [&](const char *qualifier, llvm::ArrayRef<llvm::StringRef> names) {
    for (llvm::StringRef name : names) {
      const Parameter parameter = parameterOf(part, name, shape);
      arguments.push_back(parameter.present ? name.str() : "nullptr");
      if (parameter.present)
        parameters.push_back(formatv("{0}{1} *{2}", qualifier, parameter.type, name));
    }
  };
  add("const ", text.inputs);
  add("", text.results);
  const char *header = !tile                            ? "attention_plain"
                       : part == AttentionPart::Forward ? "attention_forward"
                                                        : "attention_backward";
  const char *kind = !tile ? "Plain" : tile->warpgroups ? "Groups" : "";
  kernel.source = comment(part, tile, shape, name);
  kernel.source +=
      formatv("#include \"lmc/{0}{1}.cuh\"\n\n", header, tile && tile->warpgroups ? "_groups" : "");
  kernel.source += constants(part, tile, shape, arch);
  // The static_assert compares the launch's grid and shared memory with the device library's.
  const std::string types =
      isPadded(tile, shape) ? formatv("Shape, Tile, {0}", tile->headDim).str() : "Shape, Tile";
  kernel.source += formatv("\nusing Launch = lmc::Attention{0}{1}<{2}>;\n"
                           "static_assert(Launch::{3} == {4} && Launch::sharedBytes == {5}, "
                           "\"as launched\");\n",
                           tile ? text.name : "", kind, types,
                           tile     ? "blocks"
                           : byKeys ? "gradKeysBlocks"
                                    : "rowBlocks",
                           kernel.grid[0], kernel.sharedBytes);
  kernel.source +=
      formatv("\nextern \"C\" __global__ void __launch_bounds__({0}, {1})\n{2}({3}) {{\n"
              "  lmc::attention{4}{5}<{6}>({7});\n}\n",
              kernel.threads, tile ? tile->blocks : 1, name, llvm::join(parameters, ", "),
              text.name, kind, types, llvm::join(arguments, ", "));
  return kernel;
}

static CudaKernel chosenKernel(AttentionPart part, const AttentionShape &shape,
                               const CudaArch &arch, const std::string &name) {
  return attentionKernel(part, chooseAttentionTile(part, shape, arch), shape, arch, name);
}

llvm::Expected<std::vector<CudaKernel>>
attentionKernels(const AttentionShape &shape, const CudaArch &arch, const std::string &name) {
  if (llvm::Error error = check(shape))
    return error;
  return std::vector<CudaKernel>{chosenKernel(AttentionPart::Forward, shape, arch, name)};
}

llvm::Expected<std::vector<CudaKernel>>
attentionGradKernels(const AttentionShape &shape, const CudaArch &arch, const std::string &name) {
  if (llvm::Error error = check(shape))
    return error;
  return std::vector<CudaKernel>{
      chosenKernel(AttentionPart::GradQueries, shape, arch, name + "_queries"),
      chosenKernel(AttentionPart::GradKeys, shape, arch, name + "_keys")};
}

} // namespace lmc::codegen
