// A hand-made plan that trains, for tests of the trainer without the compiler: a
// bigram model, logits = W[token], with AdamW, its kernels in C.
#pragma once

#include "ground/plan/PlanFile.h"
#include "ground/plan/PlanTrailer.h"
#include "test/runtime/checkpoint/TestFolder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace lmc::test {

// One work item a kernel, so results do not depend on threads. Weights are read
// from the bf16 copy: a resume that does not refresh it shows.
inline constexpr const char *kTinyKernels = R"(
#include <math.h>
#include <stdint.h>
#include <string.h>
enum { V = 24, N = 16, P = V * V };

static float widen(uint16_t h) { uint32_t b = (uint32_t)h << 16; float f; memcpy(&f, &b, 4); return f; }
static uint16_t narrow(float f) {
  uint32_t b; memcpy(&b, &f, 4);
  return (uint16_t)((b + 0x7FFF + ((b >> 16) & 1)) >> 16);
}

/* -log softmax(W[token])[target]; the softmax in p */
static double nll(const uint16_t *w, int32_t token, int32_t target, double *p) {
  double top = -INFINITY, sum = 0;
  for (int j = 0; j < V; ++j) { p[j] = widen(w[token * V + j]); if (!(p[j] <= top)) top = p[j]; }
  for (int j = 0; j < V; ++j) { p[j] = exp(p[j] - top); sum += p[j]; }
  for (int j = 0; j < V; ++j) p[j] /= sum;
  return -log(p[target]);
}

/* copy, tokens, targets, loss_scale | loss, grad: both are added to */
void micro(void *const *a, int64_t begin, int64_t end) {
  const uint16_t *w = a[0]; const int32_t *x = a[1], *y = a[2]; const float *scale = a[3];
  float *loss = a[4], *grad = a[5];
  double p[V];
  for (int t = 0; t < N; ++t) {
    if (y[t] < 0) continue;
    *loss += (float)(nll(w, x[t], y[t], p) * *scale);
    for (int j = 0; j < V; ++j) grad[x[t] * V + j] += (float)((p[j] - (j == y[t])) * *scale);
  }
}

/* grad, lr, beta1, beta2, eps, decay, bias1, bias2, clip |
   weights, moment1, moment2, copy, grad_norm, param_norm, update_norm */
void optimizer(void *const *a, int64_t begin, int64_t end) {
  const float *g = a[0];
  float lr = *(float *)a[1], b1 = *(float *)a[2], b2 = *(float *)a[3], eps = *(float *)a[4];
  float decay = *(float *)a[5], c1 = *(float *)a[6], c2 = *(float *)a[7], clip = *(float *)a[8];
  float *w = a[9], *m = a[10], *v = a[11]; uint16_t *copy = a[12];
  double gg = 0, ww = 0, uu = 0;
  for (int i = 0; i < P; ++i) { gg += (double)g[i] * g[i]; ww += (double)w[i] * w[i]; }
  *(float *)a[13] = (float)sqrt(gg);
  *(float *)a[14] = (float)sqrt(ww);
  *(float *)a[15] = 0;
  if (!isfinite(gg)) return;
  float s = clip > 0 && sqrt(gg) > clip ? (float)(clip / sqrt(gg)) : 1.0f;
  for (int i = 0; i < P; ++i) {
    m[i] = b1 * m[i] + (1 - b1) * s * g[i];
    v[i] = b2 * v[i] + (1 - b2) * s * g[i] * s * g[i];
    float u = lr * (m[i] / c1 / (sqrtf(v[i] / c2) + eps) + decay * w[i]);
    uu += (double)u * u;
    w[i] -= u;
    copy[i] = narrow(w[i]);
  }
  *(float *)a[15] = (float)sqrt(uu);
}

/* | loss, grad */
void zero(void *const *a, int64_t begin, int64_t end) {
  float *grad = a[1];
  *(float *)a[0] = 0;
  for (int i = 0; i < P; ++i) grad[i] = 0;
}

/* copy, tokens, targets | loss */
void eval(void *const *a, int64_t begin, int64_t end) {
  const int32_t *x = a[1], *y = a[2];
  double p[V], sum = 0;
  for (int t = 0; t < N; ++t) if (y[t] >= 0) sum += nll(a[0], x[t], y[t], p);
  *(float *)a[3] = (float)sum;
}

