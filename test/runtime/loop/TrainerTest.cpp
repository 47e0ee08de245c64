#include "ground/support/Signals.h"
#include "runtime/checkpoint/SafeTensors.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/folder/RunDirectory.h"
#include "test/runtime/loop/TinyPlan.h"
#include "tools/lmc-run/Run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <sys/file.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace lmc {
namespace {

using test::TestFolder;
using test::TinyPlan;

class Trainer : public ::testing::Test {
protected:
  TestFolder folder;
  FILE *log = nullptr;

  void SetUp() override {
    TinyPlan().write(folder);
    log = std::fopen((folder / "log").c_str(), "w+");
  }
  void TearDown() override { std::fclose(log); }

  ProgramOptions options(const std::string &out, int64_t steps) {
    ProgramOptions o;
    o.plan = folder / "tiny.plan";
    o.out = folder / out;
    o.steps = steps;
    o.threads = 2;
    o.output = o.errors = log;
    return o;
  }

  std::string logText() {
    std::fflush(log);
    return test::read(folder / "log");
  }

  std::vector<nlohmann::json> metrics(const std::string &out) {
    std::vector<nlohmann::json> lines;
    std::istringstream text(test::read(folder / (out + "/metrics.jsonl")));
    for (std::string line; std::getline(text, line);)
      lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  // The part of the metrics that must agree bit for bit between equal runs.
  std::vector<std::string> numbers(const std::string &out) {
    std::vector<std::string> lines;
    for (const auto &line : metrics(out))
      lines.push_back(
          nlohmann::json::array({line["step"], line["loss"], line["lr"], line["grad_norm"],
                                 line["update_ratio"], line["tokens"]})
              .dump());
    return lines;
  }

  // Bytes of the newest checkpoint's tensors.
  std::string state(const std::string &out) {
    std::vector<DamagedCheckpoint> damaged;
    auto latest = findLatestCheckpoint(folder / out, damaged);
    EXPECT_TRUE(latest && *latest) << "no checkpoint";
    std::string bytes;
    for (const char *file : {"model", "moment1", "moment2"})
      bytes += test::read(**latest + "/" + file + ".safetensors");
    return bytes;
  }

  void expectRuns(const ProgramOptions &o, ExitCode code = ExitCode::Success) {
    auto result = run(o);
    ASSERT_TRUE(bool(result)) << result.error().message;
    EXPECT_EQ(*result, code);
  }

  void expectFails(const ProgramOptions &o, ExitCode code, const std::string &text) {
    auto result = run(o);
    ASSERT_FALSE(bool(result));
    EXPECT_EQ(result.error().code, code);
    EXPECT_NE(result.error().message.find(text), std::string::npos) << result.error().message;
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  }
};

// MFU of a run and of `lmc explain` are of one peak where the machine is that of the spec.
TEST_F(Trainer, CountsFromThePeakOfThePlanUnlessTheCpuIsAnother) {
  const auto peakOf = [&](const char *out, double flops) {
    TinyPlan tiny;
    tiny.plan.device_spec = "mine";
    tiny.plan.peak_flops = flops;
    tiny.write(folder);
    expectRuns(options(out, 1));
    const std::string text = logText();
    const size_t at = text.rfind("MFU counts from a peak of ");
    return at == std::string::npos ? std::string() : text.substr(at, text.find('\n', at) - at);
  };
  const std::string own = peakOf("own", 0);
  if (own.empty())
    GTEST_SKIP() << "the clock of this processor is not known";
  const double flops = 1e12 * std::stod(own.substr(std::strlen("MFU counts from a peak of ")));
  EXPECT_EQ(peakOf("same", 1.1 * flops)
                .find(fmt::format(
                    "MFU counts from a peak of {:.3f} TFLOP/s (device spec 'mine' of the plan; ",
                    1.1 * flops / 1e12)),
            0u);
  const std::string other = peakOf("other", 2 * flops);
  EXPECT_EQ(other.find(own.substr(0, own.rfind(')'))), 0u) << other;
  EXPECT_NE(other.find(fmt::format("; the plan's device spec 'mine' is of another machine, with "
                                   "{:.3f}: lmc-calibrate measures this one",
                                   2 * flops / 1e12)),
            std::string::npos)
      << other;
}

// What was saved since the weights were compared may be damaged, also after a restart.
TEST_F(Trainer, KeepsTheCheckpointOfTheLatestComparisonOverAStart) {
  for (const int64_t steps : {12, 15}) {
    ProgramOptions o = options("a", steps);
    o.overrides = {"guard.compare_weights=10", "checkpoint.interval=1", "checkpoint.keep=1"};
    expectRuns(o);
    EXPECT_TRUE(std::filesystem::exists(folder / "a/checkpoints/10")) << steps;
    EXPECT_FALSE(std::filesystem::exists(folder / "a/checkpoints/11")) << steps;
  }
}

TEST_F(Trainer, LearnsAndReportsEveryStep) {
  ProgramOptions o = options("a", 200);
  o.overrides = {"monitoring.validation_interval=50", "target.peak_tflops=0.001"};
  expectRuns(o);
  auto lines = metrics("a");
  ASSERT_EQ(lines.size(), 200u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto &line = lines[i];
    EXPECT_EQ(line["step"], i + 1);
    EXPECT_EQ(line["tokens"], (i + 1) * TinyPlan::kGbs * TinyPlan::kSeq);
    EXPECT_EQ(line.contains("validation_loss"), (i + 1) % 50 == 0);
    EXPECT_GT(line["update_ratio"], 0.0);
    double rate = line["tokens_per_second"], seconds = line["step_seconds"];
    EXPECT_NEAR(rate * seconds, TinyPlan::kGbs * TinyPlan::kSeq, 1e-6);
    EXPECT_NEAR(double(line["mfu_causal"]), rate * 6 * TinyPlan::kVocab / 1e9, 1e-12);
    EXPECT_NEAR(double(line["mfu_full"]), rate * 12 * TinyPlan::kVocab / 1e9, 1e-12);
  }
  // The chain's next token is known three times out of four: its entropy is
  // -(3/4 + 1/96) ln(3/4 + 1/96) - 23/96 ln(1/96) = 1.30 nats, against ln 24 = 3.18.
  EXPECT_GT(double(lines.front()["loss"]), 3.0);
  EXPECT_LT(double(lines.back()["validation_loss"]), 2.0);
  EXPECT_NE(logText().find("0.001 TFLOP/s (target.peak_tflops)"), std::string::npos);
}

TEST_F(Trainer, RefusesABatchWithAPartThatItDoesNotKnow) {
  TinyPlan tiny;
  for (auto &variable : tiny.plan.variables)
    if (variable->name == "debug.logits")
      variable->name = "batch.images";
  tiny.write(folder);
  expectFails(options("a", 1), ExitCode::UserError,
              "the plan reads 'batch.images', which this lmc-run does not know");
}

TEST_F(Trainer, NPlusNStepsAre2NBitForBit) {
  expectRuns(options("whole", 12));
  expectRuns(options("parts", 5));
  expectRuns(options("parts", 12));
  EXPECT_EQ(numbers("parts"), numbers("whole"));
  EXPECT_EQ(state("parts"), state("whole"));
  EXPECT_NE(logText().find("resumed at step 5"), std::string::npos);
}

TEST_F(Trainer, ResumesFromTheLastCheckpointAndDropsLaterMetrics) {
  ProgramOptions o = options("whole", 12);
  o.overrides = {"checkpoint.interval=4"};
  expectRuns(o);
  // As if the run had been killed after step 10: the checkpoint of step 8 is the last.
  ASSERT_EQ(
      std::system(("cp -r '" + (folder / "whole") + "' '" + (folder / "killed") + "'").c_str()), 0);
  std::filesystem::remove_all(folder / "killed/checkpoints/12");
  ASSERT_FALSE(numbers("killed").empty());
  o.out = folder / "killed";
  expectRuns(o);
  EXPECT_EQ(numbers("killed"), numbers("whole"));
  EXPECT_EQ(state("killed"), state("whole"));
}

TEST_F(Trainer, ResumesFromAGivenCheckpointInAnotherFolder) {
  expectRuns(options("whole", 12));
  expectRuns(options("first", 5));
  ProgramOptions o = options("second", 12);
  for (std::string from : {folder / "first/checkpoints/5", folder / "first"}) {
    std::filesystem::remove_all(o.out);
    o.resume = from;
    expectRuns(o);
    EXPECT_EQ(state("second"), state("whole"));
    EXPECT_EQ(metrics("second").size(), 7u);
  }
  o.resume = folder / "nowhere";
  expectFails(o, ExitCode::UserError, "no checkpoint there");
}

TEST_F(Trainer, StartingBeforeAnExistingCheckpointIsRefused) {
  expectRuns(options("a", 5));
  std::string before = state("a");
  ProgramOptions o = options("a", 12);
  o.resume = "none";
  expectFails(o, ExitCode::UserError, "holds a checkpoint of step 5");
  EXPECT_EQ(state("a"), before);
  EXPECT_EQ(metrics("a").size(), 5u);
}

TEST_F(Trainer, AFinishedRunHasNothingToDo) {
  expectRuns(options("a", 5));
  std::string before = state("a");
  expectRuns(options("a", 5));
  EXPECT_EQ(metrics("a").size(), 5u);
  EXPECT_EQ(state("a"), before);
  EXPECT_NE(logText().find("nothing to train: step 5 of 5 is done"), std::string::npos);
}

TEST_F(Trainer, TwoRunsAgreeBitForBitAndSeedsDiffer) {
  expectRuns(options("a", 6));
  expectRuns(options("b", 6));
  EXPECT_EQ(numbers("a"), numbers("b"));
  EXPECT_EQ(state("a"), state("b"));
  ProgramOptions o = options("c", 6);
  o.overrides = {"training.seed=4321"};
  expectRuns(o);
  EXPECT_NE(numbers("a"), numbers("c"));
}

TEST_F(Trainer, ACheckpointOfAnotherModelIsRefusedNamingBoth) {
  expectRuns(options("a", 3));
  std::string before = state("a");
  ProgramOptions o = options("a", 6);
  auto refused = [&](const std::string &key, const std::string &value, const std::string &message) {
    TinyPlan other;
    other.plan.fingerprint = "other-fingerprint";
    if (!key.empty())
      other.setting(key).value = value;
    other.write(folder);
    expectFails(o, ExitCode::UserError, "/a/checkpoints/3: checkpoint of another model than ");
    expectFails(o, ExitCode::UserError, message);
    EXPECT_EQ(state("a"), before);
  };
  refused("model.hidden_size", "48", "model.hidden_size is 24 there and 48 here");
  refused("optimizer.type", "adamw8bit", "optimizer.type is adamw there and adamw8bit here");
  refused("", "", "its parameters or moments differ");
  // A declaration cannot help: the state does not fit.
  o.changes = {"model.hidden_size"};
  refused("model.hidden_size", "48", "model.hidden_size is 24 there and 48 here");
}

TEST_F(Trainer, ASecondRunInTheSameFolderIsRefused) {
  {
    auto held = RunDirectory::open(folder / "a");
    ASSERT_OK(held);
    expectFails(options("a", 3), ExitCode::UserError,
                "another run (process " + std::to_string(::getpid()) + " on ");
  }
  expectRuns(options("a", 3));
}

TEST_F(Trainer, AFolderThatIsOnlyLookedAtCanBeLocked) {
  ASSERT_OK(RunDirectory::open(folder / "a"));
  ASSERT_OK(RunDirectory::checkFree(folder / "a"));
  // The lock of a look that takes long.
  const int look = ::open((folder / "a/run.lock").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(look, LOCK_SH | LOCK_NB), 0);
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ::close(look);
  });
  auto opened = RunDirectory::open(folder / "a");
  end.join();
  ASSERT_OK(opened);
  EXPECT_ERROR(RunDirectory::checkFree(folder / "a"), "another run (process ");
}

