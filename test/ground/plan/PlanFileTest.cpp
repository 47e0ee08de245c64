#include "test/Draws.h"
#include "test/ground/plan/PlanBuilder.h"

#include "runtime/device/Device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <random>

using namespace lmc;
using lmc::test::PlanBuilder;
using plan::DType;

// One command and one table of every kind, no code.
static PlanBuilder completePlan() {
  PlanBuilder b;
  uint32_t weight = b.slice(DType::F32, {32, 16});
  uint32_t gradient = b.slice(DType::F32, {32, 16});
  uint32_t tokens = b.slice(DType::I32, {16});
  uint32_t scalar = b.slice(DType::F32, {});
  b.variable("w", plan::VariableKind::Parameter, weight).initializer =
      std::make_unique<plan::InitializerT>();
  b.plan.variables[0]->initializer->kind = plan::InitializerKind::Normal;
  b.plan.variables[0]->initializer->stddev = 0.02;
  b.variable("w.grad", plan::VariableKind::Gradient, gradient).parameter = "w";
  b.variable("batch.tokens", plan::VariableKind::Input, tokens);
  b.variable("run.lr", plan::VariableKind::Scalar, scalar).step_value =
      plan::StepValue::LearningRate;
  uint32_t q = b.slice(DType::F32, {16, 32}, 1), k = b.slice(DType::F32, {16, 16}, 1);
  uint32_t v = b.slice(DType::F32, {16, 16}, 1), out = b.slice(DType::F32, {16, 32}, 1);
  uint32_t lse = b.slice(DType::F32, {16, 2}, 1), dq = b.slice(DType::F32, {16, 32}, 1);
  uint32_t dk = b.slice(DType::F32, {16, 16}, 1), dv = b.slice(DType::F32, {16, 16}, 1);

  plan::CopyT copy;
  copy.x = q;
  copy.d = out;
  b.command(copy);
  copy.x = weight;
  copy.d = gradient;
  b.command(copy);
  plan::GemmT gemm;
  gemm.a = q;
  gemm.b = weight;
  gemm.d = k;
  gemm.c = int(k);
  gemm.m = 16;
  gemm.n = 16;
  gemm.k = 32;
  b.command(gemm);
  plan::AttentionT attention;
  attention.q = q;
  attention.k = k;
  attention.v = v;
  attention.out = out;
  attention.lse = lse;
  attention.batch = 2;
  attention.seq = 8;
  attention.heads = 2;
  attention.kv_heads = 1;
  attention.head_dim = 16;
  attention.scale = 0.25;
  attention.starts = int(tokens);
  b.command(attention);
  plan::AttentionGradT grad;
  grad.q = q;
  grad.k = k;
  grad.v = v;
  grad.out = out;
  grad.lse = lse;
  grad.dout = b.slice(DType::F32, {16, 32}, 1);
  grad.dq = dq;
  grad.dk = dk;
  grad.dv = dv;
  grad.batch = 2;
  grad.seq = 8;
  grad.heads = 2;
  grad.kv_heads = 1;
  grad.head_dim = 16;
  grad.scale = 0.25;
  grad.starts = int(tokens);
  b.command(grad);
  plan::ScatterAddT scatter;
  scatter.ids = tokens;
  scatter.x = v;
  scatter.d = gradient;
  scatter.rows = 16;
  scatter.columns = 16;
  scatter.vocabulary = 32;
  b.command(scatter);
  uint32_t codes = b.slice(DType::I8, {32, 16}), scales = b.slice(DType::F32, {2});
  b.variable("w.moment1", plan::VariableKind::Moment1, codes).parameter = "w";
  b.variable("w.moment1_scale", plan::VariableKind::Moment1Scale, scales).parameter = "w";
  b.setting("training.seed", plan::SettingType::Integer, "1");
  b.setting("lr_schedule.lr", plan::SettingType::Float, "1e-3");
  b.setting("model.tie", plan::SettingType::Boolean, "true");
  return b;
}

// The same for a GPU: a kernel launched by itself, and the kernels of attention's gradient and
// of the scattered sum.
static PlanBuilder cudaPlan() {
  PlanBuilder b = completePlan();
  b.plan.target = "cuda:sm_90a";
  auto module = std::make_unique<plan::ModuleT>();
  module->target = b.plan.target;
  module->image = {1, 2, 3};
  b.plan.modules.push_back(std::move(module));
  for (const char *name : {"norm", "attention_dq", "attention_dkdv", "sort"}) {
    auto kernel = std::make_unique<plan::KernelT>();
    kernel->name = kernel->entry = name;
    kernel->grid = {4, 2, 1};
    kernel->threads = 128;
    kernel->shared_bytes = 100 << 10;
    kernel->registers = 168;
    b.plan.kernels.push_back(std::move(kernel));
  }
  auto launch = [](uint32_t kernel, std::vector<uint32_t> args, uint32_t inputs) {
    auto made = std::make_unique<plan::LaunchT>();
    made->kernel = kernel;
    made->args = std::move(args);
    made->inputs = inputs;
    made->items = made->chunk = 1;
    return made;
  };
  auto &commands = b.plan.functions[0]->commands;
  plan::ArenaT &arena = *b.plan.arenas[1];
  arena.alignment = 256;
  arena.bytes = (arena.bytes + 255) / 256 * 256;
  commands[2]->workspace = int(b.slice(DType::I8, {512}, 1));
  plan::AttentionGradT &grad = *commands[4]->body.AsAttentionGrad();
  uint32_t delta = b.slice(DType::F32, {16, 2}, 1);
  commands[4]->workspace = int(delta);
  commands[4]->launches.push_back(
      launch(1, {grad.q, grad.k, grad.v, grad.out, grad.lse, grad.dout, grad.dq, delta}, 6));
  commands[4]->launches.push_back(
      launch(2, {grad.q, grad.k, grad.v, grad.lse, grad.dout, delta, grad.dk, grad.dv}, 6));
  plan::ScatterAddT &scatter = *commands[5]->body.AsScatterAdd();
  commands[5]->workspace = int(b.slice(DType::I8, {256}, 1));
  uint32_t part = b.slice(DType::I32, {16}, 1); // bytes 64 to 128 of the workspace
  b.plan.slices[part]->offset = b.plan.slices[size_t(commands[5]->workspace)]->offset + 64;
  commands[5]->launches.push_back(launch(3, {scatter.ids, part}, 1));
  b.command(*launch(0, {0, 1}, 1));
  return b;
}

// Everything a runtime does with a plan that verified.
static void use(const PlanFile &plan) {
  auto device = openDevice(plan, {.threads = 1});
  if (!device || !(*device)->load(plan))
    return;
  for (uint32_t i = 0; i < plan->functions()->size(); ++i)
    if (auto executable = (*device)->record(int(i))) {
      EXPECT_TRUE((*device)->submit(**executable));
    }
}

