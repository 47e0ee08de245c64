// Every op's VJP against central differences in f64, through the whole compiler: the
// op and its VJP become plans, run on the CPU, and the directional derivative of every
// input element is compared.
#include "compiler/driver/Registration.h"
#include "dialects/interfaces/Differentiable.h"
#include "dialects/lm/Lm.h"
#include "runtime/device/Device.h"
#include "test/compiler/driver/PlanOf.h"
#include "test/ground/config/ShippedConfig.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace mlir;
using namespace lmc;

namespace {

struct Case {
  std::string name;
  std::vector<std::string> inputs; // types of %0, %1, ...
  std::string op;                  // one op on them
  int classes = 0;                 // integer inputs are drawn from [0, classes); -1 now and then
  unsigned differentiatedResults = 1; // the first ones get a cotangent, if they have a gradient
  std::vector<int32_t> ids = {};      // integer inputs are these, where there are any
};

// How test listings name a case.
void PrintTo(const Case &test, std::ostream *stream) { *stream << test.name; }

class CompiledCase {
public:
  explicit CompiledCase(const Case &test) : context(MLIRContext::Threading::DISABLED) {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    std::string text;
    for (size_t i = 0; i < test.inputs.size(); ++i)
      text += "lm.variable @in" + std::to_string(i) + " input : " + test.inputs[i] +
              " init none\n";
    for (const char *function : {"value", "vjp"}) {
      text += "func.func @" + std::string(function) + "() {\n";
      for (size_t i = 0; i < test.inputs.size(); ++i)
        text += "  %" + std::to_string(i) + " = lm.load @in" + std::to_string(i) + " : " +
                test.inputs[i] + "\n";
      text += "  " + test.op + "\n  return\n}\n";
    }
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
    if (!module)
      return;
    SymbolTable symbols(*module);
    Operation *valueOp = subject(symbols.lookup<func::FuncOp>("value"));
    Operation *vjpOp = subject(symbols.lookup<func::FuncOp>("vjp"));
    OpBuilder b(&context);
    auto declare = [&](const std::string &name, Type type) {
      b.setInsertionPointToStart(module->getBody());
      lm::VariableOp::create(b, b.getUnknownLoc(), StringRef(name), lm::VariableKind::Input, type,
                             lm::InitAttr::get(&context, lm::InitKind::None));
    };
    SmallVector<Value> cotangents;
    for (OpResult result : valueOp->getResults()) {
      std::string index = std::to_string(result.getResultNumber());
      declare("out" + index, result.getType());
      b.setInsertionPointAfter(valueOp);
      lm::StoreOp::create(b, b.getUnknownLoc(), result, "out" + index);
      if (result.getResultNumber() >= test.differentiatedResults ||
          !isa<FloatType>(cast<RankedTensorType>(result.getType()).getElementType()) ||
          !cast<DifferentiableOpInterface>(valueOp).hasGradient(result.getResultNumber())) {
        cotangents.push_back(Value());
        continue;
      }
      declare("cotangent" + index, result.getType());
      b.setInsertionPoint(vjpOp);
      cotangents.push_back(
          lm::LoadOp::create(b, b.getUnknownLoc(), result.getType(), "cotangent" + index));
    }
    b.setInsertionPointAfter(vjpOp);
    Gradients gradients = cast<DifferentiableOpInterface>(vjpOp).buildVjp(b, cotangents);
    if (failed(gradients))
      return;
    Operation *end = vjpOp->getBlock()->getTerminator();
    for (auto [i, gradient] : llvm::enumerate(*gradients)) {
      differentiated.push_back(bool(gradient));
      if (!gradient)
        continue;
      declare("gradient" + std::to_string(i), gradient.getType());
      b.setInsertionPoint(end);
      lm::StoreOp::create(b, b.getUnknownLoc(), gradient, "gradient" + std::to_string(i));
    }
    if (vjpOp->use_empty())
      vjpOp->erase();

    Config config = shippedConfig("test-tiny.toml");
    config.training.computeDType = DataType::F64;
    FailureOr<std::string> bytes = planOf(*module, Phase::Fusion, config);
    if (failed(bytes))
      return;
    auto opened = PlanFile::fromBytes(bytes->data(), bytes->size(), test.name);
    EXPECT_TRUE(bool(opened)) << (opened ? "" : opened.error().message);
    if (!opened)
      return;
    plan = std::move(*opened);
    auto made = openDevice(*plan, {.threads = 2});
    if (!made || !(*made)->load(*plan))
      return;
    device = std::move(*made);
    auto value = device->record(plan->findFunction("value"));
    auto vjp = device->record(plan->findFunction("vjp"));
    valueFunction = std::move(*value);
    vjpFunction = std::move(*vjp);
  }

