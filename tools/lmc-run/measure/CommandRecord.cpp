#include "tools/lmc-run/measure/CommandRecord.h"

#include "ground/plan/FloatConvert.h"
#include "ground/support/File.h"
#include "ground/support/Json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

using nlohmann::ordered_json;

namespace lmc {

namespace {

// Maps each 64-bit number to another one that looks random (splitmix64: Steele, Lea, Flood 2014).
uint64_t mixed(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

double elementAt(plan::DType dtype, const char *data, uint64_t index) {
  auto as = [&](auto value) {
    std::memcpy(&value, data + index * sizeof value, sizeof value);
    return value;
  };
  switch (dtype) {
  case plan::DType::F32:
    return double(as(float()));
  case plan::DType::F64:
    return as(double());
  case plan::DType::BF16:
    return double(fromBFloat16(as(uint16_t())));
  case plan::DType::F16:
    return double(fromFloat16(as(uint16_t())));
  case plan::DType::I32:
    return double(as(int32_t()));
  case plan::DType::I8:
    return double(as(int8_t()));
  case plan::DType::F8E4M3:
    return double(fromE4M3(as(uint8_t())));
  case plan::DType::F8E5M2:
    return double(fromE5M2(as(uint8_t())));
  }
  return 0;
}

double defaultTolerance(const plan::Plan &plan) {
  bool hasBFloat16 = false, hasDouble = false;
  for (const plan::Slice *slice : *plan.slices()) {
    hasBFloat16 |= slice->dtype() == plan::DType::BF16 || slice->dtype() == plan::DType::F16 ||
                   slice->dtype() == plan::DType::F8E4M3 || slice->dtype() == plan::DType::F8E5M2;
    hasDouble |= slice->dtype() == plan::DType::F64;
  }
  return hasBFloat16 ? 5e-2 : hasDouble ? 1e-9 : 1e-4;
}

// If `command` has ended, the earlier commands of its stream have ended. Moves all of these from
// the list `from` to `ended`. If `command` is a collective, does the same for its Collective.after.
void addEnded(const plan::Function &function, int64_t command, std::vector<uint32_t> &from,
              std::vector<uint32_t> &ended) {
  if (command < 0)
    return;
  const plan::Command &at = *function.commands()->Get(uint32_t(command));
  const plan::Collective *collective = at.body_as_Collective();
  std::vector<uint32_t> rest;
  for (uint32_t each : from)
    (each <= command && function.commands()->Get(each)->stream() == at.stream() ? ended : rest)
        .push_back(each);
  from = std::move(rest);
  if (collective)
    addEnded(function, collective->after(), from, ended);
}

ordered_json jsonOf(const std::string &name, const ResultSums &sums, double scale) {
  return {{"name", name},   {"elements", sums.elements},    {"norm", sums.norm},
          {"scale", scale}, {"not_finite", sums.notFinite}, {"projections", sums.projections}};
}

ResultSums sumsOf(const ordered_json &output) {
  ResultSums sums;
  sums.elements = output.at("elements").get<uint64_t>();
  sums.notFinite = output.at("not_finite").get<uint64_t>();
  sums.norm = output.at("norm").get<double>();
  sums.projections = output.at("projections").get<decltype(sums.projections)>();
  return sums;
}

// Returns a text that names the command of a line: "run 0 of micro, command 17".
std::string placeOf(const ordered_json &line) {
  return fmt::format("run {} of {}, command {}", line.at("run").get<uint64_t>(),
                     line.at("function").get<std::string>(), line.at("command").get<uint64_t>());
}

// Returns the sums over `rows` rows of `elements` elements. Rows begin `pitch` bytes apart.
ResultSums sumsOf(plan::DType dtype, const char *data, uint64_t rows, uint64_t elements,
                  uint64_t pitch) {
  ResultSums sums;
  sums.elements = rows * elements;
  double squares = 0;
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t i = 0; i < elements; ++i) {
      const double value = elementAt(dtype, data + row * pitch, i);
      if (!std::isfinite(value)) {
        ++sums.notFinite;
        continue;
      }
      squares += value * value;
      const uint64_t signs = mixed(row * elements + i);
      for (size_t k = 0; k < ResultSums::kProjections; ++k)
        sums.projections[k] += (signs >> k & 1) ? value : -value;
    }
  sums.norm = std::sqrt(squares);
  return sums;
}

// Returns an estimate of the L2 norm of the difference between two results, divided by `scale`;
// infinity if one result has more elements, or more finite elements, than the other.
double estimatedDifference(const ResultSums &one, const ResultSums &other, double scale) {
  if (one.elements != other.elements || one.notFinite != other.notFinite)
    return std::numeric_limits<double>::infinity();
  double squares = 0;
  for (size_t k = 0; k < ResultSums::kProjections; ++k)
    squares += std::pow(one.projections[k] - other.projections[k], 2);
  if (squares == 0)
    return 0;
  return std::sqrt(squares / double(ResultSums::kProjections)) / scale;
}

// Sets the relative difference of each result. Returns true if no difference exceeds `tolerance`.
bool compare(ordered_json &line, const ordered_json &expected, double tolerance) {
  double largest = 0;
  for (size_t i = 0; i < line["outputs"].size(); ++i) {
    ordered_json &output = line["outputs"][i];
    const ordered_json &theirs = expected.at("outputs").at(i);
    const double scale = std::max(output["scale"].get<double>(), theirs.at("scale").get<double>());
    const double difference = estimatedDifference(sumsOf(output), sumsOf(theirs), scale);
    output["difference"] = difference;
    largest = std::max(largest, difference);
  }
  line["difference"] = largest;
  line["ok"] = largest <= tolerance;
  return largest <= tolerance;
}

} // namespace

std::string CommandRecord::fileOf(const std::string &path, const World &world) {
  return world.rank() == 0 ? path : fmt::format("{}.rank{}", path, world.rank());
}

std::unique_ptr<CommandRecord>
CommandRecord::toWrite(const PlanFile &plan, const std::string &device, const std::string &path) {
  std::unique_ptr<CommandRecord> record(new CommandRecord(plan, path));
  record->head = {{"lmc_commands", 1},
                  {"plan", plan.hash()},
                  {"target", plan->target()->str()},
                  {"device", device}};
  return record;
}

Result<std::unique_ptr<CommandRecord>> CommandRecord::toCompare(const PlanFile &plan,
                                                                const std::string &path,
                                                                double tolerance, FILE *json) {
  std::unique_ptr<CommandRecord> record(new CommandRecord(plan, path));
  record->compares = true;
  record->json = json;
  record->tolerance = tolerance > 0 ? tolerance : defaultTolerance(*plan);
  std::ifstream file(path);
  if (!file)
    return userError("{}: cannot be read: {}", path, std::strerror(errno));
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    auto line = isShallowJson(text) ? ordered_json::parse(text, nullptr, false)
                                    : ordered_json(ordered_json::value_t::discarded);
    const bool isRight = line.is_object() &&
                         (number == 1 ? line.value("lmc_commands", 0) == 1 && line.contains("plan")
                                      : line.contains("outputs"));
    if (!isRight)
      return userError(
          "{}:{}: this is no line of a file that lmc-run --record-commands wrote; record it again",
          path, number);
    (number == 1 ? record->head : record->expected.emplace_back()) = std::move(line);
  }
  if (record->head.is_null())
    return record->damaged("is empty");
  if (record->head["plan"] != plan.hash())
    return userError("{}: was recorded of the plan {}, and {} is {}; record it with this plan",
                     path, record->head["plan"].dump(), plan.path(), plan.hash());
  return record;
}

