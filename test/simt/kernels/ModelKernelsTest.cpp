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
    {"bf16", {"training.compute_dtype=bf16"}},
    {"odd_sizes",
     {"training.compute_dtype=bf16", "model.vocab_size=131", "model.hidden_size=60",
      "model.num_attention_heads=5", "model.num_key_value_heads=1", "model.intermediate_size=77",
      "training.sequence_length=19", "training.micro_batch_size=1"}},
    {"untied_one_token",
     {"model.tie_word_embeddings=false", "model.num_key_value_heads=4",
      "training.sequence_length=1", "training.micro_batch_size=1"}},
    {"recompute", {"training.compute_dtype=bf16", "memory.recompute=block"}},
    {"long_vocabulary", {"model.vocab_size=50257", "training.sequence_length=5"}},
};

void PrintTo(const Model &model, std::ostream *to) { *to << model.name; }

class ModelKernels : public testing::TestWithParam<Model> {};

} // namespace

TEST_P(ModelKernels, areRightAndMoveWhatTheyMust) {
  for (const CheckedKernel &kernel : kernelsOf(GetParam())) {
    EXPECT_EQ(kernel.failure, "") << kernel.cuda.source;
    if (!kernel.failure.empty())
      continue;
    uint64_t loaded = 0, stored = 0, distinct = 0;
    for (size_t i = 0; i < kernel.traffic.size(); ++i) {
      const Traffic &t = kernel.traffic[i];
      loaded += t.loaded;
      stored += t.stored;
      distinct += t.distinctLoaded;
      if (getenv("LMC_SIMT_TABLE"))
        printf("%s %s arg %zu%s: loaded %lu distinct %lu sectors %lu stored %lu sectors %lu (%s)\n",
               kernel.name.c_str(), kern::stringifyHero(kernel.hero).str().c_str(), i,
               i < kernel.inputBytes.size() ? "" : " result", t.loaded, t.distinctLoaded,
               t.loadSectors * 32, t.stored, t.storeSectors * 32,
               i < kernel.inputBytes.size() && kernel.coversDomain[i] ? "covers" : "");
    }
    if (getenv("LMC_SIMT_TABLE"))
      printf("%s: read %lu written %lu; loaded %lu distinct %lu stored %lu\n", kernel.name.c_str(),
             kernel.shape.readBytes, kernel.shape.writtenBytes, loaded, distinct, stored);
    EXPECT_EQ(stored, kernel.shape.writtenBytes) << kernel.cuda.source;
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, ModelKernels, testing::ValuesIn(kModels),
                         [](const auto &info) { return info.param.name; });
