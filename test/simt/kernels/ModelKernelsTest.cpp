// Every kernel that the compiler makes of whole models for a GPU, with the layout that buffer
// placement gave it: against the CPU's code, and what it reads and writes against what the
// compiler says it does.
#include "test/simt/kernels/KernelCheck.h"

#include "compiler/driver/Compile.h"
#include "compiler/driver/Registration.h"
#include "test/ground/config/ShippedConfig.h"

#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

#include <iostream>

using namespace lmc;
using namespace lmc::simt;

namespace {

struct Model {
  const char *name;
  std::vector<std::string> settings;
  const char *config = "test-tiny.toml";
};

std::vector<CheckedKernel> kernelsOf(const Model &model) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  static mlir::MLIRContext *context = [&] {
    auto *made = new mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
    made->loadAllAvailableDialects();
    return made;
  }();
  std::vector<std::string> settings{"distributed.nodes=1", "distributed.devices_per_node=1",
                                    "target.device=cuda:sm_90a"};
  settings.insert(settings.end(), model.settings.begin(), model.settings.end());
  const Config config = shippedConfig(model.config, settings);
  CompileOptions options;
  options.compileTo = Phase::Buffers;
  auto compiled = compile(config, options, *context);
  if (failed(compiled)) {
    ADD_FAILURE() << model.name << " does not compile";
    return {};
  }
  return checkKernels(*compiled->module);
}

const Model kModels[] = {
    {"f32", {}},
    {"bf16_heads_of_64",
     {"training.compute_dtype=bf16", "model.hidden_size=256", "model.vocab_size=64",
      "model.intermediate_size=96", "model.num_hidden_layers=1", "training.sequence_length=16",
      "training.micro_batch_size=1"}},
    {"odd_sizes",
     {"training.compute_dtype=bf16", "model.vocab_size=131", "model.hidden_size=60",
      "model.num_attention_heads=5", "model.num_key_value_heads=1", "model.intermediate_size=77",
      "training.sequence_length=19", "training.micro_batch_size=1"}},
    {"untied_one_token",
     {"model.tie_word_embeddings=false", "model.num_key_value_heads=4",
      "training.sequence_length=1", "training.micro_batch_size=1"}},
    {"recompute", {"training.compute_dtype=bf16", "memory.recompute=block"}},
    {"gradients_in_f16",
     {"distributed.devices_per_node=2", "distributed.reduce_dtype=f16",
      "model.num_hidden_layers=1"}},
    {"adamw8bit", {"training.compute_dtype=bf16", "optimizer.type=adamw8bit"}},
    {"fp8", {"training.compute_dtype=bf16", "training.fp8=tensor", "model.num_hidden_layers=1"}},
    {"fp8_of_ranks",
     {"training.compute_dtype=bf16", "training.fp8=tensor", "distributed.devices_per_node=2",
      "distributed.strategy=zero3", "model.num_hidden_layers=2"}},
    {"stored_in_8_bits",
     {"training.compute_dtype=bf16", "training.fp8=tensor", "memory.store=fp8",
      "model.num_hidden_layers=1"}},
    {"stored_in_8_bits_odd_sizes",
     {"training.compute_dtype=bf16", "memory.store=fp8", "model.vocab_size=131",
      "model.hidden_size=60", "model.num_attention_heads=5", "model.num_key_value_heads=1",
      "model.intermediate_size=77", "training.sequence_length=19", "model.num_hidden_layers=1"}},
    {"norm_of_heads",
     {"training.compute_dtype=bf16", "model.architecture=qwen3", "model.head_dim=16",
      "model.num_hidden_layers=1"}},
    {"norm_of_heads_odd_sizes",
     {"model.architecture=qwen3", "model.hidden_size=60", "model.num_attention_heads=6",
      "model.num_key_value_heads=3", "model.head_dim=10", "training.sequence_length=19",
      "model.num_hidden_layers=1"}},
    {"norm_of_rows_and_behind_branches",
     {"training.compute_dtype=bf16", "model.architecture=olmo2", "model.num_hidden_layers=1"}},
    {"norm_of_rows_odd_sizes",
     {"model.architecture=olmo2", "model.hidden_size=60", "model.num_attention_heads=5",
      "model.num_key_value_heads=1", "training.sequence_length=19", "model.num_hidden_layers=1"}},
    {"muon",
     {"training.compute_dtype=bf16", "optimizer.type=muon", "distributed.devices_per_node=2"}},
    {"gpt2", {"training.compute_dtype=bf16", "model.num_hidden_layers=1"}, "test-gpt2.toml"},
    {"gpt2_odd_sizes",
     {"model.hidden_size=60", "model.num_attention_heads=6", "model.vocab_size=131",
      "model.intermediate_size=77", "training.sequence_length=19", "model.num_hidden_layers=1"},
     "test-gpt2.toml"},
    {"several_blocks_of_rows",
     {"training.compute_dtype=bf16", "model.num_hidden_layers=1", "training.sequence_length=128"}},
};

