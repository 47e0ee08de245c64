// kern-convert-lm: turns every lm op into library calls and fusions that compute one op each.
//
//   %y = lm.linear %x, %w            =>   %y = kern.gemm %x, %w {transpose_b}
//   %y = lm.rms_norm %x, %w eps 1e-5 =>   %y = kern.fusion row_reduction (...) {
//                                           sum of squares per row; scale the row }
#include "passes/fusion/Passes.h"

#include "dialects/lm/Lm.h"
#include "passes/fusion/ConvertOptimizer.h"
#include "passes/fusion/ReductionScale.h"
#include "passes/fusion/queue/FusionBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <limits>

namespace lmc {
#define GEN_PASS_DEF_CONVERTLMPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using kern::Hero;
using Combine = FusionBuilder::Combine;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns the results of a kernel that computes `body` for each element of the op's result. Each
// operand of the op is a tensor of the result's shape or a scalar.
static SmallVector<Value> elementwise(OpBuilder &b, Operation *op, FusionBuilder::Body body) {
  FusionBuilder f(b, op->getLoc(), Hero::Elementwise, op->getOperands(),
                  op->getName().getStringRef());
  RankedTensorType type = tensorTypeOf(op->getResult(0));
  const auto rank = unsigned(type.getRank());
  SmallVector<FusionBuilder::Read> reads;
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    reads.push_back(
        {f.arg(unsigned(i)), tensorTypeOf(operand).getRank() == 0 ? f.none(rank) : f.all(rank)});
  return {f.finishMap(type, reads, body)};
}

//===-- Element-wise ------------------------------------------------------------------------===//

static Scalar sigmoid(Scalar x) {
  Scalar one = x.constant(1.0);
  return one / (one + exp(-x));
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::SwigluOp op) {
  return elementwise(b, op, [](Elements s) { return s[0] * sigmoid(s[0]) * s[1]; });
}

// Computes dgate = dy u s (1 + g (1 - s)) and dup = dy g s, where s = sigmoid(g).
static SmallVector<Value> convertOp(OpBuilder &b, lm::SwigluGradOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::Elementwise, op.getOperands(), "lm.swiglu_grad");
  RankedTensorType type = tensorTypeOf(op.getDgate());
  AffineMap all = f.all(unsigned(type.getRank()));
  Value dgate = f.map(type, {{f.arg(0), all}, {f.arg(1), all}, {f.arg(2), all}}, [](Elements s) {
    Scalar dy = s[0], g = s[1], u = s[2], one = g.constant(1.0), sig = sigmoid(g);
    Scalar slope = one + g * (one - sig);
    Scalar du = dy * u;
    return du * (sig * slope);
  });
  Value dup = f.map(type, {{f.arg(0), all}, {f.arg(1), all}},
                    [](Elements s) { return s[0] * (s[1] * sigmoid(s[1])); });
  return f.finish({dgate, dup}).getResults();
}

// lm.gelu(x) = x sigmoid(2 u), where 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3) = x (kGelu + kCubic
// x^2).
static const double kGelu = 2 * std::sqrt(2 / M_PI), kCubic = 0.044715 * kGelu;

static Scalar geluExponent(Scalar x, Scalar square) { return x * (square * kCubic + kGelu); }

static SmallVector<Value> convertOp(OpBuilder &b, lm::GeluOp op) {
  return elementwise(b, op, [](Elements s) {
    Scalar x = s[0], square = x * x;
    return x * sigmoid(geluExponent(x, square));
  });
}

// Computes dx = dy s (1 + x (1 - s) 2 u'), where s = sigmoid(2 u) and u' is the derivative of u.
static SmallVector<Value> convertOp(OpBuilder &b, lm::GeluGradOp op) {
  return elementwise(b, op, [](Elements s) {
    Scalar dy = s[0], x = s[1], one = x.constant(1.0), square = x * x;
    Scalar sig = sigmoid(geluExponent(x, square));
    Scalar derivative = square * (3 * 0.044715 * kGelu) + kGelu;
    Scalar rest = x * (one - sig);
    Scalar slope = one + rest * derivative;
    return dy * sig * slope;
  });
}

namespace {
// Views a matrix [batch * seq, heads * head_dim] as [batch, seq, heads, 2, head_dim / 2]: rope
// rotates the first half of each head against its second half.
class HeadHalves {
public:
  HeadHalves(lm::RopeOp rope)
      : flat(tensorTypeOf(rope.getX())), context(rope.getContext()), groups{{0, 1}, {2, 3, 4}} {
    bindDims(context, batch, seq, head, i);
    int64_t positions = tensorTypeOf(rope.getCos()).getDimSize(0);
    int64_t rows = flat.getDimSize(0) / positions, half = int64_t(rope.getHeadDim()) / 2;
    int64_t heads = flat.getDimSize(1) / (2 * half);
    whole = flat.clone(ArrayRef<int64_t>{rows, positions, heads, 2, half});
    part = flat.clone(ArrayRef<int64_t>{rows, positions, heads, half});
  }

  Value expand(OpBuilder &b, Location loc, Value x) {
    return b.createOrFold<tensor::ExpandShapeOp>(loc, whole, x, groups);
  }
  Value collapse(OpBuilder &b, Location loc, Value x) {
    return tensor::CollapseShapeOp::create(b, loc, flat, x, groups);
  }
  // Returns the affine map to `indices` from the loops over `part`: (batch, seq, head, i).
  AffineMap map(ArrayRef<AffineExpr> indices) { return AffineMap::get(4, 0, indices, context); }
  // Returns the affine map from (batch, seq, head, i) to half `j` (0 or 1) of each head in `whole`.
  AffineMap at(int64_t j) { return map({batch, seq, head, number(j), i}); }
  AffineExpr number(int64_t j) { return getAffineConstantExpr(j, context); }

  RankedTensorType flat, whole, part;
  AffineExpr batch, seq, head, i; // the loops

private:
  MLIRContext *context;
  SmallVector<ReassociationIndices> groups;
};
} // namespace