/* copy, tokens | logits */
void logits(void *const *a, int64_t begin, int64_t end) {
  const uint16_t *w = a[0]; const int32_t *x = a[1]; float *out = a[2];
  for (int t = 0; t < N; ++t) for (int j = 0; j < V; ++j) out[t * V + j] = widen(w[x[t] * V + j]);
}
)";

class TinyPlan {
public:
  static constexpr uint64_t kVocab = 24, kSeq = 8, kMbs = 2, kGas = 2, kGbs = 4;

  TinyPlan() {
    plan.schema_version = kSchemaVersion;
    plan.compiler_version = "test";
    plan.target = "cpu:x86-64";
    plan.fingerprint = "tiny-fingerprint";
    plan.compute_dtype = plan::DType::BF16;
    plan.model = std::make_unique<plan::ModelInfoT>();
    plan.model->architecture = "llama";
    plan.model->huggingface_config = "{\"architectures\": [\"Bigram\"]}\n";
    plan.model->parameters = kVocab * kVocab;
    plan.model->vocab_size = kVocab;
    plan.model->flops_per_token_causal = 6.0 * kVocab;
    plan.model->flops_per_token_full = 12.0 * kVocab;
    plan.batch = std::make_unique<plan::BatchInfoT>();
    plan.batch->sequence_length = kSeq;
    plan.batch->micro_batch_size = kMbs;
    plan.batch->gradient_accumulation_steps = kGas;
    plan.batch->global_batch_size = kGbs;
    plan.batch->ranks = 1;
    addSettings();
    addVariables();
    addFunctions();
  }

  plan::PlanT plan; // may be changed before bytes()

  // The initial weights' standard deviation.
  void setStddev(double stddev) {
    plan.variables[variables.at("model.w")]->initializer->stddev = stddev;
  }

  void removeSetting(const std::string &key) {
    std::erase_if(plan.settings, [&](auto &setting) { return setting->key == key; });
  }

  std::vector<uint8_t> bytes() {
    flatbuffers::FlatBufferBuilder builder;
    plan::FinishPlanBuffer(builder, plan::Plan::Pack(builder, &plan));
    std::string bytes(reinterpret_cast<const char *>(builder.GetBufferPointer()),
                      builder.GetSize());
    appendPlanTrailer(bytes);
    return {bytes.begin(), bytes.end()};
  }

  // Writes FOLDER/tiny.plan, and train.bin and validation.bin beside it.
  std::string write(const TestFolder &folder) {
    plan.config_directory = folder.path;
    addModule(folder);
    auto data = bytes();
    std::string path = folder / "tiny.plan";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<char *>(data.data()), std::streamsize(data.size()));
    writeTokens(folder / "train.bin", 1000, 1);
    writeTokens(folder / "validation.bin", 200, 2);
    return path;
  }

  // nanoGPT's format. The next token is a function of the one before, mostly:
  // something to learn.
  static void writeTokens(const std::string &path, size_t count, uint32_t seed) {
    std::vector<uint16_t> tokens(count);
    uint32_t state = seed;
    for (size_t i = 0; i < count; ++i) {
      state = state * 1664525 + 1013904223;
      uint32_t noise = state >> 16;
      uint32_t previous = i == 0 ? 0 : tokens[i - 1];
      tokens[i] = static_cast<uint16_t>((noise % 4 == 0 ? noise / 4 : 5 * previous + 3) % kVocab);
    }
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<char *>(tokens.data()), std::streamsize(2 * count));
  }

  // Adds a source of training data, which takes the place of train.bin.
  void addSource(const std::string &name, const std::string &path, const std::string &weight,
                 const std::string &maxEpochs = "0") {
    using T = plan::SettingType;
    setting("data.train").values.clear();
    addSetting("data.source." + name + ".paths", T::StringList, path);
    plan.settings.back()->origin = plan::SettingOrigin::File;
    addSetting("data.source." + name + ".weight", T::Float, weight, 1e-9, 1e15);
    plan.settings.back()->origin = plan::SettingOrigin::File;
    addSetting("data.source." + name + ".max_epochs", T::Float, maxEpochs, 0, 1e9);
    plan.settings.back()->identity = false;
  }

  // Adds a validation set, which takes the place of validation.bin.
  void addValidationSet(const std::string &name, const std::string &path,
                        const std::string &interval, const std::string &iters) {
    using T = plan::SettingType;
    setting("data.validation").values.clear();
    const std::string key = "validation." + name;
    addSetting(key + ".paths", T::StringList, path);
    addSetting(key + ".interval", T::Integer, interval, 0, 1e12);
    plan.settings.back()->derived_from = "monitoring.validation_interval";
    addSetting(key + ".iters", T::Integer, iters, 0, 1e12);
    plan.settings.back()->derived_from = "monitoring.validation_iters";
  }

  // Adds the settings of a parameter group.
  void addParameterGroup(const std::string &name) {
    addSetting("optimizer.group." + name + ".weight_decay", plan::SettingType::Float, "0.1", 0, 10);
    addSetting("optimizer.group." + name + ".lr_mult", plan::SettingType::Float, "1", 0, 1e4);
  }

  plan::SettingT &setting(const std::string &key) {
    for (auto &setting : plan.settings)
      if (setting->key == key)
        return *setting;
    throw std::out_of_range(key);
  }

  void addSetting(const std::string &key, plan::SettingType type, const std::string &value,
                  double minimum = 0, double maximum = 0, bool runTime = true) {
    auto setting = std::make_unique<plan::SettingT>();
    setting->key = key;
    setting->type = type;
    if (type == plan::SettingType::StringList)
      setting->values = {value};
    else
      setting->value = value;
    setting->minimum = minimum;
    setting->maximum = maximum;
    setting->run_time = runTime;
    for (const char *section : {"model.", "training.", "optimizer.", "lr_schedule.", "data."})
      setting->identity |= key.starts_with(section);
    for (const char *other : {"training.train_iters", "data.num_workers", "data.validation", "data.format",
                              "data.allow_repeats"})
      setting->identity &= key != other;
    if (key == "lr_schedule.style")
      setting->choices = {"constant", "linear", "cosine", "wsd"};
    plan.settings.push_back(std::move(setting));
  }

