#include "compiler/emit/Variables.h"

#include "llvm/ADT/StringExtras.h"

#include <gtest/gtest.h>

using namespace lmc;
using llvm::StringRef;

// Holds the names of the values of a dialect's enum, from 0 to `last`, against those that the plan
// file has from `first` on.
template <typename Of, typename Plans>
static void expectSame(StringRef (*text)(Of), unsigned last, const char *(*name)(Plans),
                       unsigned first = 0) {
  EXPECT_EQ(unsigned(Plans::MAX), first + last);
  for (unsigned value = 0; value <= last; ++value)
    EXPECT_EQ(llvm::convertToSnakeFromCamelCase(name(Plans(first + value))), text(Of(value)));
}

TEST(Variables, ThePlanFileNumbersEnumsAsTheDialectsDo) {
  expectSame(lm::stringifyVariableKind, lm::getMaxEnumValForVariableKind(),
             plan::EnumNameVariableKind);
  expectSame(lm::stringifyInitKind, lm::getMaxEnumValForInitKind(), plan::EnumNameInitializerKind);
  expectSame(lm::stringifyStepValue, lm::getMaxEnumValForStepValue(), plan::EnumNameStepValue, 1);
  expectSame(plan_ir::stringifyAxis, plan_ir::getMaxEnumValForAxis(), plan::EnumNameAxis);
  expectSame(plan_ir::stringifyCategory, plan_ir::getMaxEnumValForCategory(),
             plan::EnumNameCategory, unsigned(plan::Category::Activations));
}