// Rotates x. The kernel reads both halves of a head before it writes either, so the result may
// overwrite x.
static SmallVector<Value> convertOp(OpBuilder &b, lm::RopeOp op) {
  HeadHalves halves(op);
  Value x = halves.expand(b, op.getLoc(), op.getX());
  FusionBuilder f(b, op.getLoc(), Hero::Elementwise, {x, op.getCos(), op.getSin()}, "lm.rope");
  AffineMap table = halves.map({halves.seq, halves.i});
  // y[0] = x[0] cos - x[1] sin, y[1] = x[1] cos + x[0] sin; the inverse exchanges - and +.
  auto rotate = [&](int64_t j) {
    double sign = (j == 0) == op.getInverse() ? 1.0 : -1.0;
    return f.map(halves.part,
                 {{f.arg(0), halves.at(j)},
                  {f.arg(0), halves.at(1 - j)},
                  {f.arg(1), table},
                  {f.arg(2), table}},
                 [&](Elements s) {
                   Scalar cosine = s[2].to(s[0].type()), sine = s[3].to(s[0].type());
                   Scalar factor = s[0].constant(sign), rotated = s[1] * sine * factor;
                   return s[0] * cosine + rotated;
                 });
  };
  Value first = rotate(0), second = rotate(1);
  Value result = f.finish(f.stack(halves.whole, 3, {first, second})).getResult(0);
  return {halves.collapse(b, op.getLoc(), result)};
}

//===-- Rows and columns --------------------------------------------------------------------===//

namespace {
// Returns 1 / sqrt(squares / columns + eps), element by element.
Value reciprocalRoot(FusionBuilder &f, Value squares, int64_t columns, double eps) {
  RankedTensorType type = tensorTypeOf(squares);
  return f.map(type, {{squares, f.all(unsigned(type.getRank()))}},
               [&](Elements s) { return 1.0 / sqrt(s[0] * (1.0 / double(columns)) + eps); });
}

// Returns 1 / sqrt(mean(x^2) + eps) of every row of `x` [..., columns].
Value reciprocalRms(FusionBuilder &f, Value x, double eps) {
  RankedTensorType type = tensorTypeOf(x);
  unsigned rank = unsigned(type.getRank());
  Value squares =
      f.reduce(type.getShape(), rank - 1, arithmeticType(type.getElementType()), {{x, f.all(rank)}},
               Combine::Add, [](Elements s) { return s[0] * s[0]; });
  return reciprocalRoot(f, squares, type.getShape().back(), eps);
}

Scalar normed(Elements s) { return s[0] * s[1] * s[2]; }

// Views a matrix [rows, columns] as [rows, groups, columns of a group]. If there is only one group,
// the matrix stays as it is.
class ColumnGroups {
public:
  ColumnGroups(RankedTensorType flat, int64_t size) : flat(flat), type(flat) {
    if (size != flat.getDimSize(1))
      type = flat.clone(ArrayRef<int64_t>{flat.getDimSize(0), flat.getDimSize(1) / size, size});
  }
  Value expand(OpBuilder &b, Location loc, Value x) {
    return type == flat ? x : tensor::ExpandShapeOp::create(b, loc, type, x, groups).getResult();
  }
  Value collapse(OpBuilder &b, Location loc, Value x) {
    return type == flat ? x : tensor::CollapseShapeOp::create(b, loc, flat, x, groups).getResult();
  }

  RankedTensorType flat, type;

private:
  SmallVector<ReassociationIndices> groups{{0}, {1, 2}};
};
} // namespace

// Converts an RMS norm that only `rope` reads. The norm gets the loops of `rope`, so that one
// kernel can compute both.
static SmallVector<Value> convertRotatedNorm(OpBuilder &b, lm::RmsNormOp op, lm::RopeOp rope) {
  HeadHalves halves(rope);
  Location loc = op.getLoc();
  RankedTensorType weightType = tensorTypeOf(op.getWeight());
  ArrayRef<int64_t> shape = halves.whole.getShape(), extents = halves.part.getShape();
  const bool ofHeads = weightType.getDimSize(0) == 2 * extents[3];
  const int64_t columns = weightType.getDimSize(0);
  Value weight = tensor::ExpandShapeOp::create(
      b, loc, weightType.clone(shape.take_back(ofHeads ? 2 : 3)), op.getWeight(),
      ofHeads ? SmallVector<ReassociationIndices>{{0, 1}}
              : SmallVector<ReassociationIndices>{{0, 1, 2}});
  FusionBuilder f(b, loc, Hero::RowReduction, {halves.expand(b, loc, op.getX()), weight},
                  "lm.rms_norm");
  Value x = f.arg(0);
  Value squares = f.reduce(
      extents, ofHeads ? 3 : 2, arithmeticType(halves.flat.getElementType()),
      {{x, halves.at(0)}, {x, halves.at(1)}}, Combine::Add,
      [](Elements s) { return s[0] * s[0] + s[1] * s[1]; }, ofHeads ? 1 : 2);
  Value r = reciprocalRoot(f, squares, columns, op.getEps().convertToDouble());
  AffineMap row = ofHeads ? halves.map({halves.batch, halves.seq, halves.head})
                          : halves.map({halves.batch, halves.seq});
  auto weightAt = [&](int64_t j) {
    return ofHeads ? halves.map({halves.number(j), halves.i})
                   : halves.map({halves.head, halves.number(j), halves.i});
  };
  SmallVector<Value> parts;
  for (int64_t j : {0, 1})
    parts.push_back(
        f.map(halves.part, {{x, halves.at(j)}, {r, row}, {f.arg(1), weightAt(j)}}, normed));
  Value result = f.finish(f.stack(halves.whole, 3, parts)).getResult(0);
  return {halves.collapse(b, loc, result)};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::RmsNormOp op) {
  int64_t size = tensorTypeOf(op.getWeight()).getDimSize(0);
  if (auto rope = op->hasOneUse() ? dyn_cast<lm::RopeOp>(*op->user_begin()) : lm::RopeOp();
      rope && (size == int64_t(rope.getHeadDim()) || size == tensorTypeOf(op.getX()).getDimSize(1)))
    return convertRotatedNorm(b, op, rope);
  ColumnGroups groups(tensorTypeOf(op.getResult()), size);
  unsigned rank = unsigned(groups.type.getRank());
  FusionBuilder f(b, op.getLoc(), Hero::RowReduction,
                  {groups.expand(b, op.getLoc(), op.getX()), op.getWeight()}, "lm.rms_norm");
  Value r = reciprocalRms(f, f.arg(0), op.getEps().convertToDouble());
  Value y =
      f.finishMap(groups.type,
                  {{f.arg(0), f.all(rank)}, {r, f.outer(rank)}, {f.arg(1), f.inner(rank)}}, normed);
  return {groups.collapse(b, op.getLoc(), y)};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::ReciprocalRmsOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::RowReduction, op.getX(), "lm.reciprocal_rms");
  return {f.finish(reciprocalRms(f, f.arg(0), op.getEps().convertToDouble())).getResult(0)};
}

