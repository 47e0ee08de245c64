#include "runtime/checkpoint/Checkpoint.h"

#include "SavedModel.h"
#include "test/Draws.h"
#include "TestFolder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>

using namespace lmc;
using namespace lmc::test;

namespace {

using Names = std::vector<std::string>;

Names checkpointsOf(const std::string &run) {
  Result<Names> names = listFolder(run + "/checkpoints");
  return names ? *names : Names{names.error().message};
}

// The step that a resume would start from; -1 for none. Like a resume, goes on to the next older
// checkpoint where the contents turn out to be damaged.
int64_t latestStep(const std::string &run, std::vector<DamagedCheckpoint> &damaged) {
  for (;;) {
    auto latest = findLatestCheckpoint(run, damaged);
    if (!latest) {
      ADD_FAILURE() << latest.error().message;
      return -2;
    }
    if (!*latest)
      return -1;
    auto state = readCheckpointState(**latest, false);
    if (!state) {
      ADD_FAILURE() << state.error().message;
      return -2;
    }
    Loaded loaded = load(**latest, savedTensors(state->step));
    if (!loaded.outcome) {
      ADD_FAILURE() << loaded.outcome.error().message;
      return -2;
    }
    if (*loaded.outcome) {
      damaged.push_back(**loaded.outcome);
      continue;
    }
    state = checkContents(**latest);
    if (!state) {
      ADD_FAILURE() << state.error().message;
      return -2;
    }
    return static_cast<int64_t>(state->step);
  }
}

int64_t latestStep(const std::string &run) {
  std::vector<DamagedCheckpoint> damaged;
  return latestStep(run, damaged);
}

void flipByte(const std::string &path, size_t position) {
  std::string bytes = read(path);
  bytes[position % bytes.size()] ^= 1;
  write(path, bytes);
}

} // namespace

TEST(Checkpoint, RoundTripIsBitForBit) {
  TestFolder run;
  EXPECT_EQ(latestStep(run / "new"), -1);
  ASSERT_OK(makeFolder(run / "new"));
  ASSERT_OK(save(run / "new", 7, 0));
  EXPECT_EQ(latestStep(run / "new"), 7);
  auto state = readCheckpointState(run / "new/checkpoints/7", true);
  ASSERT_OK(state);
  EXPECT_EQ(state->samples, 7u * 32);
  EXPECT_EQ(state->tokens, 7u * 32 * 512);
  EXPECT_EQ(state->fingerprint, "fingerprint");
  EXPECT_EQ(state->extra.at("variant"), "0");
  EXPECT_EQ(checkpointsOf(run / "new"), Names{"7"});
}

TEST(Checkpoint, StateKeepsItsExtremes) {
  TestFolder run;
  CheckpointState state{.step = UINT64_MAX,
                        .samples = UINT64_MAX - 1,
                        .tokens = 0,
                        .position = UINT64_MAX - 2,
                        .fingerprint = "ü\"\\\n",
                        .run = {{"list", {1, 0.1, "ü"}}},
                        .extra = {{"", "1e-300"}, {"a", ""}}};
  ASSERT_OK(saveCheckpoint(alone(), run.path, state, {}, 1));
  auto back = readCheckpointState(run / "checkpoints/18446744073709551615", true);
  ASSERT_OK(back);
  EXPECT_EQ(back->step, state.step);
  EXPECT_EQ(back->samples, state.samples);
  EXPECT_EQ(back->position, state.position);
  EXPECT_EQ(back->run, state.run);
  EXPECT_EQ(back->fingerprint, state.fingerprint);
  EXPECT_EQ(back->extra, state.extra);
}

TEST(Checkpoint, RetentionKeepsTheNewestByNumber) {
  TestFolder run;
  for (uint64_t step : {8, 9, 10, 11, 100})
    ASSERT_OK(save(run.path, step, 3));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"10", "100", "11"}));
  ASSERT_OK(save(run.path, 101, 0));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"10", "100", "101", "11"}));
  ASSERT_OK(save(run.path, 102, 1));
  EXPECT_EQ(checkpointsOf(run.path), Names{"102"});
}

TEST(Checkpoint, RetentionNeverRemovesTheOneJustSaved) {
  TestFolder run;
  ASSERT_OK(save(run.path, 200, 0));
  ASSERT_OK(save(run.path, 300, 0));
  ASSERT_OK(save(run.path, 150, 2)); // resumed from before 200
  EXPECT_EQ(checkpointsOf(run.path), (Names{"150", "300"}));
}

