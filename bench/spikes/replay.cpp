// lmc-bench-guard METRICS: shows the steps of a run's metrics.jsonl to the guard of spikes again,
// as they were, and with a spike planted in five steps of every 500 from step 1,000 on. Prints a
// JSON object: the steps, the spikes that the guard finds in the run itself, and for each kind of
// planted spike how many there are, how many are found in their first two steps, and how many
// others it finds.
#include "runtime/monitor/Guard.h"

#include <nlohmann/json.hpp>

#include <fstream>
#include <iostream>

using namespace lmc;

namespace {

constexpr int64_t kFirst = 1000, kEvery = 500, kLength = 5;

struct Counts {
  int64_t planted = 0, found = 0, others = 0;
};

Counts replay(const std::vector<StepRecord> &steps, double loss, double norm) {
  Guard guard(GuardConfig(), /*vocabSize=*/257, /*highestRate=*/3e-3);
  Counts counts;
  for (StepRecord step : steps) {
    const int64_t within = step.step % kEvery;
    const bool isPlanted = (loss > 0 || norm > 1) && step.step >= kFirst && within < kLength &&
                           step.step - within + kLength <= int64_t(steps.size());
    if (isPlanted) {
      step.loss += loss;
      step.gradNorm *= norm;
      counts.planted += within == 0;
    }
    if (guard.observe(step).spike)
      ++(isPlanted && within <= 1 ? counts.found : counts.others);
  }
  return counts;
}

} // namespace

int main(int count, char **words) {
  std::ifstream file(count == 2 ? words[1] : "");
  if (!file) {
    std::cerr << "lmc-bench-guard: error: give the metrics.jsonl of a run\n";
    return 2;
  }
  std::vector<StepRecord> steps;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    StepRecord &step = steps.emplace_back();
    step.step = json["step"];
    step.loss = json["loss"];
    step.gradNorm = json["grad_norm"];
    step.lr = json["lr"];
  }
  nlohmann::ordered_json report = {{"steps", steps.size()},
                                   {"false_alarms", replay(steps, 0, 1).others}};
  for (const auto &[loss, norm] : {std::pair(2.0, 1.0), {0.0, 8.0}, {1.0, 4.5}}) {
    const Counts counts = replay(steps, loss, norm);
    report["planted"].push_back({{"loss", loss},
                                 {"norm", norm},
                                 {"planted", counts.planted},
                                 {"found", counts.found},
                                 {"false_alarms", counts.others}});
  }
  std::cout << report.dump(1) << "\n";
}