// Returns the sum of every column of `x` [rows, columns].
static Value sumColumns(OpBuilder &b, Location loc, Value x, Type element, StringRef source) {
  return reduceAlone(b, loc, Hero::ColumnReduction, x, 0, element, Combine::Add, source);
}

// The first kernel computes dx and, for each block of rows, a partial sum of dweight. The second
// kernel adds these sums.
static SmallVector<Value> convertOp(OpBuilder &b, lm::RmsNormGradOp op) {
  Location loc = op.getLoc();
  int64_t columns = tensorTypeOf(op.getWeight()).getDimSize(0);
  ColumnGroups groups(tensorTypeOf(op.getDx()), columns);
  RankedTensorType type = groups.type;
  unsigned rank = unsigned(type.getRank());
  Type element = arithmeticType(type.getElementType());
  auto rows = RankedTensorType::get(type.getShape().drop_back(), element);

  FusionBuilder f(
      b, loc, Hero::RowReduction,
      {groups.expand(b, loc, op.getDy()), groups.expand(b, loc, op.getX()), op.getWeight()},
      "lm.rms_norm_grad");
  Value dy = f.arg(0), x = f.arg(1), w = f.arg(2);
  Value r = reciprocalRms(f, x, op.getEps().convertToDouble());
  AffineMap all = f.all(rank), outer = f.outer(rank), inner = f.inner(rank);
  Value dot = f.reduce(type.getShape(), rank - 1, element, {{dy, all}, {x, all}, {w, inner}},
                       Combine::Add, [](Elements s) { return s[0] * s[2] * s[1]; });
  Value pull = f.map(rows, {{r, f.all(rank - 1)}, {dot, f.all(rank - 1)}}, [&](Elements s) {
    Scalar cube = s[0] * (s[0] * s[0]);
    Scalar mean = s[1] * (1.0 / double(columns));
    return cube * mean;
  });
  Value dx =
      f.map(type, {{dy, all}, {x, all}, {w, inner}, {r, outer}, {pull, outer}}, [](Elements s) {
        Scalar g = s[0] * s[2];
        return s[3] * g - s[4] * s[1];
      });
  Type sumType = tensorTypeOf(op.getDweight()).getElementType();
  int64_t further = groups.flat.getDimSize(1) / columns;
  Value sums = f.sumBlocks(type.getShape(), rowsPerBlock(type.getDimSize(0), further), sumType,
                           {{dy, all}, {x, all}, {r, outer}},
                           [](Elements s) { return s[0] * (s[1] * s[2]); });
  kern::FusionOp rowKernel = f.finish({dx, sums});
  return {groups.collapse(b, loc, rowKernel.getResult(0)),
          sumColumns(b, loc, rowKernel.getResult(1), sumType, "lm.rms_norm_grad_weight")};
}

// Returns the mean of each row of `x` [rows, columns], and 1 / sqrt(variance + eps) of each row.
static std::pair<Value, Value> rowStatistics(FusionBuilder &f, Value x, double eps) {
  RankedTensorType type = tensorTypeOf(x);
  const int64_t columns = type.getDimSize(1);
  Type element = arithmeticType(type.getElementType());
  Value sum = f.reduce(type.getShape(), 1, element, {{x, f.all(2)}}, Combine::Add, identity);
  Value mean = f.map(tensorTypeOf(sum), {{sum, f.all(1)}},
                     [&](Elements s) { return s[0] * (1.0 / double(columns)); });
  Value squares = f.reduce(type.getShape(), 1, element, {{x, f.all(2)}, {mean, f.outer(2)}},
                           Combine::Add, [](Elements s) {
                             Scalar centred = s[0] - s[1];
                             return centred * centred;
                           });
  return {mean, reciprocalRoot(f, squares, columns, eps)};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::LayerNormOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::RowReduction, op->getOperands(), "lm.layer_norm");
  Value x = f.arg(0);
  auto [mean, r] = rowStatistics(f, x, op.getEps().convertToDouble());
  AffineMap outer = f.outer(2), inner = f.inner(2);
  return {
      f.finishMap(tensorTypeOf(op.getResult()),
                  {{x, f.all(2)}, {mean, outer}, {r, outer}, {f.arg(1), inner}, {f.arg(2), inner}},
                  [](Elements s) { return (s[0] - s[1]) * s[2] * s[3] + s[4]; })};
}

// The first kernel computes dx and, for each block of rows, partial sums of dweight and dbias. Two
// small kernels add these sums.
static SmallVector<Value> convertOp(OpBuilder &b, lm::LayerNormGradOp op) {
  Location loc = op.getLoc();
  RankedTensorType type = tensorTypeOf(op.getDx());
  const double columns = double(type.getDimSize(1));
  Type element = arithmeticType(type.getElementType());
  FusionBuilder f(b, loc, Hero::RowReduction, op->getOperands(), "lm.layer_norm_grad");
  Value dy = f.arg(0), x = f.arg(1), w = f.arg(2);
  auto [mean, r] = rowStatistics(f, x, op.getEps().convertToDouble());
  AffineMap all = f.all(2), outer = f.outer(2), inner = f.inner(2);
  // Computes for each row the sums of g and of g h, where g = dy w and h = (x - mean) r.
  Value sum = f.reduce(type.getShape(), 1, element, {{dy, all}, {w, inner}}, Combine::Add,
                       [](Elements s) { return s[0] * s[1]; });
  Value dot = f.reduce(type.getShape(), 1, element,
                       {{dy, all}, {w, inner}, {x, all}, {mean, outer}, {r, outer}}, Combine::Add,
                       [&](Elements s) {
                         Scalar g = s[0] * s[1];
                         return g * ((s[2] - s[3]) * s[4]);
                       });
  Value dx = f.map(
      type,
      {{dy, all}, {w, inner}, {x, all}, {mean, outer}, {r, outer}, {sum, outer}, {dot, outer}},
      [&](Elements s) {
        Scalar share = s[0].constant(1.0 / columns);
        Scalar g = s[0] * s[1], h = (s[2] - s[3]) * s[4];
        Scalar means = (s[5] + h * s[6]) * share;
        return s[4] * (g - means);
      });
  Type sumType = tensorTypeOf(op.getDweight()).getElementType();
  const int64_t blockRows = rowsPerBlock(type.getDimSize(0));
  Value weightSums = f.sumBlocks(type.getShape(), blockRows, sumType,
                                 {{dy, all}, {x, all}, {mean, outer}, {r, outer}},
                                 [&](Elements s) { return s[0] * ((s[1] - s[2]) * s[3]); });
  Value biasSums = f.sumBlocks(type.getShape(), blockRows, sumType, {{dy, all}}, identity);
  kern::FusionOp rows = f.finish({dx, weightSums, biasSums});
  return {rows.getResult(0),
          sumColumns(b, loc, rows.getResult(1), sumType, "lm.layer_norm_grad_weight"),
          sumColumns(b, loc, rows.getResult(2), sumType, "lm.layer_norm_grad_bias")};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::SumRowsOp op) {
  return {sumColumns(b, op.getLoc(), op.getX(), tensorTypeOf(op.getResult()).getElementType(),
                     "lm.sum_rows")};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::EmbeddingOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::Gather, op.getOperands(), "lm.embedding");
  return {f.finishMap(tensorTypeOf(op.getResult()), {{f.arg(0), f.outer(2)}}, [&](Elements s) {
    Scalar row = s[0].toIndex();
    return s.element(f.arg(1), {row, s.index(1)});
  })};
}

