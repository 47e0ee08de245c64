// Writes the scalars of a run as event files of TensorBoard.
//
// An event file is a TFRecord file: for each record
//
//   uint64 length | uint32 masked CRC-32C of the length | data | uint32 masked CRC-32C of the data
//
// in little-endian, where the mask of a CRC c is ((c >> 15 | c << 17) + 0xA282EAD8) mod 2^32
// (tensorflow/core/lib/io/record_writer.h and lib/hash/crc32c.h). The data is a message `Event` of
// Protocol Buffers (tensorboard/compat/proto/event.proto and summary.proto). These fields are used:
//
//   Event       wall_time = 1 (double, seconds since 1970), step = 2 (int64), file_version = 3,
//               summary = 5, session_log = 7
//   Summary     value = 1 (repeated Value);  Value: tag = 1, simple_value = 2 (float), tensor = 8,
//               metadata = 9
//   Metadata    plugin_data = 1; PluginData: plugin_name = 1 ("text" for texts)
//   Tensor      dtype = 1 (DT_STRING = 7), tensor_shape = 2, string_val = 8; Shape: dim = 2;
//               Dim: size = 1
//   SessionLog  status = 1 (START = 1)
//
// Each start of a run writes its own file, which begins with a SessionLog START at the start's
// first step. TensorBoard then drops the values that earlier files have for this and later steps
// (plugin_event_accumulator.py), so it shows no step twice after a resume. TensorBoard reads the
// files in the order of their names, which begin with the time.
#pragma once

#include "ground/support/EvaluationResults.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/monitor/RunObserver.h"
#include "runtime/monitor/files/AppendFile.h"
#include "tools/lmc-run/monitors/Clock.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lmc {

// Returns `data` as a record of a TFRecord file.
std::string tfRecord(std::string_view data);

// Returns the tags and values of a step: "loss", "validation/web/loss", ...
std::vector<std::pair<std::string, double>> scalarsOf(const StepRecord &record);

class TensorBoardWriter {
public:
  // The maximum number of bytes of records that wait to be written.
  static constexpr size_t kMostWaiting = 16 << 20;

  // Makes a writer for a new file in `folder`, which is created at the first step.
  explicit TensorBoardWriter(std::string folder, MonitorClock clock = monitorTime)
      : folder(std::move(folder)), clock(std::move(clock)) {}

  // Writes the scalars of a step in single precision, to a new file if the old one was removed. If
  // this fails, the step's record waits, and calls within a minute return the same Error at once.
  // At most kMostWaiting bytes wait; beyond that, the oldest records are dropped.
  Result<void> write(const StepRecord &record);
  // Write generated texts as Markdown with the tags "generated/1", ..., and the results of an
  // evaluation as "evaluation/NAME".
  Result<void> write(int64_t step, const std::vector<GeneratedText> &texts);
  Result<void> write(int64_t step, const EvaluationResults &results);
  // Writes the update ratios as "updates/NAME", and the weights' root mean squares as
  // "weight_rms/NAME".
  Result<void> write(const StepUpdates &updates);

  // Returns true if steps were dropped since the last successful attempt to write.
  bool hasDropped() const { return dropped; }

private:
  Result<void> open();
  Result<void> add(int64_t step, std::string record);
  Result<void> writeWaiting();

  std::string folder;
  MonitorClock clock;
  std::optional<AppendFile> file;
  std::string head;                // of the file
  std::deque<std::string> waiting; // records of steps that are not in the file
  size_t waitingBytes = 0;
  bool dropped = false;
  int64_t firstStep = 0;                      // first step that the file has or will have
  std::optional<Error> failure;               // why the last write failed; empty: it succeeded
  std::chrono::steady_clock::time_point next; // time of the next attempt after `failure`
};

} // namespace lmc