Result<void> CommandRecord::run(Device &device, Executable &executable, uint32_t index) {
  const plan::Function &function = *plan->functions()->Get(index);
  std::vector<uint32_t> running; // commands of streams other than 0 that may not have ended
  auto after = [&](uint32_t at) -> Result<void> {
    const plan::Command &command = *function.commands()->Get(at);
    if (command.stream() != 0) {
      running.push_back(at);
      return {};
    }
    std::vector<uint32_t> ended;
    if (const plan::Wait *wait = command.body_as_Wait())
      addEnded(function, int64_t(wait->command()), running, ended);
    else
      ended.push_back(at);
    std::sort(ended.begin(), ended.end());
    for (uint32_t each : ended)
      LMC_TRY(take(device, index, each));
    return at + 1 < function.commands()->size() ? clearUnusedRows(device, index, at + 1)
                                                : Result<void>();
  };
  LMC_TRY(device.synchronize());
  if (function.commands()->size() > 0)
    LMC_TRY(clearUnusedRows(device, index, 0));
  LMC_TRY(device.submitTimed(executable, after));
  ++runs[index];
  return {};
}

Result<void> CommandRecord::clearUnusedRows(Device &device, uint32_t function, uint32_t at) {
  const plan::Operands operands =
      plan::operandsOf(*plan->functions()->Get(function)->commands()->Get(at));
  auto slice = [&](const plan::Operand &operand) -> const plan::Slice & {
    return *plan->slices()->Get(uint32_t(operand.slice));
  };
  const bool hasSomeRows = std::any_of(operands.begin(), operands.end(), [](const auto &operand) {
    const std::string name = operand.name;
    return operand.role == plan::Role::Read && (name == "offsets" || name == "rows");
  });
  for (const plan::Operand &operand : operands) {
    const plan::Slice &result = slice(operand);
    const bool isInPlace = std::any_of(operands.begin(), operands.end(), [&](const auto &other) {
      const plan::Slice &read = slice(other);
      return other.isRead() && read.arena() == result.arena() &&
             read.offset() < result.offset() + result.bytes() &&
             result.offset() < read.offset() + read.bytes();
    });
    if (!hasSomeRows || operand.role != plan::Role::Write || isInPlace || result.pitch())
      continue;
    LMC_TRY(reserve(device, result.bytes()));
    std::memset(buffer->data(), 0, result.bytes());
    LMC_TRY(device.upload({result.arena(), result.offset(), result.bytes()}, *buffer, 0));
    LMC_TRY(device.synchronize());
  }
  return {};
}