void PrintTo(const Model &model, std::ostream *to) { *to << model.name; }

uint64_t pointsOf(const CheckedKernel &kernel) {
  uint64_t points = 1;
  for (int64_t extent : kernel.shape.domain)
    points *= uint64_t(extent);
  return points;
}

uint64_t laneOf(const CheckedKernel &kernel) {
  return kernel.shape.domain.empty() ? 1 : uint64_t(kernel.shape.domain.back());
}

uint64_t warpsOf(const CheckedKernel &kernel) { return kernel.cuda.threads / 32; } // of a block

// Inputs that are read otherwise than once, by a part of the kernel's name.
struct Exception {
  const char *kernel;
  size_t input;
  const char *reason;
  bool byId;                                 // a row for each id, and others not at all
  uint64_t (*words)(const CheckedKernel &k); // elements that are read by themselves, on top
};
const Exception kExceptions[] = {
    {"cross_entropy", 0,
     "each warp of a row reads the target's logit by itself, which the block has just read: from "
     "L1 or L2",
     false, [](const CheckedKernel &k) { return pointsOf(k) / laneOf(k) * warpsOf(k); }},
    {"embedding", 1, "rows are read as often as ids name them", true,
     [](const CheckedKernel &) { return uint64_t(0); }},
    {"embedding_add", 3, "rows are read as often as ids name them", true,
     [](const CheckedKernel &) { return uint64_t(0); }},
    {"normalize", 1, "each warp reads the norms of its elements' matrices", false,
     [](const CheckedKernel &k) { return 2 * uint64_t(k.cuda.grid[0]) * warpsOf(k); }},
    {"own_rows", 0, "a rank reads only its own", true,
     [](const CheckedKernel &) { return uint64_t(0); }},
};

const Exception *exceptionFor(const CheckedKernel &kernel, size_t input) {
  const Exception *found = llvm::find_if(kExceptions, [&](const Exception &e) {
    return e.input == input && kernel.name.find(e.kernel) != std::string::npos;
  });
  return found == std::end(kExceptions) ? nullptr : found;
}

// The most that is loaded of an input that has fewer elements than the domain, in bytes. It is
// little, or comes from the caches.
uint64_t mostLoaded(const CheckedKernel &kernel, const ArgumentFacts &argument) {
  const bool byRow = kernel.hero == kern::Hero::RowReduction;
  const bool byColumn = kernel.hero == kern::Hero::ColumnReduction;
  const uint64_t blocks = kernel.cuda.grid[0], warps = warpsOf(kernel);
  const uint64_t once = argument.bytes * argument.places;
  if (!argument.alongLane && !argument.alongRows) // a scalar, by each warp
    return once * blocks * warps;
  if (!argument.alongLane) // a value of a row, by each warp that works on it
    return once * (byRow ? warps : byColumn ? blocks : laneOf(kernel) / 32 + 2);
  if (byRow && !argument.alongRows) // a weight, for a row or a block of rows, by idle warps too
    return once * blocks * llvm::divideCeil(uint64_t(kernel.shape.items), blocks);
  if (byColumn && !argument.alongRows) // by each warp that works on the columns
    return once * warps;
  // A table, or a weight beside elementwise work: an element for each point.
  return pointsOf(kernel) * argument.elementBytes * argument.places;
}

// Of elements of the arguments that cover the domain: the kernel goes along rows in words of 16
// bytes of these.
uint64_t widestElement(const CheckedKernel &kernel) {
  uint64_t widest = 0;
  for (const ArgumentFacts &argument : kernel.arguments)
    if (argument.coversDomain)
      widest = std::max(widest, argument.elementBytes);
  return widest;
}

