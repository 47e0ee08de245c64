#include "models/decoder/Model.h"

#include "dialects/lm/Lm.h"
#include "ground/config/ModelFamily.h"
#include "ground/config/ParameterGroups.h"
#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

#include "llvm/Support/SaveAndRestore.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace lmc;

namespace {

struct Parameter {
  std::string name; // name of the parameter, without the prefix of its layer
  SmallVector<int64_t> shape;
  // A matrix starts from normal values with this standard deviation, a vector from this value.
  double initial;
  // A weight [in, out] can join several linear maps. This is the number of columns of each map.
  SmallVector<int64_t> columns = {};
  // For a matrix of several named parts, one below the other: each part's name and number of rows.
  std::vector<std::pair<std::string, int64_t>> parts = {};
  // For a router's bias: how often each expert is chosen per optimizer step if load is balanced.
  double balanced = 0;
  bool ofExperts = false; // of a router, or of experts that compute every token
};

struct LayerFunction {
  func::FuncOp function;
  std::vector<Parameter> parameters; // those that are arguments of `function`
  int64_t experts = 0; // number of experts; 0: the layer has no router
};

// The sums that monitoring.router reports for each layer with a router (ground/plan/Names.h).
constexpr const char *kWatched[] = {names::kRouterCounts, names::kRouterBalance,
                                    names::kRouterEntropy};

class DecoderBuilder {
public:
  DecoderBuilder(const Config &config, const Decoder &decoder, MLIRContext &context)
      : config(config), model(config.model), decoder(decoder), b(&context), loc(b.getUnknownLoc()) {
    const DataType dtype = config.training.computeDType;
    master = dtype == DataType::F64 ? Type(b.getF64Type()) : b.getF32Type();
    compute = dtype == DataType::BF16 ? b.getBF16Type() : master;
    tokens = config.training.microBatchSize * config.training.sequenceLength;
    activations = tensor({tokens, model.hiddenSize}, compute);
    ropeTable = tensor({config.training.sequenceLength, model.headDim / 2}, master);
    rotations =
        config.training.documentPositions ? tensor({tokens, model.headDim / 2}, master) : ropeTable;
    ids = tensor({tokens}, b.getI32Type());
  }

  OwningOpRef<ModuleOp> build() {
    OwningOpRef<ModuleOp> module = ModuleOp::create(loc, "lmc");
    b.setInsertionPointToEnd(module->getBody());
    for (const DecoderLayer &kind : decoder.kinds)
      layers.push_back(buildLayer(kind));
    b.setInsertionPointToStart(module->getBody());
    declareState();
    b.setInsertionPointToEnd(module->getBody());
    buildForward("forward", Output::Loss);
    if (config.monitoring.logits)
      buildForward(names::kLogits, Output::Logits);
    if (!config.generation.prompts.empty())
      buildForward(names::kGenerate, Output::NextLogits);
    return module;
  }

private:
  //===-- State -----------------------------------------------------------------------------===//

  RankedTensorType tensor(ArrayRef<int64_t> shape, Type element) {
    return RankedTensorType::get(shape, element);
  }

  lm::InitAttr initializer(lm::InitKind kind) { return lm::InitAttr::get(b.getContext(), kind); }

  lm::VariableOp declare(StringRef name, lm::VariableKind kind, RankedTensorType type,
                         lm::InitAttr init, bool decay = false, StringAttr parameter = {}) {
    return lm::VariableOp::create(b, loc, name, kind, type, init, decay, parameter);
  }

  // Returns true if products with the parameter stay in the compute dtype: those of routers, of
  // experts that compute every token, and those that training.fp8_filter names in whole or in part.
  bool isUnquantized(const Parameter &parameter, const std::string &prefix) const {
    if (config.training.fp8 == "none" || parameter.ofExperts)
      return config.training.fp8 != "none";
    auto matches = [&](const std::string &name) {
      return llvm::any_of(config.training.fp8Filter, [&](const std::string &pattern) {
        return matchesPattern(pattern, prefix + name);
      });
    };
    return matches(parameter.name) ||
           llvm::any_of(parameter.parts, [&](const auto &part) { return matches(part.first); });
  }

