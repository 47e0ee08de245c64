#include "tools/lmc-run/monitors/TensorBoard.h"

#include "ground/support/Crc32c.h"
#include "ground/support/File.h"
#include "runtime/settings/TimeLimit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <unistd.h>

namespace lmc {

static constexpr std::string_view kPrefix = "events.out.tfevents.";

//===--- Protocol Buffers -------------------------------------------------===//

// Writes the encoding of Protocol Buffers (protobuf.dev/programming-guides/encoding). Each field is
// its number and wire type, together as a varint, followed by its value.

template <typename T> static void putFixed(std::string &out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out += static_cast<char>(value >> 8 * i);
}

static void putVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

static void putInteger(std::string &out, uint32_t field, int64_t value) {
  putVarint(out, field << 3);
  putVarint(out, static_cast<uint64_t>(value));
}

static void putDouble(std::string &out, uint32_t field, double value) {
  putVarint(out, field << 3 | 1);
  putFixed(out, std::bit_cast<uint64_t>(value));
}

static void putBytes(std::string &out, uint32_t field, std::string_view value) {
  putVarint(out, field << 3 | 2);
  putVarint(out, value.size());
  out += value;
}

static void putFloat(std::string &out, uint32_t field, float value) {
  putVarint(out, field << 3 | 5);
  putFixed(out, std::bit_cast<uint32_t>(value));
}

//===--- Records ----------------------------------------------------------===//

static uint32_t maskedCrc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

std::string tfRecord(std::string_view data) {
  std::string record;
  putFixed(record, static_cast<uint64_t>(data.size()));
  putFixed(record, maskedCrc(record));
  record += data;
  putFixed(record, maskedCrc(data));
  return record;
}

// Returns the TFRecord record of an Event whose field `field` is `content`.
static std::string eventRecord(int64_t step, uint32_t field, std::string_view content) {
  std::string event;
  putDouble(event, 1, unixSeconds());
  putInteger(event, 2, step);
  putBytes(event, field, content);
  return tfRecord(event);
}

std::vector<std::pair<std::string, double>> scalarsOf(const StepRecord &record) {
  std::vector<std::pair<std::string, double>> scalars = {
      {"loss", record.loss},
      {"lr", record.lr},
      {"grad_norm", record.gradNorm},
      {"update_ratio", record.updateRatio},
      {"tokens", static_cast<double>(record.tokens)},
      {"step_seconds", record.stepSeconds},
      {"data_seconds", record.dataSeconds},
      {"validation_seconds", record.validationSeconds},
      {"save_seconds", record.saveSeconds},
      {"memory", static_cast<double>(record.memoryBytes)}};
  if (record.balanceLoss)
    scalars.emplace_back("balance_loss", *record.balanceLoss);
  for (const RouterRecord &router : record.routers)
    for (const auto &[name, value] : valuesOf(router))
      scalars.emplace_back(fmt::format("router/{}/{}", router.layer, name), value);
  // The tag "mfu" is PaLM's MFU (arXiv 2204.02311, appendix B), which counts all attention scores.
  for (const auto &[tag, value] : {std::pair("tokens_per_second", record.tokensPerSecond),
                                   {"mfu", record.mfuFull},
                                   {"mfu_causal", record.mfuCausal},
                                   {"tflops_per_device", record.deviceFlops / 1e12}})
    if (std::isfinite(value))
      scalars.emplace_back(tag, value);
  for (const ValidationRecord &validation : record.validations) {
    const std::string prefix = "validation/" + (validation.set.empty() ? "" : validation.set + "/");
    scalars.emplace_back(prefix + "loss", validation.loss);
    scalars.emplace_back(prefix + "perplexity", std::exp(validation.loss));
    if (validation.bitsPerByte)
      scalars.emplace_back(prefix + "bits_per_byte", *validation.bitsPerByte);
  }
  for (const SourceRecord &source : record.sources) {
    scalars.emplace_back(fmt::format("sources/{}/tokens", source.name),
                         static_cast<double>(source.tokens));
    scalars.emplace_back(fmt::format("sources/{}/epochs", source.name), source.epochs);
  }
  return scalars;
}

// Returns the record of an Event with scalars, which are pairs of a tag and a number. `prefix` is
// put before each tag.
static std::string scalarRecord(int64_t step, const std::string &prefix, const auto &scalars) {
  std::string summary;
  for (const auto &[tag, number] : scalars) {
    std::string value;
    putBytes(value, 1, prefix + tag);
    putFloat(value, 2, static_cast<float>(number));
    putBytes(summary, 1, value);
  }
  return eventRecord(step, 5, summary);
}

// Returns a text as a code block of Markdown, in which each line begins with four spaces.
static std::string codeBlock(const std::string &text) {
  std::string block = "    ";
  for (const char c : text) {
    block += c;
    if (c == '\n')
      block += "    ";
  }
  return block + "\n";
}

static std::string textRecord(int64_t step, const std::vector<GeneratedText> &texts) {
  std::string plugin, metadata, dim, shape, summary;
  putBytes(plugin, 1, "text");
  putBytes(metadata, 1, plugin);
  putInteger(dim, 1, 1);
  putBytes(shape, 2, dim);
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string tensor, value;
    putInteger(tensor, 1, 7);
    putBytes(tensor, 2, shape);
    putBytes(tensor, 8,
             "prompt:\n\n" + codeBlock(texts[i].prompt) + "\ngenerated:\n\n" +
                 codeBlock(texts[i].text));
    putBytes(value, 1, fmt::format("generated/{}", i + 1));
    putBytes(value, 8, tensor);
    putBytes(value, 9, metadata);
    putBytes(summary, 1, value);
  }
  return eventRecord(step, 5, summary);
}

