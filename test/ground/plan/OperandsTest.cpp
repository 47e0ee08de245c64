// What each kind of command reads and writes, as those see it who treat all commands alike.
#include "ground/plan/Operands.h"

#include "test/ground/plan/PlanBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace lmc;
using testing::ElementsAre;

namespace {

// "<" read, ">" written, "+" added to, "?" scratch; "*" may be spaced: "<*q=3".
std::vector<std::string> texts(const plan::CommandT &command) {
  lmc::test::PlanBuilder b;
  b.plan.functions[0]->commands.push_back(std::make_unique<plan::CommandT>(command));
  const std::string bytes = b.bytes();
  const plan::Plan &plan = *plan::GetPlan(bytes.data());
  std::vector<std::string> texts;
  for (const plan::Operand &operand :
       plan::operandsOf(*plan.functions()->Get(0)->commands()->Get(0)))
    texts.push_back(std::string(1, "<>+?"[int(operand.role)]) + (operand.mayBeSpaced ? "*" : "") +
                    operand.name + "=" + std::to_string(operand.slice));
  return texts;
}

template <typename Body> plan::CommandT commandOf(Body body) {
  plan::CommandT command;
  command.body.Set(std::move(body));
  return command;
}

} // namespace

TEST(Operands, OfALaunchAreItsArguments) {
  plan::LaunchT launch;
  launch.args = {4, 5, 6};
  launch.inputs = 2;
  EXPECT_THAT(texts(commandOf(launch)), ElementsAre("<*argument=4", "<*argument=5", ">*argument=6"));
}

TEST(Operands, AbsentOnesAreLeftOut) {
  plan::GemmT gemm;
  gemm.a = 1;
  gemm.b = 2;
  gemm.d = 3;
  EXPECT_THAT(texts(commandOf(gemm)), ElementsAre("<a=1", "<b=2", ">d=3"));
  gemm.bias = 4;
  EXPECT_THAT(texts(commandOf(gemm)), ElementsAre("<a=1", "<b=2", ">d=3", "<bias=4"));
  gemm.c = 5;
  EXPECT_THAT(texts(commandOf(gemm)),
              ElementsAre("<a=1", "<b=2", ">d=3", "<bias=4", "<residual=5"));
}

TEST(Operands, AnAccumulatorIsReadAndWritten) {
  plan::GemmT gemm;
  gemm.d = 3;
  gemm.c = 3;
  EXPECT_THAT(texts(commandOf(gemm)), ElementsAre("<a=0", "<b=0", "+d=3"));
  plan::ScatterAddT scatter;
  scatter.accumulate = true;
  EXPECT_THAT(texts(commandOf(scatter)), ElementsAre("<ids=0", "<x=0", "+d=0"));
}

TEST(Operands, OfExperts) {
  EXPECT_THAT(texts(commandOf(plan::RouteT())),
              ElementsAre("<logits=0", ">weights=0", ">experts=0", ">counts=0", ">mass=0"));
  plan::RouteT biased;
  biased.bias = 7;
  EXPECT_THAT(texts(commandOf(biased)), ElementsAre("<logits=0", "<bias=7", ">weights=0",
                                                    ">experts=0", ">counts=0", ">mass=0"));
  plan::RouteGradT route;
  EXPECT_THAT(texts(commandOf(route)),
              ElementsAre("<logits=0", "<experts=0", "<dweights=0", ">dlogits=0"));
  route.dmass = 3;
  EXPECT_THAT(texts(commandOf(route)),
              ElementsAre("<logits=0", "<experts=0", "<dweights=0", "<dmass=3", ">dlogits=0"));
  EXPECT_THAT(texts(commandOf(plan::SortRowsT())),
              ElementsAre("<experts=0", ">offsets=0", ">rows=0", ">places=0"));
  plan::SortRowsT grouped;
  grouped.rank = 4;
  EXPECT_THAT(texts(commandOf(grouped)),
              ElementsAre("<experts=0", "<rank=4", ">offsets=0", ">rows=0", ">places=0"));
  EXPECT_THAT(texts(commandOf(plan::TakeRowsT())), ElementsAre("<x=0", "<rows=0", ">y=0"));
  EXPECT_THAT(texts(commandOf(plan::TakeRowsGradT())), ElementsAre("<dy=0", "<places=0", ">dx=0"));
  EXPECT_THAT(texts(commandOf(plan::CombineRowsT())),
              ElementsAre("<y=0", "<weights=0", "<places=0", ">out=0"));
  EXPECT_THAT(
      texts(commandOf(plan::CombineRowsGradT())),
      ElementsAre("<dout=0", "<y=0", "<weights=0", "<rows=0", "<places=0", ">dy=0", ">dweights=0"));
  EXPECT_THAT(texts(commandOf(plan::ExpertLinearT())),
              ElementsAre("<x=0", "<weight=0", "<offsets=0", ">y=0"));
  plan::ExpertLinearGradT grad;
  EXPECT_THAT(texts(commandOf(grad)), ElementsAre("<dy=0", "<x=0", "<offsets=0", ">d=0"));
  grad.accumulate = true;
  EXPECT_THAT(texts(commandOf(grad)), ElementsAre("<dy=0", "<x=0", "<offsets=0", "+d=0"));
  EXPECT_THAT(texts(commandOf(plan::ExpertSwigluT())), ElementsAre("<x=0", "<offsets=0", ">y=0"));
  EXPECT_THAT(texts(commandOf(plan::ExpertSwigluGradT())),
              ElementsAre("<dy=0", "<x=0", "<offsets=0", ">dx=0"));
}

