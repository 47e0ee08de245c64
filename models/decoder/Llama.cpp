// The Llama family: RMSNorm, RoPE, grouped-query attention, SwiGLU.
// Touvron et al. 2023, https://arxiv.org/abs/2302.13971; Mistral adds the sliding
// window, https://arxiv.org/abs/2310.06825.
#include "models/decoder/Model.h"

#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace lmc;

namespace {

// One parameter of a layer, under its name within the layer.
struct LayerParameter {
  std::string name;
  SmallVector<int64_t> shape;
  double stddev = 0;   // matrices: of the normal initialiser
  double constant = 0; // vectors: their initial value
};

class LlamaBuilder {
public:
  LlamaBuilder(const Config &config, MLIRContext &context)
      : config(config), model(config.model), b(&context), loc(b.getUnknownLoc()) {
    switch (config.training.computeDType) {
    case DataType::F32:
      compute = master = b.getF32Type();
      break;
    case DataType::BF16:
      compute = b.getBF16Type();
      master = b.getF32Type();
      break;
    case DataType::F64:
      compute = master = b.getF64Type();
      break;
    }
    tokens = config.training.microBatchSize * config.training.sequenceLength;
    layerParameters = describeLayer();
  }

  OwningOpRef<ModuleOp> build() {
    OwningOpRef<ModuleOp> module = ModuleOp::create(loc, "lmc");
    b.setInsertionPointToEnd(module->getBody());
    declareState();
    buildLayer();
    buildForward("forward", /*logits=*/false);
    if (config.monitoring.logits)
      buildForward("logits", /*logits=*/true);
    return module;
  }

private:
  //===-- State -----------------------------------------------------------------------------===//

  RankedTensorType tensor(ArrayRef<int64_t> shape, Type element) {
    return RankedTensorType::get(shape, element);
  }

  DictionaryAttr initializer(StringRef kind, ArrayRef<NamedAttribute> more = {}) {
    SmallVector<NamedAttribute> attributes{b.getNamedAttr("kind", b.getStringAttr(kind))};
    attributes.append(more.begin(), more.end());
    return b.getDictionaryAttr(attributes);
  }

  void declare(StringRef name, lm::VariableKind kind, RankedTensorType type, DictionaryAttr init,
               bool decay = false, StringAttr parameter = {}) {
    lm::VariableOp::create(b, loc, name, kind, type, init, decay, parameter);
  }

  void declareParameter(const LayerParameter &parameter, const std::string &name) {
    bool matrix = parameter.shape.size() == 2;
    DictionaryAttr init;
    if (matrix)
      init = initializer("normal",
                         b.getNamedAttr("stddev", b.getF64FloatAttr(parameter.stddev)));
    else
      init = initializer(parameter.constant == 1.0 ? "ones" : "zeros");
    declare(name, lm::VariableKind::Parameter, tensor(parameter.shape, master), init,
            matrix || config.optimizer.decayNormsAndBiases);
    if (matrix && compute != master)
      declare(name + ".compute", lm::VariableKind::ComputeCopy, tensor(parameter.shape, compute),
              initializer("copy_of", b.getNamedAttr("source", b.getStringAttr(name))), false,
              b.getStringAttr(name));
  }

  void declareState() {
    auto ids = tensor({tokens}, b.getI32Type());
    declare("batch.tokens", lm::VariableKind::Input, ids, initializer("none"));
    declare("batch.targets", lm::VariableKind::Input, ids, initializer("none"));
    if (config.training.documentMask)
      declare("batch.starts", lm::VariableKind::Input, ids, initializer("none"));

    double attentionFactor = 1.0;
    std::vector<double> frequencies =
        ropeFrequencies(model, config.training.sequenceLength, attentionFactor);
    auto table = tensor({config.training.sequenceLength, model.headDim / 2}, master);
    SmallVector<NamedAttribute> rope{
        b.getNamedAttr("values", b.getDenseF64ArrayAttr(frequencies)),
        b.getNamedAttr("scale", b.getF64FloatAttr(attentionFactor))};
    declare("rope.cos", lm::VariableKind::Table, table, initializer("rope_cos", rope));
    declare("rope.sin", lm::VariableKind::Table, table, initializer("rope_sin", rope));

    declareParameter({"", {model.vocabSize, model.hiddenSize}, embeddingStddev(), 0},
                     "model.embed_tokens.weight");
    for (int64_t layer = 0; layer < model.numHiddenLayers; ++layer)
      for (const LayerParameter &parameter : layerParameters)
        declareParameter(parameter, layerName(layer, parameter));
    declareParameter({"", {model.hiddenSize}, 0, 1.0}, "model.norm.weight");
    if (!model.tieWordEmbeddings)
      declareParameter({"", {model.vocabSize, model.hiddenSize}, linearStddev(model.hiddenSize), 0},
                       "lm_head.weight");
  }