// The commands of a mixture of experts: 4 tokens choose 2 of 3 experts, whose weights are [6, 5].
static PlanBuilder expertsPlan() {
  PlanBuilder b;
  auto matrix = [&](uint64_t rows, uint64_t columns) {
    return b.slice(DType::BF16, {rows, columns});
  };
  auto sums = [&](uint64_t count) { return b.slice(DType::F32, {count}); };
  auto indices = [&](uint64_t count) { return b.slice(DType::I32, {count}); };
  auto routed = [](auto op) {
    op.tokens = 4;
    op.count = 3;
    op.chosen = 2;
    return op;
  };
  auto moved = [](auto op, uint64_t columns) {
    op.tokens = 4;
    op.chosen = 2;
    op.columns = columns;
    return op;
  };
  auto multiplied = [](auto op) {
    op.rows = 8;
    op.experts = 3;
    op.inner = 5;
    op.columns = 6;
    return op;
  };
  auto route = routed(plan::RouteT());
  route.logits = matrix(4, 3);
  route.bias = int(sums(3));
  route.sigmoid = true;
  route.weights = sums(8);
  route.experts = indices(8);
  route.counts = sums(3);
  route.mass = sums(3);
  b.command(route);
  auto routeGrad = routed(plan::RouteGradT());
  routeGrad.logits = route.logits;
  routeGrad.experts = route.experts;
  routeGrad.dweights = sums(8);
  routeGrad.dmass = int(sums(3));
  routeGrad.dlogits = matrix(4, 3);
  b.command(routeGrad);
  plan::SortRowsT sort;
  sort.experts = route.experts;
  sort.offsets = indices(4);
  sort.rows = indices(8);
  sort.places = indices(8);
  sort.choices = 8;
  sort.count = 3;
  b.command(sort);
  auto take = moved(plan::TakeRowsT(), 5);
  take.x = matrix(4, 5);
  take.rows = sort.rows;
  take.y = matrix(8, 5);
  b.command(take);
  auto takeGrad = moved(plan::TakeRowsGradT(), 5);
  takeGrad.dy = take.y;
  takeGrad.places = sort.places;
  takeGrad.dx = matrix(4, 5);
  b.command(takeGrad);
  auto linear = multiplied(plan::ExpertLinearT());
  linear.x = take.y;
  linear.weight = matrix(18, 5);
  linear.offsets = sort.offsets;
  linear.y = matrix(8, 6);
  b.command(linear);
  auto linearGrad = multiplied(plan::ExpertLinearGradT());
  linearGrad.dy = linear.y;
  linearGrad.x = take.y;
  linearGrad.offsets = sort.offsets;
  linearGrad.d = sums(90);
  b.command(linearGrad);
  auto combine = moved(plan::CombineRowsT(), 6);
  combine.y = linear.y;
  combine.weights = route.weights;
  combine.places = sort.places;
  combine.out = matrix(4, 6);
  b.command(combine);
  auto combineGrad = moved(plan::CombineRowsGradT(), 6);
  combineGrad.dout = combine.out;
  combineGrad.y = linear.y;
  combineGrad.weights = route.weights;
  combineGrad.rows = sort.rows;
  combineGrad.places = int(sort.places);
  combineGrad.dy = matrix(8, 6);
  combineGrad.dweights = sums(8);
  b.command(combineGrad);
  plan::ExpertSwigluT swiglu;
  swiglu.x = linear.y;
  swiglu.offsets = sort.offsets;
  swiglu.y = matrix(8, 3);
  swiglu.rows = 8;
  swiglu.experts = 3;
  swiglu.columns = 3;
  b.command(swiglu);
  plan::ExpertSwigluGradT swigluGrad;
  swigluGrad.dy = swiglu.y;
  swigluGrad.x = linear.y;
  swigluGrad.offsets = sort.offsets;
  swigluGrad.dx = matrix(8, 6);
  swigluGrad.rows = 8;
  swigluGrad.experts = 3;
  swigluGrad.columns = 3;
  b.command(swigluGrad);
  return b;
}

TEST(PlanFile, RefusesExpertsThatDoNotFit) {
  auto sound = expertsPlan().open();
  ASSERT_TRUE(sound) << sound.error().message;
  struct Case {
    std::function<void(plan::PlanT &)> damage;
    const char *message;
  };
  auto body = [](plan::PlanT &p, size_t command) -> plan::CommandBodyUnion & {
    return p.functions[0]->commands[command]->body;
  };
  const Case cases[] = {
      {[&](auto &p) { body(p, 0).AsRoute()->chosen = 4; }, "it chooses 4 of 3 experts"},
      {[&](auto &p) { body(p, 0).AsRoute()->count = 4; }, "operand logits has"},
      {[&](auto &p) {
         plan::SliceT &mass = *p.slices[body(p, 0).AsRoute()->mass];
         mass.shape = {2};
         mass.bytes = 8;
       },
       "operand mass has"},
      {[&](auto &p) { body(p, 0).AsRoute()->bias = 99; }, "bias does not exist"},
      {[&](auto &p) {
         plan::SliceT &bias = *p.slices[size_t(body(p, 0).AsRoute()->bias)];
         bias.shape = {2};
         bias.bytes = 8;
       },
       "operand bias has"},
      {[&](auto &p) { body(p, 0).AsRoute()->bias = int(body(p, 0).AsRoute()->logits); },
       "operand bias is BF16"},
      {[&](auto &p) { body(p, 0).AsRoute()->bias = int(body(p, 0).AsRoute()->counts); },
       "shares memory"},
      {[&](auto &p) { body(p, 1).AsRouteGrad()->dmass = 99; }, "dmass does not exist"},
      {[&](auto &p) { body(p, 1).AsRouteGrad()->sigmoid = true; },
       "it has a gradient of the mass of sigmoids"},
      {[&](auto &p) { body(p, 1).AsRouteGrad()->dweights = body(p, 1).AsRouteGrad()->experts; },
       "operand dweights is I32"},
      {[&](auto &p) { body(p, 2).AsSortRows()->count = 4; }, "operand offsets has"},
      {[&](auto &p) { body(p, 2).AsSortRows()->places = body(p, 2).AsSortRows()->rows; },
       "shares memory"},
      {[&](auto &p) { body(p, 3).AsTakeRows()->columns = 6; }, "operand x has"},
      {[&](auto &p) { body(p, 4).AsTakeRowsGrad()->chosen = 3; }, "operand dy has"},
      {[&](auto &p) { body(p, 5).AsExpertLinear()->experts = 4; }, "operand weight has"},
      {[&](auto &p) { body(p, 5).AsExpertLinear()->offsets = body(p, 7).AsCombineRows()->weights; },
       "operand offsets is F32"},
      {[&](auto &p) { body(p, 5).AsExpertLinear()->rows = 9; }, "operand x has"},
      {[&](auto &p) { body(p, 6).AsExpertLinearGrad()->d = body(p, 5).AsExpertLinear()->weight; },
       "operand d is BF16"},
      {[&](auto &p) { body(p, 6).AsExpertLinearGrad()->columns = 7; }, "operand dy has"},
      {[&](auto &p) { body(p, 7).AsCombineRows()->weights = body(p, 7).AsCombineRows()->y; },
       "operand weights is BF16"},
      {[&](auto &p) { body(p, 8).AsCombineRowsGrad()->dy = body(p, 8).AsCombineRowsGrad()->y; },
       "shares memory"},
      {[&](auto &p) { body(p, 9).AsExpertSwiglu()->columns = 4; }, "operand x has"},
      {[&](auto &p) { body(p, 9).AsExpertSwiglu()->rows = 0; }, "it has an extent of 0"},
      {[&](auto &p) { body(p, 9).AsExpertSwiglu()->experts = 4; }, "operand offsets has"},
      {[&](auto &p) { body(p, 9).AsExpertSwiglu()->y = body(p, 8).AsCombineRowsGrad()->dweights; },
       "operand y is F32"},
      {[&](auto &p) { body(p, 9).AsExpertSwiglu()->y = body(p, 9).AsExpertSwiglu()->x; },
       "shares memory"},
      {[&](auto &p) { body(p, 10).AsExpertSwigluGrad()->rows = 9; }, "operand dy has"},
      {[&](auto &p) { body(p, 10).AsExpertSwigluGrad()->offsets = body(p, 0).AsRoute()->counts; },
       "operand offsets is F32"},
      {[&](auto &p) { body(p, 10).AsExpertSwigluGrad()->dx = body(p, 3).AsTakeRows()->y; },
       "operand dx has"},
  };
  for (const Case &c : cases) {
    PlanBuilder b = expertsPlan();
    c.damage(b.plan);
    auto plan = b.open();
    ASSERT_FALSE(plan) << c.message;
    EXPECT_NE(plan.error().message.find(c.message), std::string::npos)
        << plan.error().message << "\n  should say: " << c.message;
  }
}