TEST(Operands, OfProductsWithSwiglu) {
  plan::LinearSwigluT forward;
  forward.product = std::make_unique<plan::GemmT>();
  forward.product->a = 1;
  forward.product->b = 2;
  forward.product->d = 3;
  forward.a = 4;
  EXPECT_THAT(texts(commandOf(forward)), ElementsAre("<x=1", "<weight=2", "?gu=3", ">a=4"));
  forward.both = true;
  EXPECT_THAT(texts(commandOf(forward)), ElementsAre("<x=1", "<weight=2", ">gu=3", ">a=4"));
  plan::SwigluLinearGradT grad;
  grad.product = std::make_unique<plan::GemmT>();
  grad.product->a = 1;
  grad.product->b = 2;
  grad.product->d = 3;
  grad.dgu = 4;
  EXPECT_THAT(texts(commandOf(grad)), ElementsAre("<dy=1", "<weight=2", "+dgu=4", "?a=3"));
  grad.both = true;
  EXPECT_THAT(texts(commandOf(grad)), ElementsAre("<dy=1", "<weight=2", "+dgu=4", ">a=3"));
}

TEST(Operands, TheWorkspaceIsScratch) {
  plan::CommandT command = commandOf(plan::ScatterAddT());
  command.workspace = 7;
  EXPECT_THAT(texts(command), ElementsAre("<ids=0", "<x=0", ">d=0", "?workspace=7"));
}

TEST(Operands, AttentionTakesColumnsOfAWiderMatrix) {
  plan::AttentionT attention;
  attention.starts = 9;
  EXPECT_THAT(texts(commandOf(attention)),
              ElementsAre("<*q=0", "<*k=0", "<*v=0", "<starts=9", ">out=0", ">lse=0"));
  EXPECT_THAT(texts(commandOf(plan::AttentionGradT())),
              ElementsAre("<*q=0", "<*k=0", "<*v=0", "<out=0", "<lse=0", "<dout=0", ">*dq=0",
                          ">*dk=0", ">*dv=0"));
  attention.largest = 3;
  EXPECT_THAT(texts(commandOf(attention)).back(), ">largest=3");
  EXPECT_THAT(texts(commandOf(plan::CopyT())), ElementsAre("<*x=0", ">*d=0"));
}

TEST(Operands, ACommandLaunchesItselfOrItsKernels) {
  lmc::test::PlanBuilder b;
  b.command(plan::LaunchT());
  b.command(plan::ScatterAddT());
  b.command(plan::ScatterAddT());
  for (uint32_t kernel : {5, 6}) {
    b.plan.functions[0]->commands[2]->launches.push_back(std::make_unique<plan::LaunchT>());
    b.plan.functions[0]->commands[2]->launches.back()->kernel = kernel;
  }
  const std::string bytes = b.bytes();
  const auto &commands = *plan::GetPlan(bytes.data())->functions()->Get(0)->commands();
  EXPECT_THAT(plan::launchesOf(*commands[0]), ElementsAre(commands[0]->body_as_Launch()));
  EXPECT_TRUE(plan::launchesOf(*commands[1]).empty());
  ASSERT_EQ(plan::launchesOf(*commands[2]).size(), 2u);
  EXPECT_EQ(plan::launchesOf(*commands[2])[1]->kernel(), 6u);
}

TEST(Operands, CommandsHaveShortNames) {
  lmc::test::PlanBuilder b;
  b.command(plan::GemmT());
  b.command(plan::AttentionGradT());
  plan::CollectiveT collective;
  collective.kind = plan::CollectiveKind::ReduceScatter;
  b.command(collective);
  const std::string bytes = b.bytes();
  const auto &commands = *plan::GetPlan(bytes.data())->functions()->Get(0)->commands();
  EXPECT_EQ(plan::commandName(*commands[0]), "gemm");
  EXPECT_EQ(plan::commandName(*commands[1]), "attention_grad");
  EXPECT_EQ(plan::commandName(*commands[2]), "reduce_scatter");
}

TEST(Operands, ACollectiveWorksInPlaceOnlyWhereItSumsEverywhere) {
  plan::CollectiveT collective;
  collective.x = 3;
  collective.d = 4;
  EXPECT_THAT(texts(commandOf(collective)), ElementsAre("<x=3", ">d=4"));
  collective.kind = plan::CollectiveKind::AllReduce;
  EXPECT_THAT(texts(commandOf(collective)), ElementsAre("+d=4"));
}

TEST(Operands, AWaitHasNone) { EXPECT_THAT(texts(commandOf(plan::WaitT())), ElementsAre()); }