//===-- Head and loss -----------------------------------------------------------------------===//

static SmallVector<Value> convertOp(OpBuilder &b, lm::SplitOp op) {
  SmallVector<Value> parts;
  int64_t offset = 0;
  for (Value part : op.getParts()) {
    RankedTensorType type = tensorTypeOf(part);
    parts.push_back(slice(b, op.getLoc(), type, op.getX(), {0, offset}));
    offset += type.getDimSize(1);
  }
  return parts;
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::JoinOp op) {
  RankedTensorType type = tensorTypeOf(op.getResult());
  Value whole = tensor::EmptyOp::create(b, op.getLoc(), type.getShape(), type.getElementType());
  int64_t offset = 0;
  for (Value part : op.getParts()) {
    whole = insert(b, op.getLoc(), part, whole, {0, offset});
    offset += tensorTypeOf(part).getDimSize(1);
  }
  return {whole};
}

// Returns log(sum of exp(x)), given the maximum of x and the sum of exp(x - maximum).
static Scalar logOfSum(Elements s) { return s[0] + log(s[1]); }

// Computes the loss of each row: the cross entropy of `logits` [n, vocab] against `targets` [n].
// With `scale`, also computes the gradient of scale * (loss + zLoss lse^2), where lse is the row's
// log-sum-exp. With `classes` > 0, columns from `classes` on have probability 0.
static kern::FusionOp crossEntropy(OpBuilder &b, Location loc, Value logits, Value targets,
                                   Value scale, int64_t classes, double zLoss) {
  RankedTensorType type = tensorTypeOf(logits);
  Type element = arithmeticType(type.getElementType());
  // Returns `value` if the column is a class, and `other` if it is padding of the vocabulary.
  auto ofClasses = [&](Elements s, Scalar value, double other) {
    if (classes == 0 || classes == type.getDimSize(1))
      return value;
    Scalar isClass = s.index(1).toI32() < double(classes);
    return select(isClass, value, s.constant(element, other));
  };
  auto rows = RankedTensorType::get({type.getDimSize(0)}, element);
  SmallVector<Value> inputs{logits, targets};
  if (scale)
    inputs.push_back(scale);
  FusionBuilder f(b, loc, Hero::RowReduction, inputs,
                  scale ? "lm.linear_cross_entropy_grad" : "lm.linear_cross_entropy");
  Value l = f.arg(0), t = f.arg(1);
  Value top = f.reduce(type.getShape(), 1, element, {{l, f.all(2)}}, Combine::Max,
                       [&](Elements s) { return ofClasses(s, s[0], -kInfinity); });
  Value sum =
      f.reduce(type.getShape(), 1, element, {{l, f.all(2)}, {top, f.outer(2)}}, Combine::Add,
               [&](Elements s) { return ofClasses(s, exp(s[0] - s[1]), 0.0); });
  Value lse = f.map(rows, {{top, f.all(1)}, {sum, f.all(1)}}, logOfSum);
  // A row whose target is below 0 has the loss 0.
  Value loss = f.map(rows, {{t, f.all(1)}, {lse, f.all(1)}}, [&](Elements s) {
    Scalar column = maximum(s[0], 0.0).toIndex();
    Scalar row = s.index(0);
    Scalar nll = s[1] - s.element(l, {row, column}).to(element);
    return select(s[0] >= 0.0, nll, s.constant(element, 0.0));
  });
  if (!scale)
    return f.finish(loss);
  Value dlogits =
      f.map(type, {{l, f.all(2)}, {lse, f.outer(2)}, {t, f.outer(2)}, {f.arg(2), f.none(2)}},
            [&](Elements s) {
              Scalar p = exp(s[0] - s[1]);
              Scalar hit = equal(s.index(1).toI32(), s[2]);
              Scalar zero = s.constant(element, 0.0);
              Scalar onehot = select(hit, s.constant(element, 1.0), zero);
              if (zLoss > 0) { // the gradient of zLoss lse^2 is 2 zLoss lse p
                Scalar z = s[1] * (2 * zLoss);
                p = p + p * z;
              }
              Scalar d = ofClasses(s, (p - onehot) * s[3], 0.0);
              return select(s[2] >= 0.0, d, zero);
            });
  return f.finish({loss, dlogits});
}

// Processes one chunk of tokens after the other. A matrix product computes the logits, and one
// kernel the loss. With `scale`, the kernel also computes the gradient of the logits, and two
// products compute dx and dweight from it.
static SmallVector<Value> convertLoss(OpBuilder &b, Location loc, Value x, Value weight,
                                      Value targets, int64_t chunk, int64_t classes, double zLoss,
                                      Value scale, Value acc, Type dweightType) {
  RankedTensorType xType = tensorTypeOf(x);
  int64_t tokens = xType.getDimSize(0), vocab = tensorTypeOf(weight).getDimSize(0);
  Type element = arithmeticType(xType.getElementType());
  Value losses = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{tokens}, element);
  Value dx = scale
                 ? Value(tensor::EmptyOp::create(b, loc, xType.getShape(), xType.getElementType()))
                 : Value();
  Value dweight = acc;
  for (int64_t offset = 0; offset < tokens; offset += chunk) {
    int64_t count = std::min(chunk, tokens - offset);
    Value part = sliceRows(b, loc, x, offset, count);
    Type logitsType = RankedTensorType::get({count, vocab}, xType.getElementType());
    Value logits = kern::GemmOp::create(b, loc, logitsType, part, weight, Value(), Value(), Value(),
                                        false, true);
    kern::FusionOp kernel = crossEntropy(b, loc, logits, sliceRows(b, loc, targets, offset, count),
                                         scale, classes, zLoss);
    losses = insertRows(b, loc, kernel.getResult(0), losses, offset);
    if (!scale)
      continue;
    Value dlogits = kernel.getResult(1);
    Type dxType = xType.clone({count, xType.getDimSize(1)});
    Value dpart = kern::GemmOp::create(b, loc, dxType, dlogits, weight, Value(), Value(), Value(),
                                       false, false);
    dx = insertRows(b, loc, dpart, dx, offset);
    dweight = kern::GemmOp::create(b, loc, dweightType, dlogits, part, dweight, Value(), Value(),
                                   true, false);
  }
  Value loss =
      reduceAlone(b, loc, Hero::RowReduction, losses, 0, element, Combine::Add, "lm.sum_losses");
  return scale ? SmallVector<Value>{loss, dx, dweight} : SmallVector<Value>{loss};
}