TEST(Checkpoint, RetentionSparesTheNewestFromBeforeSuspectSteps) {
  TestFolder run;
  for (uint64_t step : {10, 20, 30})
    ASSERT_OK(save(run.path, step, 2));
  auto saveSuspect = [&](uint64_t step, uint64_t suspect) {
    KeepRules keep(2);
    keep.suspect = suspect;
    return saveCheckpoint(alone(), run.path, savedState(step, 0), savedFiles(step, 0), keep);
  };
  for (uint64_t step : {40, 50, 60, 70})
    ASSERT_OK(saveSuspect(step, 31));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"30", "60", "70"}));
  ASSERT_OK(saveSuspect(80, 61)); // 60 would go, and 70 is suspect
  EXPECT_EQ(checkpointsOf(run.path), (Names{"60", "70", "80"}));
  ASSERT_OK(saveSuspect(90, 85)); // 80 is among the two that stay
  EXPECT_EQ(checkpointsOf(run.path), (Names{"80", "90"}));
  ASSERT_OK(saveSuspect(100, 5)); // there is none
  EXPECT_EQ(checkpointsOf(run.path), (Names{"100", "90"}));
}

TEST(Checkpoint, RetentionSparesMultiplesAndTheBest) {
  TestFolder run;
  KeepRules keep(2);
  keep.every = 40;
  keep.best = "validation_loss";
  auto saveWithLoss = [&](uint64_t step, const char *loss) {
    CheckpointState state = savedState(step, 0);
    if (loss)
      state.extra["validation_loss"] = loss;
    return saveCheckpoint(alone(), run.path, state, savedFiles(step, 0), keep);
  };
  ASSERT_OK(saveWithLoss(10, nullptr));
  ASSERT_OK(saveWithLoss(20, "3.5"));
  ASSERT_OK(saveWithLoss(30, "nan"));
  ASSERT_OK(saveWithLoss(40, "4"));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"20", "30", "40"}));
  ASSERT_OK(saveWithLoss(50, "3.25"));
  ASSERT_OK(saveWithLoss(60, "3.75"));
  ASSERT_OK(saveWithLoss(70, "4"));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"40", "50", "60", "70"}));
  ASSERT_OK(saveWithLoss(80, "3"));
  ASSERT_OK(saveWithLoss(90, "3.5"));
  ASSERT_OK(saveWithLoss(100, "3.5"));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"100", "40", "80", "90"}));
}

TEST(Checkpoint, OneSavedAsideIsNeitherFoundNorRemoved) {
  TestFolder run;
  ASSERT_OK(save(run.path, 1, 2));
  for (uint64_t variant : {0, 1}) {
    auto path = saveAside(alone(), run.path, savedState(2, variant), savedFiles(2, variant), "diverged");
    ASSERT_OK(path);
    // One that is there already is not written over.
    EXPECT_EQ(*path, run / (variant == 0 ? "checkpoints/2.diverged" : "checkpoints/2.diverged-2"));
    auto state = checkContents(*path);
    ASSERT_OK(state);
    EXPECT_EQ(state->extra.at("variant"), std::to_string(variant));
  }
  EXPECT_EQ(latestStep(run.path), 1);
  ASSERT_OK(save(run.path, 3, 1));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"2.diverged", "2.diverged-2", "3"}));
  auto steps = listCheckpoints(run.path);
  ASSERT_OK(steps);
  EXPECT_EQ(*steps, std::vector<uint64_t>{3});
}

// A broken checkpoint that counted would push out a whole one.
TEST(Checkpoint, RetentionCountsOnlyWholeCheckpoints) {
  TestFolder run;
  for (uint64_t step : {1, 2, 3})
    ASSERT_OK(save(run.path, step, 0));
  ASSERT_OK(removeTree(run / "checkpoints/3/moment1.safetensors"));
  ASSERT_OK(makeFolders(run / "checkpoints/notes"));
  ASSERT_OK(save(run.path, 4, 2));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"2", "3", "4", "notes"}));
}

TEST(Checkpoint, SameStepIsReplaced) {
  TestFolder run;
  ASSERT_OK(save(run.path, 5, 2, /*variant=*/0));
  ASSERT_OK(save(run.path, 5, 2, /*variant=*/1));
  auto state = checkContents(run / "checkpoints/5");
  ASSERT_OK(state);
  EXPECT_EQ(state->extra.at("variant"), "1");
  EXPECT_EQ(checkpointsOf(run.path), Names{"5"});
}