  // Declares a parameter. `prefix` is the prefix of its layer, or "" outside of layers.
  void declareParameter(const Parameter &parameter, const std::string &prefix = "") {
    std::string name = prefix + parameter.name;
    bool matrix = parameter.shape.size() == 2;
    // config::checkPatterns ensures that all parts of a parameter belong to the same group.
    const ParameterGroup *group = groupOf(
        config.optimizer, parameter.parts.empty() ? name : prefix + parameter.parts.front().first);
    lm::InitAttr init =
        matrix ? lm::InitAttr::normal(b.getContext(), parameter.initial)
               : initializer(parameter.initial == 1.0 ? lm::InitKind::Ones : lm::InitKind::Zeros);
    lm::VariableOp variable =
        declare(name, lm::VariableKind::Parameter, tensor(parameter.shape, master), init,
                parameter.balanced == 0 &&
                    (matrix || config.optimizer.decayNormsAndBiases || (group && group->ownDecay)));
    if (parameter.balanced > 0) {
      variable.setBalancedAttr(b.getF64FloatAttr(parameter.balanced));
      return;
    }
    variable.setHidden(matrix && !prefix.empty());
    variable.setUnquantized(matrix && isUnquantized(parameter, prefix));
    if (!parameter.columns.empty())
      variable.setColumns(parameter.columns);
    if (!parameter.parts.empty()) {
      SmallVector<Attribute> parts;
      for (const auto &[part, rows] : parameter.parts)
        parts.push_back(
            lm::PartAttr::get(b.getContext(), b.getStringAttr(prefix + part), rows, init));
      variable.setPartsAttr(b.getArrayAttr(parts));
    }
    if (group)
      variable.setGroupAttr(lm::GroupAttr::get(b.getContext(), b.getStringAttr(group->name),
                                               group->ownDecay, group->optimBits == 32));
    if (matrix && compute != master)
      declare(lm::stateName(name, lm::VariableKind::ComputeCopy), lm::VariableKind::ComputeCopy,
              tensor(parameter.shape, compute), lm::InitAttr::copyOf(b.getStringAttr(name)), false,
              b.getStringAttr(name));
  }

  void declareState() {
    declare(names::kTokens, lm::VariableKind::Input, ids, initializer(lm::InitKind::None));
    declare(names::kTargets, lm::VariableKind::Input, ids, initializer(lm::InitKind::None));
    if (config.training.documentMask)
      declare(names::kStarts, lm::VariableKind::Input, ids, initializer(lm::InitKind::None));
    if (config.training.documentPositions)
      declare(names::kPositions, lm::VariableKind::Input, ids, initializer(lm::InitKind::None));
    else if (!isRotary())
      declare(names::kRowPositions, lm::VariableKind::Input, ids, initializer(lm::InitKind::None));

    if (isRotary())
      declareRopeTables();
    declareRouterSums();
    declareParameter(embedding());
    if (!isRotary())
      declareParameter(positionTable());
    if (model.embeddingNorm)
      declareNorm(embeddingNorm());
    for (int64_t layer = 0; layer < model.numHiddenLayers; ++layer)
      for (const Parameter &parameter : layerFunction(layer).parameters)
        declareParameter(parameter, prefixOf(layer));
    declareNorm(decoder.lastNorm);
    if (!model.tieWordEmbeddings)
      declareParameter(head());
  }

  // Returns true if the pass dist-parallel-experts divides the rows of experts into windows.
  bool hasWindows() const { return config.distributed.expertCapacity > 0; }