//===--- Files ------------------------------------------------------------===//

// Returns a name for a new file that sorts after all event files in the folder.
static Result<std::string> newName(const std::string &folder) {
  LMC_LET(names, listFolder(folder));
  auto seconds = static_cast<int64_t>(unixSeconds());
  for (const std::string &name : *names) {
    int64_t other = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other).ec ==
            std::errc())
      seconds = std::max(seconds, other + 1);
  }
  char host[256] = "host";
  (void)::gethostname(host, sizeof(host) - 1);
  return fmt::format("{}{:010}.{}.{}.lmc", kPrefix, seconds, host, ::getpid());
}

Result<void> TensorBoardWriter::open() {
  LMC_TRY(makeFolders(folder));
  LMC_LET(name, newName(folder));
  LMC_LET(opened, AppendFile::open(folder + "/" + *name));
  std::string start;
  putInteger(start, 1, 1); // SessionLog.status = START
  head = eventRecord(0, 3, "brain.Event:2") + eventRecord(firstStep, 7, start);
  file.emplace(std::move(*opened));
  return {};
}

Result<void> TensorBoardWriter::writeWaiting() {
  if (!file)
    LMC_TRY(open());
  std::string records = file->size() == 0 ? head : "";
  for (const std::string &record : waiting)
    records += record;
  const Result<void> written = file->write(records);
  if (!written)
    file->drop(); // they wait here
  return written;
}

Result<void> TensorBoardWriter::write(const StepRecord &record) {
  return add(record.step, scalarRecord(record.step, "", scalarsOf(record)));
}

Result<void> TensorBoardWriter::write(int64_t step, const EvaluationResults &results) {
  return add(step, scalarRecord(step, "evaluation/", results));
}

Result<void> TensorBoardWriter::write(const StepUpdates &updates) {
  std::vector<std::pair<std::string, double>> scalars;
  for (const TensorUpdate &tensor : updates.tensors) {
    if (tensor.ratio)
      scalars.emplace_back("updates/" + tensor.name, *tensor.ratio);
    scalars.emplace_back("weight_rms/" + tensor.name, tensor.weightRms);
  }
  return add(updates.step, scalarRecord(updates.step, "", scalars));
}

Result<void> TensorBoardWriter::write(int64_t step, const std::vector<GeneratedText> &texts) {
  return add(step, textRecord(step, texts));
}

Result<void> TensorBoardWriter::add(int64_t step, std::string record) {
  if (file && file->isRemoved())
    file.reset();
  if (!file && waiting.empty())
    firstStep = step;
  waiting.push_back(std::move(record));
  waitingBytes += waiting.back().size();
  for (; waitingBytes > kMostWaiting; waiting.pop_front()) {
    waitingBytes -= waiting.front().size();
    dropped = true;
  }
  const auto now = clock();
  if (failure && now < next)
    return *failure;
  failure.reset();
  if (const Result<void> written = writeWaiting(); !written) {
    failure = written.error();
    next = now + kMonitorPause;
    return *failure;
  }
  waiting.clear();
  waitingBytes = 0;
  dropped = false;
  return {};
}

} // namespace lmc