// Starts a long run on a thread and sends a signal once it has done some steps. SignalsTest.cpp
// starts the thread that takes it.
TEST_F(Trainer, SignalsSaveAndLeaveWithTheirOwnExitCode) {
  for (int signal : kStopSignals) {
    std::string out = "signal" + std::to_string(signal);
    ProgramOptions o = options(out, 1000000000);
    o.overrides = {"training.train_iters=1000000000"};
    Result<ExitCode> outcome = ExitCode::Success;
    std::thread runner([&] { outcome = run(o); });
    // A missing file has the largest size there is, so that + 1 makes it 0.
    std::error_code missing;
    auto size = [&] {
      return std::filesystem::file_size(folder / (out + "/metrics.jsonl"), missing) + 1;
    };
    auto giveUp = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (size() < 1000 && std::chrono::steady_clock::now() < giveUp)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (size() < 1000) { // no StopSignals may exist yet: a signal would end the tests
      runner.detach();
      FAIL() << "the run did not start";
    }
    ::kill(::getpid(), signal);
    runner.join();
    ASSERT_OK(outcome);
    EXPECT_EQ(*outcome, ExitCode::Interrupted);
    uint64_t done = metrics(out).size();
    std::vector<DamagedCheckpoint> damaged;
    auto latest = findLatestCheckpoint(folder / out, damaged);
    ASSERT_TRUE(latest && *latest);
    auto saved = readCheckpointState(**latest, true);
    ASSERT_OK(saved);
    EXPECT_EQ(saved->step, done);
    // And going on is as if nothing had happened.
    auto steps = static_cast<int64_t>(done + 3);
    expectRuns(options(out, steps));
    expectRuns(options(out + "-whole", steps));
    EXPECT_EQ(state(out), state(out + "-whole"));
  }
}

TEST_F(Trainer, WarnsOfAValidationFileThatIsTrainedOn) {
  std::filesystem::copy_file(folder / "train.bin", folder / "copy.bin");
  for (const std::string name : {"./train.bin", "copy.bin", "validation.bin"}) {
    ProgramOptions o = options("with-" + name.substr(name.find_first_not_of("./")), 1);
    o.overrides = {"data.validation=[\"" + name + "\"]"};
    expectRuns(o);
    EXPECT_EQ(logText().find("data.validation has " + (folder / name) +
                             ", and data.train has the same tokens in " + (folder / "train.bin")) !=
                  std::string::npos,
              name != "validation.bin")
        << logText();
  }
}

TEST_F(Trainer, RefusesFewerSequencesThanAStepReads) {
  TinyPlan::writeTokens(folder / "train.bin", 25, 1); // 3 sequences of 8 tokens
  const std::string arithmetic = "data.train has 3 sequences of 8 tokens, and one step reads 4 "
                                 "(training.batch_size), so it reads the data 1.33 times";
  expectFails(options("a", 1), ExitCode::UserError,
              arithmetic + "; give more data, compile with a batch_size of at most 3, or set "
                           "data.allow_repeats = true");
  ProgramOptions o = options("b", 1);
  o.overrides = {"data.allow_repeats=true"};
  expectRuns(o);
  EXPECT_NE(logText().find(arithmetic), std::string::npos) << logText();
  TinyPlan::writeTokens(folder / "train.bin", 33, 1);
  expectRuns(options("c", 1));
}

