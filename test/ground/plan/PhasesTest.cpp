#include "test/ground/plan/PlanBuilder.h"

#include "ground/settings/SettingTable.h"

#include <gtest/gtest.h>

using namespace lmc;
using lmc::test::PlanBuilder;

namespace {

// A plan with one parameter, for a phase.
PlanBuilder smallPlan(const std::string &fingerprint = "model") {
  PlanBuilder b;
  b.variable("w", plan::VariableKind::Parameter, b.slice(plan::DType::F32, {4}));
  b.plan.fingerprint = fingerprint;
  return b;
}

plan::TrainingPhaseT &addPhase(PlanBuilder &b, const std::string &name, uint64_t steps,
                               const std::string &bytes = "") {
  auto phase = std::make_unique<plan::TrainingPhaseT>();
  phase->name = name;
  phase->steps = steps;
  phase->plan.assign(bytes.begin(), bytes.end());
  b.plan.training_phases.push_back(std::move(phase));
  return *b.plan.training_phases.back();
}

// Returns the error of opening the plan.
std::string errorOf(const PlanBuilder &b) {
  auto opened = b.open();
  return opened ? "" : opened.error().message;
}

} // namespace

TEST(PlanPhases, EachHasItsStepsAndItsPlan) {
  PlanBuilder b = smallPlan(), later = smallPlan();
  later.plan.batch->sequence_length = 64;
  addPhase(b, "base", 90);
  addPhase(b, "long", 10, later.bytes());
  auto opened = b.open();
  ASSERT_TRUE(opened) << opened.error().message;
  const PlanFile &plan = **opened;
  ASSERT_EQ(plan.phases().size(), 2u);
  EXPECT_EQ(plan.phases()[1].name, "long");
  EXPECT_EQ(plan.phases()[1].firstStep, 90u);
  EXPECT_EQ(plan.phases()[1].steps, 10u);
  EXPECT_EQ(&plan.phasePlan(0), &plan);
  EXPECT_EQ(plan.phasePlan(1)->batch()->sequence_length(), 64u);
  EXPECT_EQ(plan.phasePlan(1).path(), "test.plan (phase long)");
  EXPECT_TRUE((*smallPlan().open())->phases().empty());
}

TEST(PlanPhases, APlanWhosePhasesMakeNoSenseIsRefused) {
  const std::string whole = smallPlan().bytes();
  auto with = [&](const std::string &name, uint64_t steps, const std::string &bytes) {
    PlanBuilder b = smallPlan();
    addPhase(b, "base", 90);
    addPhase(b, name, steps, bytes);
    return errorOf(b);
  };
  EXPECT_EQ(with("long", 10, whole), "");
  EXPECT_NE(with("base", 10, whole).find("two phases have this name"), std::string::npos);
  EXPECT_NE(with("long", 0, whole).find("0 steps"), std::string::npos);
  EXPECT_NE(with("long", uint64_t{1} << 60, whole).find("steps"), std::string::npos);
  EXPECT_NE(with("long", 10, "").find("it has no plan"), std::string::npos);
  EXPECT_NE(with("long", 10, whole.substr(0, whole.size() / 2)).find("cut short"),
            std::string::npos);
  EXPECT_NE(with("long", 10, smallPlan("other").bytes()).find("its parameters or moments"),
            std::string::npos);
  PlanBuilder nested = smallPlan();
  addPhase(nested, "base", 1);
  EXPECT_NE(with("long", 10, nested.bytes()).find("its plan has phases, too"), std::string::npos);
  PlanBuilder b = smallPlan();
  addPhase(b, "base", 90, whole);
  EXPECT_NE(errorOf(b).find("the first phase has a plan of its own"), std::string::npos);
}

TEST(PhaseSource, IsANameWithOrWithoutAWeight) {
  EXPECT_EQ(parsePhaseSource("web")->name, "web");
  EXPECT_FALSE(parsePhaseSource("web")->weight);
  EXPECT_EQ(*parsePhaseSource("web=0.25")->weight, 0.25);
  for (const char *wrong : {"web=", "web=0", "web=-1", "web=x", "web=1 ", "web=inf", "web=nan"})
    EXPECT_FALSE(parsePhaseSource(wrong)) << wrong;
}
