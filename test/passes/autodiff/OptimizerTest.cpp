// What the configuration calls optimizers and settings is what the ops of optimizers are called.
#include "compiler/driver/Registration.h"
#include "dialects/lm/Lm.h"
#include "ground/config/Keys.h"
#include "models/families/Families.h"

#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

using namespace mlir;
using namespace lmc;
using namespace lmc::config;
using lm::OptimizerOpInterface;
using lm::VariableKind;

namespace {

class Optimizers : public testing::Test {
protected:
  Optimizers() : context(MLIRContext::Threading::DISABLED) {
    context.loadDialect<lm::LmDialect>();
  }

  MLIRContext context;
  const KeyTable keys{modelFamilies()};
};

TEST_F(Optimizers, AreTheChoicesOfTheConfiguration) {
  std::set<std::string> ops, choices;
  for (RegisteredOperationName name : context.getRegisteredOperationsByDialect("lm"))
    if (name.hasInterface<OptimizerOpInterface>())
      ops.insert(name.stripDialect().str());
  EXPECT_EQ(ops.erase("balance_bias"), 1u); // of the bias of a router, whatever the choice is
  for (const Choice &choice : keys.find("optimizer", "type")->choices)
    choices.insert(choice.name);
  EXPECT_EQ(ops, choices);
}

TEST_F(Optimizers, ReadNumbersOfTheConfigurationOrValuesOfTheStep) {
  for (const Choice &choice : keys.find("optimizer", "type")->choices) {
    const auto *optimizer = OptimizerOpInterface::lookup(&context, choice.name);
    ASSERT_TRUE(optimizer) << choice.name;
    for (const lm::OptimizerScalar &scalar : optimizer->getScalars()) {
      auto [section, name] = StringRef(scalar.setting).split('.');
      EXPECT_NE(scalar.setting.empty(), !scalar.stepValue) << scalar.name.str();
      if (scalar.setting.empty())
        continue;
      const Key *key = keys.find(section.str(), name.str());
      ASSERT_TRUE(key) << scalar.setting.str();
      Config config;
      EXPECT_TRUE(std::holds_alternative<double *>(key->field(config))) << scalar.setting.str();
      EXPECT_TRUE(key->runTime) << scalar.setting.str();
    }
  }
}

TEST_F(Optimizers, FallBackToOneThatTakesEverything) {
  const lm::SteppedParameter parameter{RankedTensorType::get({3}, Float32Type::get(&context)), {3}};
  for (const Choice &choice : keys.find("optimizer", "type")->choices) {
    const auto *optimizer = OptimizerOpInterface::lookup(&context, choice.name);
    if (optimizer->takes(parameter))
      continue;
    const auto *fallback = OptimizerOpInterface::lookup(&context, optimizer->getFallback());
    ASSERT_TRUE(fallback) << choice.name;
    EXPECT_TRUE(fallback->takes(parameter)) << choice.name;
    EXPECT_FALSE(optimizer->getRequirement().empty()) << choice.name;
  }
}

TEST_F(Optimizers, StateIsFoundByParameterAndKind) {
  OpBuilder b(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(b, b.getUnknownLoc());
  b.setInsertionPointToEnd(module->getBody());
  auto type = RankedTensorType::get({3}, b.getF32Type());
  auto declare = [&](StringRef name, VariableKind kind, StringRef parameter) {
    return lm::VariableOp::create(b, b.getUnknownLoc(), name, kind, type,
                                  lm::InitAttr::get(&context, lm::InitKind::Zeros), false,
                                  parameter.empty() ? StringAttr() : b.getStringAttr(parameter));
  };
  auto weight = declare("w", VariableKind::Parameter, "");
  auto moment = declare("any name", VariableKind::Moment1, "w");
  declare("w.moment2", VariableKind::Moment2, "");
  lm::ParameterState state(*module);
  EXPECT_EQ(state.find("w", VariableKind::Parameter), weight);
  EXPECT_EQ(state.find("w", VariableKind::Moment1), moment);
  EXPECT_FALSE(state.find("w", VariableKind::Moment2));
  EXPECT_FALSE(state.find("v", VariableKind::Parameter));
  EXPECT_EQ(lm::stateName("w", VariableKind::Moment1Scale), "w.moment1_scale");
}

} // namespace