//===-- Optimizer ---------------------------------------------------------------------------===//

// Shortens a long vector without changing its sum (Combine::Max: its maximum). The caller then
// reduces the result in one work item.
static Value foldSums(OpBuilder &b, Location loc, Value sums, Combine combine = Combine::Add) {
  constexpr int64_t kLong = 1 << 16, kWidest = 1024, kNarrowest = 16;
  RankedTensorType type = tensorTypeOf(sums);
  int64_t count = type.getDimSize(0), width = std::min(kWidest, count & -count);
  if (count < kLong || width < kNarrowest)
    return sums;
  return reduceAlone(b, loc, Hero::RowReduction, reshape(b, loc, sums, {count / width, width}), 1,
                     type.getElementType(), combine, "lm.fold_sums");
}

// Returns the square root of the sum of all elements of all `vectors`.
static Value normOfParts(OpBuilder &b, Location loc, ValueRange vectors) {
  SmallVector<Value> parts;
  for (Value vector : vectors)
    parts.push_back(foldSums(b, loc, vector));
  int64_t total = 0;
  for (Value part : parts)
    total += tensorTypeOf(part).getDimSize(0);
  Type element = tensorTypeOf(parts.front()).getElementType();
  Value all = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{total}, element);
  int64_t offset = 0;
  for (Value part : parts) {
    all = insertRows(b, loc, part, all, offset);
    offset += tensorTypeOf(part).getDimSize(0);
  }
  FusionBuilder f(b, loc, Hero::RowReduction, all, "lm.norm");
  Value sum = f.reduce({total}, 0, element, {{f.arg(0), f.all(1)}}, Combine::Add, identity);
  return f.finishMap(RankedTensorType::get({}, element), {{sum, f.all(0)}},
                     [](Elements s) { return sqrt(s[0]); });
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::GlobalNormOp op) {
  SmallVector<Value> parts;
  for (Value input : op.getInputs()) {
    Value rows = asRows(b, op.getLoc(), input);
    parts.push_back(reduceAlone(b, op.getLoc(), Hero::RowReduction, rows, 1,
                                arithmeticType(tensorTypeOf(rows).getElementType()), Combine::Add,
                                "lm.sum_squares", [](Elements s) { return s[0] * s[0]; }));
  }
  return {normOfParts(b, op.getLoc(), parts)};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::GuardNormOp op) {
  return elementwise(b, op, [](Elements s) {
    Scalar infinity = s[0].constant(kInfinity);
    Scalar guarded = select(s[0] > s[2], infinity, s[0]);
    return select(s[1] > s[3], infinity, guarded);
  });
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::OwnRowsOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::Gather, op.getOperands(), "lm.own_rows");
  RankedTensorType type = tensorTypeOf(op.getResult());
  return {f.finishMap(type, {{f.arg(1), f.none(2)}}, [&](Elements s) {
    Scalar rank = s[0].make<arith::FPToSIOp>(b.getI64Type(), s[0]).toIndex();
    Scalar first = rank * double(type.getDimSize(0));
    Scalar row = first + s.index(0);
    return s.element(f.arg(0), {row, s.index(1)});
  })};
}

//===-- Sums over ranks ---------------------------------------------------------------------===//

// If one fusion computes `whole` in parts of the same shape, returns these, else `whole`.
static SmallVector<Value> partsOfFusion(Value whole) {
  SmallVector<Value> values;
  for (const kern::ResultPart &part : kern::partsOfResult(whole))
    values.push_back(part.value);
  auto isOfFusion = [&](Value value) {
    return value.getDefiningOp<kern::FusionOp>() &&
           value.getDefiningOp() == values.front().getDefiningOp() &&
           tensorTypeOf(value).getRank() == 2;
  };
  return !values.empty() && llvm::all_of(values, isOfFusion) ? values : SmallVector<Value>{whole};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::MaxAbsOp op) {
  Location loc = op.getLoc();
  SmallVector<Value> parts;
  for (Value part : partsOfFusion(op.getX()))
    parts.push_back(asRows(b, loc, part));
  FusionBuilder f(b, loc, Hero::RowReduction, parts, "lm.max_abs");
  SmallVector<FusionBuilder::Read> reads;
  for (unsigned i = 0; i < parts.size(); ++i)
    reads.push_back({f.arg(i), f.all(2)});
  Value ofRows = f.reduce(tensorTypeOf(parts.front()).getShape(), 1, b.getF32Type(), reads,
                          Combine::Max, [&](Elements s) {
                            Scalar largest = abs(s[0]);
                            for (unsigned i = 1; i < parts.size(); ++i)
                              largest = maximum(largest, abs(s[i]));
                            return largest;
                          });
  Value largest = f.finish({ofRows}).getResult(0);
  return {reduceAlone(b, loc, Hero::RowReduction, foldSums(b, loc, largest, Combine::Max), 0,
                      b.getF32Type(), Combine::Max, "lm.max_abs")};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::ScaledCastOp op) {
  const bool inverse = tensorTypeOf(op.getResult()).getElementType().isF32();
  return elementwise(b, op, [&](Elements s) {
    return s[0] * reductionScale(s[1], int64_t(op.getRanks()), inverse);
  });
}

//===-- 8-bit floats ------------------------------------------------------------------------===//

static SmallVector<Value> convertOp(OpBuilder &b, lm::Fp8ScaleOp op) {
  return elementwise(b, op,
                     [&](Elements s) { return fp8Scale(s[0], cast<FloatType>(op.getDtype())); });
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::QuantizeOp op) {
  return elementwise(b, op, [](Elements s) { return s[0] * (1.0 / s[1]); });
}

