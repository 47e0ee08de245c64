#include "runtime/monitor/Console.h"

#include "ground/support/Size.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lmc {

std::string formatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e10)
    return "?";
  auto total = static_cast<int64_t>(std::llround(seconds));
  int64_t days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60;
  if (days > 0)
    return fmt::format("{}d {:02}:{:02}:{:02}", days, hours, minutes, total % 60);
  return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
}

// Formats a number as "12,345".
static std::string grouped(double value) {
  if (!std::isfinite(value) || value < 0 || value > 1e15)
    return "?";
  std::string digits = fmt::format("{}", std::llround(value));
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

static std::string percent(double fraction) {
  return std::isfinite(fraction) ? fmt::format("{:.1f}%", 100 * fraction) : "?";
}

Console::Console(FILE *out, FILE *err)
    : out(out), err(err), live(::isatty(::fileno(out)) == 1) {}

void Console::setSteps(int64_t interval, int64_t total) {
  logInterval = interval;
  totalSteps = total;
}

Console::~Console() {
  if (lineShown) // the newline keeps the last progress line on the screen
    std::fputc('\n', out);
  std::fflush(out);
}

void Console::clearLive() {
  if (lineShown)
    std::fputs("\r\x1b[K", out);
  lineShown = false;
}

void Console::record(RunLog *to) { log = to; }

void Console::note(const std::string &line) {
  if (log)
    log->line(line);
  std::lock_guard lock(mutex);
  print(line);
}

void Console::print(const std::string &line) {
  clearLive();
  std::fputs(fmt::format("{}\n", line).c_str(), out);
  std::fflush(out);
}

void Console::warning(const std::string &line) {
  if (log) {
    log->line("warning: " + line);
    log->event("warning", {{"text", line}});
  }
  std::lock_guard lock(mutex);
  clearLive();
  std::fflush(out);
  std::fputs(fmt::format("warning: {}\n", line).c_str(), err);
  std::fflush(err);
}

void Console::notes(const std::vector<std::string> &lines) {
  for (const std::string &line : lines)
    note(line);
}

void Console::warnings(const std::vector<std::string> &lines) {
  for (const std::string &line : lines)
    warning(line);
}

std::string Console::progressLine(const StepRecord &record) const {
  std::string line = fmt::format("step {}/{} | loss {:.4f} | lr {:.3e} | grad norm {:.3f} | ",
                                 record.step, totalSteps, record.loss, record.lr, record.gradNorm);
  // The record's MFU is that of one step. It is scaled to the average rate that the line shows.
  const double part = smoothedRate / record.tokensPerSecond;
  line +=
      fmt::format("{} tokens/s | MFU {} causal, {} full{} | mem {} | ETA {}", grouped(smoothedRate),
                  percent(part * record.mfuCausal), percent(part * record.mfuFull),
                  part * record.deviceFlops > 0
                      ? fmt::format(", {:.3g} TFLOP/s a device", part * record.deviceFlops / 1e12)
                      : "",
                  formatBytes(record.memoryBytes),
                  formatDuration(smoothedSeconds * static_cast<double>(totalSteps - record.step) +
                                 record.pendingSeconds));
  for (const ValidationRecord &validation : record.validations) {
    line +=
        fmt::format(" | validation {}{}loss {:.4f}, perplexity {:.4g}", validation.set,
                    validation.set.empty() ? "" : ": ", validation.loss, std::exp(validation.loss));
    if (validation.bitsPerByte)
      line += fmt::format(", {:.4f} bits per byte", *validation.bitsPerByte);
  }
  if (record.skipped != SkipReason::None)
    line += " | skipped";
  return line;
}

void Console::step(const StepRecord &record) {
  // The first step includes a warm-up, so the averages start anew with the second step.
  double weight = shownSteps < 2 ? 1.0 : 0.1;
  smoothedSeconds += weight * (record.stepSeconds - smoothedSeconds);
  if (std::isfinite(record.tokensPerSecond))
    smoothedRate += weight * (record.tokensPerSecond - smoothedRate);
  ++shownSteps;

  std::string line = progressLine(record);
  const bool logged = record.step % logInterval == 0 || shownSteps == 1 ||
                      record.step == totalSteps || !record.validations.empty();
  if (log && logged)
    log->line(line);
  std::lock_guard lock(mutex);
  if (!live) {
    if (logged)
      print(line);
    return;
  }
  if (!record.validations.empty())
    return print(line);
  clearLive();
  winsize window{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &window) == 0 && window.ws_col > 1 &&
      line.size() >= window.ws_col)
    line.resize(window.ws_col - 1u); // the line is cut, because a wrapped line could not be erased
  std::fputs(line.c_str(), out);
  std::fflush(out);
  lineShown = true;
}

} // namespace lmc