  // Declares the sums of all routers. They lie one after the other in storage names::kRouterSums.
  void declareRouterSums() {
    if (!config.monitoring.router)
      return;
    std::vector<std::pair<std::string, int64_t>> sums; // name, elements
    int64_t most = 0;
    for (int64_t layer = 0; layer < model.numHiddenLayers; ++layer)
      if (const int64_t experts = layerFunction(layer).experts) {
        for (const char *which : kWatched)
          sums.push_back({names::routerSum(which, layer), experts});
        if (hasWindows())
          sums.push_back({names::routerSum(names::kRouterLate, layer), 1});
        most = std::max(most, experts);
      }
    if (sums.empty())
      return;
    if (decoder.balanceLoss > 0)
      sums.push_back({names::kRouterBalance, most});
    constexpr int64_t kAlignment = 64; // in elements; each sum is aligned, as wide loads require
    auto padded = [](int64_t elements) { return llvm::alignTo(elements, kAlignment); };
    int64_t elements = 0;
    for (const auto &[name, count] : sums)
      elements += int64_t(padded(count));
    declare(names::kRouterSums, lm::VariableKind::Input, tensor({elements}, master),
            initializer(lm::InitKind::Zeros))
        .setAnonymous(true);
    int64_t offset = 0;
    for (const auto &[name, count] : sums) {
      lm::VariableOp sum = declare(name, lm::VariableKind::Input, tensor({count}, master),
                                   initializer(lm::InitKind::Zeros));
      sum.setStorage(names::kRouterSums);
      sum.setStorageOffset(offset);
      offset += int64_t(padded(count));
    }
  }

  Parameter embedding() const {
    return {decoder.embedding, {model.vocabSize, model.hiddenSize}, embeddingStddev()};
  }
  Parameter positionTable() const {
    return {
        decoder.positionTable, {model.maxPositionEmbeddings, model.hiddenSize}, embeddingStddev()};
  }
  Parameter head() const {
    return {decoder.head, {model.vocabSize, model.hiddenSize}, linearStddev(model.hiddenSize)};
  }
  // Returns the name of the norm after the embedding, "embed_norm", with the prefix of `lastNorm`.
  std::string embeddingNorm() const {
    return decoder.lastNorm.substr(0, decoder.lastNorm.rfind('.') + 1) + "embed_norm";
  }
  std::vector<Parameter> normParameters(const std::string &name, int64_t columns) const {
    std::vector<Parameter> parameters{{name + ".weight", {columns}, 1.0}};
    if (decoder.norm == NormKind::Layer)
      parameters.push_back({name + ".bias", {columns}, 0.0});
    return parameters;
  }

  void declareRopeTables() {
    double attentionFactor = 1.0;
    std::vector<double> frequencies =
        ropeFrequencies(model, config.training.sequenceLength, attentionFactor);
    for (auto [name, kind] : {std::pair("rope.cos", lm::InitKind::RopeCos),
                              std::pair("rope.sin", lm::InitKind::RopeSin)})
      declare(name, lm::VariableKind::Table, ropeTable,
              lm::InitAttr::rope(b.getContext(), kind, frequencies, attentionFactor));
  }

  void declareNorm(const std::string &name) {
    for (const Parameter &parameter : normParameters(name, model.hiddenSize))
      declareParameter(parameter);
  }

  bool isRotary() const { return decoder.positions == Positions::Rotary; }

  std::string prefixOf(int64_t layer) const {
    return decoder.layers + "." + std::to_string(layer) + ".";
  }

  LayerFunction &layerFunction(int64_t layer) {
    return layers[decoder.pattern.empty() ? 0 : decoder.pattern[size_t(layer)]];
  }

  double embeddingStddev() const {
    return model.initializerRange > 0 ? model.initializerRange : 0.02;
  }

  double linearStddev(int64_t fanIn) const {
    return model.initializer == "normal" ? embeddingStddev() : 1.0 / std::sqrt(double(fanIn));
  }

  // Returns the standard deviation for projections whose result is added to the residual stream.
  // Dividing by the root of the number of additions (2 per layer) keeps the variance of the
  // residual stream independent of depth.
  double residualStddev() const {
    return linearStddev(model.hiddenSize) / std::sqrt(2.0 * double(model.numHiddenLayers));
  }

  //===-- Graph -----------------------------------------------------------------------------===//

  // Matrices are read in the compute dtype, vectors in the master dtype.
  RankedTensorType readType(const Parameter &parameter) {
    return tensor(parameter.shape, parameter.shape.size() == 2 ? compute : master);
  }

  Value load(const std::string &name, RankedTensorType type) {
    return lm::LoadOp::create(b, loc, type, name);
  }

  Value loadParameter(const Parameter &parameter, const std::string &prefix = "") {
    bool copy = parameter.shape.size() == 2 && compute != master;
    std::string name = prefix + parameter.name;
    return load(copy ? lm::stateName(name, lm::VariableKind::ComputeCopy) : name,
                readType(parameter));
  }