TEST_F(Trainer, ReadsTheFormatAndTheBlockThatAreSet) {
  ProgramOptions o = options("a", 1);
  o.overrides = {"data.format=megatron"};
  expectFails(o, ExitCode::UserError, "train.idx is missing");
  o.overrides = {"data.shuffle_block=12"};
  expectFails(o, ExitCode::UserError,
              "training.sequence_length (8) does not divide data.shuffle_block (12)");
  // With a block the order is another, and the validation data is read as before.
  o.overrides = {"data.shuffle_block=400"};
  expectRuns(o);
  EXPECT_NE(logText().find("800 in whole blocks"), std::string::npos) << logText();
  expectRuns(options("b", 1));
  const auto blocks = metrics("a"), rows = metrics("b");
  EXPECT_NE(blocks.at(0)["loss"], rows.at(0)["loss"]);
}

TEST_F(Trainer, SaysHowOftenTheDataIsRead) {
  expectRuns(options("a", 8));
  EXPECT_NE(logText().find(", 992 in whole blocks, read "), std::string::npos) << logText();
}

TEST_F(Trainer, DoesNotStartOverWhereEveryCheckpointIsDamaged) {
  ProgramOptions o = options("a", 4);
  o.overrides = {"checkpoint.interval=2", "checkpoint.keep=0"};
  expectRuns(o);
  const std::string checkpoints = folder / "a/checkpoints/";
  for (const char *step : {"2", "4"})
    std::filesystem::resize_file(checkpoints + step + "/model.safetensors", 10);
  const auto lines = metrics("a");
  o.steps = 6;
  for (const char *resume : {"auto", "none"}) {
    o.resume = resume;
    expectFails(o, ExitCode::UserError, "each of its 2 checkpoints is damaged (" + checkpoints +
                                            "4: ");
    expectFails(o, ExitCode::UserError, checkpoints + "2/model.safetensors: damaged: it has 10 "
                                        "bytes instead of");
  }
  EXPECT_EQ(metrics("a"), lines);
  EXPECT_TRUE(std::filesystem::exists(checkpoints + "2/state.json"));
}

TEST_F(Trainer, MovesADamagedCheckpointAside) {
  ProgramOptions o = options("a", 4);
  o.overrides = {"checkpoint.interval=2", "checkpoint.keep=1"};
  expectRuns(o);
  o.overrides[1] = "checkpoint.keep=0";
  o.steps = 6;
  expectRuns(o);
  std::filesystem::resize_file(folder / "a/checkpoints/6/model.safetensors", 10);
  o.steps = 8;
  expectRuns(o);
  EXPECT_NE(logText().find("warning: the damaged checkpoint is now " +
                           (folder / "a/checkpoints/6.damaged")),
            std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(folder / "a/checkpoints/6.damaged/model.safetensors"), 10u);
  ProgramOptions whole = options("whole", 8);
  expectRuns(whole);
  EXPECT_EQ(state("a"), state("whole"));
}

// Of the right size, such a checkpoint is found damaged only while it is loaded.
TEST_F(Trainer, GoesOnFromAnOlderCheckpointWhereAByteIsFlipped) {
  ProgramOptions o = options("a", 6);
  o.overrides = {"checkpoint.interval=2", "checkpoint.keep=0"};
  expectRuns(o);
  auto flip = [&](const std::string &path) {
    std::string bytes = test::read(path);
    bytes[bytes.size() - 1] ^= 1;
    test::write(path, bytes);
  };
  flip(folder / "a/checkpoints/6/moment2.safetensors");
  flip(folder / "a/checkpoints/4/model.safetensors");
  const auto lines = metrics("a");
  // A checkpoint that is named is not exchanged for another, and nothing is moved.
  ProgramOptions named = options("fork", 8);
  named.resume = folder / "a/checkpoints/4";
  expectFails(named, ExitCode::UserError, "model.safetensors: damaged: its contents do not match");
  ProgramOptions rewind = options("a", 8);
  rewind.rewind = 4;
  expectFails(rewind, ExitCode::UserError, "model.safetensors: damaged: its contents do not match");
  EXPECT_TRUE(std::filesystem::exists(folder / "a/checkpoints/6"));
  EXPECT_EQ(metrics("a"), lines);

  o.steps = 8;
  expectRuns(o);
  for (const char *step : {"6", "4"}) {
    EXPECT_NE(logText().find(std::string("warning: skipping the checkpoint ") +
                             (folder / "a/checkpoints/") + step + ": "),
              std::string::npos)
        << logText();
    EXPECT_TRUE(std::filesystem::exists(folder / "a/checkpoints/" + step + ".damaged"));
  }
  ProgramOptions whole = options("whole", 8);
  expectRuns(whole);
  EXPECT_EQ(state("a"), state("whole"));

  for (const char *step : {"2", "4", "6", "8"})
    flip(folder / "a/checkpoints/" + step + "/model.safetensors");
  o.steps = 10;
  expectFails(o, ExitCode::UserError, "each of its 4 checkpoints is damaged");
}

TEST_F(Trainer, StepsThatAreNotFiniteAreCountedAndEndTheRun) {
  TinyPlan broken;
  broken.setStddev(1e39); // infinite as f32
  broken.write(folder);
  expectFails(options("a", 100), ExitCode::Diverged,
              "step 11: loss or gradient norm not finite in 10 steps in a row, from step 1 on");
  auto lines = metrics("a");
  ASSERT_EQ(lines.size(), 11u) << "the step after the tenth was enqueued before it was judged";
  EXPECT_TRUE(lines.back()["loss"].is_null());
  EXPECT_EQ(lines.back()["skipped"], true);
  EXPECT_NE(logText().find("warning: step 3: loss nan, gradient norm nan: the step is skipped"),
            std::string::npos);
}

TEST_F(Trainer, TheGuardSaysNothingOfARunThatLearns) {
  ProgramOptions o = options("a", 300);
  o.overrides = {"lr_schedule.decay_iters=1000"};
  expectRuns(o);
  EXPECT_EQ(logText().find("warning"), std::string::npos) << logText();
}

// Each step multiplies the weights by 1 - lr * weight_decay = -1.05, beside what AdamW does.
const std::vector<std::string> kDiverging = {"lr_schedule.lr=2.05", "lr_schedule.min_lr=2.05",
                                             "optimizer.weight_decay=1", "guard.patience=16"};

TEST_F(Trainer, ADivergedRunStopsAndItsStateIsKeptAside) {
  expectRuns(options("a", 20));
  ProgramOptions o = options("a", 1000);
  o.overrides = kDiverging;
  o.changes = {"lr_schedule.lr", "lr_schedule.min_lr", "optimizer.weight_decay"};
  o.overrides.insert(o.overrides.end(), {"checkpoint.interval=5", "checkpoint.keep=1"});
  auto stopped = run(o);
  ASSERT_FALSE(bool(stopped));
  EXPECT_EQ(stopped.error().code, ExitCode::Diverged);
  const std::string message = stopped.error().message;
  const std::string step = std::to_string(metrics("a").size());
  const std::string checkpoints = folder / "a/checkpoints/";
  const std::string begin = "step " + step + ": diverged: since step ";
  ASSERT_EQ(message.find(begin), 0u) << message;
  EXPECT_NE(message.find("; the state is kept in " + checkpoints + step + ".diverged; go back to "),
            std::string::npos)
      << message;
  auto kept = readCheckpointState(checkpoints + step + ".diverged", true);
  ASSERT_OK(kept);
  EXPECT_EQ(std::to_string(kept->step), step);

  // A restart goes on from the newest ordinary checkpoint, and is stopped at the same step.
  std::vector<DamagedCheckpoint> damaged;
  auto newest = findLatestCheckpoint(folder / "a", damaged);
  ASSERT_TRUE(newest && *newest);
  expectFails(o, ExitCode::Diverged, message.substr(0, message.find("; the state is kept")));
  EXPECT_NE(logText().find("from " + **newest), std::string::npos);

  // The checkpoint that the message names is from before, and there although only one is kept.
  const std::string flag = "--rewind=";
  const size_t named = message.find(flag);
  ASSERT_NE(named, std::string::npos) << message;
  const uint64_t good = std::stoull(message.substr(named + flag.size()));
  ASSERT_OK(readCheckpointState(checkpoints + std::to_string(good), true));
  EXPECT_LT(good, std::stoull(message.substr(begin.size())));
}