Result<void> CommandRecord::reserve(Device &device, uint64_t bytes) {
  if (buffer && buffer->bytes() >= bytes)
    return {};
  buffer.reset();
  LMC_SET(buffer, device.hostBuffer(bytes));
  return {};
}

Result<ResultSums> CommandRecord::sums(Device &device, const plan::Slice &slice) {
  const uint64_t rows = slice.pitch() ? slice.rows() : 1, width = slice.bytes() / rows;
  const uint64_t span = slice.bytes() ? (rows - 1) * slice.pitch() + width : 0;
  LMC_TRY(reserve(device, span));
  if (span > 0)
    LMC_TRY(device.download({slice.arena(), slice.offset(), span}, *buffer, 0));
  LMC_TRY(device.synchronize());
  return sumsOf(slice.dtype(), buffer->data(), rows, width / byteWidth(slice.dtype()),
                slice.pitch());
}

Result<double> CommandRecord::scaleOf(Device &device, const plan::Operands &operands,
                                      const ResultSums &of) {
  double scale = of.norm;
  for (const plan::Operand &operand : operands) {
    const plan::Slice &slice = *plan->slices()->Get(uint32_t(operand.slice));
    const bool isFloat = slice.dtype() != plan::DType::I32 && slice.dtype() != plan::DType::I8;
    const uint64_t elements = slice.bytes() / byteWidth(slice.dtype());
    if (operand.role != plan::Role::Read || !isFloat || elements < 8 * of.elements)
      continue;
    LMC_LET(read, sums(device, slice));
    scale = std::max(scale, 0.1 * read->norm);
  }
  return scale;
}