  static std::string layerName(int64_t layer, const LayerParameter &parameter) {
    return "model.layers." + std::to_string(layer) + "." + parameter.name;
  }

  double embeddingStddev() const {
    return model.initializerRange > 0 ? model.initializerRange : 0.02;
  }

  double linearStddev(int64_t fanIn) const {
    return model.initializer == "normal" ? embeddingStddev() : 1.0 / std::sqrt(double(fanIn));
  }

  // Projections that add to the residual stream are scaled down by the number of
  // additions, so that its variance does not grow with depth (seeds: 1B diary).
  double residualStddev() const {
    return linearStddev(model.hiddenSize) / std::sqrt(2.0 * double(model.numHiddenLayers));
  }

  std::vector<LayerParameter> describeLayer() const {
    int64_t h = model.hiddenSize, q = model.numAttentionHeads * model.headDim,
            kv = model.numKeyValueHeads * model.headDim, f = model.intermediateSize;
    std::vector<LayerParameter> all;
    auto vector = [&](std::string name, int64_t size, double value) {
      all.push_back({std::move(name), {size}, 0, value});
    };
    auto linear = [&](const std::string &name, int64_t out, int64_t in, double stddev, bool bias) {
      all.push_back({name + ".weight", {out, in}, stddev, 0});
      if (bias)
        vector(name + ".bias", out, 0.0);
    };
    vector("input_layernorm.weight", h, 1.0);
    linear("self_attn.q_proj", q, h, linearStddev(h), model.attentionBias);
    linear("self_attn.k_proj", kv, h, linearStddev(h), model.attentionBias);
    linear("self_attn.v_proj", kv, h, linearStddev(h), model.attentionBias);
    linear("self_attn.o_proj", h, q, residualStddev(), model.attentionBias);
    vector("post_attention_layernorm.weight", h, 1.0);
    linear("mlp.gate_proj", f, h, linearStddev(h), model.mlpBias);
    linear("mlp.up_proj", f, h, linearStddev(h), model.mlpBias);
    linear("mlp.down_proj", h, f, residualStddev(), model.mlpBias);
    return all;
  }

  //===-- Graph -----------------------------------------------------------------------------===//

  // The type that the forward graph reads a parameter in.
  RankedTensorType readType(const LayerParameter &parameter) {
    return tensor(parameter.shape, parameter.shape.size() == 2 ? compute : master);
  }

  Value load(const std::string &name, RankedTensorType type) {
    return lm::LoadOp::create(b, loc, type, name);
  }

  Value loadParameter(const std::string &name, const LayerParameter &parameter) {
    bool copy = parameter.shape.size() == 2 && compute != master;
    return load(copy ? name + ".compute" : name, readType(parameter));
  }

  Location named(StringRef name) { return NameLoc::get(b.getStringAttr(name)); }

  // @layer(x, cos, sin, weights in the order of describeLayer, starts of documents if there is
  // a document mask) -> x
  void buildLayer() {
    OpBuilder::InsertionGuard guard(b);
    auto activations = tensor({tokens, model.hiddenSize}, compute);
    auto table = tensor({config.training.sequenceLength, model.headDim / 2}, master);
    SmallVector<Type> inputs{activations, table, table};
    for (const LayerParameter &parameter : layerParameters)
      inputs.push_back(readType(parameter));
    if (config.training.documentMask)
      inputs.push_back(tensor({tokens}, b.getI32Type()));
    auto layer =
        func::FuncOp::create(b, loc, "layer", b.getFunctionType(inputs, {Type(activations)}));
    layer.setPrivate();
    Block *body = layer.addEntryBlock();
    b.setInsertionPointToStart(body);

    auto weight = [&](const std::string &name) -> Value {
      auto it = std::find_if(layerParameters.begin(), layerParameters.end(),
                             [&](const LayerParameter &p) { return p.name == name; });
      return it == layerParameters.end()
                 ? Value()
                 : body->getArgument(unsigned(3 + (it - layerParameters.begin())));
    };
    auto linear = [&](const std::string &name, Value x) -> Value {
      Value w = weight(name + ".weight");
      int64_t out = cast<RankedTensorType>(w.getType()).getDimSize(0);
      return lm::LinearOp::create(b, named(name), tensor({tokens, out}, compute), x, w,
                                  weight(name + ".bias"));
    };
    auto norm = [&](const std::string &name, Value x) -> Value {
      return lm::RmsNormOp::create(b, named(name), activations, x, weight(name + ".weight"),
                                   b.getF64FloatAttr(model.rmsNormEps));
    };
    auto rope = [&](const std::string &name, Value x) -> Value {
      return lm::RopeOp::create(b, named(name), x.getType(), x, body->getArgument(1),
                                body->getArgument(2), model.headDim, false);
    };

    Value x = body->getArgument(0);
    Value h = norm("input_layernorm", x);
    Value q = rope("q_rope", linear("self_attn.q_proj", h));
    Value k = rope("k_rope", linear("self_attn.k_proj", h));
    Value v = linear("self_attn.v_proj", h);
    Value starts = config.training.documentMask ? body->getArguments().back() : Value();
    Type statistics = tensor({tokens, model.numAttentionHeads}, master);
    auto attention = lm::AttentionOp::create(
        b, named("self_attn"), q.getType(), statistics, q, k, v, starts,
        b.getI64IntegerAttr(model.headDim), b.getI64IntegerAttr(config.training.sequenceLength),
        b.getF64FloatAttr(1.0 / std::sqrt(double(model.headDim))),
        b.getI64IntegerAttr(effectiveWindow()));
    Value attended = linear("self_attn.o_proj", attention.getResult());
    x = lm::AddOp::create(b, named("attention_residual"), x, attended);
    h = norm("post_attention_layernorm", x);
    Value gate = linear("mlp.gate_proj", h), up = linear("mlp.up_proj", h);
    Value gated = lm::SwigluOp::create(b, named("mlp"), gate, up);
    x = lm::AddOp::create(b, named("mlp_residual"), x, linear("mlp.down_proj", gated));
    func::ReturnOp::create(b, loc, x);
  }

