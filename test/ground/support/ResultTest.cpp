// LMC_TRY looks at a Result where it lies: it neither copies it nor evaluates it twice.
#include "ground/support/Result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

using namespace lmc;

namespace {

// Counts how often it is copied.
struct Copied {
  int *copies;
  explicit Copied(int *copies) : copies(copies) {}
  Copied(const Copied &other) : copies(other.copies) { ++*copies; }
  Copied(Copied &&) = default;
};

Result<int> lookAt(const Result<Copied> &value) {
  LMC_TRY(value);
  return 7;
}

Result<int> lookAt(const Result<std::unique_ptr<int>> &value) {
  LMC_TRY(value);
  return **value;
}

Result<std::string> evaluate(int &times, const Result<void> &outcome) {
  LMC_TRY((++times, outcome));
  return std::string("sound");
}

} // namespace

TEST(Result, IsNotCopiedToBeLookedAt) {
  int copies = 0;
  const Result<Copied> value{Copied(&copies)};
  const Result<int> seen = lookAt(value);
  ASSERT_TRUE(seen);
  EXPECT_EQ(*seen, 7);
  EXPECT_EQ(copies, 0);
}

// A value that can only be moved can be looked at, too.
TEST(Result, MayHoldAValueThatOnlyMoves) {
  const Result<int> seen = lookAt(Result<std::unique_ptr<int>>(std::make_unique<int>(3)));
  ASSERT_TRUE(seen);
  EXPECT_EQ(*seen, 3);
}

TEST(Result, ReturnsTheErrorOfAnExpressionEvaluatedOnce) {
  int times = 0;
  const Result<std::string> failed = evaluate(times, Error{"the disk is full", ExitCode::Failure});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "the disk is full");
  EXPECT_EQ(failed.error().code, ExitCode::Failure);
  EXPECT_EQ(times, 1);
  const Result<std::string> sound = evaluate(times, {});
  ASSERT_TRUE(sound);
  EXPECT_EQ(*sound, "sound");
  EXPECT_EQ(times, 2);
}