// Returns the row of the unit that row `row` of the rank's piece, which has `count` rows, is.
// Experts are divided into `groups`.
static Scalar rowOfUnit(Scalar rank, Scalar row, int64_t count, int64_t groups = 1) {
  Type i32 = IntegerType::get(rank.type().getContext(), 32);
  Scalar position = rank.make<arith::FPToSIOp>(i32, rank);
  if (groups > 1)
    position = position / position.constant(double(groups));
  return position * double(count) + row.toI32();
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::PieceMaxAbsOp op) {
  Location loc = op.getLoc();
  const int64_t count = tensorTypeOf(op.getPiece()).getDimSize(0);
  Value largest =
      reduceAlone(b, loc, Hero::RowReduction, op.getPiece(), 1, b.getF32Type(), Combine::Max,
                  "lm.piece_max_abs", [](Elements s) { return abs(s[0]); });
  FusionBuilder f(b, loc, Hero::RowReduction, {largest, op.getRank()}, "lm.piece_max_abs");
  SmallVector<Value> found;
  for (auto [number, start] : llvm::enumerate(op.getStarts())) {
    const bool isLast = number + 1 == op.getStarts().size();
    const int64_t end = isLast ? 0 : op.getStarts()[number + 1];
    found.push_back(
        f.reduce({count}, 0, b.getF32Type(), {{f.arg(0), f.all(1)}, {f.arg(1), f.none(1)}},
                 Combine::Max, [&, start = start](Elements s) {
                   Scalar row = rowOfUnit(s[1], s.index(0), count);
                   Scalar none = s[0].constant(0);
                   Scalar before = isLast ? s[0] : select(row < double(end), s[0], none);
                   return select(row < double(start), none, before);
                 }));
  }
  Value all = tensor::EmptyOp::create(b, loc, {int64_t(found.size())}, b.getF32Type());
  for (auto [number, one] : llvm::enumerate(f.finish(found).getResults()))
    all = insertRows(b, loc, reshape(b, loc, one, {1}), all, int64_t(number));
  return {all};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::RanksFp8ScaleOp op) {
  Location loc = op.getLoc();
  RankedTensorType type = op.getResult().getType();
  const int64_t count = type.getDimSize(0), ranks = tensorTypeOf(op.getMax()).getDimSize(0) / count;
  Value largest =
      reduceAlone(b, loc, Hero::ColumnReduction, reshape(b, loc, op.getMax(), {ranks, count}), 0,
                  b.getF32Type(), Combine::Max, "lm.ranks_fp8_scale");
  FusionBuilder f(b, loc, Hero::Elementwise, largest, "lm.ranks_fp8_scale");
  return {f.finishMap(type, {{f.arg(0), f.outer(2)}},
                      [&](Elements s) { return fp8Scale(s[0], cast<FloatType>(op.getDtype())); })};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::PieceQuantizeOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::Elementwise, op->getOperands(), "lm.piece_quantize");
  SmallVector<FusionBuilder::Read> reads{{f.arg(0), f.all(2)}};
  for (unsigned i = 1; i < op->getNumOperands(); ++i)
    reads.push_back({f.arg(i), f.none(2)});
  const int64_t count = tensorTypeOf(op.getPiece()).getDimSize(0);
  return {f.finishMap(op.getCodes().getType(), reads, [&](Elements s) {
    Scalar row = rowOfUnit(s[1], s.index(0), count), scale = s[2];
    for (size_t i = 1; i < op.getStarts().size(); ++i)
      scale = select(row < double(op.getStarts()[i]), scale, s[2 + i]);
    return s[0] * (1.0 / scale);
  })};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::RowScalesOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::RowReduction, op.getX(), "lm.row_scales");
  Value largest =
      f.reduce(tensorTypeOf(op.getX()).getShape(), 1, b.getF32Type(), {{f.arg(0), f.all(2)}},
               Combine::Max, [](Elements s) { return abs(s[0]); });
  return {f.finishMap(op.getResult().getType(), {{largest, f.all(1)}},
                      [&](Elements s) { return fp8Scale(s[0], cast<FloatType>(op.getDtype())); })};
}

// Returns scales of tiles of `type`. Element (i, j) is scale(i, j) for j < `columns`; the padding
// behind it is 1, as in those of lm.quantize_tiles. The innermost loop has one element, so that
// `scale` may read any element of `x`.
static Value paddedScales(OpBuilder &b, Location loc, Value x, RankedTensorType type,
                          int64_t columns, StringRef sourceOp,
                          llvm::function_ref<Scalar(Elements, Value, Scalar, Scalar)> scale) {
  FusionBuilder f(b, loc, Hero::Gather, x, sourceOp);
  SmallVector<int64_t> shape(type.getShape());
  shape.push_back(1);
  Value scales = f.finishMap(type.clone(shape), {}, [&](Elements s) {
    Scalar column = s.index(1);
    Scalar found = scale(s, f.arg(0), s.index(0), minimum(column, double(columns - 1)));
    return columns == type.getDimSize(1)
               ? found
               : select(column < double(columns), found, found.constant(1));
  });
  return reshape(b, loc, scales, type.getShape());
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::TileScalesOp op) {
  constexpr int64_t kRows = 16; // of the first kernel, which so has many threads
  const int64_t rows = extent(op.getX(), 0) / kRows, columns = extent(op.getX(), 1);
  FusionBuilder f(b, op.getLoc(), Hero::Elementwise,
                  reshape(b, op.getLoc(), op.getX(), {rows, kRows, columns}), "lm.tile_scales");
  SmallVector<FusionBuilder::Read> reads;
  for (int64_t i = 0; i < kRows; ++i)
    reads.push_back({f.arg(0), AffineMap::get(2, 0,
                                              {b.getAffineDimExpr(0), b.getAffineConstantExpr(i),
                                               b.getAffineDimExpr(1)},
                                              b.getContext())});
  Value some =
      f.finishMap(RankedTensorType::get({rows, columns}, b.getF32Type()), reads, [&](Elements s) {
        Scalar largest = s[0];
        for (size_t i = 1; i < kRows; ++i)
          largest = maximum(largest, s[i]);
        return largest;
      });
  return {paddedScales(
      b, op.getLoc(), some, op.getResult().getType(), columns, "lm.tile_scales",
      [](Elements s, Value x, Scalar tile, Scalar column) {
        constexpr int64_t kParts = lm::kScaleBlock / kRows;
        Scalar first = tile * double(kParts), largest = s.element(x, {first, column});
        for (int64_t i = 1; i < kParts; ++i)
          largest = maximum(largest, s.element(x, {first + first.constant(double(i)), column}));
        return largest;
      })};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::TransposeScalesOp op) {
  return {paddedScales(b, op.getLoc(), op.getX(), op.getResult().getType(), extent(op.getX(), 0),
                       "lm.transpose_scales", [](Elements s, Value x, Scalar row, Scalar column) {
                         return s.element(x, {column, row});
                       })};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::PieceQuantizeTilesOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::Gather, op->getOperands(), "lm.piece_quantize_tiles");
  const int64_t count = extent(op.getPiece(), 0);
  return {f.finishMap(
      op.getCodes().getType(), {{f.arg(0), f.all(2)}, {f.arg(1), f.none(2)}}, [&](Elements s) {
        Scalar row = rowOfUnit(s[1], s.index(0), count, int64_t(op.getGroups())), scale = s[0];
        for (auto [i, start] : llvm::enumerate(op.getStarts())) {
          // A row of another tensor, or behind the last one, reads some scale of this tensor.
          Value scales = f.arg(2 + unsigned(i));
          const int64_t columns = op.getColumns()[i];
          const int64_t last = extent(scales, 0) * lm::kScaleBlock * columns - 1;
          Scalar block = minimum(maximum(row + double(-start), 0), double(last));
          Scalar matrixRow = block / block.constant(double(columns));
          Scalar tile = matrixRow / block.constant(double(lm::kScaleBlock));
          Scalar column = block - matrixRow * double(columns);
          Scalar own = s.element(scales, {tile.toIndex(), column.toIndex()});
          scale = i == 0 ? own : select(row < double(start), scale, own);
        }
        return s[0] * (1.0 / scale);
      })};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::QuantizeWholeRowsOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::RowReduction, op.getX(), "lm.quantize_whole_rows");
  RankedTensorType type = op.getCodes().getType();
  Value largest = f.reduce(type.getShape(), 1, b.getF32Type(), {{f.arg(0), f.all(2)}}, Combine::Max,
                           [](Elements s) { return abs(s[0]); });
  Value scales = f.map(op.getScales().getType(), {{largest, f.all(1)}}, [&](Elements s) {
    return fp8Scale(s[0], cast<FloatType>(type.getElementType()));
  });
  Value codes = f.map(type, {{f.arg(0), f.all(2)}, {scales, f.outer(2)}},
                      [](Elements s) { return s[0] * (1.0 / s[1]); });
  return f.finish({codes, scales}).getResults();
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::DequantizeOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::Elementwise, op->getOperands(), "lm.dequantize");
  const bool ofRows = tensorTypeOf(op.getScale()).getRank() == 1;
  return {f.finishMap(op.getResult().getType(),
                      {{f.arg(0), f.all(2)}, {f.arg(1), ofRows ? f.outer(2) : f.none(2)}},
                      [](Elements s) { return s[0] * s[1]; })};
}