  // A window that sees the whole sequence is no window.
  int64_t effectiveWindow() const {
    return model.slidingWindow >= config.training.sequenceLength ? 0 : model.slidingWindow;
  }

  // Tokens whose logits exist at a time: a few thousand, and at most 256 MiB of logits.
  int64_t lossChunk() const {
    int64_t width = compute.getIntOrFloatBitWidth() / 8;
    int64_t fit = (int64_t(256) << 20) / (model.vocabSize * width) / 64 * 64;
    return std::min(tokens, std::clamp<int64_t>(fit, 64, 4096));
  }

  void buildForward(StringRef name, bool logits) {
    OpBuilder::InsertionGuard guard(b);
    Type lossType = tensor({}, master);
    SmallVector<Type> results;
    if (!logits)
      results.push_back(lossType);
    auto ids = tensor({tokens}, b.getI32Type());
    auto forward = func::FuncOp::create(b, loc, name, b.getFunctionType({}, results));
    b.setInsertionPointToStart(forward.addEntryBlock());

    LayerParameter embedding{"", {model.vocabSize, model.hiddenSize}};
    LayerParameter finalNorm{"", {model.hiddenSize}};
    auto activations = tensor({tokens, model.hiddenSize}, compute);
    auto table = tensor({config.training.sequenceLength, model.headDim / 2}, master);
    Value tokenIds = load("batch.tokens", ids), cos = load("rope.cos", table),
          sin = load("rope.sin", table), starts;
    if (config.training.documentMask)
      starts = load("batch.starts", ids);
    Value embeddings = loadParameter("model.embed_tokens.weight", embedding);
    Value x = lm::EmbeddingOp::create(b, named("embed_tokens"), activations, tokenIds, embeddings);
    for (int64_t layer = 0; layer < model.numHiddenLayers; ++layer) {
      SmallVector<Value> operands{x, cos, sin};
      for (const LayerParameter &parameter : layerParameters)
        operands.push_back(loadParameter(layerName(layer, parameter), parameter));
      if (starts)
        operands.push_back(starts);
      x = func::CallOp::create(b, named("layers." + std::to_string(layer)), "layer",
                               TypeRange{activations}, operands)
              .getResult(0);
    }
    x = lm::RmsNormOp::create(b, named("norm"), activations, x,
                              loadParameter("model.norm.weight", finalNorm),
                              b.getF64FloatAttr(model.rmsNormEps));
    Value head = model.tieWordEmbeddings ? embeddings : loadParameter("lm_head.weight", embedding);
    if (logits) {
      auto type = tensor({tokens, model.vocabSize}, compute);
      Value all = lm::LinearOp::create(b, named("lm_head"), type, x, head, Value());
      {
        OpBuilder::InsertionGuard atModule(b);
        b.setInsertionPoint(forward);
        declare("debug.logits", lm::VariableKind::Input, type, initializer("none"));
      }
      lm::StoreOp::create(b, loc, all, "debug.logits");
      func::ReturnOp::create(b, loc);
      return;
    }
    Value targets = load("batch.targets", ids);
    Value loss = lm::LinearCrossEntropyOp::create(b, named("loss"), lossType, x, head, targets,
                                                  lossChunk());
    func::ReturnOp::create(b, loc, loss);
  }

  const Config &config;
  const ModelConfig &model;
  OpBuilder b;
  Location loc;
  Type compute, master;
  int64_t tokens;
  std::vector<LayerParameter> layerParameters;
};

} // namespace

OwningOpRef<ModuleOp> lmc::buildModel(const Config &config, MLIRContext &context) {
  context.loadDialect<lm::LmDialect, func::FuncDialect>();
  return LlamaBuilder(config, context).build();
}