// A product with SwiGLU of 4 rows of 6, and its gradient.
static PlanBuilder swigluPlan() {
  PlanBuilder b;
  auto matrix = [&](uint64_t rows, uint64_t columns) {
    return b.slice(DType::BF16, {rows, columns});
  };
  auto product = [&](uint32_t left, uint32_t weight, uint32_t result, uint64_t columns) {
    auto made = std::make_unique<plan::GemmT>();
    made->a = left;
    made->b = weight;
    made->d = result;
    made->m = 4;
    made->n = columns;
    made->k = 6;
    return made;
  };
  plan::LinearSwigluT forward;
  forward.product = product(matrix(4, 6), matrix(10, 6), matrix(4, 10), 10);
  forward.product->transpose_b = true;
  forward.a = matrix(4, 5);
  b.command(forward);
  plan::SwigluLinearGradT grad;
  grad.product = product(matrix(4, 6), matrix(6, 5), matrix(4, 5), 5);
  grad.dgu = matrix(4, 10);
  b.command(grad);
  b.slice(DType::F32, {4, 5});
  return b;
}

TEST(PlanFile, RefusesProductsWithSwigluThatDoNotFit) {
  auto sound = swigluPlan().open();
  ASSERT_TRUE(sound) << sound.error().message;
  struct Case {
    std::function<void(plan::PlanT &)> damage;
    const char *message;
  };
  auto forward = [](plan::PlanT &p) -> plan::LinearSwigluT & {
    return *p.functions[0]->commands[0]->body.AsLinearSwiglu();
  };
  auto grad = [](plan::PlanT &p) -> plan::SwigluLinearGradT & {
    return *p.functions[0]->commands[1]->body.AsSwigluLinearGrad();
  };
  const uint32_t f32 = uint32_t(swigluPlan().plan.slices.size() - 1);
  const Case cases[] = {
      {[&](auto &p) { forward(p).product->k = 7; }, "operand a has"},
      {[&](auto &p) { forward(p).product->n = 9; }, "its 9 columns have no halves"},
      {[&](auto &p) { forward(p).product->c = int(forward(p).product->d); }, "its product is not"},
      {[&](auto &p) { forward(p).product->transpose_a = true; }, "its product is not"},
      {[&](auto &p) {
         p.slices[forward(p).a]->shape = {4, 4}, p.slices[forward(p).a]->bytes = 32;
       },
       "operand a has 16 elements, not 20"},
      {[&](auto &p) { forward(p).a = f32; }, "operand a is F32"},
      {[&](auto &p) { forward(p).a = 99; }, "a does not exist"},
      {[&](auto &p) { grad(p).product->d = f32; }, "its product is not"},
      {[&](auto &p) { grad(p).dgu = forward(p).a; }, "operand dgu has"},
      {[&](auto &p) { grad(p).dgu = grad(p).product->a; }, "operand dgu has"},
      {[&](auto &p) { p.slices[grad(p).dgu]->offset = p.slices[grad(p).product->d]->offset; },
       "shares memory"},
  };
  for (const Case &c : cases) {
    PlanBuilder b = swigluPlan();
    c.damage(b.plan);
    auto plan = b.open();
    ASSERT_FALSE(plan) << c.message;
    EXPECT_NE(plan.error().message.find(c.message), std::string::npos)
        << plan.error().message << "\n  should say: " << c.message;
  }
}

// A device gives the kernel of a way arguments of its own: the launches of a plan must have the
// same.
TEST(PlanFile, RefusesWaysWithOtherArguments) {
  auto withWays = [](std::vector<std::vector<uint32_t>> ways) {
    PlanBuilder b = swigluPlan();
    b.plan.target = "cuda:sm_90a";
    auto module = std::make_unique<plan::ModuleT>();
    module->target = b.plan.target;
    module->image = {1, 2, 3};
    b.plan.modules.push_back(std::move(module));
    for (size_t i = 0; i < ways.size(); ++i) {
      auto kernel = std::make_unique<plan::KernelT>();
      kernel->name = kernel->entry = "way" + std::to_string(i);
      kernel->grid = {1, 1, 1};
      kernel->threads = 32;
      b.plan.kernels.push_back(std::move(kernel));
      auto launch = std::make_unique<plan::LaunchT>();
      launch->kernel = uint32_t(i);
      launch->args = ways[i];
      launch->inputs = 1;
      launch->items = launch->chunk = 1;
      b.plan.functions[0]->commands[0]->launches.push_back(std::move(launch));
    }
    // The first command's halves are needed: results may be arguments.
    b.plan.functions[0]->commands[0]->body.AsLinearSwiglu()->both = true;
    auto opened = b.open();
    return opened ? std::string() : opened.error().message;
  };
  PlanBuilder sound = swigluPlan();
  const plan::LinearSwigluT &op = *sound.plan.functions[0]->commands[0]->body.AsLinearSwiglu();
  const uint32_t x = op.product->a, gu = op.product->d, a = op.a;
  EXPECT_EQ(withWays({{gu, a}}), "");
  EXPECT_THAT(withWays({{gu, gu, a}}), testing::HasSubstr("way 1 has other arguments"));
  EXPECT_THAT(withWays({{gu, a}, {x, gu, a}}), testing::HasSubstr("way 2 has other arguments"));
  EXPECT_THAT(withWays({{gu, a}, {gu, a}, {gu, a}}), testing::HasSubstr("it has 3 kernels"));
}

TEST(PlanFile, OpensWhatIsSound) {
  PlanBuilder b = completePlan();
  auto plan = b.open();
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ((*plan)->findVariable("w.grad"), 1);
  EXPECT_EQ((*plan)->findVariable("nothing"), -1);
  EXPECT_EQ((*plan)->findFunction("micro_first"), 0);
  EXPECT_EQ((*plan)->findFunction("micro"), -1);
  use(**plan);
}

// A product of factors of 8 bits for a CPU, which `change` changes. Returns the error, or "".
static std::string withScales(const std::function<void(plan::PlanT &, plan::GemmT &)> &change) {
  PlanBuilder b = PlanBuilder();
  plan::GemmT gemm;
  gemm.m = 8, gemm.n = 4, gemm.k = 16;
  gemm.a = b.slice(DType::F8E4M3, {8, 16}, 1);
  gemm.b = b.slice(DType::F8E4M3, {16, 4}, 1);
  gemm.d = b.slice(DType::BF16, {8, 4}, 1);
  gemm.scale_a = int(b.slice(DType::F32, {}, 1));
  gemm.scale_b = int(b.slice(DType::F32, {}, 1));
  const uint32_t workspace = b.slice(DType::BF16, {12, 16}, 1);
  b.command(gemm);
  b.plan.functions[0]->commands[0]->workspace = int(workspace);
  change(b.plan, *b.plan.functions[0]->commands[0]->body.AsGemm());
  auto opened = b.open();
  return opened ? std::string() : opened.error().message;
}

