#include "tools/lmc-run/monitors/TensorBoard.h"

#include "ground/support/Crc32c.h"
#include "test/runtime/checkpoint/TestFolder.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>

namespace lmc {
namespace {

using test::TestDisk;
using test::TestFolder;

template <typename T> T littleEndian(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= T(static_cast<unsigned char>(bytes.at(i))) << 8 * i;
  return value;
}

uint32_t maskedCrcOf(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

// Takes the data of the first record off `bytes`, and checks its framing.
std::string_view nextRecord(std::string_view &bytes) {
  const std::string_view length = bytes.substr(0, 8);
  EXPECT_EQ(littleEndian<uint32_t>(bytes.substr(8)), maskedCrcOf(length));
  const std::string_view data = bytes.substr(12, littleEndian<uint64_t>(length));
  EXPECT_EQ(littleEndian<uint32_t>(bytes.substr(12 + data.size())), maskedCrcOf(data));
  bytes.remove_prefix(16 + data.size());
  return data;
}

// The fields of a message of Protocol Buffers: numbers as their bits, and texts.
struct ProtoField {
  uint32_t number = 0;
  uint64_t bits = 0;
  std::string_view text;
};

uint64_t takeVarint(std::string_view &bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(0));
    bytes.remove_prefix(1);
    value |= uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80)
      return value;
  }
}

std::vector<ProtoField> fieldsOf(std::string_view bytes) {
  std::vector<ProtoField> fields;
  while (!bytes.empty()) {
    const uint64_t key = takeVarint(bytes);
    ProtoField field{static_cast<uint32_t>(key >> 3), 0, {}};
    size_t size = 0;
    switch (key & 7) {
    case 0:
      field.bits = takeVarint(bytes);
      break;
    case 1:
      field.bits = littleEndian<uint64_t>(bytes), size = 8;
      break;
    case 2:
      size = takeVarint(bytes), field.text = bytes.substr(0, size);
      break;
    case 5:
      field.bits = littleEndian<uint32_t>(bytes), size = 4;
      break;
    default:
      ADD_FAILURE() << "wire type " << (key & 7);
    }
    bytes.remove_prefix(size);
    fields.push_back(field);
  }
  return fields;
}

struct PlottedEvent {
  uint64_t step = 0;
  bool starts = false;
  std::string version;
  std::map<std::string, float> scalars;
};

PlottedEvent eventOf(std::string_view data) {
  PlottedEvent event;
  for (const ProtoField &field : fieldsOf(data)) {
    if (field.number == 2)
      event.step = field.bits;
    if (field.number == 3)
      event.version = field.text;
    if (field.number == 7)
      event.starts = fieldsOf(field.text).at(0).bits == 1;
    if (field.number == 5)
      for (const ProtoField &value : fieldsOf(field.text)) {
        const std::vector<ProtoField> parts = fieldsOf(value.text);
        event.scalars[std::string(parts.at(0).text)] =
            std::bit_cast<float>(static_cast<uint32_t>(parts.at(1).bits));
      }
  }
  return event;
}

// The events of all files in a folder, in the order of the files' names.
std::vector<PlottedEvent> eventsIn(const std::string &folder) {
  std::vector<PlottedEvent> events;
  auto names = listFolder(folder);
  EXPECT_TRUE(bool(names));
  for (const std::string &name : *names) {
    const std::string text = test::read(folder + "/" + name);
    for (std::string_view rest = text; !rest.empty();)
      events.push_back(eventOf(nextRecord(rest)));
  }
  return events;
}

struct TestTime {
  MonitorClock clock() {
    return [this] { return now; };
  }
  std::chrono::steady_clock::time_point now;
};

StepRecord plottedStep(int64_t step, double loss = 2.5) {
  StepRecord record;
  record.step = step;
  record.loss = loss;
  record.tokensPerSecond = record.mfuFull = std::numeric_limits<double>::quiet_NaN();
  record.mfuCausal = 0.25;
  return record;
}