ordered_json CommandRecord::lineOf(uint32_t function, uint32_t at) const {
  const plan::Function &of = *plan->functions()->Get(function);
  const plan::Command &command = *of.commands()->Get(at);
  ordered_json line = {{"function", of.name()->str()},
                       {"run", runs[function]},
                       {"command", at},
                       {"op", command.source() ? command.source()->str() : ""},
                       {"kind", plan::commandName(command)},
                       {"kernel", nullptr},
                       {"hero", nullptr}};
  if (const auto launches = plan::launchesOf(command); !launches.empty()) {
    const plan::Kernel &kernel = *plan->kernels()->Get(launches.front()->kernel());
    line["kernel"] = kernel.name()->str();
    if (kernel.hero())
      line["hero"] = kernel.hero()->str();
  }
  if (const plan::Gemm *gemm = command.body_as_Gemm()) {
    line["transpose_a"] = gemm->transpose_a();
    line["transpose_b"] = gemm->transpose_b();
    line["accumulate"] = plan::accumulates(*gemm);
    line["bias"] = gemm->bias() != -1;
    line["residual"] = plan::residualOf(*gemm) != -1;
  }
  return line;
}

Result<void> CommandRecord::take(Device &device, uint32_t function, uint32_t at) {
  const plan::Command &command = *plan->functions()->Get(function)->commands()->Get(at);
  const plan::Operands operands = plan::operandsOf(command);
  ordered_json outputs = ordered_json::array();
  for (const plan::Operand &operand : operands) {
    if (!operand.isResult())
      continue;
    const plan::Slice &slice = *plan->slices()->Get(uint32_t(operand.slice));
    LMC_LET(found, sums(device, slice));
    LMC_LET(scale, scaleOf(device, operands, *found));
    outputs.push_back(jsonOf(slice.name() ? slice.name()->str() : "", *found, *scale));
  }
  if (outputs.empty())
    return {};
  ordered_json line = lineOf(function, at);
  line["outputs"] = std::move(outputs);
  lines.push_back(std::move(line));
  return compares ? compareLast() : Result<void>();
}

Error CommandRecord::damaged(const std::string &why) const {
  return userError("{}: {}; record it again with lmc-run --record-commands", path, why);
}

Result<void> CommandRecord::compareLast() {
  const size_t number = lines.size() - 1;
  if (number >= expected.size())
    return damaged(fmt::format("has {} commands, and the step has more", expected.size()));
  ordered_json &line = lines[number];
  try {
    const std::string place = placeOf(line);
    if (place != placeOf(expected[number]) ||
        line["outputs"].size() != expected[number]["outputs"].size())
      return damaged(fmt::format("line {} is not of {}", number + 2, place));
    if (!compare(line, expected[number], tolerance) && !first)
      first = number;
    if (line["difference"] > lines[worst]["difference"])
      worst = number;
  } catch (const ordered_json::exception &thrown) {
    return damaged(thrown.what());
  }
  if (!json)
    return {};
  ordered_json shown = line;
  for (ordered_json &each : shown["outputs"])
    each.erase("projections");
  std::fputs((shown.dump() + "\n").c_str(), json);
  std::fflush(json);
  return {};
}

Result<void> CommandRecord::finish(FILE *output) {
  if (!compares) {
    std::string text = head.dump() + "\n";
    for (const ordered_json &line : lines)
      text += line.dump() + "\n";
    return writeTextFile(path, text);
  }
  if (lines.size() != expected.size())
    return damaged(
        fmt::format("has {} commands, and the step has {}", expected.size(), lines.size()));
  auto nameOf = [](const ordered_json &line) {
    return fmt::format("{} ({} {}{}{})", placeOf(line), line["kind"].get<std::string>(),
                       line["op"].get<std::string>(), line["kernel"].is_null() ? "" : ", kernel ",
                       line["kernel"].is_null() ? "" : line["kernel"].get<std::string>());
  };
  if (first)
    return machineError("{} is the first that differs from {} (of {}): by {:.2g}, relative to its "
                        "size; at most {:.2g} is allowed",
                        nameOf(lines[*first]), path, head.value("device", "another device"),
                        lines[*first]["difference"].get<double>(), tolerance);
  if (!json && !lines.empty())
    std::fputs(fmt::format("{} commands agree with {}; the largest difference is {:.2g}, of {}\n",
                           lines.size(), path, lines[worst]["difference"].get<double>(),
                           nameOf(lines[worst]))
                   .c_str(),
               output);
  std::fflush(output);
  return {};
}

} // namespace lmc