TEST(PlanFile, ChecksProductsOfEightBits) {
  using testing::HasSubstr;
  EXPECT_EQ(withScales([](auto &, auto &) {}), "");
  EXPECT_EQ(withScales([](auto &p, auto &g) { p.slices[g.b]->dtype = DType::F8E5M2; }), "");
  EXPECT_THAT(withScales([](auto &p, auto &g) {
                p.slices[g.a]->dtype = p.slices[g.b]->dtype = DType::F8E5M2;
              }),
              HasSubstr("it multiplies F8E5M2 by F8E5M2"));
  EXPECT_THAT(withScales([](auto &p, auto &g) { p.slices[g.b]->dtype = DType::I8; }),
              HasSubstr("it multiplies F8E4M3 by I8"));
  EXPECT_THAT(withScales([](auto &, auto &g) { g.scale_b = -1; }),
              HasSubstr("operand scale_b does not exist"));
  EXPECT_THAT(withScales([](auto &, auto &g) { g.scale_a = int(g.d); }),
              HasSubstr("operand scale_a is BF16, not F32"));
  EXPECT_THAT(withScales([](auto &p, auto &) { p.functions[0]->commands[0]->workspace = -1; }),
              HasSubstr("operand workspace does not exist"));
  EXPECT_THAT(withScales([](auto &, auto &g) { g.batch = 2; }),
              HasSubstr("it multiplies F8E4M3 by F8E4M3, 2 times"));
  EXPECT_THAT(withScales([](auto &p, auto &) { p.target = "other:1"; }),
              HasSubstr("it multiplies 8-bit floats, in a plan for 'other:1'"));
  EXPECT_THAT(withScales([](auto &, auto &g) { g.m = 9; }),
              HasSubstr("operand a has 128 elements"));
  EXPECT_THAT(withScales([](auto &, auto &g) { g.bias = int(g.scale_a); }),
              HasSubstr("operand bias has 1 elements, not 4"));
  // Factors of other dtypes have no scales.
  PlanBuilder b = completePlan();
  b.plan.functions[0]->commands[2]->body.AsGemm()->scale_a = 3;
  auto opened = b.open();
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("it has scales for factors of F32"));
}

// The same with scales for blocks: x [128, 256] by a weight [384, 256] in tiles.
static std::string withBlocks(const std::function<void(plan::PlanT &, plan::GemmT &)> &change) {
  PlanBuilder b;
  plan::GemmT gemm;
  gemm.m = 128, gemm.n = 384, gemm.k = 256;
  gemm.a = b.slice(DType::F8E4M3, {128, 256}, 1);
  gemm.b = b.slice(DType::F8E4M3, {384, 256}, 1);
  gemm.d = b.slice(DType::BF16, {128, 384}, 1);
  gemm.scale_a = int(b.slice(DType::F32, {2, 128}, 1));
  gemm.scale_b = int(b.slice(DType::F32, {3, 4}, 1));
  gemm.scaling = plan::Scaling::Tiles;
  gemm.transpose_b = true;
  const uint32_t workspace = b.slice(DType::BF16, {512, 256}, 1);
  b.command(gemm);
  b.plan.functions[0]->commands[0]->workspace = int(workspace);
  change(b.plan, *b.plan.functions[0]->commands[0]->body.AsGemm());
  auto opened = b.open();
  return opened ? std::string() : opened.error().message;
}

TEST(PlanFile, ChecksScalesOfBlocks) {
  using testing::HasSubstr;
  EXPECT_EQ(withBlocks([](auto &, auto &) {}), "");
  EXPECT_THAT(withBlocks([](auto &, auto &g) { std::swap(g.scale_a, g.scale_b); }),
              HasSubstr("operand scale_a has 12 elements, not 256"));
  EXPECT_THAT(withBlocks([](auto &, auto &g) { g.scale_b = -1; }),
              HasSubstr("operand scale_b does not exist"));
  EXPECT_THAT(withBlocks([](auto &, auto &g) { g.scale_b = 999; }), HasSubstr("scale_b"));
  EXPECT_THAT(withBlocks([](auto &p, auto &g) {
                p.slices[uint32_t(g.scale_b)]->shape = {3, 1};
                p.slices[uint32_t(g.scale_b)]->bytes = 12;
              }),
              HasSubstr("it has 1 scales in a row of tiles, and needs 2"));
  EXPECT_THAT(withBlocks([](auto &, auto &g) { g.scaling = plan::Scaling::Rows; }),
              HasSubstr("operand scale_b has 12 elements, not 768"));
  EXPECT_THAT(withBlocks([](auto &, auto &g) { g.scaling = plan::Scaling(9); }),
              HasSubstr("it has scales of kind 9"));
  EXPECT_THAT(withBlocks([](auto &p, auto &g) {
                p.target = "cuda:sm_90a";
                p.functions[0]->commands[0]->workspace = -1;
                p.slices[uint32_t(g.scale_b)]->shape = {3, 2};
                p.slices[uint32_t(g.scale_b)]->bytes = 24;
              }),
              HasSubstr("it has 2 scales in a row of tiles, and needs 4"));
  EXPECT_THAT(withBlocks([](auto &, auto &g) { g.k = 64, g.m = 512, g.n = 1536; }),
              HasSubstr("it has scales for blocks of 128 elements, and its rows have 64"));
  EXPECT_THAT(withBlocks([](auto &, auto &g) { g.transpose_a = true; }),
              HasSubstr("or other ones"));
  EXPECT_THAT(withBlocks([](auto &, auto &g) {
                g.transpose_b = false;
                g.scaling = plan::Scaling::Rows;
              }),
              HasSubstr("or other ones"));
  EXPECT_THAT(withBlocks([](auto &p, auto &g) {
                g.n = 320;
                p.slices[g.b]->shape = {320, 256};
                p.slices[g.b]->bytes = 320 * 256;
              }),
              HasSubstr("it has scales for tiles of 128 x 128 elements of 320 x 256"));
}

// Products of 2 experts with matrices [128, 256] by 7 rows, with scales for blocks.
static std::string
withExperts(const std::function<void(plan::PlanT &, plan::ExpertScaledLinearT &)> &change) {
  PlanBuilder b;
  plan::ExpertScaledLinearT experts;
  experts.rows = 7, experts.experts = 2, experts.depth = 2, experts.across = 1;
  experts.x = b.slice(DType::F8E4M3, {7, 256}, 1);
  experts.weight = b.slice(DType::F8E4M3, {256, 256}, 1);
  experts.offsets = b.slice(DType::I32, {3}, 1);
  experts.x_scales = b.slice(DType::F32, {2, 7}, 1);
  experts.weight_scales = b.slice(DType::F32, {2, 2}, 1);
  experts.y = b.slice(DType::BF16, {7, 128}, 1);
  const uint32_t workspace = b.slice(DType::BF16, {7 + 256, 256}, 1);
  b.command(experts);
  b.plan.functions[0]->commands[0]->workspace = int(workspace);
  change(b.plan, *b.plan.functions[0]->commands[0]->body.AsExpertScaledLinear());
  auto opened = b.open();
  return opened ? std::string() : opened.error().message;
}