  Location named(StringRef name) { return NameLoc::get(b.getStringAttr(name)); }

  //===-- A layer ---------------------------------------------------------------------------===//

  // Builds the function of a kind of layer: @NAME(x, [cos, sin], parameters..., [starts]) -> x.
  // `starts` exists with a document mask, cos and sin with RoPE. A layer with experts also returns:
  // * counts and mass (per expert: choices, sum of probabilities), if there is a balancing loss;
  // * then the router's counts, balance and entropy (kWatched), with monitoring.router;
  // * then the number of late choices, which a rank computes after its first window of rows
  //   (names::kRouterLate), with monitoring.router and windows.
  LayerFunction buildLayer(const DecoderLayer &kind) {
    OpBuilder::InsertionGuard guard(b);
    SmallVector<Type> inputs{activations};
    if (isRotary())
      inputs.append({rotations, rotations});
    if (config.training.documentMask)
      inputs.push_back(ids);
    LayerFunction layer;
    layer.experts = kind.experts.count;
    layer.function =
        func::FuncOp::create(b, loc, kind.name, b.getFunctionType(inputs, {Type(activations)}));
    layer.function.setPrivate();
    Block *body = layer.function.addEntryBlock();
    b.setInsertionPointToStart(body);
    Value x = body->getArgument(0);
    x = addBranch(layer, x, kind.attention, "attention_residual",
                  [&](Value h) { return attention(layer, kind, h); });
    SmallVector<Value> results{x};
    x = addBranch(layer, x, kind.mlp, "mlp_residual", [&](Value h) {
      return kind.experts.count
                 ? experts(layer, kind.experts, h, results)
                 : mlp(layer, kind.gate, kind.up, kind.down, model.intermediateSize, h);
    });
    results[0] = x;
    func::ReturnOp::create(b, loc, results);
    layer.function.setType(
        b.getFunctionType(body->getArgumentTypes(), TypeRange(ValueRange(results))));
    return layer;
  }

  // Returns x + behind(branch(before(x))), where `norms` names the norms `before` and `behind`.
  Value addBranch(LayerFunction &layer, Value x, const Norms &norms, StringRef sum,
                  function_ref<Value(Value)> branch) {
    Value h = norms.before.empty() ? x : norm(layer, norms.before, x);
    h = branch(h);
    if (!norms.behind.empty())
      h = norm(layer, norms.behind, h);
    return lm::AddOp::create(b, named(sum), x, h);
  }

  Value attention(LayerFunction &layer, const DecoderLayer &kind, Value h) {
    int64_t columns = model.numAttentionHeads * model.headDim,
            kvColumns = model.numKeyValueHeads * model.headDim;
    double stddev = linearStddev(model.hiddenSize);
    Block &body = layer.function.front();
    SmallVector<Value> parts; // q, k and v if one projection computes them, else empty
    if (!kind.qkv.name.empty()) {
      Value joined = linear(layer, kind.qkv, h, columns + 2 * kvColumns, stddev,
                            {columns, kvColumns, kvColumns});
      SmallVector<Type> types{tensor({tokens, columns}, compute),
                              tensor({tokens, kvColumns}, compute),
                              tensor({tokens, kvColumns}, compute)};
      parts = lm::SplitOp::create(b, named("qkv"), types, joined).getParts();
    }
    auto projected = [&](size_t index, const Projection &projection, int64_t out) -> Value {
      return parts.empty() ? linear(layer, projection, h, out, stddev) : parts[index];
    };
    auto positioned = [&](Value x, const std::string &normName, StringRef name) -> Value {
      x = normOfHeads(layer, kind.headNorm, normName, x);
      if (!isRotary())
        return x;
      return lm::RopeOp::create(b, named(name), x.getType(), x, body.getArgument(1),
                                body.getArgument(2), model.headDim, false);
    };
    Value q = positioned(projected(0, kind.q, columns), kind.qNorm, "q_rope");
    Value k = positioned(projected(1, kind.k, kvColumns), kind.kNorm, "k_rope");
    Value v = projected(2, kind.v, kvColumns);
    Value starts = config.training.documentMask ? body.getArguments().back() : Value();
    // A window that covers the whole sequence is written as 0 (none).
    int64_t window = kind.window >= config.training.sequenceLength ? 0 : kind.window;
    auto attended = lm::AttentionOp::create(
        b, named("self_attn"), q.getType(), tensor({tokens, model.numAttentionHeads}, master),
        /*largest=*/Type(), q, k, v, starts, b.getI64IntegerAttr(model.headDim),
        b.getI64IntegerAttr(config.training.sequenceLength),
        b.getF64FloatAttr(1.0 / std::sqrt(double(model.headDim))), b.getI64IntegerAttr(window));
    return linear(layer, kind.o, attended.getResult(), model.hiddenSize, residualStddev());
  }