TEST(Checkpoint, LeftOversOfInterruptedSavesAreRemoved) {
  TestFolder run;
  ASSERT_OK(save(run.path, 1, 0));
  ASSERT_OK(makeFolders(run / "checkpoints/.2.partial"));
  write(run / "checkpoints/.2.partial/model.safetensors", "half");
  write(run / "checkpoints/.hidden.partial", "not ours");
  std::vector<DamagedCheckpoint> damaged;
  EXPECT_EQ(latestStep(run.path, damaged), 1);
  EXPECT_TRUE(damaged.empty());
  ASSERT_OK(save(run.path, 3, 0));
  EXPECT_EQ(checkpointsOf(run.path), (Names{".hidden.partial", "1", "3"}));
}

// What a crash leaves where folders' names cannot be exchanged.
TEST(Checkpoint, OneSetAsideIsFoundAndPutBack) {
  TestFolder run;
  ASSERT_OK(save(run.path, 1, 0));
  ASSERT_OK(save(run.path, 2, 0));
  std::filesystem::rename(run / "checkpoints/2", run / "checkpoints/.2.replaced");
  EXPECT_EQ(latestStep(run.path), 2);
  ASSERT_OK(save(run.path, 3, 0));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"1", "2", "3"}));
  // With the new one in its place, the old one goes.
  std::filesystem::copy(run / "checkpoints/3", run / "checkpoints/.3.replaced");
  EXPECT_EQ(latestStep(run.path), 3);
  ASSERT_OK(save(run.path, 4, 0));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"1", "2", "3", "4"}));
}

