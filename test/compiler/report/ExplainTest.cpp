// The report of hand-made plans: what phases said of themselves, odd names, gaps.
#include "compiler/report/Explain.h"
#include "compiler/analysis/Fusion.h"
#include "compiler/report/BlockGraph.h"
#include "compiler/report/Units.h"

#include "test/ground/plan/PlanBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace lmc;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

namespace {

// A micro-step of one layer: norm -> gemm -> norm's gradient, which reads both.
class Job : public test::PlanBuilder {
public:
  Job() {
    weight = slice(plan::DType::F32, {8, 8});
    for (const char *name : {"x", "y", "z"}) {
      uint32_t index = slice(plan::DType::F32, {16, 8}, 1);
      plan::SliceT &made = *plan.slices[index];
      made.name = name;
      made.function = 0;
      made.first_command = 0;
      made.last_command = 2;
      made.category = plan::Category::Activations;
    }
    kernel("norm", {"lm.add", "lm.rms_norm"}, 1000, 600);
    kernel("norm_grad", {"lm.rms_norm_grad"}, 2000, 400);
    launch(0, {weight, 1}, 1, "layers.0/norm", false);
    plan::GemmT gemm;
    gemm.a = 1;
    gemm.b = weight;
    gemm.d = 2;
    gemm.m = 16;
    gemm.n = gemm.k = 8;
    command(gemm);
    plan.functions[0]->commands.back()->source = "layers.0/proj";
    plan.functions[0]->commands.back()->layer = 0;
    launch(1, {1, 2, 3}, 2, "layers.0/norm", true);
  }

  void kernel(const std::string &name, std::vector<std::string> ops, uint64_t read,
              uint64_t written) {
    auto kernel = std::make_unique<plan::KernelT>();
    kernel->name = kernel->entry = name;
    kernel->source_ops = std::move(ops);
    kernel->read_bytes = read;
    kernel->written_bytes = written;
    plan.kernels.push_back(std::move(kernel));
  }

  void launch(uint32_t kernel, std::vector<uint32_t> args, uint32_t inputs,
              const std::string &source, bool backward) {
    plan::LaunchT launch;
    launch.kernel = kernel;
    launch.args = std::move(args);
    launch.inputs = inputs;
    launch.items = launch.chunk = 16;
    command(launch);
    plan.functions[0]->commands.back()->source = source;
    plan.functions[0]->commands.back()->backward = backward;
    plan.functions[0]->commands.back()->layer = 0;
  }

  void report(const std::string &name, const json &content) {
    auto entry = std::make_unique<plan::ReportT>();
    entry->name = name;
    entry->json = content.dump();
    plan.reports.push_back(std::move(entry));
  }

  const plan::Plan &finish() {
    data = bytes();
    return *plan::GetPlan(data.data());
  }

  json explain() { return explainJson(finish(), *cost::loadDeviceSpec("h100-sxm")); }

  uint32_t weight;

private:
  std::string data;
};

} // namespace

TEST(Explain, WhatNoPhaseSaidIsStillThere) {
  json report = Job().explain();
  EXPECT_EQ(report["recompute"]["mode"], "none");
  EXPECT_TRUE(report["recompute"]["layers"].is_array());
  EXPECT_EQ(report["fusion"]["kernels_per_layer_forward"], 1);
  EXPECT_EQ(report["fusion"]["kernels_per_layer_backward"], 1);
  // 4000 bytes of kernels for 2 sequences of 8 tokens.
  EXPECT_EQ(report["fusion"]["bytes_per_token"], 4000.0 / 16);
  EXPECT_TRUE(report["fusion"]["floor_bytes_per_token"].is_null());
  EXPECT_EQ(report["comm"]["ranks"], 1);
  std::string text = explainText(report, {}, true);
  EXPECT_THAT(text, HasSubstr("the plan does not say which fusions were formed"));
  EXPECT_THAT(text, HasSubstr("communication: one rank, none"));
  EXPECT_THAT(text, HasSubstr("recompute: none\n"));
}