//===-- Mixture of experts ------------------------------------------------------------------===//

static SmallVector<Value> convertOp(OpBuilder &b, lm::BalanceLossOp op) {
  Location loc = op.getLoc();
  FusionBuilder f(b, loc, Hero::RowReduction, op.getOperands(), "lm.balance_loss");
  RankedTensorType type = tensorTypeOf(op.getMass()), lossType = tensorTypeOf(op.getResult());
  const double factor = op.getFactor().convertToDouble();
  Value sum = f.reduce(type.getShape(), 0, type.getElementType(),
                       {{f.arg(1), f.all(1)}, {f.arg(2), f.all(1)}}, Combine::Add,
                       [](Elements s) { return s[0] * s[1]; });
  return {f.finishMap(lossType, {{f.arg(0), f.all(0)}, {sum, f.all(0)}},
                      [&](Elements s) { return s[0] + s[1] * factor; })};
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::BalanceLossGradOp op) {
  const double factor = op.getFactor().convertToDouble();
  return elementwise(b, op, [&](Elements s) { return s[1] * (s[0] * factor); });
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::BalanceTermsOp op) {
  const double factor = op.getFactor().convertToDouble();
  return elementwise(b, op, [&](Elements s) {
    Scalar scale = s[0].constant(factor);
    return scale * (s[0] * s[1]);
  });
}

static SmallVector<Value> convertOp(OpBuilder &b, lm::LateRowsOp op) {
  FusionBuilder f(b, op.getLoc(), Hero::Gather, op->getOperands(), "lm.late_rows");
  RankedTensorType type = tensorTypeOf(op.getResult());
  return {f.finishMap(type, {}, [&](Elements s) {
    std::optional<Scalar> sum;
    for (auto [window, offsets] : llvm::enumerate(op.getOffsets())) {
      Value last = arith::ConstantIndexOp::create(s.b, s.loc, extent(offsets, 0) - 1);
      Scalar count = s.element(f.arg(unsigned(window)), last);
      Scalar rows = count.make<arith::SIToFPOp>(type.getElementType(), count);
      if (window == 0)
        rows = rows - rows;
      sum = sum ? *sum + rows : rows;
    }
    return *sum;
  })};
}

// Returns log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|)).
static Scalar logSigmoid(Scalar x) {
  Scalar zero = x.constant(0.0), rest = 1.0 + exp(-abs(x));
  return minimum(x, zero) - log(rest);
}

// For each expert, the first kernel sums -p log p over each block of tokens. log p = logit - lse is
// finite even where p is 0. The second kernel adds the sums of all blocks.
static SmallVector<Value> convertOp(OpBuilder &b, lm::RouterEntropyOp op) {
  Location loc = op.getLoc();
  FusionBuilder f(b, loc, Hero::RowReduction, op->getOperands(), "lm.router_entropy");
  RankedTensorType type = tensorTypeOf(op.getLogits());
  Type element = arithmeticType(type.getElementType());
  Value logits = f.arg(0);
  AffineMap all = f.all(2), outer = f.outer(2);
  // sigmoid(x_i) / sum_j sigmoid(x_j) is the softmax of log(sigmoid(x)), computed below.
  auto logit = [sigmoid = op.getSigmoid()](Scalar x) { return sigmoid ? logSigmoid(x) : x; };
  Value top = f.reduce(type.getShape(), 1, element, {{logits, all}}, Combine::Max,
                       [&](Elements s) { return logit(s[0]); });
  Value sum = f.reduce(type.getShape(), 1, element, {{logits, all}, {top, outer}}, Combine::Add,
                       [&](Elements s) { return exp(logit(s[0]) - s[1]); });
  Value lse = f.map(tensorTypeOf(sum), {{top, f.all(1)}, {sum, f.all(1)}}, logOfSum);
  Value sums = f.sumBlocks(type.getShape(), rowsPerBlock(type.getDimSize(0)), element,
                           {{logits, all}, {lse, outer}}, [&](Elements s) {
                             Scalar x = logit(s[0]);
                             Scalar surprise = s[1] - x;
                             return exp(x - s[1]) * surprise;
                           });
  return {sumColumns(b, loc, f.finish(sums).getResult(0), element, "lm.router_entropy_sum")};
}