  Value mlp(LayerFunction &layer, const Projection &gateOf, const Projection &upOf,
            const Projection &downOf, int64_t width, Value h) {
    double stddev = linearStddev(model.hiddenSize);
    Value gate = gateOf.name.empty() ? Value() : linear(layer, gateOf, h, width, stddev);
    Value up = linear(layer, upOf, h, width, stddev);
    Value activated = gate ? lm::SwigluOp::create(b, named("mlp"), gate, up).getResult()
                           : lm::GeluOp::create(b, named("mlp"), up.getType(), up).getResult();
    return linear(layer, downOf, activated, model.hiddenSize, residualStddev());
  }

  // Builds an MLP of experts. Appends the router's statistics to `results`, the layer's results.
  Value experts(LayerFunction &layer, const Experts &of, Value h, SmallVectorImpl<Value> &results) {
    const llvm::SaveAndRestore inside(isInExperts, true);
    const int64_t count = of.count, width = of.intermediateSize, hidden = model.hiddenSize;
    const int64_t choices = tokens * of.chosen;
    Type index = b.getI32Type();
    Value logits = linear(layer, {of.router}, h, count, linearStddev(hidden));
    SmallVector<Type> routed{tensor({tokens, of.chosen}, master),
                             tensor({tokens, of.chosen}, index), tensor({count}, master),
                             tensor({count}, master)};
    Value bias;
    if (!of.bias.empty()) {
      Parameter added{of.bias, {count}, 0.0};
      added.balanced = double(config.training.batchSize * config.training.sequenceLength) *
                       double(of.chosen) / double(count);
      bias = parameter(layer, std::move(added));
    }
    auto route = lm::RouteOp::create(b, named("router"), routed, logits, bias, of.normalize,
                                     of.sigmoid, llvm::APFloat(of.scale));
    SmallVector<Type> sorted{tensor({count + 1}, index), tensor({choices}, index),
                             tensor({choices}, index)};
    auto sort = lm::SortRowsOp::create(b, named("sort"), sorted, route.getExperts());
    Value rows = lm::TakeRowsOp::create(b, named("take"), tensor({choices, hidden}, compute), h,
                                        sort.getRows(), sort.getPlaces());
    // The gate matrix and the up matrix of each expert are adjacent.
    Parameter gateUp{
        of.experts + ".gate_up.weight", {count * 2 * width, hidden}, linearStddev(hidden)};
    Parameter down{
        of.experts + "." + of.down + ".weight", {count * hidden, width}, residualStddev()};
    for (int64_t e = 0; e < count; ++e) {
      const std::string expert = of.experts + "." + std::to_string(e) + ".";
      gateUp.parts.push_back({expert + of.gate + ".weight", width});
      gateUp.parts.push_back({expert + of.up + ".weight", width});
      down.parts.push_back({expert + of.down + ".weight", hidden});
    }
    Value joined = lm::ExpertLinearOp::create(
        b, named("experts.gate_up"), tensor({choices, 2 * width}, compute), rows,
        parameter(layer, std::move(gateUp)), sort.getOffsets(), false);
    SmallVector<Type> halves(2, tensor({choices, width}, compute));
    auto split = lm::SplitOp::create(b, named("experts.gate_up"), halves, joined);
    Value activated =
        lm::SwigluOp::create(b, named("experts"), split.getParts()[0], split.getParts()[1]);
    Value out = lm::ExpertLinearOp::create(
        b, named("experts.down"), tensor({choices, hidden}, compute), activated,
        parameter(layer, std::move(down)), sort.getOffsets(), false);
    if (decoder.balanceLoss > 0)
      results.append({route.getCounts(), route.getMass()});
    if (config.monitoring.router) {
      const double factor = double(count) / (double(tokens) * double(tokens));
      Value balance = balanceTerms("router.balance", route.getCounts(), route.getMass(), factor);
      Value entropy = lm::RouterEntropyOp::create(b, named("router.entropy"),
                                                  route.getMass().getType(), logits, of.sigmoid);
      results.append({route.getCounts(), balance, entropy});
      if (hasWindows()) // the pass dist-parallel-experts later adds the windows' offsets
        results.push_back(lm::LateRowsOp::create(b, named("router.late"), tensor({1}, master),
                                                 ValueRange(sort.getOffsets())));
    }
    Value combined =
        lm::CombineRowsOp::create(b, named("combine"), activations, out, route.getWeights(),
                                  sort.getRows(), sort.getPlaces());
    if (of.sharedSize == 0)
      return combined;
    auto shared = [&](const std::string &name) { return Projection{of.shared + "." + name}; };
    Value always = mlp(layer, shared(of.gate), shared(of.up), shared(of.down), of.sharedSize, h);
    return lm::AddOp::create(b, named("experts_sum"), combined, always);
  }

