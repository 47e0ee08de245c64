#include "models/decoder/Counts.h"

#include "dialects/lm/TensorTypes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <map>

using namespace mlir;
using namespace lmc;

namespace {

class Counter {
public:
  explicit Counter(int64_t tokens) : tokens(tokens) {}
  LogicalResult add(func::FuncOp function, int64_t &traffic);

  const int64_t tokens; // of a micro-step
  int64_t weights = 0;  // elements of all weights by which a token is multiplied
  // These maps sum the columns of q of all attention ops, by the mean number of keys per query.
  // `causal` counts keys under the mask, `full` counts all keys. Columns with an equal mean are
  // added first, so that each product columns * mean is rounded once.
  std::map<double, int64_t> causal, full;
  int64_t layerTraffic = 0; // bytes per token

private:
  void addAttention(lm::AttentionOp attention);
};

} // namespace

static int64_t widthOf(Value value) { return tensorTypeOf(value).getElementTypeBitWidth() / 8; }

// Returns true if the op reads rows of a table (a variable that is not trained).
static bool readsTable(lm::EmbeddingOp embedding) {
  auto load = embedding.getTable().getDefiningOp<lm::LoadOp>();
  auto variable =
      load ? SymbolTable::lookupNearestSymbolFrom<lm::VariableOp>(load, load.getVariableAttr())
           : lm::VariableOp();
  return variable && variable.getKind() == lm::VariableKind::Table;
}

// Returns true if the op adds the row of a token and the row of a learned position.
static bool addsRows(lm::AddOp sum) {
  return sum.getLhs().getDefiningOp<lm::EmbeddingOp>() &&
         sum.getRhs().getDefiningOp<lm::EmbeddingOp>();
}

// Returns true if the op reads rows of learned positions that addsRows() adds to rows of tokens.
static bool isOfPositions(lm::EmbeddingOp embedding) {
  auto sum = embedding->hasOneUse() ? dyn_cast<lm::AddOp>(*embedding->user_begin()) : lm::AddOp();
  return sum && addsRows(sum) && sum.getRhs() == embedding.getResult();
}

// Returns true if the only reader of the norm's result is a rotation.
static bool isRotated(lm::RmsNormOp norm) {
  return norm->hasOneUse() && isa<lm::RopeOp>(*norm->user_begin());
}

void Counter::addAttention(lm::AttentionOp attention) {
  double seq = double(attention.getSeq());
  double window = attention.getWindow() > 0 ? std::min(double(attention.getWindow()), seq) : seq;
  // Query i (from 1) sees min(i, window) keys. The map's key is about the mean over all queries.
  causal[window - window * window / (2 * seq)] += extent(attention.getQ(), 1);
  full[seq] += extent(attention.getQ(), 1);
}