TEST(TensorBoard, ARecordIsFramedAsTfRecordsAre) {
  EXPECT_EQ(tfRecord("abc").substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(tfRecord("abc").substr(12, 3), "abc");
  EXPECT_EQ(tfRecord("abc").size(), 19u);
  std::string bytes = tfRecord("abc") + tfRecord(std::string(300, 'x')) + tfRecord("");
  std::string_view rest = bytes;
  EXPECT_EQ(nextRecord(rest), "abc");
  EXPECT_EQ(nextRecord(rest), std::string(300, 'x'));
  EXPECT_EQ(nextRecord(rest), "");
  EXPECT_EQ(rest, "");
}

TEST(TensorBoard, UnknownRatesAreLeftOutAndALossThatIsNotFiniteStays) {
  StepRecord record = plottedStep(1, std::numeric_limits<double>::infinity());
  record.validations = {{"", 1, {}}, {"web", 2, 0.5}};
  record.sources = {{"books", 64, 0.125}};
  record.balanceLoss = 0.0625;
  record.routers = {{.layer = 7, .counts = {3, 1}, .entropy = 0.5, .balanceLoss = 2.5}};
  std::map<std::string, double> scalars;
  for (const auto &[tag, value] : scalarsOf(record))
    EXPECT_TRUE(scalars.emplace(tag, value).second) << tag;
  EXPECT_FALSE(scalars.count("mfu"));
  EXPECT_FALSE(scalars.count("tokens_per_second"));
  EXPECT_EQ(scalars.at("mfu_causal"), 0.25);
  EXPECT_TRUE(std::isinf(scalars.at("loss")));
  EXPECT_EQ(scalars.at("validation/loss"), 1);
  EXPECT_EQ(scalars.at("validation/web/loss"), 2);
  EXPECT_EQ(scalars.at("validation/web/bits_per_byte"), 0.5);
  EXPECT_FALSE(scalars.count("validation/bits_per_byte"));
  EXPECT_EQ(scalars.at("sources/books/epochs"), 0.125);
  EXPECT_EQ(scalars.at("balance_loss"), 0.0625);
  EXPECT_EQ(scalars.at("router/7/max_load"), 0.75);
  EXPECT_EQ(scalars.at("router/7/balance_loss"), 2.5);
}

TEST(TensorBoard, EachStartWritesAFileThatLetsLaterStepsOfEarlierOnesBeDropped) {
  TestFolder folder;
  {
    TensorBoardWriter first(folder / "t");
    for (int64_t step = 1; step <= 3; ++step)
      ASSERT_OK(first.write(plottedStep(step)));
  }
  TensorBoardWriter second(folder / "t"); // in the same second
  ASSERT_OK(second.write(plottedStep(2, 7)));
  const std::vector<PlottedEvent> events = eventsIn(folder / "t");
  ASSERT_EQ(events.size(), 8u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_TRUE(events[1].starts);
  EXPECT_EQ(events[1].step, 1u);
  EXPECT_EQ(events[4].step, 3u);
  EXPECT_EQ(events[5].version, "brain.Event:2");
  EXPECT_TRUE(events[6].starts);
  EXPECT_EQ(events[6].step, 2u);
  EXPECT_EQ(events[7].scalars.at("loss"), 7);
}

TEST(TensorBoard, UpdatesOfTensorsStandAtTheirStep) {
  TestFolder folder;
  TensorBoardWriter writer(folder / "t");
  ASSERT_OK(writer.write(plottedStep(8)));
  ASSERT_OK(writer.write({6, 0.1, {{"a.weight", true, 0.5, 2}, {"b", false, std::nullopt, 4}}}));
  const PlottedEvent event = eventsIn(folder / "t").back();
  EXPECT_EQ(event.step, 6u);
  EXPECT_EQ(event.scalars,
            (std::map<std::string, float>{
                {"updates/a.weight", 0.5F}, {"weight_rms/a.weight", 2}, {"weight_rms/b", 4}}));
}

TEST(TensorBoard, NoStepIsLostWhileTheFileCannotBeMadeAndThatIsTriedOnceAMinute) {
  TestFolder folder;
  test::write(folder / "t", "a file where the folder should be");
  TestTime time;
  TensorBoardWriter writer(folder / "t", time.clock());
  EXPECT_ERROR(writer.write(plottedStep(5)), folder / "t");
  ASSERT_OK(removeTree(folder / "t"));
  time.now += std::chrono::seconds(59);
  EXPECT_ERROR(writer.write(plottedStep(6)), folder / "t");
  EXPECT_FALSE(exists(folder / "t"));
  time.now += std::chrono::seconds(1);
  ASSERT_OK(writer.write(plottedStep(7)));
  const std::vector<PlottedEvent> events = eventsIn(folder / "t");
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[1].step, 5u);
  EXPECT_EQ(events[2].step, 5u);
  EXPECT_EQ(events[4].step, 7u);
}

TEST(TensorBoard, TheOldestStepsAreDroppedWhenTooManyWait) {
  TestFolder folder;
  test::write(folder / "t", "a file where the folder should be");
  TestTime time;
  TensorBoardWriter writer(folder / "t", time.clock());
  StepRecord record = plottedStep(0);
  record.sources = {{std::string(1 << 20, 'x'), 64, 0.125}}; // has two tags of a MiB
  for (record.step = 5; record.step < 12; ++record.step)
    EXPECT_ERROR(writer.write(record), folder / "t");
  EXPECT_FALSE(writer.hasDropped());
  for (; record.step < 30; ++record.step)
    EXPECT_ERROR(writer.write(record), folder / "t");
  EXPECT_TRUE(writer.hasDropped());
  ASSERT_OK(removeTree(folder / "t"));
  time.now += std::chrono::seconds(60);
  ASSERT_OK(writer.write(plottedStep(30)));
  EXPECT_FALSE(writer.hasDropped());
  const std::vector<PlottedEvent> events = eventsIn(folder / "t");
  ASSERT_EQ(events.size(), 2u + 7 + 1);
  EXPECT_EQ(events[1].step, 5u); // earlier files must not show these steps any more
  for (size_t i = 2; i < events.size(); ++i)
    EXPECT_EQ(events[i].step, 23 + i - 2);
}

TEST(TensorBoard, AFileThatWasRemovedIsReplaced) {
  TestFolder folder;
  TensorBoardWriter writer(folder / "t");
  ASSERT_OK(writer.write(plottedStep(1)));
  ASSERT_OK(removeTree(folder / "t"));
  ASSERT_OK(writer.write(plottedStep(2)));
  const std::vector<PlottedEvent> events = eventsIn(folder / "t");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].step, 2u);
}