TEST(PlanFile, ChecksExpertsOfEightBits) {
  using testing::HasSubstr;
  EXPECT_EQ(withExperts([](auto &, auto &) {}), "");
  EXPECT_EQ(withExperts([](auto &, auto &e) { e.beside = true; }), "");
  EXPECT_EQ(withExperts([](auto &, auto &e) { e.transposed = true; }), "");
  EXPECT_THAT(withExperts([](auto &, auto &e) { e.beside = e.transposed = true; }),
              HasSubstr("its weights are transposed, and lie one beside the other"));
  EXPECT_THAT(withExperts([](auto &, auto &e) { e.across = 2; }), HasSubstr("operand weight has"));
  EXPECT_THAT(withExperts([](auto &, auto &e) { e.depth = 1u << 24; }),
              HasSubstr("it has an extent of"));
  EXPECT_THAT(withExperts([](auto &p, auto &) { p.functions[0]->commands[0]->workspace = -1; }),
              HasSubstr("workspace"));
  EXPECT_THAT(withExperts([](auto &p, auto &) {
                auto &slice = *p.slices[uint32_t(p.functions[0]->commands[0]->workspace)];
                slice.shape = {1};
                slice.bytes = 2;
              }),
              HasSubstr("workspace"));
}

// A product of 8-bit floats for a GPU, whose rows have k elements.
static std::string withRowsOfK(const std::function<void(plan::PlanT &, plan::GemmT &)> &change) {
  PlanBuilder b;
  b.plan.target = "cuda:sm_90a";
  plan::GemmT gemm;
  gemm.m = 16, gemm.n = 32, gemm.k = 48;
  gemm.a = b.slice(DType::F8E5M2, {16, 48}, 1);
  gemm.b = b.slice(DType::F8E4M3, {32, 48}, 1);
  gemm.d = b.slice(DType::BF16, {16, 32}, 1);
  gemm.scale_a = int(b.slice(DType::F32, {}, 1));
  gemm.scale_b = int(b.slice(DType::F32, {}, 1));
  gemm.transpose_b = true;
  b.command(gemm);
  change(b.plan, *b.plan.functions[0]->commands[0]->body.AsGemm());
  auto opened = b.open();
  return opened ? std::string() : opened.error().message;
}

TEST(PlanFile, ChecksProductsOfEightBitsForAGpu) {
  using testing::HasSubstr;
  EXPECT_EQ(withRowsOfK([](auto &, auto &) {}), "");
  EXPECT_THAT(withRowsOfK([](auto &, auto &g) { g.transpose_b = false; }),
              HasSubstr("it multiplies 8-bit floats that are not rows of k elements"));
  EXPECT_THAT(withRowsOfK([](auto &, auto &g) { g.transpose_a = true; }),
              HasSubstr("it multiplies 8-bit floats that are not rows of k elements"));
  EXPECT_THAT(withRowsOfK([](auto &p, auto &g) {
                g.m = 8;
                p.slices[g.a]->shape = {8, 48};
                p.slices[g.a]->bytes = 8 * 48;
                p.slices[g.d]->shape = {8, 32};
                p.slices[g.d]->bytes = 8 * 32 * 2;
              }),
              HasSubstr("its factors are 8 x 48 and 32 x 48 8-bit floats"));
  EXPECT_THAT(withRowsOfK([](auto &p, auto &g) { p.slices[g.b]->offset += 8; }),
              HasSubstr("must be multiples of 16"));
  EXPECT_THAT(withRowsOfK([](auto &p, auto &g) { p.slices[uint32_t(g.scale_b)]->offset += 4; }),
              HasSubstr("must be multiples of 16"));
}

TEST(PlanFile, OpensWhatIsSoundForAGpu) {
  auto plan = cudaPlan().open();
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ((**plan)->kernels()->Get(1)->threads(), 128u);
}

TEST(PlanFile, MapsFiles) {
  std::string path = testing::TempDir() + "/lmc-plan-test.plan";
  std::string data = completePlan().bytes();
  std::ofstream(path, std::ios::binary) << data;
  auto plan = PlanFile::open(path);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ((*plan)->path(), path);
  std::ofstream(path, std::ios::binary | std::ios::trunc);
  auto empty = PlanFile::open(path);
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().message.find("empty"), std::string::npos);
  std::remove(path.c_str());
  EXPECT_FALSE(PlanFile::open(path));
  EXPECT_FALSE(PlanFile::open(testing::TempDir()));
}

TEST(PlanFile, RefusesTruncation) {
  std::string data = completePlan().bytes();
  for (size_t bytes = 0; bytes < data.size(); bytes += 64)
    EXPECT_FALSE(PlanFile::fromBytes(data.data(), bytes, "cut")) << bytes;
  EXPECT_FALSE(PlanFile::fromBytes(data.data(), data.size() - 1, "cut"));
}

TEST(PlanFile, RefusesDrawnFlips) {
  const int64_t count = test::drawCount(3000);
  const std::string data = completePlan().bytes();
  std::mt19937_64 random(1);
  for (int64_t run = 0; run < count; ++run) {
    std::string damaged = data;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips)
      damaged[random() % damaged.size()] ^= char(1 + random() % 255);
    if (damaged != data) {
      EXPECT_FALSE(PlanFile::fromBytes(damaged.data(), damaged.size(), "flipped"));
    }
  }
}

// A hostile file has a good checksum: what the verifier then accepts must be
// safe to load and to run.
TEST(PlanFile, SurvivesDrawnBytes) {
  const int64_t count = test::drawCount(5000);
  std::string data = completePlan().bytes();
  data.resize(data.size() - kPlanTrailerBytes);
  std::mt19937_64 random(2);
  int accepted = 0;
  for (int64_t run = 0; run < count; ++run) {
    std::string hostile = data;
    for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      static const unsigned char kNasty[] = {0, 1, 2, 0x7f, 0x80, 0xff};
      hostile[random() % hostile.size()] =
          random() % 2 ? char(kNasty[random() % sizeof(kNasty)]) : char(random());
    }
    appendPlanTrailer(hostile);
    auto plan = PlanFile::fromBytes(hostile.data(), hostile.size(), "hostile");
    if (!plan)
      continue;
    ++accepted;
    // An arena may have grown; do not spend the test's time on touching it.
    uint64_t arenas = 0;
    for (const auto *arena : *(**plan)->arenas())
      arenas += arena->bytes();
    if (arenas < 1 << 20)
      use(**plan);
  }
  // Names, shapes of nothing and the like may change freely.
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, count);
}

TEST(PlanFile, SurvivesDrawnBytesForAGpu) {
  const int64_t count = test::drawCount(5000);
  std::string data = cudaPlan().bytes();
  data.resize(data.size() - kPlanTrailerBytes);
  std::mt19937_64 random(3);
  int accepted = 0;
  for (int64_t run = 0; run < count; ++run) {
    std::string hostile = data;
    for (uint64_t flips = 1 + random() % 3; flips > 0; --flips)
      hostile[random() % hostile.size()] = char(random());
    appendPlanTrailer(hostile);
    auto plan = PlanFile::fromBytes(hostile.data(), hostile.size(), "hostile");
    accepted += bool(plan);
    if (!plan || (**plan)->target()->str() != "cuda:sm_90a")
      continue;
    for (const auto *kernel : *(**plan)->kernels()) {
      ASSERT_EQ(kernel->grid()->size(), 3u);
      ASSERT_LE(kernel->threads(), 1024u);
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, count);
}

TEST(PlanFile, NamesTheOtherSchemaVersion) {
  PlanBuilder b = completePlan();
  b.plan.schema_version = kSchemaVersion + 1;
  auto plan = b.open();
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("schema version " + std::to_string(kSchemaVersion + 1) +
                                      ", this program reads version " +
                                      std::to_string(kSchemaVersion)),
            std::string::npos)
      << plan.error().message;
}

