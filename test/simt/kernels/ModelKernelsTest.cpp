// Every kernel that the compiler makes of whole models for a GPU, with the layout that buffer
// placement gave it: against the CPU's code, and what it reads and writes against what the
// compiler says it does.
#include "test/simt/kernels/KernelCheck.h"

#include "compiler/Compile.h"
#include "compiler/Registration.h"

#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

using namespace lmc;
using namespace lmc::simt;

namespace {

struct Model {
  const char *name;
  std::vector<std::string> settings;
};

std::vector<CheckedKernel> kernelsOf(const Model &model) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  static mlir::MLIRContext *context = [&] {
    auto *made = new mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
    made->loadAllAvailableDialects();
    return made;
  }();
  std::vector<std::string> settings = model.settings;
  for (const char *always : {"distributed.nodes=1", "distributed.devices_per_node=1",
                             "target.device=cuda:sm_90a"})
    settings.push_back(always);
  Config config;
  ConfigError error;
  if (!loadConfig(LMC_SOURCE_DIR "/models/configs/test-tiny.toml", settings, config, error)) {
    ADD_FAILURE() << error.message;
    return {};
  }
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
    {"adamw8bit", {"training.compute_dtype=bf16", "optimizer.type=adamw8bit"}},
};

void PrintTo(const Model &model, std::ostream *to) { *to << model.name; }

// Kernels that read or write otherwise than once, by a part of their name, and why.
struct Exception {
  const char *kernel, *reason;
};
const Exception kReadAgain[] = {
    {"cross_entropy", "each warp of a row reads the target's logit once more, which the block has "
                      "just read: from L1 or L2"},
    {"embedding", "a row is read as often as its id comes"},
};
const Exception kReadInPart[] = {
    {"embedding", "rows are read that ids name, and the table is not"},
};

bool isIn(llvm::ArrayRef<Exception> table, const std::string &kernel) {
  return llvm::any_of(table, [&](const Exception &e) {
    return kernel.find(e.kernel) != std::string::npos;
  });
}

// Arguments with an element for every point of the kernel's domain are read once and written
// once, in whole sectors where their rows are whole sectors. What has fewer elements (weights,
// tables, scalars) is read by many blocks, and comes from the caches; of it every byte that the
// compiler counts is read at least once.
void expectBytes(const CheckedKernel &kernel) {
  uint64_t touched = 0, stored = 0, written = 0;
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    const ArgumentFacts &argument = kernel.arguments[i];
    const Traffic &traffic = kernel.traffic[i];
    touched += traffic.distinctLoaded;
    stored += traffic.stored;
    written += traffic.distinctStored;
    if (!argument.coversDomain)
      continue;
    if (i < kernel.inputs && !isIn(kReadAgain, kernel.name)) {
      EXPECT_EQ(traffic.loaded, argument.bytes) << kernel.name << " reads input " << i << " twice";
    }
    if (argument.wholeSectors && !isIn(kReadAgain, kernel.name)) {
      EXPECT_EQ(traffic.loadSectors * 32, traffic.loaded)
          << kernel.name << ", input " << i << ": loads are not coalesced\n" << kernel.cuda.source;
    }
    if (argument.wholeSectors) {
      EXPECT_EQ(traffic.storeSectors * 32, traffic.stored)
          << kernel.name << ", argument " << i << ": stores are not coalesced\n"
          << kernel.cuda.source;
    }
  }
  EXPECT_EQ(stored, kernel.shape.writtenBytes) << kernel.name;
  EXPECT_EQ(written, kernel.shape.writtenBytes) << kernel.name << " writes a byte twice";
  if (!isIn(kReadInPart, kernel.name)) {
    EXPECT_EQ(touched, kernel.shape.readBytes) << kernel.name;
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