TEST(Checkpoint, DamagedOnesAreSkippedWithAWarning) {
  TestFolder run;
  for (uint64_t step : {1, 2, 3, 4, 5, 6})
    ASSERT_OK(save(run.path, step, 0));
  flipByte(run / "checkpoints/6/moment2.safetensors", 9'000);
  ASSERT_OK(removeTree(run / "checkpoints/5/state.json"));
  std::string half = read(run / "checkpoints/4/model.safetensors");
  write(run / "checkpoints/4/model.safetensors", half.substr(0, half.size() / 2));
  ASSERT_OK(removeTree(run / "checkpoints/3/model.safetensors"));
  std::filesystem::rename(run / "checkpoints/1", run / "checkpoints/7");
  std::vector<DamagedCheckpoint> damaged;
  EXPECT_EQ(latestStep(run.path, damaged), 2);
  ASSERT_EQ(damaged.size(), 5u);
  const char *expected[] = {"checkpoints/7: it is of step 1", "do not match its checksum",
                            "state.json: No such file", "bytes instead of", "No such file"};
  for (size_t i = 0; i < damaged.size(); ++i) {
    const std::string text = damaged[i].path + ": " + damaged[i].fault;
    EXPECT_NE(text.find(expected[i]), std::string::npos) << text;
  }
  EXPECT_ERROR(readCheckpointState(run / "checkpoints/6", true), "do not match its checksum");
  ASSERT_OK(readCheckpointState(run / "checkpoints/6", false));
}

TEST(Checkpoint, DamagedOnesAreMovedAsideAndKept) {
  TestFolder run;
  for (uint64_t step : {1, 2})
    ASSERT_OK(save(run.path, step, 0));
  ASSERT_OK(removeTree(run / "checkpoints/2/state.json"));
  ASSERT_OK(makeFolder(run / "other"));
  ASSERT_OK(save(run / "other", 2, 0));
  std::filesystem::rename(run / "other/checkpoints/2", run / "checkpoints/2.damaged");
  std::vector<DamagedCheckpoint> damaged;
  EXPECT_EQ(latestStep(run.path, damaged), 1);
  Result<Names> moved = moveAside(damaged);
  ASSERT_OK(moved);
  EXPECT_EQ(*moved, Names{run / "checkpoints/2.damaged-2"});
  // Neither a save of the same step nor the removal of old checkpoints touches them.
  for (uint64_t step : {2, 3})
    ASSERT_OK(save(run.path, step, 1));
  EXPECT_EQ(checkpointsOf(run.path), (Names{"2.damaged", "2.damaged-2", "3"}));
}

TEST(Checkpoint, EveryDrawnFlipInTheStateIsNoticed) {
  const int64_t count = test::drawCount(400);
  TestFolder run;
  ASSERT_OK(save(run.path, 1, 0));
  const std::string path = run / "checkpoints/1/state.json";
  std::string whole = read(path);
  std::mt19937_64 random(11);
  for (int64_t i = 0; i < count; ++i) {
    std::string flipped = whole;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    std::filesystem::remove(path);
    write(path, flipped);
    Result<CheckpointState> state = readCheckpointState(run / "checkpoints/1", false);
    // Only white space may change unnoticed: then the state is the same.
    if (state) {
      EXPECT_TRUE(checkContents(run / "checkpoints/1")) << flipped;
    }
  }
  for (size_t size = 0; size + 2 < whole.size(); size += 16) {
    std::filesystem::remove(path);
    write(path, whole.substr(0, size));
    EXPECT_FALSE(readCheckpointState(run / "checkpoints/1", false)) << size;
  }
}

TEST(Checkpoint, HostileStatesAreRefused) {
  TestFolder run;
  ASSERT_OK(save(run.path, 1, 0));
  const std::string path = run / "checkpoints/1/state.json";
  std::string whole = read(path);
  auto refuses = [&](const std::string &text, const char *message) {
    write(path, text);
    EXPECT_ERROR(readCheckpointState(run / "checkpoints/1", false), message);
  };
  refuses("", "not a JSON object");
  refuses("[1]", "not a JSON object");
  refuses("{}", "not the state of an lmc checkpoint");
  refuses(R"({"format": "lmc-checkpoint", "version": 2})", "not the state of an lmc checkpoint");
  refuses(R"({"format": "lmc-checkpoint", "version": 2.5})", "not the state of an lmc checkpoint");
  refuses(R"({"format": "lmc-checkpoint", "version": 3})", "format version 3");
  refuses(std::string(1'000'000, '['), "nested more than");
  refuses(std::string(65 << 20, ' '), "more than the");
  write(path, whole);
  ASSERT_OK(checkContents(run / "checkpoints/1"));
}

TEST(Checkpoint, AnotherModelsTensorsAreRefusedBeforeAnythingIsStored) {
  TestFolder run;
  ASSERT_OK(save(run.path, 1, 0));
  bool stored = false;
  auto loads = [&](std::vector<TensorView> tensors, const char *file = "model.safetensors") {
    return loadCheckpoint(alone(), run / "checkpoints/1",
                          {{file, tensors, {}, [&](size_t, const void *, uint64_t, uint64_t) {
                              stored = true;
                              return Result<void>();
                            }}});
  };
  std::vector<TensorView> tensors = savedTensors(1);
  tensors.push_back({"more", plan::DType::F32, {1}, nullptr, 4});
  EXPECT_ERROR(loads(tensors), "no tensor 'more': the checkpoint belongs to another model");
  tensors = savedTensors(1);
  tensors.pop_back();
  EXPECT_ERROR(loads(tensors), "the plan has no tensor 'after.odd'");
  tensors = savedTensors(1);
  tensors[1].shape = {5, 13};
  EXPECT_ERROR(loads(tensors), "'model.norm.weight' is F32 [65] there and F32 [5, 13] in the plan");
  tensors = savedTensors(1);
  tensors[1].dtype = plan::DType::I32;
  EXPECT_ERROR(loads(tensors), "F32 [65] there and I32 [65]");
  tensors = savedTensors(1);
  tensors.push_back(tensors[0]);
  EXPECT_ERROR(loads(tensors), "asked for twice");
  EXPECT_ERROR(loads(savedTensors(1), "../1/model.safetensors"), "has no ../1/model.safetensors");
  EXPECT_FALSE(stored);
}

TEST(Checkpoint, EveryFlippedByteOfAFileIsDamageAndNotAnotherModel) {
  TestFolder run;
  ASSERT_OK(save(run.path, 1, 0));
  const std::string path = run / "checkpoints/1/model.safetensors", whole = read(path);
  for (size_t at = 0; at < whole.size(); at += at < 700 ? 1 : 97) { // the header has 0.5 KB
    std::filesystem::remove(path);
    std::string flipped = whole;
    flipped[at] ^= 1;
    write(path, flipped);
    Loaded loaded = load(run / "checkpoints/1", savedTensors(1));
    ASSERT_TRUE(loaded.outcome) << at << ": " << loaded.outcome.error().message;
    ASSERT_TRUE(loaded.outcome->has_value()) << at;
    EXPECT_EQ((*loaded.outcome)->path, run / "checkpoints/1");
    EXPECT_NE((*loaded.outcome)->fault.find("model.safetensors: damaged"), std::string::npos)
        << (*loaded.outcome)->fault;
  }
}

// Three pieces of 16 MiB and a rest; tensors begin and end inside of pieces.
TEST(Checkpoint, TensorsThatSpanPiecesComeBackBitForBit) {
  TestFolder run;
  const std::vector<uint64_t> sizes = {5, 20'000'003, 0, 1, 33'000'000};
  std::vector<TensorView> tensors;
  std::vector<std::string> contents;
  std::mt19937_64 random(7);
  for (uint64_t size : sizes) {
    tensors.push_back(
        {"t" + std::to_string(tensors.size()), plan::DType::I8, {size}, nullptr, size});
    contents.emplace_back(size, '\0');
    for (char &byte : contents.back())
      byte = static_cast<char>(random());
  }
  CheckpointFile file{"model.safetensors", tensors, {}, [&](size_t tensor, void *data) {
                        std::memcpy(data, contents[tensor].data(), contents[tensor].size());
                        return Result<void>();
                      }};
  ASSERT_OK(saveCheckpoint(alone(), run.path, savedState(1, 0), {file}, 0));
  std::vector<std::string> back;
  for (uint64_t size : sizes)
    back.emplace_back(size, '?');
  std::vector<CheckpointTarget> targets = {
      {"model.safetensors", tensors, {},
       [&](size_t tensor, const void *data, uint64_t bytes, uint64_t offset) {
         std::memcpy(back.at(tensor).data() + offset, data, bytes);
         return Result<void>();
       }}};
  auto loaded = loadCheckpoint(alone(), run / "checkpoints/1", targets);
  ASSERT_OK(loaded);
  ASSERT_FALSE(loaded->has_value()) << (*loaded)->fault;
  EXPECT_TRUE(back == contents);
  // Two pieces that changed places are damage, too, and an error of `store` is an error.
  const std::string path = run / "checkpoints/1/model.safetensors";
  std::string swapped = read(path);
  std::swap_ranges(swapped.begin() + (16 << 20), swapped.begin() + (32 << 20),
                   swapped.begin() + (32 << 20));
  write(path, swapped);
  loaded = loadCheckpoint(alone(), run / "checkpoints/1", targets);
  ASSERT_OK(loaded);
  EXPECT_TRUE(loaded->has_value());
  targets[0].store = [](size_t, const void *, uint64_t, uint64_t) -> Result<void> {
    return Error{"device lost"};
  };
  EXPECT_ERROR(loadCheckpoint(alone(), run / "checkpoints/1", targets), "device lost");
}

// Rank r of `ranks` has, and writes, bytes [r n / ranks, (r + 1) n / ranks) of each tensor of n bytes.
static ByteRange partOf(uint64_t bytes, int rank, int ranks) {
  const auto r = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(ranks);
  return {bytes * r / n, bytes * (r + 1) / n - bytes * r / n};
}

// Calls work(rank, group) for each rank on a thread of its own.
static void onRanks(int ranks, const std::function<void(int, Communicator &)> &work) {
  auto worlds = makeLocalWorlds(ranks, 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { work(rank, worlds[static_cast<size_t>(rank)]->all()); });
  for (std::thread &thread : threads)
    thread.join();
}

// Saves what save() saves, with `ranks` ranks. The fetch of rank `failing` fails; -1: of none.
static Result<void> saveTogether(const std::string &run, uint64_t step, int ranks, int failing) {
  std::vector<Result<void>> saved(static_cast<size_t>(ranks));
  onRanks(ranks, [&](int rank, Communicator &group) {
    std::vector<CheckpointFile> files = savedFiles(step, 0);
    for (size_t file = 0; file < files.size(); ++file) {
      for (const TensorView &tensor : files[file].tensors)
        files[file].parts.push_back(partOf(tensor.bytes, rank, ranks));
      files[file].fetch = [=](size_t tensor, void *data) -> Result<void> {
        if (rank == failing && file == 1)
          return Error{"device lost", ExitCode::Failure};
        const std::string contents = savedContents(step, 0, file, tensor);
        const ByteRange part = partOf(contents.size(), rank, ranks);
        std::memcpy(data, contents.data() + part.offset, part.bytes);
        return {};
      };
    }
    saved[static_cast<size_t>(rank)] =
        saveCheckpoint(group, run, savedState(step, 0), files, 0);
  });
  for (const Result<void> &result : saved)
    EXPECT_EQ(bool(result), bool(saved.front()));
  for (size_t rank = 0; rank < saved.size(); ++rank)
    if (!saved[rank] && static_cast<int>(rank) != failing) {
      EXPECT_THAT(saved[rank].error().message,
                  testing::HasSubstr("rank " + std::to_string(failing)));
    }
  return saved.front();
}

TEST(Checkpoint, RanksWriteTheSameFilesTogether) {
  TestFolder one, many;
  ASSERT_OK(save(one.path, 3, 0));
  for (int ranks : {2, 3, 5}) {
    ASSERT_OK(saveTogether(many.path, 3, ranks, -1));
    for (const std::string &file : stateFiles())
      EXPECT_TRUE(read(many / ("checkpoints/3/" + file)) == read(one / ("checkpoints/3/" + file)))
          << file << " of " << ranks << " ranks";
    ASSERT_OK(checkContents(many / "checkpoints/3"));
  }
  // What one rank cannot fetch, no rank saves.
  EXPECT_ERROR(saveTogether(many.path, 4, 3, 1), "device lost");
  EXPECT_FALSE(exists(many / "checkpoints/4"));
  EXPECT_FALSE(exists(many / "checkpoints/.4.partial"));
  ASSERT_OK(checkContents(many / "checkpoints/3"));
}

TEST(Checkpoint, RanksLoadTheirPartsAndFindDamageTogether) {
  TestFolder run;
  ASSERT_OK(save(run.path, 3, 0));
  constexpr int kRanks = 3;
  // Returns how many ranks found damage, and counts bytes that are not those that were saved.
  auto load = [&](uint64_t &wrong) {
    std::atomic<uint64_t> bad = 0;
    std::atomic<int> damaged = 0;
    onRanks(kRanks, [&](int rank, Communicator &group) {
      std::vector<CheckpointTarget> targets;
      for (size_t file = 0; file < stateFiles().size(); ++file) {
        CheckpointTarget target{stateFiles()[file], savedTensors(3), {}, {}};
        for (const TensorView &tensor : target.tensors)
          target.parts.push_back(partOf(tensor.bytes, rank, kRanks));
        target.store = [&, file, parts = target.parts](size_t tensor, const void *data,
                                                       uint64_t bytes, uint64_t offset) {
          const std::string want = savedContents(3, 0, file, tensor).substr(offset, bytes);
          bad += want != std::string(static_cast<const char *>(data), bytes);
          bad += offset < parts[tensor].offset ||
                 offset + bytes > parts[tensor].offset + parts[tensor].bytes;
          return Result<void>();
        };
        targets.push_back(std::move(target));
      }
      auto loaded = loadCheckpoint(group, run / "checkpoints/3", targets);
      EXPECT_TRUE(loaded);
      damaged += loaded && loaded->has_value();
    });
    wrong = bad;
    return damaged.load();
  };
  uint64_t wrong = 0;
  EXPECT_EQ(load(wrong), 0);
  EXPECT_EQ(wrong, 0u);
  const std::string path = run / "checkpoints/3/moment2.safetensors";
  std::string bytes = read(path);
  bytes[bytes.size() - 5] ^= 1;
  write(path, bytes);
  EXPECT_EQ(load(wrong), kRanks);
}

TEST(Checkpoint, FailingFetchLeavesTheEarlierOne) {
  TestFolder run;
  ASSERT_OK(save(run.path, 1, 1));
  std::vector<CheckpointFile> files = savedFiles(2, 0);
  files[1].fetch = [](size_t index, void *) -> Result<void> {
    return index < 2 ? Result<void>() : Error{"device lost", ExitCode::Failure};
  };
  auto saved = saveCheckpoint(alone(), run.path, savedState(2, 0), files, 1);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().message, "device lost"); // and no advice about the disk
  EXPECT_EQ(checkpointsOf(run.path), Names{"1"});
  EXPECT_EQ(latestStep(run.path), 1);
}