  bool ok() const { return bool(device); }

  size_t elements(const std::string &variable) const {
    const plan::Slice *slice = sliceOf(variable);
    return slice->bytes() / byteWidth(slice->dtype());
  }
  bool has(const std::string &variable) const { return plan->findVariable(variable) >= 0; }

  template <typename T> void write(const std::string &variable, const std::vector<T> &values) {
    EXPECT_TRUE(bool(device->copyIn(int(indexOf(variable)), values.data(),
                                    values.size() * sizeof(T))));
  }
  std::vector<double> read(const std::string &variable) {
    std::vector<double> values(elements(variable));
    EXPECT_TRUE(bool(device->copyOut(int(indexOf(variable)), values.data(),
                                     values.size() * sizeof(double))));
    return values;
  }
  void run(Executable &function) {
    EXPECT_TRUE(bool(device->submit(function)));
    EXPECT_TRUE(bool(device->synchronize()));
  }

  MLIRContext context;
  std::vector<bool> differentiated; // per input
  std::unique_ptr<PlanFile> plan;
  std::unique_ptr<Device> device;
  std::unique_ptr<Executable> valueFunction, vjpFunction;

private:
  // The op under test: the one that neither loads nor ends the function.
  static Operation *subject(func::FuncOp function) {
    for (Operation &op : function.getBody().front())
      if (!isa<lm::LoadOp, func::ReturnOp>(op))
        return &op;
    return nullptr;
  }
  uint32_t indexOf(const std::string &variable) const {
    return (*plan)->variables()->Get(unsigned(plan->findVariable(variable)))->slice();
  }
  const plan::Slice *sliceOf(const std::string &variable) const {
    return (*plan)->slices()->Get(indexOf(variable));
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  auto add = [&](Case test) { all.push_back(std::move(test)); };
  add({"embedding",
       {"tensor<9xi32>", "tensor<5x7xf64>"},
       "%r = lm.embedding %0, %1 : (tensor<9xi32>, tensor<5x7xf64>) -> tensor<9x7xf64>",
       5});
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      std::string a = ta ? "tensor<5x3xf64>" : "tensor<3x5xf64>";
      std::string b = tb ? "tensor<4x5xf64>" : "tensor<5x4xf64>";
      std::string flags = ta && tb ? " {transpose_a, transpose_b}"
                          : ta     ? " {transpose_a}"
                          : tb     ? " {transpose_b}"
                                   : "";
      add({std::string("matmul") + (ta ? "_ta" : "") + (tb ? "_tb" : ""),
           {a, b},
           "%r = lm.matmul %0, %1 : (" + a + ", " + b + ") -> tensor<3x4xf64>" + flags});
    }
  add({"matmul_acc",
       {"tensor<3x5xf64>", "tensor<5x4xf64>", "tensor<3x4xf64>"},
       "%r = lm.matmul %0, %1 acc %2 : (tensor<3x5xf64>, tensor<5x4xf64>, tensor<3x4xf64>) -> "
       "tensor<3x4xf64>"});
  add({"linear",
       {"tensor<6x5xf64>", "tensor<4x5xf64>"},
       "%r = lm.linear %0, %1 : (tensor<6x5xf64>, tensor<4x5xf64>) -> tensor<6x4xf64>"});
  add({"linear_bias",
       {"tensor<6x5xf64>", "tensor<4x5xf64>", "tensor<4xf64>"},
       "%r = lm.linear %0, %1 bias %2 : (tensor<6x5xf64>, tensor<4x5xf64>, tensor<4xf64>) -> "
       "tensor<6x4xf64>"});
  add({"linear_transposed",
       {"tensor<6x5xf64>", "tensor<5x4xf64>", "tensor<4xf64>"},
       "%r = lm.linear %0, %1 bias %2 : (tensor<6x5xf64>, tensor<5x4xf64>, tensor<4xf64>) -> "
       "tensor<6x4xf64> {transposed}"});
  add({"linear_residual",
       {"tensor<6x5xf64>", "tensor<4x5xf64>", "tensor<4xf64>", "tensor<6x4xf64>"},
       "%r = lm.linear %0, %1 bias %2 residual %3 : (tensor<6x5xf64>, tensor<4x5xf64>, "
       "tensor<4xf64>, tensor<6x4xf64>) -> tensor<6x4xf64>"});
  add({"layer_norm",
       {"tensor<6x19xf64>", "tensor<19xf64>", "tensor<19xf64>"},
       "%r = lm.layer_norm %0, %1, %2 eps 1.0e-5 : (tensor<6x19xf64>, tensor<19xf64>, "
       "tensor<19xf64>) -> tensor<6x19xf64>"});
  add({"gelu", {"tensor<5x21xf64>"}, "%r = lm.gelu %0 : tensor<5x21xf64>"});
  add({"split",
       {"tensor<5x9xf64>"},
       "%r, %s = lm.split %0 : (tensor<5x9xf64>) -> (tensor<5x2xf64>, tensor<5x7xf64>)",
       0,
       2});
  add({"join",
       {"tensor<5x2xf64>", "tensor<5x7xf64>"},
       "%r = lm.join %0, %1 : (tensor<5x2xf64>, tensor<5x7xf64>) -> tensor<5x9xf64>"});
  add({"add",
       {"tensor<5x3xf64>", "tensor<5x3xf64>"},
       "%r = lm.add %0, %1 : tensor<5x3xf64>"});
  add({"rms_norm",
       {"tensor<6x19xf64>", "tensor<19xf64>"},
       "%r = lm.rms_norm %0, %1 eps 1.0e-5 : (tensor<6x19xf64>, tensor<19xf64>) -> "
       "tensor<6x19xf64>"});
  add({"rms_norm_of_heads",
       {"tensor<6x20xf64>", "tensor<5xf64>"},
       "%r = lm.rms_norm %0, %1 eps 1.0e-5 : (tensor<6x20xf64>, tensor<5xf64>) -> "
       "tensor<6x20xf64>"});
  for (bool inverse : {false, true})
    add({inverse ? "rope_inverse" : "rope",
         {"tensor<6x24xf64>", "tensor<3x4xf64>", "tensor<3x4xf64>"},
         "%r = lm.rope %0, %1, %2 head_dim 8 : (tensor<6x24xf64>, tensor<3x4xf64>, "
         "tensor<3x4xf64>) -> tensor<6x24xf64>" +
             std::string(inverse ? " {inverse}" : "")});
  for (int window : {0, 3})
    add({window ? "attention_window" : "attention",
         {"tensor<10x16xf64>", "tensor<10x8xf64>", "tensor<10x8xf64>"},
         "%r, %lse = lm.attention %0, %1, %2 : (tensor<10x16xf64>, tensor<10x8xf64>, "
         "tensor<10x8xf64>) -> (tensor<10x16xf64>, tensor<10x4xf64>) {head_dim = 4 : i64, "
         "seq = 5 : i64, scale = 0.5 : f64, window = " +
             std::to_string(window) + " : i64}",
         0,
         1});
  add({"attention_documents",
       {"tensor<10x16xf64>", "tensor<10x8xf64>", "tensor<10x8xf64>", "tensor<10xi32>"},
       "%r, %lse = lm.attention %0, %1, %2 starts %3 : (tensor<10x16xf64>, tensor<10x8xf64>, "
       "tensor<10x8xf64>, tensor<10xi32>) -> (tensor<10x16xf64>, tensor<10x4xf64>) {head_dim = 4 "
       ": i64, seq = 5 : i64, scale = 0.5 : f64}",
       0,
       1,
       {0, 0, 2, 2, 2, 0, 1, 1, 1, 4}});
  add({"swiglu",
       {"tensor<5x21xf64>", "tensor<5x21xf64>"},
       "%r = lm.swiglu %0, %1 : tensor<5x21xf64>"});
  for (int chunk : {9, 4})
    add({chunk == 9 ? "linear_cross_entropy" : "linear_cross_entropy_in_chunks",
         {"tensor<9x6xf64>", "tensor<11x6xf64>", "tensor<9xi32>"},
         "%r = lm.linear_cross_entropy %0, %1, %2 chunk " + std::to_string(chunk) +
             " : (tensor<9x6xf64>, tensor<11x6xf64>, tensor<9xi32>) -> tensor<f64>",
         -11});
  for (bool normalize : {false, true})
    for (unsigned results : {1, 4}) // without and with a gradient of the mass
      add({std::string("route") + (normalize ? "_normalized" : "") + (results > 1 ? "_mass" : ""),
           {"tensor<6x5xf64>"},
           std::string("%r, %e, %c, %m = lm.route %0 : (tensor<6x5xf64>) -> (tensor<6x2xf64>, "
                       "tensor<6x2xi32>, tensor<5xf64>, tensor<5xf64>)") +
               (normalize ? " {normalize}" : ""),
           0,
           results});
  for (bool normalize : {false, true})
    add({std::string("route_sigmoid") + (normalize ? "_normalized" : ""),
         {"tensor<6x5xf64>"},
         std::string("%r, %e, %c, %m = lm.route %0 : (tensor<6x5xf64>) -> (tensor<6x2xf64>, "
                     "tensor<6x2xi32>, tensor<5xf64>, tensor<5xf64>) {scale = 2.5 : f64, "
                     "sigmoid") +
             (normalize ? ", normalize}" : "}")});
  // An order that is its own inverse, so that rows and places are equal.
  const std::vector<int32_t> order{11, 10, 2, 8, 7, 6, 5, 4, 3, 9, 1, 0};
  add({"take_rows",
       {"tensor<4x7xf64>", "tensor<12xi32>", "tensor<12xi32>"},
       "%r = lm.take_rows %0, %1, %2 : (tensor<4x7xf64>, tensor<12xi32>, tensor<12xi32>) -> "
       "tensor<12x7xf64>",
       0,
       1,
       order});
  add({"combine_rows",
       {"tensor<12x7xf64>", "tensor<4x3xf64>", "tensor<12xi32>", "tensor<12xi32>"},
       "%r = lm.combine_rows %0, %1, %2, %3 : (tensor<12x7xf64>, tensor<4x3xf64>, tensor<12xi32>, "
       "tensor<12xi32>) -> tensor<4x7xf64>",
       0,
       1,
       order});
  // Experts without rows at the start, in the middle and at the end, and one with all of them.
  for (const auto &[name, offsets] : {std::pair("some", std::vector<int32_t>{0, 0, 2, 2, 7, 7}),
                                      std::pair("one", std::vector<int32_t>{0, 0, 0, 7, 7, 7})})
    for (bool transposed : {false, true}) {
      const std::string weight = transposed ? "tensor<20x3xf64>" : "tensor<15x4xf64>";
      add({std::string("expert_linear_") + name + (transposed ? "_transposed" : ""),
           {"tensor<7x4xf64>", weight, "tensor<6xi32>"},
           "%r = lm.expert_linear %0, %1, %2 : (tensor<7x4xf64>, " + weight +
               ", tensor<6xi32>) -> tensor<7x3xf64>" + (transposed ? " {transposed}" : ""),
           0,
           1,
           offsets});
    }
  add({"expert_swiglu",
       {"tensor<5x42xf64>", "tensor<4xi32>"},
       "%r = lm.expert_swiglu %0, %1 : (tensor<5x42xf64>, tensor<4xi32>) -> tensor<5x21xf64>",
       0,
       1,
       {0, 3, 3, 5}});
  add({"balance_loss",
       {"tensor<f64>", "tensor<5xf64>", "tensor<5xf64>"},
       "%r = lm.balance_loss %0, %1, %2 factor 3.0e-1 : (tensor<f64>, tensor<5xf64>, "
       "tensor<5xf64>) -> tensor<f64>"});
  return all;
}

class Vjp : public testing::TestWithParam<Case> {};

TEST_P(Vjp, AgreesWithCentralDifferences) {
  const Case &test = GetParam();
  CompiledCase compiled(test);
  ASSERT_TRUE(compiled.ok());
  std::mt19937 random(7);
  std::normal_distribution<double> normal;

  std::vector<std::vector<double>> inputs(test.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::string name = "in" + std::to_string(i);
    if (test.inputs[i].find("i32") != std::string::npos) {
      std::vector<int32_t> ids = test.ids;
      if (ids.empty()) {
        ids.resize(compiled.elements(name));
        for (int32_t &id : ids)
          id = int32_t(random() % uint32_t(std::abs(test.classes)));
      }
      if (test.classes < 0)
        ids[ids.size() / 2] = -100; // a position without a loss
      compiled.write(name, ids);
      continue;
    }
    inputs[i].resize(compiled.elements(name));
    for (double &value : inputs[i])
      value = normal(random);
    compiled.write(name, inputs[i]);
  }
  std::vector<std::vector<double>> cotangents(test.differentiatedResults);
  for (size_t r = 0; r < cotangents.size(); ++r) {
    if (!compiled.has("cotangent" + std::to_string(r)))
      continue;
    cotangents[r].resize(compiled.elements("out" + std::to_string(r)));
    for (double &value : cotangents[r])
      value = normal(random);
    compiled.write("cotangent" + std::to_string(r), cotangents[r]);
  }
  auto objective = [&] {
    compiled.run(*compiled.valueFunction);
    double sum = 0;
    for (size_t r = 0; r < cotangents.size(); ++r) {
      if (cotangents[r].empty())
        continue;
      std::vector<double> out = compiled.read("out" + std::to_string(r));
      for (size_t i = 0; i < out.size(); ++i)
        sum += out[i] * cotangents[r][i];
    }
    return sum;
  };

  compiled.run(*compiled.vjpFunction);
  bool any = false;
  double worst = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!compiled.differentiated[i])
      continue;
    any = true;
    std::vector<double> gradient = compiled.read("gradient" + std::to_string(i));
    ASSERT_EQ(gradient.size(), inputs[i].size());
    constexpr double kStep = 1e-5;
    double largest = 0;
    std::vector<double> differences(gradient.size());
    for (size_t j = 0; j < gradient.size(); ++j) {
      std::vector<double> moved = inputs[i];
      moved[j] = inputs[i][j] + kStep;
      compiled.write("in" + std::to_string(i), moved);
      double above = objective();
      moved[j] = inputs[i][j] - kStep;
      compiled.write("in" + std::to_string(i), moved);
      differences[j] = (above - objective()) / (2 * kStep);
      largest = std::max(largest, std::abs(differences[j]));
    }
    compiled.write("in" + std::to_string(i), inputs[i]);
    ASSERT_GT(largest, 0) << "operand " << i << " has no influence: the test shows nothing";
    for (size_t j = 0; j < gradient.size(); ++j) {
      double error = std::abs(gradient[j] - differences[j]) / largest;
      worst = std::max(worst, error);
      EXPECT_LE(error, 1e-7) << "operand " << i << ", element " << j << ": " << gradient[j]
                             << " against " << differences[j];
    }
  }
  EXPECT_TRUE(any);
  std::printf("%s: worst error %.1e of the largest element\n", test.name.c_str(), worst);
}

INSTANTIATE_TEST_SUITE_P(Ops, Vjp, testing::ValuesIn(cases()),
                         [](const auto &info) { return info.param.name; });

// An op that gains a VJP must gain a case here. Figures of routers have no gradient. Rounding to 8
// bits counts as the identity, which differences do not show; test/parity/test_fp8.py compares it
// with PyTorch.
TEST(Vjp, EveryDifferentiableOpHasACase) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<lm::LmDialect>();
  std::string texts =
      "lm.balance_terms lm.late_rows lm.router_entropy lm.quantize lm.quantize_rows "
      "lm.quantize_tiles lm.scaled_matmul lm.expert_scaled_linear ";
  for (const Case &test : cases())
    texts += test.op + "\n";
  for (RegisteredOperationName name : context.getRegisteredOperations())
    if (name.hasInterface<DifferentiableOpInterface>())
      EXPECT_NE(texts.find(name.getStringRef().str() + " "), std::string::npos)
          << name.getStringRef().str();
}

} // namespace