TEST_F(Trainer, TheGuardOnlyWarnsOrIsOffAsItsSettingSays) {
  ProgramOptions o = options("a", 60);
  o.overrides = kDiverging;
  o.overrides.push_back("guard.action=off");
  o.overrides.push_back("lr_schedule.decay_iters=1000");
  expectRuns(o);
  EXPECT_EQ(logText().find("warning"), std::string::npos) << logText();
  o.out = folder / "b";
  o.overrides.back() = "guard.action=warn";
  expectRuns(o);
  EXPECT_NE(logText().find("diverged: since step"), std::string::npos) << logText();
  EXPECT_EQ(logText().find("kept in"), std::string::npos);
}

TEST_F(Trainer, WarnsOfAFirstLossFarFromLnV) {
  TinyPlan wide;
  wide.setStddev(20);
  wide.write(folder);
  expectRuns(options("a", 2));
  EXPECT_NE(logText().find("warning: step 1: the first loss is "), std::string::npos) << logText();
}

TEST_F(Trainer, AFullDiskCostsNoStepAndEndsWithAFailure) {
  test::TestDisk disk(256 * 1024);
  if (!disk.mounted)
    GTEST_SKIP() << "needs the right to mount: " << disk.problem;
  ProgramOptions o = options("", 4);
  o.out = disk.path() + "/run";
  expectRuns(o); // a first checkpoint: some 24 KiB in whole pages
  o.steps = 200;
  o.overrides = {"checkpoint.interval=10", "checkpoint.keep=0"};
  expectFails(o, ExitCode::Failure, "the last checkpoint, of step 200, could not be saved");
  EXPECT_NE(logText().find("warning: checkpoint of step"), std::string::npos);
  // What was there before is whole, and so is every line of the metrics.
  std::vector<DamagedCheckpoint> damaged;
  auto latest = findLatestCheckpoint(o.out, damaged);
  ASSERT_TRUE(latest && *latest);
  ASSERT_OK(readCheckpointState(o.out + "/checkpoints/4", true));
  std::istringstream text(test::read(o.out + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);)
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
}

TEST_F(Trainer, ATokenBeyondTheVocabularySavesWhatWasDone) {
  ProgramOptions o = options("a", 100);
  uint16_t bad = TinyPlan::kVocab;
  FILE *file = std::fopen((folder / "train.bin").c_str(), "r+b");
  std::fseek(file, 2 * 500, SEEK_SET);
  std::fwrite(&bad, 2, 1, file);
  std::fclose(file);
  expectFails(o, ExitCode::UserError, "train.bin");
  auto done = metrics("a").size();
  ASSERT_GT(done, 0u);
  ASSERT_LT(done, 100u);
  EXPECT_TRUE(exists(folder / ("a/checkpoints/" + std::to_string(done) + "/state.json")));
}

// Cuts the token file short while a run reads it.
TEST_F(Trainer, ATokenFileThatIsCutShortSavesWhatWasDone) {
  ProgramOptions o = options("a", 1000000000);
  o.overrides = {"training.train_iters=1000000000"};
  Result<ExitCode> outcome = ExitCode::Success;
  std::thread runner([&] { outcome = run(o); });
  std::error_code missing; // a missing file has the largest size there is, so that + 1 makes it 0
  auto giveUp = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::filesystem::file_size(folder / "a/metrics.jsonl", missing) + 1 < 1000 &&
         std::chrono::steady_clock::now() < giveUp)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::filesystem::resize_file(folder / "train.bin", 100);
  runner.join();
  ASSERT_FALSE(bool(outcome));
  EXPECT_EQ(outcome.error().code, ExitCode::Failure);
  EXPECT_NE(outcome.error().message.find("train.bin: has 100 bytes, but had 2000 when it was opened"),
            std::string::npos)
      << outcome.error().message;
  const auto done = metrics("a").size();
  EXPECT_TRUE(exists(folder / ("a/checkpoints/" + std::to_string(done) + "/state.json"))) << done;
}

TEST_F(Trainer, EvaluatesACheckpointWithoutTouchingIt) {
  expectRuns(options("a", 20));
  double trained = metrics("a").back()["validation_loss"];
  ProgramOptions o = options("a", 20);
  o.eval = true;
  FILE *output = std::fopen((folder / "eval.json").c_str(), "w");
  o.output = output;
  expectRuns(o);
  std::fclose(output);
  auto json = nlohmann::json::parse(test::read(folder / "eval.json"));
  EXPECT_EQ(json["step"], 20);
  EXPECT_EQ(double(json["validation_loss"]), trained);
  // 3 batches of 4 sequences of 8 tokens.
  EXPECT_EQ(json["validation_tokens"], 96);
  EXPECT_EQ(metrics("a").size(), 20u);
}

TEST_F(Trainer, ValidationCoversASmallFileOnceWhateverTheBatch) {
  // 41 tokens are 5 samples: 2 micro-batches and a half one.
  TinyPlan::writeTokens(folder / "validation.bin", 41, 3);
  ProgramOptions o = options("", 0);
  o.out.clear();
  o.eval = true;
  o.overrides = {"monitoring.validation_iters=100"};
  FILE *output = std::fopen((folder / "eval.json").c_str(), "w");
  o.output = output;
  expectRuns(o);
  std::fclose(output);
  EXPECT_EQ(nlohmann::json::parse(test::read(folder / "eval.json"))["validation_tokens"], 40);
}

TEST_F(Trainer, GradientsOfTheFirstStepAreDumpedUnderTheParametersNames) {
  ProgramOptions o = options("a", 1);
  o.dumpGradients = folder / "gradients.safetensors";
  expectRuns(o);
  auto file = SafeTensorsFile::open(o.dumpGradients);
  ASSERT_OK(file);
  const auto *gradient = (*file)->find("model.w");
  ASSERT_NE(gradient, nullptr);
  EXPECT_EQ(gradient->shape, (std::vector<uint64_t>{TinyPlan::kVocab, TinyPlan::kVocab}));
  std::vector<float> values(gradient->bytes / 4);
  std::memcpy(values.data(), gradient->data, gradient->bytes);
  double square = 0;
  for (float value : values)
    square += double(value) * value;
  EXPECT_NEAR(std::sqrt(square), double(metrics("a")[0]["grad_norm"]), 1e-6);
}