TEST(PlanFile, RefusesOtherFiles) {
  std::string text(1000, 'x');
  auto plan = PlanFile::fromBytes(text.data(), text.size(), "notes.txt");
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("notes.txt: not a plan"), std::string::npos);
}

// Makes of a copy an all-gather of one rank, on stream 1.
static void gatherBeside(plan::CommandT &copy) {
  plan::CollectiveT gather;
  gather.x = copy.body.AsCopy()->x;
  gather.d = copy.body.AsCopy()->d;
  copy.body.Set(gather);
  copy.stream = 1;
}

TEST(PlanFile, CommandsRunBesideACollective) {
  PlanBuilder b = completePlan();
  auto &commands = b.plan.functions[0]->commands;
  gatherBeside(*commands[0]);
  // Command 2 reads what command 0 reads; command 3 is the first to use its result.
  auto wait = std::make_unique<plan::CommandT>();
  wait->body.Set(plan::WaitT());
  commands.insert(commands.begin() + 3, std::move(wait));
  auto plan = b.open();
  EXPECT_TRUE(plan) << plan.error().message;
}

// A sum along the other axis comes after the all-gather. The wait for it ends both.
TEST(PlanFile, ACollectiveComesAfterOneOfAnotherStream) {
  PlanBuilder b = completePlan();
  auto &commands = b.plan.functions[0]->commands;
  gatherBeside(*commands[0]);
  plan::CollectiveT sum;
  sum.kind = plan::CollectiveKind::AllReduce;
  sum.axis = plan::Axis::Replicate;
  sum.x = sum.d = commands[0]->body.AsCollective()->d;
  sum.after = 0;
  auto command = std::make_unique<plan::CommandT>();
  command->body.Set(sum);
  command->stream = 2;
  commands.insert(commands.begin() + 1, std::move(command));
  plan::WaitT end;
  end.command = 1;
  auto wait = std::make_unique<plan::CommandT>();
  wait->body.Set(end);
  commands.insert(commands.begin() + 4, std::move(wait));
  auto plan = b.open();
  EXPECT_TRUE(plan) << plan.error().message;
}

// Each change alone makes a sound plan unsound, and the message says where.
void addLink(plan::PlanT &p, double bandwidth) {
  p.links.push_back(std::make_unique<plan::LinkT>());
  p.links.back()->bandwidth = bandwidth;
}