TEST(Checkpoint, AFolderThatWasMovedAwayIsNotMadeAgain) {
  TestFolder parent;
  EXPECT_ERROR(save(parent / "moved", 1, 1), "moved/checkpoints");
  EXPECT_FALSE(exists(parent / "moved"));
}

TEST(Checkpoint, FileNamesStayInsideTheFolder) {
  TestFolder run;
  for (const char *name : {"../model", "state.json", "", ".hidden", "a/b"}) {
    std::vector<CheckpointFile> files = savedFiles(1, 0);
    files[0].name = name;
    EXPECT_ERROR(saveCheckpoint(alone(), run.path, savedState(1, 0), files, 1), "with a file named");
  }
  EXPECT_FALSE(exists(run / "checkpoints"));
}

TEST(Checkpoint, RunFolderBelowAFileIsAnError) {
  TestFolder folder;
  write(folder / "file", "x");
  auto saved = save(folder / "file/run", 1, 1);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ExitCode::Failure);
  EXPECT_NE(saved.error().message.find("Not a directory"), std::string::npos)
      << saved.error().message;
  EXPECT_EQ(read(folder / "file"), "x");
}

TEST(CheckpointDisk, ReadOnlyDiskIsAnErrorAndLeavesTheEarlierOne) {
  TestDisk disk(1 << 20);
  if (!disk.mounted)
    GTEST_SKIP() << "cannot mount a tmpfs: " << disk.problem;
  ASSERT_OK(save(disk.path(), 1, 1));
  ASSERT_TRUE(disk.makeReadOnly());
  auto saved = save(disk.path(), 2, 1);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ExitCode::Failure);
  for (const char *part : {"Read-only file system", "earlier checkpoints", "are whole"})
    EXPECT_NE(saved.error().message.find(part), std::string::npos) << saved.error().message;
  EXPECT_EQ(latestStep(disk.path()), 1);
}

