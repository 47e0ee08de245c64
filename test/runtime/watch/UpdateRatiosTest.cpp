#include "runtime/watch/UpdateRatios.h"

#include "runtime/comm/LocalWorld.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <thread>

namespace lmc {
namespace {

using plan::VariableKind;

// What one rank's snapshot has of some tensors.
class Parts {
public:
  // Adds the part of a tensor of T that `written` describes in elements. `values` are those of the
  // whole tensor, and what lies between its rows is not a number.
  template <typename T>
  void add(VariableKind kind, const std::string &name, std::vector<uint64_t> shape,
           plan::DType dtype, const std::vector<T> &values, const HeldPart &written,
           bool decays = true) {
    SnapshotPart part;
    part.tensor.view = {name, dtype, std::move(shape), nullptr, values.size() * sizeof(T)};
    part.tensor.decays = decays;
    part.tensor.written = written.inBytes(sizeof(T));
    std::vector<char> bytes(written.withPadding().count * sizeof(T), char(0xff));
    for (const HeldPart &run : written.runs())
      std::memcpy(bytes.data() + (run.at - written.at) * sizeof(T), values.data() + run.first,
                  run.count * sizeof(T));
    memory.push_back(std::make_unique<std::vector<char>>(std::move(bytes)));
    part.data = memory.back()->data();
    parts[kind].push_back(std::move(part));
  }

  std::map<VariableKind, std::vector<SnapshotPart>> parts;

private:
  std::vector<std::unique_ptr<std::vector<char>>> memory;
};

const AdamWStep kStep{.number = 3,
                      .lr = 0.01,
                      .correction1 = 0.271,
                      .correction2 = 0.14,
                      .eps = 1e-8,
                      .weightDecay = 0.1,
                      .groups = {{"slow", {.weightDecay = 0.7, .lrMult = 0.25}}}};

// Returns what all ranks get, which must be the same.
Result<StepUpdates> updates(const std::vector<Parts> &ranks) {
  const auto worlds = makeLocalWorlds(static_cast<int>(ranks.size()));
  std::vector<Result<StepUpdates>> results(ranks.size(), Error{"none"});
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      auto of = [&](VariableKind kind) {
        const auto found = ranks[rank].parts.find(kind);
        return found == ranks[rank].parts.end() ? std::vector<SnapshotPart>() : found->second;
      };
      results[rank] = updatesOf(of, kStep, worlds[rank]->background(), [] {});
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const auto &result : results) {
    EXPECT_EQ(bool(result), bool(results[0]));
    for (size_t i = 0; result && results[0] && i < result->tensors.size(); ++i) {
      EXPECT_EQ(result->tensors[i].ratio, results[0]->tensors[i].ratio);
      EXPECT_EQ(result->tensors[i].weightRms, results[0]->tensors[i].weightRms);
    }
  }
  return results[0];
}

template <typename T> struct Tensor {
  std::vector<T> weights, moment1, moment2;
  Tensor(size_t count, uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<T> normal;
    for (size_t i = 0; i < count; ++i) {
      weights.push_back(normal(generator));
      moment1.push_back(normal(generator));
      moment2.push_back(std::pow(normal(generator), T(2)));
    }
  }
  void addTo(Parts &parts, const std::string &name, const std::vector<uint64_t> &shape,
             const HeldPart &written, bool decays = true) const {
    const plan::DType dtype = sizeof(T) == 8 ? plan::DType::F64 : plan::DType::F32;
    parts.add(VariableKind::Parameter, name, shape, dtype, weights, written, decays);
    parts.add(VariableKind::Moment1, name, shape, dtype, moment1, written);
    parts.add(VariableKind::Moment2, name, shape, dtype, moment2, written);
  }
};

// Returns the update ratio of a tensor, element by element.
template <typename T> double ratioOf(const Tensor<T> &tensor, bool decays = true) {
  double update = 0, before = 0;
  for (size_t i = 0; i < tensor.weights.size(); ++i) {
    const double change = kStep.lr / kStep.correction1 * double(tensor.moment1[i]) /
                          (std::sqrt(double(tensor.moment2[i]) / kStep.correction2) + kStep.eps);
    const double old =
        (double(tensor.weights[i]) + change) / (decays ? 1 - kStep.lr * kStep.weightDecay : 1);
    update += std::pow(old - double(tensor.weights[i]), 2);
    before += old * old;
  }
  return std::sqrt(update / before);
}

TEST(UpdateRatios, AreThoseOfWholeTensorsHoweverRanksDivideThem) {
  const Tensor<double> matrix(35, 1);
  const Tensor<float> vector(9, 2);
  // A matrix whose rows are 12 elements apart, which begins at element 4 of a vector.
  const HeldPart whole{0, 35, 4, 7, 12};
  for (const std::vector<uint64_t> &cuts :
       {std::vector<uint64_t>{0, 35}, {0, 10, 35}, {0, 3, 3, 21, 34, 35}}) {
    std::vector<Parts> ranks(cuts.size() - 1);
    for (size_t rank = 0; rank + 1 < cuts.size(); ++rank) {
      matrix.addTo(ranks[rank], "matrix", {5, 7},
                   whole.part(cuts[rank], cuts[rank + 1] - cuts[rank]));
      // Only the last rank has elements of the vector.
      const bool isLast = rank + 2 == cuts.size();
      vector.addTo(ranks[rank], "vector", {9}, {0, isLast ? 9U : 0U, 0}, /*decays=*/false);
    }
    const auto found = updates(ranks);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->tensors.size(), 2U);
    EXPECT_EQ(found->step, 3);
    EXPECT_EQ(found->lr, 0.01);
    EXPECT_EQ(found->tensors[0].name, "matrix");
    EXPECT_TRUE(found->tensors[0].isMatrix);
    EXPECT_FALSE(found->tensors[1].isMatrix);
    EXPECT_NEAR(*found->tensors[0].ratio, ratioOf(matrix), 1e-13);
    EXPECT_NEAR(*found->tensors[1].ratio, ratioOf(vector, false), 1e-13);
    double square = 0;
    for (double weight : matrix.weights)
      square += weight * weight;
    EXPECT_NEAR(found->tensors[0].weightRms, std::sqrt(square / 35), 1e-13);
    EXPECT_TRUE(found->tensors[0].hasGradient && found->tensors[0].isFinite);
  }
}