TEST(PlanFile, ChecksTheMeaning) {
  struct Case {
    std::function<void(plan::PlanT &)> damage;
    const char *message;
  };
  auto command = [](plan::PlanT &p, int i) -> plan::CommandT & {
    return *p.functions[0]->commands[size_t(i)];
  };
  auto body = [&](plan::PlanT &p, int i) -> plan::CommandBodyUnion & { return command(p, i).body; };
  // A collective in place of the copy, command 0.
  auto collective = [&](plan::CollectiveKind kind, plan::PlanT &p) {
    plan::CollectiveT made;
    made.kind = kind;
    made.axis = plan::Axis::Shard;
    made.x = body(p, 0).AsCopy()->x;
    made.d = body(p, 0).AsCopy()->d;
    return made;
  };
  // Makes command 0 start an all-gather of one rank.
  auto start = [&](plan::PlanT &p) {
    body(p, 0).Set(collective(plan::CollectiveKind::AllGather, p));
    command(p, 0).stream = 1;
  };
  auto wait = [&](plan::PlanT &p, int number, uint32_t started) {
    body(p, number).Set(plan::WaitT());
    body(p, number).AsWait()->command = started;
  };
  auto sumBeside = [&](plan::PlanT &p, int after) {
    start(p);
    plan::CollectiveT sum;
    sum.kind = plan::CollectiveKind::AllReduce;
    sum.axis = plan::Axis::Replicate;
    sum.x = sum.d = body(p, 0).AsCollective()->d;
    sum.after = after;
    body(p, 1).Set(sum);
    command(p, 1).stream = 2;
  };
  const Case cases[] = {
      {[](auto &p) { p.slices[0]->arena = 2; }, "slice 0 is in arena 2"},
      {[](auto &p) { p.slices[0]->offset = 1ull << 40; }, "beyond the end of its arena"},
      {[](auto &p) { p.slices[0]->offset = ~0ull - 63; }, "beyond the end of its arena"},
      {[](auto &p) { p.slices[0]->bytes -= 4; }, "do not match its shape"},
      {[](auto &p) {
         p.slices[0]->shape = {1ull << 32, 1ull << 32};
       },
       "do not match its shape"},
      {[](auto &p) { p.slices[3]->offset += 2; }, "not aligned"},
      {[](auto &p) { p.slices[0]->dtype = DType(77); }, "unknown dtype"},
      {[](auto &p) { p.slices[0]->function = 4; }, "function 4"},
      {[](auto &p) { p.arenas[0]->alignment = 48; }, "alignment 48"},
      {[](auto &p) { p.variables[1]->name = "w"; }, "two variables are named 'w'"},
      {[](auto &p) { p.variables[1]->parameter = "v"; }, "belongs to no parameter"},
      {[](auto &p) { p.variables[5]->parameter = ""; }, "'w.moment1_scale' belongs to no"},
      {[](auto &p) {
         plan::SliceT &scales = *p.slices[p.variables[5]->slice];
         scales.shape = {1};
         scales.bytes = 4;
       },
       "'w.moment1_scale' and its parameter differ in size"},
      {[](auto &p) { p.variables[3]->step_value = plan::StepValue(77); },
       "'run.lr' has an unknown value of the step"},
      {[](auto &p) { p.variables[0]->step_value = plan::StepValue::LearningRate; },
       "'w' is no scalar, and the host sets it"},
      {[](auto &p) { p.variables[3]->setting = "lr_schedule.lr"; },
       "'run.lr' is of a setting and of the step"},
      {[](auto &p) {
         p.variables[3]->step_value = plan::StepValue::None;
         p.variables[3]->setting = "lr_schedule.decay";
       },
       "'run.lr' is of setting 'lr_schedule.decay', which is no number of the plan"},
      {[](auto &p) { p.variables[3]->step_value = plan::StepValue::GroupLearningRate; },
       "scalar 'run.lr' is the learning rate of a group, and has none"},
      {[](auto &p) {
         p.variables[3]->step_value = plan::StepValue::GroupMuonLearningRate;
         p.variables[3]->group = "slow";
       },
       "'run.lr' is of a group whose setting 'optimizer.group.slow.lr_mult' is no number"},
      {[](auto &p) { p.variables[0]->group = "slow"; },
       "'w' is of a group whose setting 'optimizer.group.slow.lr_mult' is no number"},
      {[](auto &p) { p.variables[1]->group = "slow"; },
       "'w.grad' has a group, and is neither a parameter nor a learning rate"},
      {[](auto &p) { p.variables[0]->slice = 99; }, "no slice"},
      {[](auto &p) { p.variables[0]->slice = 4; }, "not in the arena of the state"},
      {[](auto &p) { p.variables[0]->initializer->stddev = -1; }, "standard deviation"},
      {[](auto &p) { p.variables[0]->initializer->kind = plan::InitializerKind::RopeCos; },
       "do not match its shape"},
      {[](auto &p) { p.variables[0]->initializer->kind = plan::InitializerKind::CopyOf; },
       "copy of nothing"},
      {[](auto &p) { p.shard_ranks = 2; }, "its 1 ranks are in groups of 2"},
      {[](auto &p) { p.shard_ranks = 0; }, "its 1 ranks are in groups of 0"},
      // Otherwise an axis could have no ranks.
      {[](auto &p) { addLink(p, 1e9); }, "link 0 joins no two ranks"},
      {[](auto &p) {
         p.devices_per_node = p.batch->ranks = 2;
         p.batch->global_batch_size *= 2;
         addLink(p, 0);
       },
       "link 0 has an impossible speed"},
      {[](auto &p) {
         p.devices_per_node = p.batch->ranks = 2;
         p.batch->global_batch_size *= 2;
         addLink(p, 1e9);
         addLink(p, 1e9);
       },
       "link 1 is of an unknown kind, or of that of one before"},
      {[](auto &p) { p.axis_speeds.push_back(std::make_unique<plan::AxisSpeedT>()); },
       "axis speed 0 is impossible"},
      {[](auto &p) { p.nodes = p.shard_ranks = 4; }, "it is for 4 devices, and its batch is for 1"},
      {[](auto &p) {
         p.variables[0]->shard = std::make_unique<plan::ShardT>();
         p.variables[0]->shard->shape = {16, 32};
         p.variables[0]->shard->offset = 1;
       },
       "variable 'w' of 512 elements does not lie in its vector of 512"},
      {[&](auto &p) { body(p, 0).Set(collective(plan::CollectiveKind(77), p)); },
       "it is of an unknown kind"},
      {[&](auto &p) { body(p, 0).Set(collective(plan::CollectiveKind::AllReduce, p)); },
       "it sums in two places"},
      {[&](auto &p) {
         body(p, 0).Set(collective(plan::CollectiveKind::AllGather, p));
         body(p, 0).AsCollective()->x = 99;
       },
       "operand x does not exist"},
      {[&](auto &p) {
         p.shard_ranks = p.devices_per_node = 2;
         p.batch->ranks = 2;
         p.batch->global_batch_size *= 2;
         body(p, 0).Set(collective(plan::CollectiveKind::AllGather, p));
       },
       "operand d has 512 elements, not 1024"},
      {[&](auto &p) { command(p, 0).stream = 1; },
       "command 0 of micro_first, copy : it is on stream 1"},
      {[&](auto &p) { wait(p, 1, 0); }, "command 1 of micro_first, wait : it waits for command 0"},
      {[&](auto &p) {
         start(p);
         wait(p, 1, 2);
       },
       "command 1 of micro_first, wait : it waits for command 2, which is no collective"},
      {start, "command 3 of micro_first, attention : it uses bytes that command 0 uses"},
      {[&](auto &p) {
         start(p);
         body(p, 1).AsCopy()->d = body(p, 0).AsCollective()->x;
       },
       "command 1 of micro_first, copy : it uses bytes that command 0 uses until its wait"},
      {[&](auto &p) {
         p.functions[0]->commands.resize(1);
         for (auto &slice : p.slices)
           slice->function = -1;
         start(p);
       },
       "command 0 of micro_first, all_gather : it is never waited for"},
      {[&](auto &p) {
         start(p);
         command(p, 0).stream = 3;
       },
       "command 0 of micro_first, all_gather : it is on stream 3"},
      // Command 1 sums what command 0 gathers, along the other axis and at the same time.
      {[&](auto &p) { sumBeside(p, -1); },
       "command 1 of micro_first, all_reduce : it uses bytes that command 0 uses until its wait"},
      {[&](auto &p) { sumBeside(p, 1); },
       "command 1 of micro_first, all_reduce : it comes after command 1, which is no collective"},
      {[&](auto &p) {
         sumBeside(p, 0);
         command(p, 1).stream = 0;
       },
       "command 1 of micro_first, all_reduce : it comes after command 0, which is no collective"},
      {[&](auto &p) { body(p, 0).AsCopy()->d = 99; }, "command 0: operand d does not exist"},
      {[&](auto &p) { body(p, 1).AsCopy()->d = 2; }, "operand d is I32, not F32"},
      {[&](auto &p) { body(p, 2).AsGemm()->n = 17; }, "operand b has 512 elements, not 544"},
      {[&](auto &p) { body(p, 2).AsGemm()->k = 0; }, "multiplies"},
      {[&](auto &p) { body(p, 2).AsGemm()->m = 1ull << 63; }, "multiplies"},
      {[&](auto &p) { body(p, 2).AsGemm()->batch = 0; }, "multiplies"},
      {[&](auto &p) { body(p, 2).AsGemm()->batch = 2; }, "operand a"},
      {[&](auto &p) { body(p, 2).AsGemm()->c = int(body(p, 3).AsAttention()->lse); },
       "operand residual has 32 elements, not 256"},
      {[&](auto &p) { body(p, 2).AsGemm()->c = -2; }, "operand residual"},
      {[&](auto &p) {
         auto &gemm = *body(p, 2).AsGemm();
         gemm.c = int(body(p, 3).AsAttention()->v);
         p.slices[size_t(gemm.c)]->offset = p.slices[gemm.d]->offset;
       },
       "result d shares memory with operand residual"},
      {[&](auto &p) { body(p, 3).AsAttention()->heads = 3; }, "operand q has"},
      {[&](auto &p) { body(p, 3).AsAttention()->kv_heads = 0; }, "make no attention"},
      {[&](auto &p) { body(p, 3).AsAttention()->out = body(p, 3).AsAttention()->q; },
       "shares memory"},
      {[&](auto &p) { body(p, 3).AsAttention()->starts = 99; }, "operand starts does not exist"},
      {[&](auto &p) { body(p, 3).AsAttention()->starts = -2; }, "operand starts does not exist"},
      {[&](auto &p) { body(p, 3).AsAttention()->starts = 0; }, "operand starts is F32, not I32"},
      {[&](auto &p) { body(p, 4).AsAttentionGrad()->starts = 0; },
       "operand starts is F32, not I32"},
      {[&](auto &p) {
         p.slices[2]->shape = {15};
         p.slices[2]->bytes = 60;
       },
       "operand starts has 15 elements, not 16"},
      {[&](auto &p) {
         p.slices[2]->arena = 1;
         p.slices[2]->offset = p.slices[body(p, 3).AsAttention()->lse]->offset;
         p.variables.erase(p.variables.begin() + 2);
       },
       "command 3: result lse shares memory with operand starts"},
      {[&](auto &p) { body(p, 4).AsAttentionGrad()->sin = 0; }, "operand cos does not exist"},
      {[&](auto &p) { body(p, 4).AsAttentionGrad()->cos = 0; }, "operand sin does not exist"},
      {[&](auto &p) {
         body(p, 4).AsAttentionGrad()->cos = 0;
         body(p, 4).AsAttentionGrad()->sin = 2;
       },
       "operand sin is I32, not F32"},
      {[&](auto &p) {
         auto &grad = *body(p, 4).AsAttentionGrad();
         grad.cos = grad.sin = int(grad.dq);
       },
       "result dq shares memory with operand cos"},
      {[&](auto &p) { body(p, 4).AsAttentionGrad()->seq = 9; }, "operand q has"},
      {[&](auto &p) { body(p, 5).AsScatterAdd()->vocabulary = 33; }, "operand d has"},
      {[&](auto &p) { body(p, 5).AsScatterAdd()->ids = 0; }, "operand ids is F32"},
      {[&](auto &p) { command(p, 5).workspace = 99; }, "workspace does not exist"},
      {[&](auto &p) { command(p, 5).workspace = int(body(p, 5).AsScatterAdd()->x); },
       "result workspace shares memory"},
      {[&](auto &p) { command(p, 4).workspace = int(body(p, 4).AsAttentionGrad()->q); },
       "result workspace shares memory"},
      {[&](auto &p) { command(p, 2).workspace = 11; },
       "command 2: a matrix product has a workspace, in a plan for 'cpu:test'"},
      // On a CUDA device both need scratch memory.
      {[](auto &p) { p.target = "cuda:sm_90a"; }, "command 4: operand workspace does not exist"},
      {[&](auto &p) {
         p.target = "cuda:sm_90a";
         command(p, 4).workspace = 0;
       },
       "command 5: operand workspace does not exist"},
      {[](auto &p) { p.variables[0]->initializer->kernel = 7; }, "initialised by kernel 7"},
      {[](auto &p) { p.settings[0]->value = "1.5"; }, "'training.seed' has the value '1.5'"},
      {[](auto &p) { p.settings[1]->value = "fast"; }, "is no Float"},
      {[](auto &p) { p.settings[1]->key = "training.seed"; }, "empty or taken"},
      {[](auto &p) { p.batch->ranks = 2; }, "is not 2 x 3 x 2"},
      {[](auto &p) { p.target = ""; }, "names no target"},
  };
  for (const Case &c : cases) {
    PlanBuilder b = completePlan();
    c.damage(b.plan);
    auto plan = b.open();
    ASSERT_FALSE(plan) << c.message;
    EXPECT_NE(plan.error().message.find(c.message), std::string::npos)
        << plan.error().message << "\n  should say: " << c.message;
  }
}