TEST_F(Trainer, LogitsOfTheFirstValidationBatchAreDumped) {
  ProgramOptions o = options("", 0);
  o.out.clear();
  o.dumpLogits = folder / "logits.safetensors";
  expectRuns(o);
  auto file = SafeTensorsFile::open(o.dumpLogits);
  ASSERT_OK(file);
  const auto *tokens = (*file)->find("tokens"), *logits = (*file)->find("logits");
  ASSERT_TRUE(tokens && logits);
  EXPECT_EQ(tokens->shape, (std::vector<uint64_t>{TinyPlan::kMbs, TinyPlan::kSeq}));
  EXPECT_EQ(logits->shape,
            (std::vector<uint64_t>{TinyPlan::kMbs, TinyPlan::kSeq, TinyPlan::kVocab}));
  int32_t first = 0;
  std::memcpy(&first, tokens->data, 4);
  uint16_t expected = 0;
  std::memcpy(&expected, test::read(folder / "validation.bin").data(), 2);
  EXPECT_EQ(first, expected);
}

TEST_F(Trainer, ExportsAndStartsFromExportsBitForBit) {
  ProgramOptions o = options("a", 4);
  o.exportDirectory = folder / "hf";
  o.overrides = {"checkpoint.export_interval=2"};
  expectRuns(o);
  const auto config = nlohmann::json::parse(test::read(folder / "hf/config.json"));
  EXPECT_EQ(config["architectures"], nlohmann::json::array({"Bigram"}));
  EXPECT_EQ(config["dtype"], "float32");
  EXPECT_TRUE(exists(folder / "a/exports/2/config.json"));
  EXPECT_EQ(test::read(folder / "a/exports/4/model.safetensors"),
            test::read(folder / "hf/model.safetensors"));

  ProgramOptions back = options("b", 0);
  back.init = folder / "hf";
  back.exportDirectory = folder / "hf2";
  expectRuns(back);
  EXPECT_EQ(test::read(folder / "hf2/model.safetensors"),
            test::read(folder / "hf/model.safetensors"));
}

TEST_F(Trainer, EachTensorOfAnExportIsProgress) {
  auto movesOf = [](const ProgramOptions &o) {
    const auto worlds = makeLocalWorlds(1, 1);
    EXPECT_TRUE(run(o, *worlds.front()));
    return worlds.front()->progress().state().moves;
  };
  ProgramOptions exporting = options("a", 2);
  exporting.exportDirectory = folder / "hf";
  // One because it begins to export, and one for its only tensor.
  EXPECT_EQ(movesOf(exporting), movesOf(options("b", 2)) + 2);
}

TEST_F(Trainer, AProfileCountsTheRunsOfEachFunction) {
  ProgramOptions o = options("a", 5);
  o.profile = folder / "profile.json";
  expectRuns(o);
  auto json = nlohmann::json::parse(test::read(o.profile));
  std::map<std::string, int> calls;
  for (const auto &function : json["functions"])
    calls[function["name"]] = function["calls"];
  EXPECT_EQ(calls, (std::map<std::string, int>{
                       {"micro_first", 5}, {"micro_last", 5}, {"optimizer", 5}, {"eval", 6}}));
}

// Returns the events of a trace that belong to the category `category`; "command": to any but
// functions.
static std::vector<nlohmann::json> eventsOf(const nlohmann::json &trace, const char *category) {
  std::vector<nlohmann::json> events;
  for (const auto &event : trace["traceEvents"])
    if (event["ph"] == "X" &&
        (event["cat"] == category || (category == std::string("command") && event["cat"] != "function")))
      events.push_back(event);
  return events;
}