TEST(Explain, PhasesSpeakForThemselves) {
  Job job;
  job.report(
      "fusion",
      {{"formed",
        {{{"function", "layer"},
          {"hero", "row_reduction"},
          {"producer", "a"},
          {"consumer", "b"},
          {"bytes", 2048}}}},
       {"refused",
        {{{"function", "layer"},
          {"producer", "c"},
          {"consumer", "d"},
          {"bytes", 1024},
          {"reason", "would raise the peak from 7 to 9"}},
         {{"function", "layer"},
          {"producer", "e"},
          {"consumer", "f"},
          {"bytes", 2048},
          {"times", 3},
          {"reason", "would raise the peak from 7 to 10"}}}}});
  job.report("recompute",
             {{"mode", "auto"},
              {"flops_overhead", 0.125},
              {"layers", {1, 1, 0}},
              {"options",
               {{{"name", "none"},
                 {"kept_bytes", 4096},
                 {"transient_bytes", 0},
                 {"seconds", 0},
                 {"recomputed", json::array()}},
                {{"name", "mlp"}, {"kept_bytes", 1024}, {"recomputed", {"swiglu", "up_proj"}}}}},
              {"attempts", {{{"options", "block"}, {"peak_bytes", 1 << 20}, {"seconds", 0.5}}}}});
  job.report("compile", {{"seconds", 1.5}, {"phases", {{"model", 0.5}}}});
  json report = job.explain();
  EXPECT_EQ(report["compile"]["seconds"], 1.5);
  EXPECT_EQ(report["recompute"]["flops_overhead"], 0.125);
  std::string text = explainText(report, {}, true);
  EXPECT_THAT(text, HasSubstr("row_reduction    b <- a  saves 2.0 KiB  in layer"));
  EXPECT_THAT(text, HasSubstr("refused: 4, by reason:\n"
                              "       4 x would raise the peak from 7 to 10\n"
                              "           together 7.0 KiB; the largest is f <- e  2.0 KiB\n"));
  EXPECT_THAT(explainText(report, {.fusion = true}, true),
              HasSubstr("d <- c  would save 1.0 KiB: would raise the peak from 7 to 9\n"
                        "    f <- e  would save 2.0 KiB x 3: would raise the peak from 7 to 10\n"));
  EXPECT_THAT(text, HasSubstr("recompute: auto, 12.5% more matrix FLOPs"));
  EXPECT_THAT(text, HasSubstr("option by layer: 0-1: 1, 2: 0"));
  EXPECT_THAT(text, HasSubstr("swiglu, up_proj"));
  EXPECT_THAT(text, HasSubstr("tried block: peak 1.0 MiB, 500.00 ms"));
}

TEST(Explain, TheGraphFollowsBytes) {
  Job job;
  BlockGraph graph = blockGraph(job.finish());
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.nodes[0].lines[0], "norm");
  EXPECT_EQ(graph.nodes[0].lines[1], "lm.add, lm.rms_norm");
  EXPECT_EQ(graph.nodes[1].lines[1], "gemm 16 x 8 x 8");
  EXPECT_TRUE(graph.nodes[2].backward);
  ASSERT_EQ(graph.edges.size(), 3u);
  EXPECT_FALSE(graph.edges[0].kept); // norm -> gemm
  EXPECT_TRUE(graph.edges[1].kept);  // norm -> gradient
  EXPECT_TRUE(graph.edges[2].kept);  // gemm -> gradient
  EXPECT_LT(graph.nodes[0].y + graph.nodes[0].height, graph.nodes[1].y);
  EXPECT_GT(graph.nodes[2].x, graph.nodes[1].x + graph.nodes[1].width);
}

// Names may hold anything; none of it may become markup.
TEST(Explain, ThePageEscapesNames) {
  Job job;
  job.plan.kernels[0]->name = "<script>alert(\"1\")</script>&\x01";
  job.plan.functions[0]->commands[1]->source = "layers.0/<b>";
  json report = job.explain();
  std::string page = htmlReport(job.finish(), report, "a < b & c");
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<b>\"")));
  EXPECT_THAT(page, HasSubstr("<title>a &lt; b &amp; c</title>"));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp; "));
}

TEST(Units, AsPeopleReadThem) {
  EXPECT_EQ(readableBytes(0), "0 B");
  EXPECT_EQ(readableBytes(1536), "1.5 KiB");
  EXPECT_EQ(readableBytes(272.0 * 1048576), "272.0 MiB");
  EXPECT_EQ(readableBytes(25.74 * 1073741824), "25.74 GiB");
  EXPECT_EQ(readableSeconds(12.34e-6), "12.3 us");
  EXPECT_EQ(readableSeconds(4.561e-3), "4.56 ms");
  EXPECT_EQ(readableSeconds(61.5), "61.50 s");
  EXPECT_EQ(readableSeconds(1200), "20.0 min");
  EXPECT_EQ(readableSeconds(55925.78), "15.5 h");
  EXPECT_EQ(readableFlops(685.2e12), "685 TFLOP/s");
  EXPECT_EQ(readableFlops(13.54e9), "13.5 GFLOP/s");
  EXPECT_EQ(readableBandwidth(2.984e12), "2.98 TB/s");
  EXPECT_EQ(readableCount(999), "999");
  EXPECT_EQ(readableCount(1234567), "1,234,567");
}