TEST(TensorBoard, AFullDiskLosesNoStepAndLeavesNoPartOfARecord) {
  TestDisk disk(64 << 10);
  if (!disk.mounted)
    GTEST_SKIP() << "cannot mount a disk: " << disk.problem;
  TestTime time;
  TensorBoardWriter writer(disk.path() + "/t", time.clock());
  ASSERT_OK(writer.write(plottedStep(1)));
  std::string filler(64 << 10, 'x');
  EXPECT_FALSE(bool(writeTextFile(disk.path() + "/filler", filler)));
  int64_t step = 2;
  while (writer.write(plottedStep(step)))
    ASSERT_LT(++step, 1000);
  EXPECT_ERROR(writer.write(plottedStep(step + 1)), "No space left");
  EXPECT_EQ(eventsIn(disk.path() + "/t").back().step, uint64_t(step - 1));
  ASSERT_OK(removeTree(disk.path() + "/filler"));
  time.now += std::chrono::seconds(60);
  ASSERT_OK(writer.write(plottedStep(step + 2)));
  const std::vector<PlottedEvent> events = eventsIn(disk.path() + "/t");
  ASSERT_EQ(events.size(), size_t(step + 4));
  for (size_t i = 2; i < events.size(); ++i)
    EXPECT_EQ(events[i].step, i - 1);
}

} // namespace
} // namespace lmc