  Value balanceTerms(StringRef name, Value counts, Value mass, double factor) {
    return lm::BalanceTermsOp::create(b, named(name), mass.getType(), counts, mass,
                                      b.getF64FloatAttr(factor));
  }

  // Adds a parameter to the layer and returns the layer function's argument for it.
  Value parameter(LayerFunction &layer, Parameter added) {
    unsigned index = unsigned((isRotary() ? 3 : 1) + layer.parameters.size()); // after x, cos, sin
    Value argument = layer.function.front().insertArgument(index, readType(added), loc);
    layer.parameters.push_back(std::move(added));
    return argument;
  }

  // `maps` has the number of columns of each linear map in the weight. It is empty for one map.
  Value linear(LayerFunction &layer, const Projection &projection, Value x, int64_t out,
               double stddev, SmallVector<int64_t> maps = {}) {
    int64_t in = cast<RankedTensorType>(x.getType()).getDimSize(1);
    const bool transposed = decoder.transposedWeights;
    Parameter added{projection.name + ".weight", {out, in}, stddev};
    added.ofExperts = isInExperts;
    if (transposed) {
      added.shape = {in, out};
      added.columns = maps.empty() ? SmallVector<int64_t>{out} : std::move(maps);
    }
    Value weight = parameter(layer, std::move(added));
    Value bias =
        projection.bias ? parameter(layer, {projection.name + ".bias", {out}, 0.0}) : Value();
    return lm::LinearOp::create(b, named(projection.name), tensor({tokens, out}, compute), x,
                                weight, bias, Value(), transposed);
  }

  Value norm(LayerFunction &layer, const std::string &name, Value x) {
    int64_t columns = cast<RankedTensorType>(x.getType()).getDimSize(1);
    SmallVector<Value> values;
    for (Parameter &added : normParameters(name, columns))
      values.push_back(parameter(layer, std::move(added)));
    return normWith(values, name, x);
  }

  // Returns the norm of x. `values` are its weight and, for a LayerNorm, its bias.
  Value normWith(ValueRange values, StringRef name, Value x) {
    auto eps = b.getF64FloatAttr(decoder.normEps > 0 ? decoder.normEps : model.rmsNormEps);
    if (decoder.norm == NormKind::Layer)
      return lm::LayerNormOp::create(b, named(name), x.getType(), x, values[0], values[1], eps);
    return lm::RmsNormOp::create(b, named(name), x.getType(), x, values[0], eps);
  }

  // Returns the norm of x by the norm `name`, which belongs to no layer.
  Value loadedNorm(const std::string &name, StringRef location, Value x) {
    SmallVector<Value> values;
    for (const Parameter &parameter : normParameters(name, model.hiddenSize))
      values.push_back(loadParameter(parameter));
    return normWith(values, location, x);
  }

