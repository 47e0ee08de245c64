// Records what each command of a step computed, for --record-commands. Compares a step with such a
// record, for --compare-commands, to find the first command at which two machines differ.
//
// The file has one JSON object per line. The first is {"lmc_commands": 1, "plan": hash, "target",
// "device"}. Each later line is for a command with results, in the order of the step. The line of a
// command on another stream than 0 comes where stream 0 waits for it or for one that follows it:
//   function, run, command   the command; `run` counts the function's runs in the step, from 0
//   op, kind, kernel, hero   the model op from which the command comes, what the command does
//                            ("gemm", "launch"), and the name and the loop structure (such as
//                            "row_reduction") of the command's first kernel (null: no kernel)
//   transpose_a, transpose_b, accumulate, bias, residual   only if the command is a matrix product
//   outputs                  per result: name, elements, norm (L2), scale, not_finite (how many
//                            elements are not finite; they count as 0) and projections: 16 sums of
//                            all elements with random signs
// The root mean square of the 16 differences of projections estimates the L2 norm of the difference
// of two results. The square of this estimate has a relative standard deviation of sqrt(2/16)
// (Achlioptas 2003, "Database-friendly random projections"). The estimate is divided by `scale`:
// the maximum of the result's norm and, for each operand with at least 8 times as many elements, a
// tenth of the operand's norm. So sums that nearly cancel are not reported as different.
#pragma once

#include "ground/plan/Operands.h"
#include "runtime/device/FunctionObserver.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct ResultSums {
  static constexpr size_t kProjections = 16;
  uint64_t elements = 0, notFinite = 0;
  double norm = 0;
  std::array<double, kProjections> projections{};
};

class CommandRecord final : public FunctionObserver {
public:
  // Returns the file of this rank: `path` for rank 0, and `path` with ".rank3" appended for rank 3.
  static std::string fileOf(const std::string &path, const World &world);
  // Makes a record of a run on `device`, which writes the file `path`.
  static std::unique_ptr<CommandRecord> toWrite(const PlanFile &plan, const std::string &device,
                                                const std::string &path);
  // Makes a record that compares a run with the file `path`. `tolerance` is the maximum relative
  // difference; 0: 1e-9 for a plan that computes in f64, 1e-4 in f32, 5e-2 in bf16, f16. If `json`
  // is given, each command's line, with `difference` and `ok`, is printed there at once. Error: the
  // file is not a record of this plan.
  static Result<std::unique_ptr<CommandRecord>>
  toCompare(const PlanFile &plan, const std::string &path, double tolerance, FILE *json);

  bool isRecording() const override { return true; }
  Result<void> run(Device &device, Executable &executable, uint32_t index) override;

  // Writes the file or, when comparing without `json`, prints a summary to `output`. Error: a
  // command differs, or the file cannot be written.
  Result<void> finish(FILE *output);

private:
  CommandRecord(const PlanFile &plan, const std::string &path)
      : plan(plan), path(path), runs(plan->functions()->size()) {}
  Result<void> take(Device &device, uint32_t function, uint32_t command);
  // Sets the results of an MoE command to zero before it runs, as it does not write unused rows.
  Result<void> clearUnusedRows(Device &device, uint32_t function, uint32_t command);
  // Makes `buffer` at least `bytes` bytes long.
  Result<void> reserve(Device &device, uint64_t bytes);
  Result<ResultSums> sums(Device &device, const plan::Slice &slice);
  Result<double> scaleOf(Device &device, const plan::Operands &operands, const ResultSums &of);
  Error damaged(const std::string &why) const;
  // Compares the last element of `lines` with the file.
  Result<void> compareLast();
  nlohmann::ordered_json lineOf(uint32_t function, uint32_t command) const;

  const PlanFile &plan;
  const std::string path;
  bool compares = false;
  double tolerance = 0;
  FILE *json = nullptr;
  nlohmann::ordered_json head;
  std::vector<nlohmann::ordered_json> expected, lines;
  std::optional<size_t> first;        // index of the first line that differs
  size_t worst = 0;                   // index of the line with the largest difference
  std::vector<uint64_t> runs;         // number of runs so far of each function
  std::unique_ptr<HostBuffer> buffer; // host memory for copies from and to the device
};

} // namespace lmc