// Adds up the traffic of a function's ops in the forward and backward pass, as if each op were
// fused with its neighbours. Per token, an op with c columns moves (elements of compute dtype):
//
//   rms_norm    reads x, writes y; its gradient reads dy and x, writes dx: 5c. If only a
//               rotation reads y, the rotation's kernel computes y from x, and only the
//               gradient's 3c remain
//   layer_norm  moves 5c, like rms_norm
//   add         is fused with the norm of its sum: reads the branch and writes the sum; the
//               norm's gradient also reads the gradient of the residual stream: 3c. With the
//               norm's 5c these are 8c. An add x + norm(h) and its norm also move 8c. If a matrix
//               product adds the residual (lm-fold-residual, on a GPU), 1c of the 3c remains.
//   rope        reads x, writes y: 2c; its gradient is part of attention's gradient
//   swiglu      reads gate and up, writes the product: 3c; its gradient reads dout, gate and up,
//               writes dgate and dup, and recomputes and writes the product: 6c
//   gelu        reads x, writes y: 2c; its gradient reads dy and x, writes dx, and recomputes and
//               writes y: 4c
//   embedding   reads a row, writes it; its gradient reads dx: 3c. The gradient adds dx to a row of
//               the main gradient, which it reads and writes: 2c of f32 or f64.
//               A row of RoPE's table is only read and written: 2c. A learned position moves
//               2c: the token's kernel reads and adds its row, and its gradient reads dx. The
//               main gradient of positions has few rows, so it stays in caches.
//   take_rows   reads x, writes k rows per token; its gradient reads k rows of dy per token and
//               writes dx: 2c of x and 2c of its result
//   combine_rows  reads k rows per token, writes their sum: c of y and c of its result; its
//               gradient reads dout and y, writes dy: c of its result and 2c of y
//   loss        reads the logits, writes their gradient: 2c, where c is the vocabulary size
//
// Row statistics, weights and token ids are left out: they are less than 0.1% of the traffic.
LogicalResult Counter::add(func::FuncOp function, int64_t &traffic) {
  auto move = [&](Value value, int64_t times) {
    traffic += times * extent(value, 1) * widthOf(value) * extent(value, 0) / tokens;
  };
  for (Operation &op : function.getOps()) {
    if (auto norm = dyn_cast<lm::RmsNormOp>(op)) {
      move(norm.getResult(), isRotated(norm) ? 3 : 5);
    } else if (isa<lm::LayerNormOp>(op)) {
      move(op.getResult(0), 5);
    } else if (isa<lm::GeluOp>(op)) {
      move(op.getResult(0), 6);
    } else if (auto sum = dyn_cast<lm::AddOp>(op); sum && addsRows(sum)) {
      continue; // this add's traffic is counted with the embeddings
    } else if (auto sum = dyn_cast<lm::AddOp>(op)) {
      if (tensorTypeOf(sum.getResult()).getRank() > 1) // leaves out vectors: router statistics
        move(sum.getResult(), 3);
    } else if (isa<lm::RopeOp>(op)) {
      move(op.getResult(0), 2);
    } else if (isa<lm::SwigluOp, lm::ExpertSwigluOp>(op)) {
      move(op.getResult(0), 9);
    } else if (auto embedding = dyn_cast<lm::EmbeddingOp>(op);
               embedding && (readsTable(embedding) || isOfPositions(embedding))) {
      move(embedding.getResult(), 2);
    } else if (auto embedding = dyn_cast<lm::EmbeddingOp>(op)) {
      move(embedding.getResult(), 3);
      traffic += 2 * extent(embedding.getResult(), 1) *
                 std::max<int64_t>(widthOf(embedding.getResult()), 4);
    } else if (auto loss = dyn_cast<lm::LinearCrossEntropyOp>(op)) {
      weights += tensorTypeOf(loss.getWeight()).getNumElements();
      traffic += 2 * extent(loss.getWeight(), 0) * widthOf(loss.getX());
    } else if (auto linear = dyn_cast<lm::LinearOp>(op)) {
      weights += tensorTypeOf(linear.getWeight()).getNumElements();
    } else if (auto linear = dyn_cast<lm::ExpertLinearOp>(op)) {
      weights += extent(linear.getX(), 1) * extent(linear.getResult(), 1) *
                 extent(linear.getX(), 0) / tokens;
    } else if (auto take = dyn_cast<lm::TakeRowsOp>(op)) {
      move(take.getX(), 2);
      move(take.getResult(), 2);
    } else if (auto combine = dyn_cast<lm::CombineRowsOp>(op)) {
      move(combine.getResult(), 2);
      move(combine.getY(), 3);
    } else if (auto attention = dyn_cast<lm::AttentionOp>(op)) {
      addAttention(attention);
    } else if (auto call = dyn_cast<func::CallOp>(op)) {
      if (failed(add(SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr()),
                     layerTraffic)))
        return failure();
    } else if (!isa<lm::SplitOp, lm::JoinOp, lm::LoadOp, lm::RouteOp, lm::SortRowsOp,
                    lm::BalanceLossOp, lm::BalanceTermsOp, lm::RouterEntropyOp, lm::LateRowsOp,
                    lm::AccumulateOp,
                    func::ReturnOp>(op)) { // move nothing
      return op.emitOpError("has no count of its operations and traffic");
    }
  }
  return success();
}

FailureOr<ModelCounts> lmc::modelCounts(ModuleOp module) {
  auto forward = module.lookupSymbol<func::FuncOp>("forward");
  int64_t tokens = 1;
  for (auto embedding : forward.getOps<lm::EmbeddingOp>())
    tokens = extent(embedding.getResult(), 0);
  Counter counter(tokens);
  int64_t headTraffic = 0;
  if (failed(counter.add(forward, headTraffic)))
    return failure();
  ModelCounts counts;
  for (auto variable : module.getOps<lm::VariableOp>())
    if (variable.getKind() == lm::VariableKind::Parameter)
      counts.parameters += uint64_t(tensorTypeOf(variable).getNumElements());
  auto flops = [&](const std::map<double, int64_t> &columnsByKeys) {
    double sum = 6 * double(counter.weights);
    for (auto [keys, columns] : columnsByKeys)
      sum += double(12 * columns) * keys;
    return sum;
  };
  counts.flopsPerTokenCausal = flops(counter.causal);
  counts.flopsPerTokenFull = flops(counter.full);
  counts.layerTrafficFloor = double(counter.layerTraffic);
  counts.headTrafficFloor = double(headTraffic);
  return counts;
}