TEST(UpdateRatios, OfAParameterGroupAreByItsDecayAndRate) {
  // Without a gradient, the decay alone moves the weights.
  Tensor<float> tensor(64, 9);
  for (size_t i = 0; i < 64; ++i)
    tensor.moment1[i] = tensor.moment2[i] = 0;
  for (const auto &[group, expected] :
       {std::pair<std::string, double>{"", kStep.lr * kStep.weightDecay},
        {"slow", kStep.lr * 0.25 * 0.7}}) {
    std::vector<Parts> ranks(1);
    tensor.addTo(ranks[0], "w", {8, 8}, {0, 64, 0});
    ranks[0].parts[VariableKind::Parameter][0].tensor.group = group;
    const auto found = updates(ranks);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_NEAR(*found->tensors[0].ratio, expected, 1e-12) << group;
  }
}

TEST(UpdateRatios, OfMomentsIn8BitsNeedTheScalesOfTheSameElements) {
  // Three blocks, whose moments are all at the scale of their block.
  Tensor<float> tensor(3 * 256, 3);
  std::vector<int8_t> codes1(tensor.weights.size(), -127), codes2(tensor.weights.size(), -1);
  const std::vector<float> scales1{1, 0.5, 2}, scales2{1, 4, 3};
  for (size_t i = 0; i < tensor.weights.size(); ++i) {
    tensor.moment1[i] = -scales1[i / 256];
    tensor.moment2[i] = scales2[i / 256];
  }
  auto partsOf = [&](uint64_t first, uint64_t count, uint64_t scaleCount) {
    Parts parts;
    const HeldPart elements{first * 256, count * 256, 0}, scales{first, scaleCount, 0};
    parts.add(VariableKind::Parameter, "m", {6, 128}, plan::DType::F32, tensor.weights, elements);
    parts.add(VariableKind::Moment1, "m", {6, 128}, plan::DType::I8, codes1, elements);
    parts.add(VariableKind::Moment2, "m", {6, 128}, plan::DType::I8, codes2, elements);
    parts.add(VariableKind::Moment1Scale, "m", {3}, plan::DType::F32, scales1, scales);
    parts.add(VariableKind::Moment2Scale, "m", {3}, plan::DType::F32, scales2, scales);
    return parts;
  };
  std::vector<Parts> ranks;
  ranks.push_back(partsOf(0, 1, 1));
  ranks.push_back(partsOf(1, 2, 2));
  const auto found = updates(ranks);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_NEAR(*found->tensors[0].ratio, ratioOf(tensor), 1e-9);
  ranks[1] = partsOf(1, 2, 1);
  EXPECT_FALSE(updates(ranks)) << "the second rank lacks a scale";
}

TEST(UpdateRatios, AreAbsentWhereTheWeightsBeforeAreNotKnown) {
  Parts parts;
  Tensor<float> fresh(64, 4), silent(64, 5), broken(64, 6), frozen(64, 7);
  for (size_t i = 0; i < 64; ++i) { // as a step from zero leaves them
    fresh.weights[i] =
        static_cast<float>(-kStep.lr / kStep.correction1 * double(fresh.moment1[i]) /
                           (std::sqrt(double(fresh.moment2[i]) / kStep.correction2) + kStep.eps));
    silent.moment1[i] = silent.moment2[i] = 0;
  }
  broken.moment1[40] = INFINITY;
  const HeldPart all{0, 64, 0};
  fresh.addTo(parts, "fresh", {8, 8}, all);
  silent.addTo(parts, "silent", {8, 8}, all);
  broken.addTo(parts, "broken", {8, 8}, all);
  parts.add(VariableKind::Parameter, "frozen", {8, 8}, plan::DType::F32, frozen.weights, all);
  std::vector<Parts> ranks;
  ranks.push_back(std::move(parts));
  const auto found = updates(ranks);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->tensors.size(), 3U) << "what has no moments is not trained";
  EXPECT_FALSE(found->tensors[0].ratio);
  EXPECT_TRUE(found->tensors[0].hasGradient && found->tensors[0].isFinite);
  EXPECT_NEAR(*found->tensors[1].ratio, kStep.lr * kStep.weightDecay, 1e-12);
  EXPECT_FALSE(found->tensors[1].hasGradient);
  EXPECT_FALSE(found->tensors[2].ratio);
  EXPECT_FALSE(found->tensors[2].isFinite);
}

} // namespace
} // namespace lmc