  Value normOfHeads(LayerFunction &layer, HeadNorm kind, const std::string &name, Value x) {
    if (kind == HeadNorm::None)
      return x;
    if (kind == HeadNorm::WholeRow)
      return norm(layer, name, x);
    return normWith(parameter(layer, {name + ".weight", {model.headDim}, 1.0}), name, x);
  }

  //===-- The whole -------------------------------------------------------------------------===//

  // Returns the number of tokens in a chunk of the loss: config.memory.lossChunk if it is set. By
  // default, the logits of a chunk take about 256 MiB, and a chunk has 64 to 4096 tokens.
  int64_t lossChunk() const {
    if (config.memory.lossChunk > 0)
      return std::min(tokens, config.memory.lossChunk);
    int64_t width = compute.getIntOrFloatBitWidth() / 8;
    int64_t fit = (int64_t(256) << 20) / (model.vocabSize * width) / 64 * 64;
    return std::min(tokens, std::clamp<int64_t>(fit, 64, 4096));
  }

  // Declares an input variable that `function` reads. The declaration stands before `function`.
  void declareFor(func::FuncOp function, StringRef name, RankedTensorType type) {
    OpBuilder::InsertionGuard atModule(b);
    b.setInsertionPoint(function);
    declare(name, lm::VariableKind::Input, type, initializer(lm::InitKind::None));
  }

  // What a function computes: the loss, the logits of all tokens, or the logits of one token per
  // sequence. The host chooses these tokens by their indices, 0 to mbs * seq - 1 (kGenerateRows).
  enum class Output { Loss, Logits, NextLogits };