//===-- Pass --------------------------------------------------------------------------------===//

// Converts an op with the trait BecomesCall.
static SmallVector<Value> convertCall(OpBuilder &b, Operation *op) {
  OperationState call(op->getLoc(), ("kern." + op->getName().stripDialect()).str(),
                      op->getOperands(), op->getResultTypes());
  call.propertiesAttr = op->getPropertiesAsAttribute();
  return SmallVector<Value>(b.create(call)->getResults());
}

static SmallVector<Value> convert(OpBuilder &b, Operation *operation) {
  Location loc = operation->getLoc();
  return llvm::TypeSwitch<Operation *, SmallVector<Value>>(operation)
      .Case<lm::SwigluOp, lm::SwigluGradOp, lm::GeluOp, lm::GeluGradOp, lm::RopeOp, lm::RmsNormOp,
            lm::ReciprocalRmsOp, lm::RmsNormGradOp, lm::LayerNormOp, lm::LayerNormGradOp,
            lm::SumRowsOp, lm::EmbeddingOp, lm::SplitOp, lm::JoinOp, lm::GlobalNormOp,
            lm::GuardNormOp, lm::OwnRowsOp, lm::MaxAbsOp, lm::Fp8ScaleOp, lm::QuantizeOp,
            lm::QuantizeWholeRowsOp, lm::DequantizeOp, lm::PieceMaxAbsOp, lm::RanksFp8ScaleOp,
            lm::PieceQuantizeOp, lm::RowScalesOp, lm::TileScalesOp, lm::TransposeScalesOp,
            lm::PieceQuantizeTilesOp, lm::ScaledCastOp, lm::BalanceLossOp, lm::BalanceLossGradOp,
            lm::BalanceTermsOp, lm::LateRowsOp, lm::RouterEntropyOp>(
          [&](auto op) { return convertOp(b, op); })
      .Case(
          [&](lm::AddOp op) { return elementwise(b, op, [](Elements s) { return s[0] + s[1]; }); })
      .Case([&](lm::CastOp op) { return elementwise(b, op, identity); })
      .Case([&](lm::ScaleOp op) {
        return elementwise(b, op, [](Elements s) { return s[0] * s[1]; });
      })
      .Case([&](lm::NormOfPartsOp op) {
        return SmallVector<Value>{normOfParts(b, loc, op.getParts())};
      })
      .Case([&](lm::OptimizerOpInterface op) { return convertOptimizer(b, op); })
      .Case([&](lm::MuonDirectionOp op) { return convertMuonDirection(b, op); })
      .Case([&](lm::OrthogonalizeOp op) { return convertOrthogonalize(b, op); })
      .Case([&](lm::ScaleMatricesOp op) { return convertScaleMatrices(b, op); })
      .Case([&](lm::MuonUpdateOp op) { return convertMuonUpdate(b, op); })
      .Case([&](lm::LinearCrossEntropyOp op) {
        return convertLoss(b, loc, op.getX(), op.getWeight(), op.getTargets(), op.getChunk(),
                           op.getClasses(), 0, Value(), Value(), Type());
      })
      .Case([&](lm::LinearCrossEntropyGradOp op) {
        return convertLoss(b, loc, op.getX(), op.getWeight(), op.getTargets(), op.getChunk(),
                           op.getClasses(), op.getZLoss() ? op.getZLoss()->convertToDouble() : 0,
                           op.getScale(), op.getAcc(), op.getDweight().getType());
      })
      .Case([&](lm::EmbeddingGradOp op) {
        return SmallVector<Value>{
            kern::ScatterAddOp::create(b, loc, op.getType(), op.getIds(), op.getDy(), op.getAcc())};
      })
      .Case([&](lm::TakeRowsOp op) {
        return SmallVector<Value>{kern::TakeRowsOp::create(
            b, loc, op.getType(), op.getX(), op.getRows(),
            op.getPlaces().getType().getDimSize(0) / op.getX().getType().getDimSize(0))};
      })
      .Case([&](lm::CombineRowsOp op) {
        return SmallVector<Value>{kern::CombineRowsOp::create(b, loc, op.getType(), op.getY(),
                                                              op.getWeights(), op.getPlaces())};
      })
      .Case([&](lm::MatmulOp op) {
        return SmallVector<Value>{kern::GemmOp::create(b, loc, op.getType(), op.getA(), op.getB(),
                                                       op.getAcc(), Value(), Value(),
                                                       op.getTransposeA(), op.getTransposeB())};
      })
      .Case([&](lm::ScaledMatmulOp op) {
        return SmallVector<Value>{
            kern::GemmOp::create(b, loc, op.getType(), op.getA(), op.getB(), op.getAcc(),
                                 op.getBias(), op.getResidual(), op.getScaleA(), op.getScaleB(),
                                 op.getTransposeA(), op.getTransposeB(), op.getTiles(), 1)};
      })
      .Case([&](lm::LinearOp op) {
        return SmallVector<Value>{
            kern::GemmOp::create(b, loc, op.getType(), op.getX(), op.getWeight(), Value(),
                                 op.getBias(), op.getResidual(), false, !op.getTransposed())};
      })
      .Default([&](Operation *op) {
        return op->hasTrait<lm::BecomesCall>() ? convertCall(b, op) : SmallVector<Value>();
      });
}

namespace {
struct ConvertLmPass : lmc::impl::ConvertLmPassBase<ConvertLmPass> {
  void runOnOperation() override {
    OpBuilder b(&getContext());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
        if (!isa<lm::LmDialect>(op.getDialect()) || isa<lm::LoadOp, lm::StoreOp>(op))
          continue;
        b.setInsertionPoint(&op);
        Operation *before = op.getPrevNode();
        SmallVector<Value> results = convert(b, &op);
        if (results.empty()) {
          op.emitOpError("has no kernel; lm-accumulate-gradients and the other lm passes must "
                         "run before kern-convert-lm");
          return signalPassFailure();
        }
        for (Operation *made = before ? before->getNextNode() : &op.getBlock()->front();
             made != &op; made = made->getNextNode())
          setStep(made, &op);
        op.replaceAllUsesWith(results);
        llvm::SetVector<Value> operands(op.operand_begin(), op.operand_end());
        op.erase();
        // A conversion may read the operand of a view instead of the view, which is then unused.
        for (Value operand : operands)
          if (Operation *view = operand.getDefiningOp(); view && isOpTriviallyDead(view))
            view->erase();
      }
    }
  }
};
} // namespace