TEST(PlanFile, ChecksTheKernelsOfAGpu) {
  struct Case {
    std::function<void(plan::PlanT &)> damage;
    const char *message;
  };
  auto gemm = [](plan::PlanT &p) -> plan::CommandT & { return *p.functions[0]->commands[2]; };
  auto grad = [](plan::PlanT &p) -> plan::CommandT & { return *p.functions[0]->commands[4]; };
  auto scatter = [](plan::PlanT &p) -> plan::CommandT & { return *p.functions[0]->commands[5]; };
  const Case cases[] = {
      {[](auto &p) { p.kernels[0]->grid.clear(); }, "kernel 'norm' has code and no grid"},
      {[](auto &p) {
         p.kernels[0]->grid = {1, 1};
       },
       "a grid of 2 dimensions"},
      {[](auto &p) { p.kernels[0]->grid[0] = 0; }, "a grid of 0 blocks in dimension 0"},
      {[](auto &p) { p.kernels[0]->grid[1] = 65536; }, "65536 blocks in dimension 1"},
      {[](auto &p) { p.kernels[0]->threads = 0; }, "blocks of 0 threads"},
      {[](auto &p) { p.kernels[0]->threads = 1025; }, "blocks of 1025 threads"},
      {[](auto &p) { p.kernels[0]->threads = 100; }, "blocks of 100 threads"},
      {[](auto &p) { p.kernels[0]->shared_bytes = 228 << 10; }, "bytes of shared memory"},
      {[](auto &p) { p.kernels[0]->registers = 256; }, "takes 256 registers"},
      {[](auto &p) { p.kernels[0]->stack_bytes = 1 << 20; }, "1048576 bytes of stack"},
      {[](auto &p) { p.kernels[0]->module_ = 1; }, "in module 1, which does not exist"},
      {[](auto &p) { p.modules[0]->target = "cuda:sm_80"; },
       "a module is for 'cuda:sm_80' in a plan for 'cuda:sm_90a'"},
      {[](auto &p) { p.target = p.modules[0]->target = "cpu"; }, "has a grid, in a plan for 'cpu'"},
      {[&](auto &p) { gemm(p).workspace = 999; }, "operand workspace does not exist"},
      {[&](auto &p) { gemm(p).workspace = int(gemm(p).body.AsGemm()->a); },
       "command 2: operand workspace is F32, not I8"},
      {[&](auto &p) { p.slices[size_t(gemm(p).workspace)]->offset += 64; },
       "command 2: operand workspace is not aligned to 256 bytes"},
      {[](auto &p) { p.arenas[1]->alignment = 64; },
       "command 2: operand workspace is not aligned to 256 bytes"},
      {[&](auto &p) {
         p.slices[size_t(gemm(p).workspace)]->offset = p.slices[gemm(p).body.AsGemm()->a]->offset;
       },
       "command 2: result workspace shares memory with operand a"},
      {[&](auto &p) { grad(p).workspace = -1; }, "operand workspace does not exist"},
      {[&](auto &p) { grad(p).workspace = int(grad(p).body.AsAttentionGrad()->lse); },
       "workspace shares memory"},
      {[&](auto &p) { grad(p).launches[1]->kernel = 4; }, "kernel 4 does not exist"},
      {[&](auto &p) { grad(p).launches[1]->args[0] = 999; }, "slice 999 does not exist"},
      {[&](auto &p) { grad(p).launches[1]->args[0] = 0; },
       "argument 0 of a launch is slice 0, which the command does not name"},
      {[&](auto &p) { grad(p).launches[1]->args[6] = grad(p).body.AsAttentionGrad()->q; },
       "argument 6 of a launch is slice"},
      {[&](auto &p) { grad(p).launches[0]->inputs = 5; }, "argument 5 of a launch is slice"},
      {[&](auto &p) { grad(p).launches[0]->inputs = 8; }, "has no result"},
      {[&](auto &p) { grad(p).launches[0]->inputs = 9; }, "9 inputs of 8 arguments"},
      {[&](auto &p) { grad(p).launches[0]->items = 0; }, "0 items"},
      {[&](auto &p) { scatter(p).workspace = int(scatter(p).body.AsScatterAdd()->x); },
       "operand workspace is F32, not I8"},
      {[&](auto &p) { p.slices[scatter(p).launches[0]->args[1]]->offset += 192; },
       "argument 1 of a launch is slice"},
      {[&](auto &p) {
         grad(p).launches[1]->kernel = 1;
         grad(p).launches[1]->args.pop_back();
       },
       "kernel 'attention_dq' has 7 arguments here and 8 elsewhere"},
      {[&](auto &p) {
         p.target = p.modules[0]->target = "cpu";
         for (auto &kernel : p.kernels)
           kernel->grid.clear();
         gemm(p).workspace = -1;
       },
       "it has launches, in a plan for 'cpu'"},
  };
  for (const Case &c : cases) {
    PlanBuilder b = cudaPlan();
    c.damage(b.plan);
    auto plan = b.open();
    ASSERT_FALSE(plan) << c.message;
    EXPECT_NE(plan.error().message.find(c.message), std::string::npos)
        << plan.error().message << "\n  should say: " << c.message;
  }
}