  void buildForward(StringRef name, Output output) {
    OpBuilder::InsertionGuard guard(b);
    Type lossType = tensor({}, master);
    SmallVector<Type> results;
    if (output == Output::Loss)
      results.push_back(lossType);
    auto forward = func::FuncOp::create(b, loc, name, b.getFunctionType({}, results));
    b.setInsertionPointToStart(forward.addEntryBlock());

    Value tokenIds = load(names::kTokens, ids), cos, sin, starts;
    if (isRotary()) {
      cos = load("rope.cos", ropeTable);
      sin = load("rope.sin", ropeTable);
    }
    if (isRotary() && config.training.documentPositions) {
      Value positions = load(names::kPositions, ids);
      cos = lm::EmbeddingOp::create(b, named("rope.cos"), rotations, positions, cos);
      sin = lm::EmbeddingOp::create(b, named("rope.sin"), rotations, positions, sin);
    }
    if (config.training.documentMask)
      starts = load(names::kStarts, ids);
    Value embeddings = loadParameter(embedding());
    Value x = lm::EmbeddingOp::create(b, named("embed_tokens"), activations, tokenIds, embeddings);
    if (!isRotary()) {
      Value positions =
          load(config.training.documentPositions ? names::kPositions : names::kRowPositions, ids);
      Value rows = lm::EmbeddingOp::create(b, named("embed_positions"), activations, positions,
                                           loadParameter(positionTable()));
      x = lm::AddOp::create(b, named("embed_sum"), x, rows);
    }
    if (model.embeddingNorm)
      x = loadedNorm(embeddingNorm(), "embed_norm", x);
    Value counts, mass; // sums over all routers
    int64_t routers = 0;
    for (int64_t layer = 0; layer < model.numHiddenLayers; ++layer) {
      SmallVector<Value> operands{x};
      if (isRotary())
        operands.append({cos, sin});
      for (const Parameter &parameter : layerFunction(layer).parameters)
        operands.push_back(loadParameter(parameter, prefixOf(layer)));
      if (starts)
        operands.push_back(starts);
      auto call = func::CallOp::create(b, named("layers." + std::to_string(layer)),
                                       layerFunction(layer).function, operands);
      call->setAttr(lm::kLayer, b.getI64IntegerAttr(layer));
      x = call.getResult(0);
      const bool isRouted = layerFunction(layer).experts > 0;
      if (isRouted && config.monitoring.router && output == Output::Loss) {
        SmallVector<StringRef> watched(std::begin(kWatched), std::end(kWatched));
        if (hasWindows())
          watched.push_back(names::kRouterLate);
        for (auto [which, sum] : llvm::zip(watched, call.getResults().take_back(watched.size())))
          lm::AccumulateOp::create(b, named(which), sum, names::routerSum(which, layer));
      }
      if (isRouted && decoder.balanceLoss > 0) {
        auto add = [&](Value sum, Value value, StringRef name) -> Value {
          return sum ? lm::AddOp::create(b, named(name), sum, value).getResult() : value;
        };
        counts = add(counts, call.getResult(1), "router.counts");
        mass = add(mass, call.getResult(2), "router.mass");
        ++routers;
      }
    }
    if (output == Output::NextLogits) {
      auto rowsType = tensor({config.training.microBatchSize}, b.getI32Type());
      declareFor(forward, names::kGenerateRows, rowsType);
      Value rows = load(names::kGenerateRows, rowsType);
      auto type = tensor({config.training.microBatchSize, model.hiddenSize}, compute);
      x = lm::EmbeddingOp::create(b, named("rows"), type, rows, x);
    }
    x = loadedNorm(decoder.lastNorm, "norm", x);
    Value weight = model.tieWordEmbeddings ? embeddings : loadParameter(head());
    if (output != Output::Loss) {
      const int64_t count = cast<RankedTensorType>(x.getType()).getDimSize(0);
      const char *to = output == Output::Logits ? names::kDebugLogits : names::kGenerateLogits;
      auto type = tensor({count, model.vocabSize}, compute);
      Value logits = lm::LinearOp::create(b, named("lm_head"), type, x, weight, Value(), Value());
      declareFor(forward, to, type);
      lm::StoreOp::create(b, loc, logits, to);
      func::ReturnOp::create(b, loc);
      return;
    }
    Value targets = load(names::kTargets, ids);
    const double z = config.training.zLoss;
    Value loss = lm::LinearCrossEntropyOp::create(
        b, named("loss"), lossType, x, weight, targets, b.getI64IntegerAttr(lossChunk()),
        b.getI64IntegerAttr(0), z > 0 ? b.getF64FloatAttr(z) : FloatAttr());
    if (routers > 0) {
      const auto experts = double(cast<RankedTensorType>(counts.getType()).getDimSize(0));
      const double choices = double(routers) * double(tokens);
      const double factor = decoder.balanceLoss * experts * double(tokens) / (choices * choices);
      loss = lm::BalanceLossOp::create(b, named("balance_loss"), lossType, loss, counts, mass,
                                       b.getF64FloatAttr(factor));
      if (config.monitoring.router)
        lm::AccumulateOp::create(b, named(names::kRouterBalance),
                                 balanceTerms("balance", counts, mass, factor),
                                 names::kRouterBalance);
    }
    func::ReturnOp::create(b, loc, loss);
  }

  const Config &config;
  const ModelConfig &model;
  const Decoder &decoder;
  OpBuilder b;
  Location loc;
  Type compute, master;
  int64_t tokens;
  RankedTensorType activations, ropeTable, ids;
  RankedTensorType rotations;        // the type of cos and sin, as layers read them
  std::vector<LayerFunction> layers; // one function per kind of layer
  bool isInExperts = false;          // true while experts() builds
};

} // namespace

OwningOpRef<ModuleOp> lmc::buildModel(const Config &config, const Decoder &decoder,
                                      MLIRContext &context) {
  context.loadDialect<lm::LmDialect, func::FuncDialect>();
  return DecoderBuilder(config, decoder, context).build();
}

OwningOpRef<ModuleOp> lmc::buildModel(const Config &config, MLIRContext &context) {
  return buildModel(config, config.model.family->decoder(config.model), context);
}

std::vector<std::string> lmc::parameterNames(const Config &config) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> model = buildModel(config, context);
  std::vector<std::string> names;
  for (auto variable : model->getOps<lm::VariableOp>()) {
    if (variable.getKind() != lm::VariableKind::Parameter)
      continue;
    if (!variable.getParts())
      names.push_back(variable.getSymName().str());
    else
      for (auto part : variable.getPartsAttr().getAsRange<lm::PartAttr>())
        names.push_back(part.getName().str());
  }
  return names;
}
