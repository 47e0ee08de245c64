#include "runtime/monitor/Metrics.h"

#include "runtime/support/File.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <unistd.h>
#include <utility>

namespace lmc {

// Returns true if `line` is the record of step `lastStep` or an earlier one.
static bool keepLine(const std::string &line, int64_t lastStep) {
  nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object())
    return false;
  auto step = record.find("step");
  return step != record.end() && step->is_number_integer() && step->get<int64_t>() <= lastStep;
}

Result<MetricsWriter> MetricsWriter::open(const std::string &path, int64_t lastStep) {
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    return systemError("open", path, errno);
  uint64_t end = 0;
  {
    std::ifstream file(path, std::ios::binary);
    // getline() sets eof if the file ends before a newline: such a line is not complete and is
    // dropped.
    for (std::string line; std::getline(file, line) && !file.eof(); end += line.size() + 1)
      if (!keepLine(line, lastStep))
        break;
  }
  MetricsWriter writer(fd, path, end);
  if (::ftruncate(fd, static_cast<off_t>(end)) != 0)
    return systemError("shorten", path, errno);
  return writer;
}

MetricsWriter::MetricsWriter(MetricsWriter &&other) noexcept
    : fd(std::exchange(other.fd, -1)), path(std::move(other.path)), end(other.end),
      pending(std::move(other.pending)) {}

MetricsWriter::~MetricsWriter() {
  if (fd >= 0)
    ::close(fd);
}

static std::string jsonLine(const StepRecord &record) {
  nlohmann::ordered_json json;
  json["step"] = record.step;
  json["loss"] = record.loss;
  json["lr"] = record.lr;
  json["grad_norm"] = record.gradNorm;
  json["update_ratio"] = record.updateRatio;
  json["tokens"] = record.tokens;
  json["tokens_per_second"] = record.tokensPerSecond;
  json["mfu_causal"] = record.mfuCausal;
  json["mfu_full"] = record.mfuFull;
  json["step_seconds"] = record.stepSeconds;
  json["memory_bytes"] = record.memoryBytes;
  if (record.skipped)
    json["skipped"] = true;
  if (record.validationLoss)
    json["validation_loss"] = *record.validationLoss;
  return json.dump() + "\n";
}

Result<void> MetricsWriter::write(const StepRecord &record) {
  pending += jsonLine(record);
  size_t written = 0;
  while (written < pending.size()) {
    ssize_t count = ::pwrite(fd, pending.data() + written, pending.size() - written,
                             static_cast<off_t>(end + written));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0) {
      Error error = systemError("write", path, count < 0 ? errno : ENOSPC);
      // Removes the part of the line that was written. If this fails too, the next open() removes
      // that part.
      (void)!::ftruncate(fd, static_cast<off_t>(end));
      return error;
    }
    written += static_cast<size_t>(count);
  }
  end += written;
  pending.clear();
  return {};
}

} // namespace lmc
