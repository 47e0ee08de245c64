// Adds collectives to a plan of one rank, for `./dev gpu pack`:
//
//   lone-collectives PLAN RESULT
//
// Every product of matrices is followed by a sum over the one rank, in place, by turns on stream 0 and
// on stream 1 with its wait. The plan computes what it computed before, and a GPU needs NCCL for it.
#include "ground/plan/PlanTrailer.h"

#include "plan_generated.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

using namespace lmc;

static void addCollectives(plan::FunctionT &function, const plan::PlanT &plan) {
  std::vector<std::unique_ptr<plan::CommandT>> all;
  auto add = [&](auto body, uint16_t stream, const std::string &source) {
    auto command = std::make_unique<plan::CommandT>();
    command->body.Set(std::move(body));
    command->stream = stream;
    command->source = source;
    all.push_back(std::move(command));
  };
  uint32_t sums = 0;
  for (std::unique_ptr<plan::CommandT> &command : function.commands) {
    const plan::GemmT *gemm = command->body.AsGemm();
    const bool isDense = gemm && plan.slices[gemm->d]->pitch == 0;
    plan::CollectiveT sum;
    sum.kind = plan::CollectiveKind::AllReduce;
    sum.axis = ++sums % 3 == 0 ? plan::Axis::Replicate : plan::Axis::Shard;
    sum.x = sum.d = gemm ? gemm->d : 0;
    const std::string source = command->source + "/sum";
    all.push_back(std::move(command));
    if (!isDense)
      continue;
    add(std::move(sum), sums % 2, source);
    if (sums % 2 == 1) {
      plan::WaitT wait;
      wait.command = static_cast<uint32_t>(all.size()) - 1;
      add(std::move(wait), 0, source);
    }
  }
  function.commands = std::move(all);
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  std::ifstream file(argv[1], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (checkPlanTrailer(bytes.data(), bytes.size()) != PlanTrailer::Good) {
    fmt::print(stderr, "lone-collectives: error: {} is no plan\n", argv[1]);
    return 2;
  }
  const std::unique_ptr<plan::PlanT> plan(plan::GetPlan(bytes.data())->UnPack());
  for (const std::unique_ptr<plan::FunctionT> &function : plan->functions)
    addCollectives(*function, *plan);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(plan::Plan::Pack(builder, plan.get()), plan::PlanIdentifier());
  std::string result(reinterpret_cast<const char *>(builder.GetBufferPointer()), builder.GetSize());
  appendPlanTrailer(result);
  std::ofstream(argv[2], std::ios::binary) << result;
  return 0;
}