TEST(CheckpointDisk, FullDiskIsNoticedBeforeWriting) {
  TestDisk disk(1 << 20);
  if (!disk.mounted)
    GTEST_SKIP() << "cannot mount a tmpfs: " << disk.problem;
  ASSERT_OK(save(disk.path(), 1, 1));
  bool fetched = false;
  CheckpointFile big{"model.safetensors",
                     {{"w", plan::DType::F32, {1 << 20}, nullptr, 4 << 20}},
                     {},
                     [&](size_t, void *) {
                       fetched = true;
                       return Result<void>();
                     }};
  auto saved = saveCheckpoint(alone(), disk.path(), savedState(2, 0), {big}, 1);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ExitCode::Failure);
  std::string free = std::to_string(*freeBytes(disk.path())) + " free";
  for (const std::string &part : {std::string("too full: 42"), std::string(" bytes needed, "), free,
                                  std::string("are whole: free space")})
    EXPECT_NE(saved.error().message.find(part), std::string::npos) << saved.error().message;
  EXPECT_FALSE(fetched);
  EXPECT_EQ(checkpointsOf(disk.path()), Names{"1"});
  EXPECT_EQ(latestStep(disk.path()), 1);
}

// Somebody else fills the disk between the check and the last byte.
TEST(CheckpointDisk, DiskThatFillsMidwayLeavesTheEarlierOne) {
  TestDisk disk(1 << 20);
  if (!disk.mounted)
    GTEST_SKIP() << "cannot mount a tmpfs: " << disk.problem;
  ASSERT_OK(save(disk.path(), 1, 1));
  std::vector<CheckpointFile> files = savedFiles(2, 0);
  FetchTensor inner = files[2].fetch;
  files[2].fetch = [&](size_t index, void *data) {
    if (index == 0) {
      auto filler = File::create(disk.path() + "/filler");
      std::string block(4096, 'x');
      while (filler && filler->write(block.data(), block.size()))
        ;
    }
    return inner(index, data);
  };
  auto saved = saveCheckpoint(alone(), disk.path(), savedState(2, 0), files, 1);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ExitCode::Failure);
  for (const char *part : {"moment2.safetensors: No space left", "are whole: free space"})
    EXPECT_NE(saved.error().message.find(part), std::string::npos) << saved.error().message;
  EXPECT_EQ(checkpointsOf(disk.path()), Names{"1"}); // nothing half-written stays
  EXPECT_EQ(latestStep(disk.path()), 1);
  ASSERT_OK(removeTree(disk.path() + "/filler"));
  ASSERT_OK(save(disk.path(), 2, 1));
  EXPECT_EQ(latestStep(disk.path()), 2);
}