private:
  std::map<std::string, uint32_t> variables; // index of each; its slice has the same one
  std::map<std::string, uint32_t> kernels;

  void addSettings() {
    using T = plan::SettingType;
    addSetting("model.hidden_size", T::Integer, "24", 1, 1e6, /*runTime=*/false);
    addSetting("optimizer.type", T::String, "adamw", 0, 0, /*runTime=*/false);
    addSetting("training.batch_size", T::Integer, "4", 1, 100, /*runTime=*/false);
    addSetting("training.seed", T::Integer, "1234", 0, INFINITY);
    addSetting("training.train_iters", T::Integer, "1000", 1, 1e12);
    addSetting("optimizer.beta1", T::Float, "0.9", 0, 0.999999);
    addSetting("optimizer.beta2", T::Float, "0.95", 0, 0.999999);
    addSetting("optimizer.eps", T::Float, "1e-08", 1e-20, 1);
    addSetting("optimizer.weight_decay", T::Float, "0.1", 0, 10);
    addSetting("optimizer.clip_grad", T::Float, "1", 0, 1e9);
    addSetting("lr_schedule.style", T::String, "cosine");
    addSetting("lr_schedule.lr", T::Float, "0.05", 0, 10);
    addSetting("lr_schedule.min_lr", T::Float, "0.005", 0, 10);
    plan.settings.back()->derived_from = "lr_schedule.lr";
    plan.settings.back()->derived_divisor = 10;
    addSetting("lr_schedule.warmup_iters", T::Integer, "2", 0, 1e12);
    addSetting("lr_schedule.decay_iters", T::Integer, "100", 1, 1e12);
    plan.settings.back()->origin = plan::SettingOrigin::File;
    plan.settings.back()->derived_from = "training.train_iters";
    addSetting("lr_schedule.wsd_decay_fraction", T::Float, "0.2", 0, 1);
    addSetting("data.train", T::StringList, "train.bin");
    addSetting("data.validation", T::StringList, "validation.bin");
    addSetting("training.document_loss_mask", T::Boolean, "false");
    addSetting("data.end_of_document", T::Integer, "-1", -1, 2147483647);
    addSetting("data.format", T::String, "auto");
    addSetting("data.shuffle_block", T::Integer, std::to_string(kSeq), 1, 1e9);
    addSetting("data.packing", T::String, "concatenate");
    addSetting("data.allow_repeats", T::Boolean, "false");
    addSetting("data.num_workers", T::Integer, "2", 1, 1024);
    addSetting("checkpoint.interval", T::Integer, "0", 0, 1e12);
    addSetting("checkpoint.keep", T::Integer, "5", 0, 1e9);
    addSetting("checkpoint.export_interval", T::Integer, "0", 0, 1e12);
    addSetting("checkpoint.background", T::Boolean, "false");
    addSetting("monitoring.log_interval", T::Integer, "1", 1, 1e12);
    addSetting("monitoring.validation_interval", T::Integer, "0", 0, 1e12);
    addSetting("monitoring.validation_iters", T::Integer, "3", 0, 1e12);
    addSetting("monitoring.tensorboard", T::Boolean, "false");
    for (const char *key :
         {"prometheus", "on_event", "wandb_project", "wandb_entity", "wandb_group", "wandb_name"})
      addSetting(std::string("monitoring.") + key, T::String, "");
    addSetting("guard.action", T::String, "stop");
    addSetting("guard.window", T::Integer, "100", 10, 1e6);
    addSetting("guard.spike", T::Float, "6", 2, 1000);
    addSetting("guard.patience", T::Integer, "100", 1, 1e6);
    addSetting("guard.rise", T::Float, "1", 0.01, 1000);
    for (const char *key : {"plateau", "validation", "compare_weights"})
      addSetting(std::string("guard.") + key, key[0] == 'c' ? T::Integer : T::Float, "0");
    addSetting("target.peak_tflops", T::Float, "0", 0, 1e6);
  }

  void addVariable(const std::string &name, plan::VariableKind kind, plan::DType dtype,
                   std::vector<uint64_t> shape, plan::Category category,
                   plan::InitializerKind initializer = plan::InitializerKind::None) {
    uint64_t bytes = byteWidth(dtype);
    for (uint64_t dimension : shape)
      bytes *= dimension;
    if (plan.arenas.empty()) {
      for (const char *arena : {"state", "workspace"}) {
        plan.arenas.push_back(std::make_unique<plan::ArenaT>());
        plan.arenas.back()->name = arena;
      }
      plan.arenas.back()->bytes = 64; // nothing here needs a workspace
    }
    auto slice = std::make_unique<plan::SliceT>();
    slice->name = name;
    slice->arena = 0;
    slice->offset = plan.arenas[0]->bytes;
    slice->bytes = bytes;
    slice->dtype = dtype;
    slice->shape = std::move(shape);
    slice->category = category;
    plan.arenas[0]->bytes += (bytes + 63) / 64 * 64;
    plan.arenas[0]->lower_bound_bytes = plan.arenas[0]->bytes;

    auto variable = std::make_unique<plan::VariableT>();
    variable->name = name;
    variable->kind = kind;
    variable->slice = static_cast<uint32_t>(plan.slices.size());
    variable->initializer = std::make_unique<plan::InitializerT>();
    variable->initializer->kind = initializer;
    variable->initializer->stddev = 0.5;
    if (name.rfind("model.w.", 0) == 0)
      variable->parameter = "model.w";
    if (initializer == plan::InitializerKind::CopyOf)
      variable->initializer->source = "model.w";
    variables[name] = static_cast<uint32_t>(plan.slices.size());
    plan.slices.push_back(std::move(slice));
    plan.variables.push_back(std::move(variable));
  }

  void addVariables() {
    using K = plan::VariableKind;
    using D = plan::DType;
    using C = plan::Category;
    using I = plan::InitializerKind;
    std::vector<uint64_t> square = {kVocab, kVocab};
    // The copy before its source: initialisation must not rely on the order.
    addVariable("model.w.compute", K::ComputeCopy, D::BF16, square, C::ComputeCopies, I::CopyOf);
    addVariable("model.w", K::Parameter, D::F32, square, C::Parameters, I::Normal);
    addVariable("model.w.grad", K::Gradient, D::F32, square, C::Gradients, I::Zeros);
    addVariable("model.w.moment1", K::Moment1, D::F32, square, C::OptimizerState, I::Zeros);
    addVariable("model.w.moment2", K::Moment2, D::F32, square, C::OptimizerState, I::Zeros);
    addVariable("batch.tokens", K::Input, D::I32, {kMbs * kSeq}, C::Inputs);
    addVariable("batch.targets", K::Input, D::I32, {kMbs * kSeq}, C::Inputs);
    addVariable("debug.logits", K::Input, D::F32, {kMbs * kSeq, kVocab}, C::Inputs);
    for (const char *name :
         {"run.loss_scale", "run.lr", "run.beta1", "run.beta2", "run.eps", "run.weight_decay",
          "run.bias_correction1", "run.bias_correction2", "run.clip_grad", "run.loss",
          "run.grad_norm", "run.param_norm", "run.update_norm", "run.eval_loss"})
      addVariable(name, K::Scalar, D::F32, {}, C::Scalars);
    auto scalar = [&](const std::string &name) -> plan::VariableT & {
      return **std::find_if(plan.variables.begin(), plan.variables.end(),
                            [&](const auto &variable) { return variable->name == name; });
    };
    for (const char *name : {"beta1", "beta2", "eps", "weight_decay", "clip_grad"})
      scalar("run." + std::string(name)).setting = "optimizer." + std::string(name);
    scalar("run.loss_scale").step_value = plan::StepValue::LossScale;
    scalar("run.lr").step_value = plan::StepValue::LearningRate;
    scalar("run.bias_correction1").step_value = plan::StepValue::BiasCorrection1;
    scalar("run.bias_correction2").step_value = plan::StepValue::BiasCorrection2;
  }

  std::unique_ptr<plan::CommandT> launch(const std::string &kernel,
                                         const std::vector<std::string> &inputs,
                                         const std::vector<std::string> &outputs) {
    if (!kernels.count(kernel)) {
      kernels[kernel] = static_cast<uint32_t>(plan.kernels.size());
      auto entry = std::make_unique<plan::KernelT>();
      entry->name = entry->entry = kernel;
      plan.kernels.push_back(std::move(entry));
    }
    plan::LaunchT body;
    body.kernel = kernels[kernel];
    for (const std::string &name : inputs)
      body.args.push_back(variables.at(name));
    body.inputs = static_cast<uint32_t>(inputs.size());
    for (const std::string &name : outputs)
      body.args.push_back(variables.at(name));
    body.items = body.chunk = 1;
    auto command = std::make_unique<plan::CommandT>();
    command->body.Set(std::move(body));
    return command;
  }

  template <typename... Commands> void addFunction(const std::string &name, Commands... commands) {
    auto function = std::make_unique<plan::FunctionT>();
    function->name = name;
    (function->commands.push_back(std::move(commands)), ...);
    plan.functions.push_back(std::move(function));
  }

  void addFunctions() {
    auto micro = [&] {
      return launch("micro", {"model.w.compute", "batch.tokens", "batch.targets", "run.loss_scale"},
                    {"run.loss", "model.w.grad"});
    };
    addFunction("micro_first", launch("zero", {}, {"run.loss", "model.w.grad"}), micro());
    addFunction("micro", micro());
    addFunction("micro_last", micro());
    addFunction(
        "optimizer",
        launch("optimizer",
               {"model.w.grad", "run.lr", "run.beta1", "run.beta2", "run.eps", "run.weight_decay",
                "run.bias_correction1", "run.bias_correction2", "run.clip_grad"},
               {"model.w", "model.w.moment1", "model.w.moment2", "model.w.compute", "run.grad_norm",
                "run.param_norm", "run.update_norm"}));
    addFunction("eval", launch("eval", {"model.w.compute", "batch.tokens", "batch.targets"},
                               {"run.eval_loss"}));
    addFunction("logits", launch("logits", {"model.w.compute", "batch.tokens"}, {"debug.logits"}));
  }

  void addModule(const TestFolder &folder) {
    test::write(folder / "kernels.c", kTinyKernels);
    std::string command = "cc -O1 -shared -fPIC -ffp-contract=off -o '" + (folder / "kernels.so") +
                          "' '" + (folder / "kernels.c") + "' -lm";
    ASSERT_EQ(std::system(command.c_str()), 0);
    std::ifstream file(folder / "kernels.so", std::ios::binary);
    auto module = std::make_unique<plan::ModuleT>();
    module->target = "cpu:x86-64";
    module->image.assign(std::istreambuf_iterator<char>(file), {});
    plan.modules.clear();
    plan.modules.push_back(std::move(module));
  }
};

} // namespace lmc::test