// Sectors that accesses to `bytes` of an argument with fewer elements than the domain take. The
// value of a row is a word in a sector. A row is whole sectors, but where it has wider elements
// than the domain's rows (f32 beside bf16): as many as a word of those are two words of a lane,
// and each access takes half of its sectors.
uint64_t sectorsFor(const CheckedKernel &kernel, const ArgumentFacts &argument, uint64_t bytes) {
  if (!argument.alongLane)
    return bytes / argument.elementBytes;
  return bytes / 32 * (argument.elementBytes > widestElement(kernel) ? 2 : 1);
}

void expectSectors(const CheckedKernel &kernel, const ArgumentFacts &argument,
                   const Traffic &traffic) {
  if (argument.alongLane && !argument.wholeSectors)
    return;
  const uint64_t loads = sectorsFor(kernel, argument, traffic.loaded);
  if (argument.alongLane || kernel.hero == kern::Hero::RowReduction) {
    EXPECT_EQ(traffic.loadSectors, loads) << "loads are not coalesced";
  } else { // lanes of several rows may find their values in one sector
    EXPECT_LE(traffic.loadSectors, loads);
  }
  EXPECT_EQ(traffic.storeSectors, sectorsFor(kernel, argument, traffic.stored))
      << "stores are not coalesced";
}

void expectReads(const CheckedKernel &kernel, size_t input) {
  const ArgumentFacts &argument = kernel.arguments[input];
  const Traffic &traffic = kernel.traffic[input];
  const Exception *exception = exceptionFor(kernel, input);
  if (exception)
    std::cout << kernel.name << ", input " << input << ": " << exception->reason << " ("
              << traffic.loaded << " bytes of " << argument.bytes << ")\n";
  const uint64_t words = exception ? exception->words(kernel) : 0;
  const uint64_t once =
      exception && exception->byId ? pointsOf(kernel) * argument.elementBytes : argument.bytes;
  if (!exception && !argument.coversDomain) {
    EXPECT_LE(traffic.loaded, mostLoaded(kernel, argument));
    return;
  }
  // An instruction that takes several rows of one id takes them once.
  EXPECT_GE(traffic.loaded, exception && exception->byId ? traffic.distinctLoaded : once);
  EXPECT_LE(traffic.loaded, once + words * argument.elementBytes);
  if (argument.wholeSectors) {
    EXPECT_LE(traffic.loadSectors, once / 32 + words) << "loads are not coalesced";
  }
}

// Arguments with an element for every point of the kernel's domain are read once and written
// once, in whole sectors where their rows are whole sectors. Of what has fewer elements
// (weights, tables, scalars) every byte that the compiler counts is read at least once, in the
// sectors of sectorsFor.
void expectBytes(const CheckedKernel &kernel) {
  uint64_t touched = 0, stored = 0, written = 0;
  bool byId = false;
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    SCOPED_TRACE(kernel.name + ", argument " + std::to_string(i) + "\n" + kernel.cuda.source);
    const ArgumentFacts &argument = kernel.arguments[i];
    const Traffic &traffic = kernel.traffic[i];
    touched += traffic.distinctLoaded;
    stored += traffic.stored;
    written += traffic.distinctStored;
    const Exception *exception = i < kernel.inputs ? exceptionFor(kernel, i) : nullptr;
    byId |= exception && exception->byId;
    if (i < kernel.inputs)
      expectReads(kernel, i);
    if (!argument.coversDomain)
      expectSectors(kernel, argument, traffic);
    else if (argument.wholeSectors) {
      EXPECT_EQ(traffic.storeSectors * 32, traffic.stored) << "stores are not coalesced";
    }
  }
  EXPECT_EQ(stored, kernel.cuda.bytes.written + kernel.cuda.again.written) << kernel.name;
  EXPECT_EQ(written, kernel.cuda.bytes.written) << kernel.name << " writes a byte twice";
  EXPECT_EQ(kernel.cuda.again.read, 0u) << kernel.name << " reads a row again";
  if (!byId) {
    EXPECT_EQ(touched, kernel.cuda.bytes.read) << kernel.name;
  }
}

class ModelKernels : public testing::TestWithParam<Model> {};

} // namespace

TEST_P(ModelKernels, areRightAndMoveWhatTheyMust) {
  std::vector<CheckedKernel> kernels = kernelsOf(GetParam());
  EXPECT_GT(kernels.size(), 12u);
  for (const CheckedKernel &kernel : kernels) {
    EXPECT_EQ(kernel.failure, "") << kernel.cuda.source;
    if (kernel.failure.empty())
      expectBytes(kernel);
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, ModelKernels, testing::ValuesIn(kModels),
                         [](const auto &info) { return info.param.name; });
