// Prints the section "scale" of a report.
#include "compiler/report/Explain.h"
#include "compiler/report/Fields.h"

#include <fmt/format.h>

using namespace lmc;
using nlohmann::json;

// Returns the columns of a table row from the speed to the last one.
static std::string figuresOf(const json &row) {
  const std::string bytes = bytesOf(row["peak_bytes"]);
  if (!row["fits"])
    return fmt::format("does not fit: needs {}, {} too many", bytes, bytesOf(row["missing_bytes"]));
  const double exposed = row["exposed_seconds"], step = row["step_seconds"];
  return fmt::format("{:>10}  {:>5.1f}%  {:>10}  {:>10} {:>6.1f}%{}",
                     countOf(row["tokens_per_second_per_device"]), number(row["mfu_causal"]) * 100,
                     bytes, readableSeconds(exposed), exposed / step * 100,
                     row["best"].get<bool>() ? "  best" : "");
}

static std::string totalsOf(const json &job) {
  const double days = job["days"], hours = job["device_hours"];
  return fmt::format("{} steps, {} tokens in {}, {} device-hours", number(job["steps"]),
                     countOf(job["tokens"]),
                     days < 1 ? readableSeconds(days * 86400) : fmt::format("{:.1f} days", days),
                     hours < 100 ? fmt::format("{:.2f}", hours) : readableCount(hours));
}

std::string lmc::scaleText(const json &report) {
  const json &rows = report["scale"], &batch = report["batch"];
  std::string text = fmt::format("\nscale, predicted for {}, MBS {}, sequences of {} tokens:\n",
                                 word(report["cost"], "device"), number(batch["mbs"]),
                                 number(batch["sequence_length"]));
  text += fmt::format("  {:>7} {:>5}  {:<19} {:>7}  {:>10}  {:>6}  {:>10}  {:>18}\n", "devices",
                      "nodes", "strategy", "GBS", "tokens/s", "MFU", "memory", "exposed, of step");
  bool isApproximate = false, isOtherBatch = false;
  for (const json &row : rows) {
    const bool isOther = row["batch_size"] != row["configured_batch_size"];
    isOtherBatch |= isOther;
    isApproximate |= !row["exact"].get<bool>();
    text += fmt::format("  {:>7} {:>5}  {:<19} {:>7}{} {}\n", number(row["devices"]),
                        number(row["nodes"]),
                        (row["exact"].get<bool>() ? "" : "~") + word(row, "strategy"),
                        number(row["batch_size"]), isOther ? "*" : " ", figuresOf(row));
  }
  text += "  tokens/s and memory are those of one device; exposed: waiting for other ranks\n";
  if (isApproximate)
    text += "  ~ within 1%: from the layers of a shorter model (the job's own strategy is compiled)\n";
  if (isOtherBatch)
    text += fmt::format("  * MBS x devices does not divide the job's GBS of {}; this is the next "
                        "larger one that it divides\n",
                        number(batch["gbs"]));
  for (const json &row : rows)
    if (row["best"])
      text += fmt::format("  {} device(s), {}: {}\n", number(row["devices"]), word(row, "strategy"),
                          totalsOf(row["job"]));
  return text;
}
