#include "runtime/loop/CheckData.h"

#include <gmock/gmock.h>

namespace lmc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CheckData, FewFilesAreAllChosenAndOfManyAnEvenSpreadWithTheFirstAndTheLast) {
  EXPECT_THAT(spreadOver(0, 4), IsEmpty());
  EXPECT_THAT(spreadOver(1, 4), ElementsAre(0));
  EXPECT_THAT(spreadOver(4, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(spreadOver(5, 4), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(spreadOver(3001, 4), ElementsAre(0, 1000, 2000, 3000));
  const std::vector<size_t> many = spreadOver(100'000, kFilesAtStart);
  ASSERT_EQ(many.size(), kFilesAtStart);
  EXPECT_EQ(many.back(), 99'999u);
}

} // namespace
} // namespace lmc