TEST_F(Trainer, ATraceHasEveryCommandOfItsStepsAndChangesNoBit) {
  expectRuns(options("plain", 6));
  ProgramOptions o = options("traced", 6);
  o.trace = folder / "trace.json";
  o.traceSteps = 2;
  expectRuns(o);
  EXPECT_EQ(numbers("traced"), numbers("plain"));
  EXPECT_EQ(state("traced"), state("plain"));

  const auto trace = nlohmann::json::parse(test::read(o.trace));
  EXPECT_EQ(trace["otherData"]["first_step"], 3) << "after a warm-up of two steps";
  EXPECT_EQ(trace["otherData"]["last_step"], 4);
  std::vector<std::string> functions;
  double end = 0;
  for (const auto &event : eventsOf(trace, "function")) {
    functions.push_back(fmt::format("{} {}", event["args"]["step"].get<int>(),
                                    event["name"].get<std::string>()));
    EXPECT_GE(event["ts"].get<double>(), end) << "functions run one after the other";
    end = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(functions, (std::vector<std::string>{"3 micro_first", "3 micro_last", "3 optimizer",
                                                 "4 micro_first", "4 micro_last", "4 optimizer"}));
  double now = 0;
  for (const auto &event : eventsOf(trace, "command")) {
    EXPECT_GE(event["ts"].get<double>(), now);
    now = event["ts"].get<double>();
    EXPECT_GE(event["dur"].get<double>(), 0);
    EXPECT_FALSE(event["args"].contains("predicted_us")) << "this plan has no predictions";
  }
}

TEST_F(Trainer, ATraceHasPredictionsBesideTheTimes) {
  TinyPlan tiny;
  for (auto &function : tiny.plan.functions)
    for (auto &command : function->commands)
      command->predicted_seconds = 0.25;
  tiny.write(folder);
  ProgramOptions o = options("a", 1);
  o.trace = folder / "trace.json";
  expectRuns(o);
  const auto trace = nlohmann::json::parse(test::read(o.trace));
  EXPECT_EQ(trace["otherData"]["first_step"], 1) << "a run of one step has no warm-up";
  const auto commands = eventsOf(trace, "command");
  ASSERT_FALSE(commands.empty());
  for (const auto &event : commands) {
    EXPECT_EQ(event["args"]["predicted_us"], 0.25e6);
    EXPECT_NEAR(event["args"]["ratio"].get<double>(), event["dur"].get<double>() / 0.25e6, 1e-9);
  }
}

TEST_F(Trainer, ATraceOfNoStepIsNotWritten) {
  expectRuns(options("a", 1));
  ProgramOptions o = options("a", 1);
  o.trace = folder / "trace.json";
  expectRuns(o);
  EXPECT_FALSE(exists(o.trace));
  EXPECT_NE(logText().find("no step was recorded"), std::string::npos) << logText();
}

// A bench needs no folder, and no data if the job names none.
TEST_F(Trainer, ABenchTimesStepsAndWritesNothing) {
  TinyPlan tiny;
  for (auto &function : tiny.plan.functions)
    for (auto &command : function->commands)
      command->predicted_seconds = 0.5;
  tiny.write(folder);
  for (const char *data : {"train.bin", ""}) {
    FILE *printed = std::fopen((folder / "bench.json").c_str(), "w+");
    ProgramOptions o = options("", 0);
    o.out.clear();
    o.steps.reset();
    o.bench = 3;
    o.json = true;
    o.output = printed;
    o.overrides = {"target.peak_tflops=1",
                   fmt::format("data.train=[{}]", *data ? "\"train.bin\"" : "")};
    expectRuns(o);
    std::fclose(printed);
    const auto json = nlohmann::json::parse(test::read(folder / "bench.json"));
    EXPECT_EQ(json["tokens"], *data ? "data.train" : "random");
    EXPECT_EQ(json["steps"], 3);
    const auto seconds = json["step_seconds"];
    EXPECT_GT(seconds["min"].get<double>(), 0);
    EXPECT_LE(seconds["min"], seconds["median"]);
    EXPECT_LE(seconds["median"], seconds["max"]);
    const double tokens = TinyPlan::kGbs * TinyPlan::kSeq, rate = json["tokens_per_second"];
    EXPECT_NEAR(rate, tokens / seconds["median"].get<double>(), 1e-6 * rate);
    EXPECT_NEAR(json["mfu_causal"].get<double>(), rate * 6 * TinyPlan::kVocab / 1e12, 1e-12);
    EXPECT_EQ(json["memory"]["planned_bytes"], json["memory"]["allocated_bytes"]);
    double predicted = 0;
    for (const auto &function : tiny.plan.functions)
      if (function->name == "micro_first" || function->name == "micro_last" ||
          function->name == "optimizer")
        predicted += 0.5 * double(function->commands.size());
    EXPECT_EQ(json["predicted"]["step_seconds"], predicted) << "GAS 2: no micro";
    EXPECT_GT(json["loss"].get<double>(), 0);
  }
  std::vector<std::string> files;
  for (const auto &entry : std::filesystem::directory_iterator(folder.path))
    if (entry.is_directory())
      files.push_back(entry.path().filename());
  EXPECT_TRUE(files.empty()) << files[0];
}

TEST_F(Trainer, AFolderHoldsItsPlanAndItsIdentity) {
  ProgramOptions o = options("a", 1);
  o.overrides = {"lr_schedule.lr=0.02"};
  expectRuns(o);
  auto json = nlohmann::json::parse(test::read(folder / "a/run.json"));
  EXPECT_EQ(json["planPath"], o.plan);
  const std::string hash = json["planHash"];
  EXPECT_EQ(test::read(folder / ("a/plans/" + hash + ".plan")), test::read(o.plan));
  const std::string sum = "sha256sum < " + o.plan + " > " + (folder / "sum");
  ASSERT_EQ(std::system(sum.c_str()), 0);
  EXPECT_EQ(test::read(folder / "sum").substr(0, 64), hash);
  EXPECT_EQ(json["settings"]["lr_schedule.lr"]["value"], "0.02");
  EXPECT_EQ(json["settings"]["lr_schedule.lr"]["origin"], "lmc-run --set");
  EXPECT_EQ(json["settings"]["lr_schedule.lr"]["planned"], "0.05");
  // The default of min_lr followed.
  EXPECT_EQ(json["settings"]["lr_schedule.min_lr"]["value"], "0.002");
  auto state = readCheckpointState(folder / "a/checkpoints/1", true);
  ASSERT_TRUE(bool(state));
  EXPECT_EQ(state->run, json);
}

TEST_F(Trainer, ARestartWithNothingSaidIsTheUninterruptedRun) {
  ProgramOptions whole = options("whole", 8);
  whole.overrides = {"lr_schedule.lr=0.02", "training.seed=7"};
  expectRuns(whole);
  ProgramOptions first = options("a", 5);
  first.overrides = whole.overrides;
  expectRuns(first);
  // The second start has neither --set nor the plan.
  ProgramOptions second = options("a", 8);
  second.plan.clear();
  expectRuns(second);
  EXPECT_EQ(numbers("a"), numbers("whole"));
  EXPECT_EQ(state("a"), state("whole"));
  EXPECT_NE(logText().find("uses --set lr_schedule.lr=0.02 again, as at the last start"),
            std::string::npos);
}

TEST_F(Trainer, AnUndeclaredChangeIsRefused) {
  expectRuns(options("a", 3));
  const std::string before = test::read(folder / "a/metrics.jsonl");
  ProgramOptions o = options("a", 6);
  o.overrides = {"lr_schedule.lr=0.02"};
  expectFails(o, ExitCode::UserError, "lr_schedule.lr is 0.05 there and 0.02 here");
  expectFails(o, ExitCode::UserError,
              "lr_schedule.min_lr is 0.005 there and 0.002 here (its default follows "
              "lr_schedule.lr)");
  expectFails(o, ExitCode::UserError, "--change=lr_schedule.lr");
  EXPECT_EQ(test::read(folder / "a/metrics.jsonl"), before);

  o.changes = {"lr_schedule.lr"};
  expectRuns(o);
  auto json = nlohmann::json::parse(test::read(folder / "a/run.json"));
  ASSERT_EQ(json["changes"].size(), 2u);
  EXPECT_EQ(json["changes"][0]["key"], "lr_schedule.lr");
  EXPECT_EQ(json["changes"][0]["step"], 3);
  EXPECT_EQ(json["changes"][0]["from"], "0.05");
  EXPECT_EQ(json["changes"][0]["to"], "0.02");
  // The declared change is now the run's: a restart repeats it.
  ProgramOptions third = options("a", 8);
  expectRuns(third);
  EXPECT_NEAR(double(metrics("a")[7]["lr"]), 0.02, 0.001);
}

TEST_F(Trainer, ADeclarationOfNoSettingIsAMistake) {
  expectRuns(options("a", 3));
  ProgramOptions o = options("a", 6);
  o.overrides = {"lr_schedule.lr=0.02"};
  o.changes = {"lr_schedule.lrr"};
  expectFails(o, ExitCode::UserError,
              "--change=lr_schedule.lrr: the plan has no such setting; did you mean "
              "'lr_schedule.lr'?");
  o.changes = {"lr_schedule"}; // a section
  expectRuns(o);
}

TEST_F(Trainer, AnotherRunMayDifferFromTheCheckpointThatItStartsFrom) {
  expectRuns(options("a", 3));
  ProgramOptions o = options("b", 5);
  o.resume = folder / "a";
  o.overrides = {"lr_schedule.lr=0.02"};
  expectRuns(o);
  auto a = nlohmann::json::parse(test::read(folder / "a/run.json"));
  auto b = nlohmann::json::parse(test::read(folder / "b/run.json"));
  EXPECT_NE(a["run"], b["run"]);
  EXPECT_EQ(b["changes"][0]["key"], "lr_schedule.lr");
}

TEST_F(Trainer, AChangeBeforeTheNextCheckpointIsRepeated) {
  expectRuns(options("a", 3));
  // The start records the change, and then fails before it has a checkpoint.
  ProgramOptions o = options("a", 6);
  o.overrides = {"lr_schedule.lr=0.02"};
  o.changes = {"lr_schedule.lr"};
  std::filesystem::create_directory(folder / "a/checkpoints/.6.partial");
  test::write(folder / "a/checkpoints/.6.partial/keep", "");
  o.steps = 3; // nothing to train
  expectRuns(o);
  expectRuns(options("a", 4));
  auto json = nlohmann::json::parse(test::read(folder / "a/run.json"));
  EXPECT_EQ(json["settings"]["lr_schedule.lr"]["value"], "0.02");
}

TEST_F(Trainer, ARewindTakesBackAndKeepsWhatCameLater) {
  ProgramOptions o = options("a", 6);
  o.overrides = {"checkpoint.interval=2"};
  expectRuns(o);
  const auto six = numbers("a");
  ProgramOptions back = options("a", 6);
  back.rewind = 2;
  expectRuns(back);
  EXPECT_EQ(numbers("a"), six);
  EXPECT_TRUE(std::filesystem::exists(folder / "a/undone/1/checkpoints/4/state.json"));
  EXPECT_TRUE(std::filesystem::exists(folder / "a/undone/1/checkpoints/6/state.json"));
  EXPECT_EQ(metrics("a/undone/1").front()["step"], 3);
  EXPECT_EQ(metrics("a/undone/1").back()["step"], 6);
  // A second rewind has a folder of its own.
  expectRuns(back);
  EXPECT_EQ(metrics("a/undone/2").front()["step"], 3);
  back.rewind = 5;
  expectFails(back, ExitCode::UserError, "--rewind=5: ");
}

TEST_F(Trainer, OtherDataIsAChangeToo) {
  expectRuns(options("a", 3));
  // The same tokens in another place are the same data.
  std::filesystem::copy(folder / "train.bin", folder / "moved.bin");
  ProgramOptions o = options("a", 4);
  o.overrides = {"data.train=moved.bin"};
  expectRuns(o);
  // Other tokens under the same name are not.
  TinyPlan::writeTokens(folder / "moved.bin", 1000, 77);
  o.steps = 5;
  expectFails(o, ExitCode::UserError, "data.train is 1000 tokens in 1 file(s) there and 1000 tokens "
                                      "in 1 file(s) (");
  expectFails(o, ExitCode::UserError, "--change=data.train");
  o.changes = {"data.train"};
  expectRuns(o);
  EXPECT_NE(logText().find("is read from its beginning"), std::string::npos);
  auto saved = readCheckpointState(folder / "a/checkpoints/5", true);
  ASSERT_OK(saved);
  EXPECT_EQ(saved->position, TinyPlan::kGbs * TinyPlan::kSeq);
  EXPECT_EQ(saved->tokens, 5 * TinyPlan::kGbs * TinyPlan::kSeq);
}

TEST_F(Trainer, OtherDataBeforeTheNextCheckpointIsReadFromItsBeginning) {
  expectRuns(options("a", 3));
  ProgramOptions o = options("a", 3); // nothing to train: no checkpoint is written
  o.overrides = {"training.seed=9"};
  o.changes = {"training.seed"};
  expectRuns(o);
  expectRuns(options("a", 4));
  auto saved = readCheckpointState(folder / "a/checkpoints/4", true);
  ASSERT_OK(saved);
  EXPECT_EQ(saved->position, TinyPlan::kGbs * TinyPlan::kSeq);
}

// Each setting that decides what is trained: refused, declared, recorded; and the run without a
// change is bit for bit the same whatever was tried before.
TEST_F(Trainer, EveryIdentitySettingIsWatched) {
  expectRuns(options("a", 3));
  expectRuns(options("same", 5));
  const std::map<std::string, std::string> others = {
      {"model.hidden_size", ""}, {"optimizer.type", ""}, // no --set; see the parity tests
      {"training.batch_size", ""},
      {"training.seed", "5"},
      {"optimizer.beta1", "0.8"},
      {"optimizer.beta2", "0.9"},
      {"optimizer.eps", "1e-7"},
      {"optimizer.weight_decay", "0.2"},
      {"optimizer.clip_grad", "2"},
      {"lr_schedule.style", "linear"},
      {"lr_schedule.lr", "0.04"},
      {"lr_schedule.min_lr", "0.004"},
      {"lr_schedule.warmup_iters", "3"},
      {"lr_schedule.decay_iters", "90"},
      {"lr_schedule.wsd_decay_fraction", "0.3"},
      {"data.train", "validation.bin"},
      {"data.end_of_document", "3"},
      {"data.shuffle_block", "16"},
      // The files have no table of documents.
      {"training.document_loss_mask", ""},
      {"data.packing", ""},
  };
  for (const auto &setting : TinyPlan().plan.settings) {
    if (!setting->identity)
      continue;
    ASSERT_TRUE(others.contains(setting->key)) << setting->key;
    const std::string value = others.at(setting->key);
    if (value.empty())
      continue;
    ProgramOptions o = options("a", 5);
    o.overrides = {setting->key + "=" + value};
    expectFails(o, ExitCode::UserError, setting->key + " is ");
    expectFails(o, ExitCode::UserError, "--change=" + setting->key);
    o.resume = folder / "a";
    o.out = folder / ("fork-" + setting->key);
    expectRuns(o);
    auto run = nlohmann::json::parse(test::read(o.out + "/run.json"));
    bool recorded = false;
    for (const auto &change : run["changes"])
      recorded |= change["key"] == setting->key;
    EXPECT_TRUE(recorded) << setting->key;
  }
  expectRuns(options("a", 5));
  EXPECT_EQ(numbers("a"), numbers("same"));
  EXPECT_EQ(state("a"), state("same"));
}

// Another release may know more settings.
TEST_F(Trainer, AnUnknownSettingIsAChangeUnlessItIsADefault) {
  expectRuns(options("a", 2));
  auto add = [&](const std::string &key, plan::SettingOrigin origin) {
    TinyPlan tiny;
    auto added = std::make_unique<plan::SettingT>(tiny.setting("data.packing"));
    added->key = key;
    added->origin = origin;
    tiny.plan.settings.push_back(std::move(added));
    tiny.write(folder);
  };
  add("data.other", plan::SettingOrigin::Default);
  expectRuns(options("a", 3));
  add("data.more", plan::SettingOrigin::File);
  expectFails(options("a", 4), ExitCode::UserError,
              "this start differs from the run: data.more is absent there and concatenate here;");
}

// Training data of two sources of 1000 and 400 tokens.
class MixedTrainer : public Trainer {
protected:
  void SetUp() override {
    Trainer::SetUp();
    writePlan("0.75", "0.25");
    TinyPlan::writeTokens(folder / "web.bin", 1000, 3);
    TinyPlan::writeTokens(folder / "code.bin", 400, 4);
  }

  void writePlan(const std::string &web, const std::string &code,
                 const std::string &maxEpochs = "0", const std::string &books = "") {
    TinyPlan plan;
    plan.addSource("web", "web.bin", web);
    plan.addSource("code", "code.bin", code, maxEpochs);
    if (!books.empty())
      plan.addSource("books", "books.bin", books);
    plan.write(folder);
  }

  nlohmann::json sources(const std::string &out, uint64_t step) {
    const auto text = test::read(folder / fmt::format("{}/checkpoints/{}/state.json", out, step));
    return nlohmann::json::parse(text)["state"]["sources"];
  }

  static constexpr uint64_t kStep = TinyPlan::kGbs * TinyPlan::kSeq; // tokens
};

TEST_F(MixedTrainer, ReportsAndKeepsWhatWasReadOfEachSource) {
  expectRuns(options("a", 10));
  const auto lines = metrics("a");
  for (uint64_t step = 1; step <= 10; ++step) {
    const auto &sources = lines.at(step - 1)["sources"];
    EXPECT_EQ(sources["web"]["tokens"], step * kStep * 3 / 4);
    EXPECT_EQ(sources["code"]["tokens"], step * kStep / 4);
    // 49 whole blocks of 8 tokens.
    EXPECT_EQ(sources["code"]["epochs"], double(step * kStep / 4) / 392);
  }
  const nlohmann::json saved = {{"start", 0}, {"tokens", 80}, {"tokens_per_epoch", 392}};
  EXPECT_EQ(sources("a", 10)["code"], saved);
  for (const char *line : {"data: code, 25% of the run: 400 tokens in 1 file(s) (",
                           ", 392 in whole blocks, read 0.20 times by 10 steps",
                           "data: code: 80 tokens read, 0.20 epochs"})
    EXPECT_NE(logText().find(line), std::string::npos) << line << logText();
}

TEST_F(MixedTrainer, NPlusNStepsAre2NBitForBit) {
  expectRuns(options("whole", 12));
  expectRuns(options("parts", 5));
  expectRuns(options("parts", 12));
  EXPECT_EQ(numbers("parts"), numbers("whole"));
  EXPECT_EQ(state("parts"), state("whole"));
  EXPECT_EQ(sources("parts", 12), sources("whole", 12));
}

// The error proposes two ways out that are put to the test.
TEST_F(MixedTrainer, RefusesASourceThatIsReadTooOften) {
  writePlan("0.75", "0.25", "1.5");
  // 100 steps of 32 tokens, of which 800 are code: 392 * 1.5 = 588 are allowed.
  const std::string message =
      "data.source.code.max_epochs is 1.5, and 100 steps read the source 2.04 times: 25% of 3200 "
      "tokens are 800, and it has 392 in whole blocks; give it more data, or set "
      "data.source.code.max_epochs=2.05, or data.source.code.weight=0.166, or stop at --steps=73";
  expectFails(options("a", 100), ExitCode::UserError, message);
  EXPECT_FALSE(std::filesystem::exists(folder / "a/checkpoints"));
  ProgramOptions o = options("weight", 100);
  o.overrides = {"data.source.code.weight=0.166"};
  expectRuns(o);
  EXPECT_LE(sources("weight", 100)["code"]["tokens"], 588u);
  expectFails(options("b", 74), ExitCode::UserError, "or stop at --steps=73");
  expectRuns(options("b", 73));
  EXPECT_LE(sources("b", 73)["code"]["tokens"], 588u);
  // What was read before counts.
  expectFails(options("b", 74), ExitCode::UserError,
              "25% of 32 tokens are 8, after 584 of earlier starts");
  o = options("b", 74);
  o.overrides = {"data.source.code.max_epochs=1.6"};
  expectRuns(o);
}

TEST_F(MixedTrainer, AnotherMixtureIsRefusedOrDeclared) {
  expectRuns(options("a", 3)); // 72 tokens of web, 24 of code
  ProgramOptions o = options("a", 5);
  o.overrides = {"data.source.web.weight=0.5"};
  expectFails(o, ExitCode::UserError, "data.source.web.weight is 0.75 there and 0.5 here");
  TinyPlan::writeTokens(folder / "code2.bin", 410, 4);
  o.overrides = {"data.source.code.paths=code2.bin"};
  expectFails(
      o, ExitCode::UserError,
      "data.source.code.paths is 400 tokens in 1 file(s) there and 410 tokens in 1 file(s) (");
  o.changes = {"data.source.code.paths"};
  expectRuns(o);
  EXPECT_NE(logText().find("others are read from their beginning: web\n"), std::string::npos)
      << logText();
  EXPECT_EQ(sources("a", 5)["code"]["tokens"], 16u); // from its beginning
  EXPECT_EQ(sources("a", 5)["web"]["start"], 72u);   // it goes on
  EXPECT_EQ(sources("a", 5)["web"]["tokens"], 72u + 48);

  writePlan("0.75", "0.25", "0", "1");
  TinyPlan::writeTokens(folder / "books.bin", 300, 5);
  o = options("a", 7);
  expectFails(o, ExitCode::UserError, "data.source.books.weight is absent there and 1 here");
  expectFails(o, ExitCode::UserError,
              "data.source.books.paths is absent there and 300 tokens in 1 file(s) here");
  o.changes = {"data.source.books"};
  expectRuns(o);
  EXPECT_EQ(sources("a", 7)["web"]["start"], 120u);
  EXPECT_EQ(sources("a", 7)["books"]["tokens"], 32u);
  // And again without the new source: the record knows it, the plan does not.
  writePlan("0.75", "0.25");
  o = options("a", 8);
  o.changes.clear();
  expectFails(o, ExitCode::UserError, "data.source.books.weight is 1 there and absent here");
  o.changes = {"data.source.books"};
  expectRuns(o);
  expectRuns(options("a", 9));
  EXPECT_FALSE(sources("a", 9).contains("books"));
}

TEST_F(MixedTrainer, ALaterDataTrainGoesBeforeTheSources) {
  expectRuns(options("a", 3));
  ProgramOptions o = options("a", 5);
  o.overrides = {"data.train=train.bin"};
  expectFails(o, ExitCode::UserError, "data.source.web.paths");
  o.changes = {"data"};
  expectRuns(o);
  EXPECT_FALSE(metrics("a").at(3).contains("sources"));
  o = options("a", 7);
  o.overrides = {"data.train=[]", "data.source.web.weight=0.75"};
  o.changes = {"data"};
  expectRuns(o);
  EXPECT_EQ(sources("a", 7)["web"]["start"], 0u);
  EXPECT_NE(logText().find("the order of the training data has changed; it is read from its "
                           "beginning"),
            std::string::npos)
      << logText();
  o.overrides = {"data.train=train.bin", "data.source.web.weight=0.5"};
  expectFails(o, ExitCode::UserError,
              "data.train and [[data.source]] (web, code) both say what to train on; set the paths "
              "of a table, such as data.source.web.paths, or leave train out");
}

TEST_F(MixedTrainer, OneStepReadsEachSequenceOfASourceOnce) {
  TinyPlan::writeTokens(folder / "code.bin", 9, 4); // one sequence; a step reads one
  expectRuns(options("a", 1));
  writePlan("0.5", "0.5");
  expectFails(
      options("b", 1), ExitCode::UserError,
      "data.source.code.paths has 1 sequences of 8 tokens, and one step reads 2 of its 4 "
      "there (training.batch_size), so it reads the data 2.00 times; give more data, compile "
      "with a batch_size of at most 2, or set data.allow_repeats = true");
}

TEST_F(Trainer, StepsEndWithTheJob) {
  expectFails(options("a", 1001), ExitCode::UserError,
              "--steps=1001 is more than training.train_iters, 1000");
}

TEST_F(Trainer, ARunOnAFileSystemWithoutLocksNoticesAnotherOne) {
  auto directory = RunDirectory::open(folder / "a");
  ASSERT_OK(directory);
  ASSERT_OK((*directory)->checkOwner());
  test::write(folder / "a/run.lock", "process 1 on elsewhere, 0123\n");
  EXPECT_ERROR((*directory)->checkOwner(), "another run (process 1 on elsewhere) has started");
}

TEST_F(Trainer, TheFolderTellsItsHistory) {
  ProgramOptions o = options("a", 4);
  o.overrides = {"checkpoint.interval=2", "monitoring.validation_interval=2",
                 "lr_schedule.decay_iters=1000"};
  expectRuns(o);
  o.overrides.push_back("data.train=missing.bin");
  o.steps = 6;
  expectFails(o, ExitCode::UserError, "missing.bin");
  std::vector<std::string> names;
  std::istringstream text(test::read(folder / "a/events.jsonl"));
  nlohmann::json last;
  for (std::string line; std::getline(text, line);) {
    last = nlohmann::json::parse(line);
    EXPECT_EQ(std::string(last["time"]).size(), 24u);
    names.push_back(last["event"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"start", "validation", "checkpoint", "validation",
                                             "checkpoint", "exit", "exit"}));
  EXPECT_EQ(last["code"], 2);
  const std::string log = test::read(folder / "a/log.txt");
  EXPECT_NE(log.find("Z step 4/4 | loss "), std::string::npos) << log;
  EXPECT_NE(log.find("Z saved "), std::string::npos);
  EXPECT_NE(log.find("Z error: data.train: "), std::string::npos);
}

TEST_F(Trainer, APlanOfAnotherHashIsRefused) {
  ProgramOptions o = options("a", 1);
  o.expectHash = std::string(64, '0');
  expectFails(o, ExitCode::UserError, "--expect-hash");
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST_F(Trainer, AMistakeHarmsNothing) {
  ProgramOptions o = options("a", 1);
  o.overrides = {"data.train=missing.bin"};
  expectFails(o, ExitCode::UserError, "missing.bin");
  o.overrides = {"lr_schedule.lr=fast"};
  expectFails(o, ExitCode::UserError, "must be a number");
  o.overrides.clear();
  o.plan = folder / "missing.plan";
  expectFails(o, ExitCode::UserError, "missing.plan");
}

} // namespace
} // namespace lmc
