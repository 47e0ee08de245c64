#include "runtime/text/Generator.h"

#include "ground/plan/FloatConvert.h"
#include "ground/plan/Names.h"
#include "runtime/data/DataSource.h"
#include "runtime/device/Ranges.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

namespace lmc {

double uniformAt(uint64_t seed, std::span<const uint64_t> place) {
  return static_cast<double>(XXH64(place.data(), place.size_bytes(), seed) >> 11) * 0x1p-53;
}

std::optional<uint32_t> chooseToken(std::span<const float> logits, const SamplingOptions &options,
                                    double uniform) {
  if (logits.empty() || !std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }))
    return std::nullopt;
  const auto largest = std::ranges::max_element(logits);
  if (options.temperature <= 0)
    return static_cast<uint32_t>(largest - logits.begin());
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    weights[i] = std::exp((double(logits[i]) - double(*largest)) / options.temperature);
  // The most probable ids come first; equally probable ids are ordered by id.
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return weights[a] > weights[b]; });
  const double whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || kept < options.topP * whole))
    kept += weights[order[count++]];
  double left = uniform * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= weights[order[i]];
    if (left < 0)
      return order[i];
  }
  return order[count - 1];
}

const char *nameOf(Continuation::End end) {
  constexpr const char *kNames[] = {"length", "end_of_document", "not_finite"};
  return kNames[static_cast<int>(end)];
}

Result<std::unique_ptr<Generator>> Generator::open(const PlanFile &plan, Device &device,
                                                   Functions &functions, Inputs &inputs,
                                                   World &world) {
  const int rows = plan.findVariable(names::kGenerateRows),
            logits = plan.findVariable(names::kGenerateLogits);
  if (rows < 0 || logits < 0 || !functions.has(names::kGenerate))
    return userError("{}: compiled without generation.prompts, so that the run cannot generate "
                     "text; compile the plan with the key, or leave it out",
                     plan.path());
  auto sliceOf = [&](int variable) {
    return plan->variables()->Get(static_cast<flatbuffers::uoffset_t>(variable))->slice();
  };
  auto slice = [&](int variable) -> const plan::Slice & {
    return *plan->slices()->Get(sliceOf(variable));
  };
  const uint64_t count = plan->batch()->micro_batch_size();
  if (slice(rows).dtype() != plan::DType::I32 || slice(rows).bytes() != count * sizeof(int32_t))
    return userError("{}: variable '{}' is not i32 [mbs]", plan.path(), names::kGenerateRows);
  const plan::DType dtype = slice(logits).dtype();
  if (slice(logits).bytes() != count * plan->model()->vocab_size() * byteWidth(dtype))
    return userError("{}: variable '{}' is not [mbs, vocab]", plan.path(), names::kGenerateLogits);
  LMC_LET(range, rangeInSlice(&*plan, static_cast<int>(sliceOf(rows)), slice(rows).bytes(), 0));
  LMC_LET(ring, BufferRing::make(device, 1, range->bytes));
  std::unique_ptr<Generator> opened(
      new Generator(plan, device, functions, inputs, world, std::move(*ring)));
  opened->positions = *range;
  opened->logitsSlice = static_cast<int>(sliceOf(logits));
  opened->dtype = dtype;
  return opened;
}

Result<std::vector<float>> Generator::nextLogits(const std::vector<Row> &rows) {
  const uint64_t count = plan->batch()->micro_batch_size();
  const uint64_t length = plan->batch()->sequence_length();
  const uint64_t vocabulary = plan->model()->vocab_size();
  std::vector<int32_t> tokens(count * length), starts(count * length);
  const std::vector<int32_t> targets(count * length, kIgnoredTarget);
  std::vector<int32_t> last(count);
  for (size_t r = 0; r < count; ++r)
    last[r] = static_cast<int32_t>(r * length);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::ranges::copy(rows[r].ids, tokens.begin() + static_cast<std::ptrdiff_t>(r * length));
    last[r] += static_cast<int32_t>(rows[r].ids.size()) - 1;
  }
  LMC_TRY(inputs.upload(tokens.data(), targets.data(), starts.data()));
  LMC_LET(buffer, ring.next());
  std::memcpy((*buffer)->data(), last.data(), positions.bytes);
  LMC_TRY(device.upload(positions, **buffer, 0));
  LMC_TRY(ring.enqueued());
  world.progress().at(names::kGenerate);
  LMC_TRY(functions.run(names::kGenerate));
  std::vector<char> bytes(count * vocabulary * byteWidth(dtype));
  LMC_TRY(device.copyOut(logitsSlice, bytes.data(), bytes.size()));
  std::vector<float> logits(count * vocabulary);
  convertFloats(dtype, bytes.data(), plan::DType::F32, logits.data(), logits.size());
  return logits;
}

Result<std::optional<std::vector<Continuation>>>
Generator::generate(const std::vector<std::vector<int32_t>> &prompts,
                    const GenerateOptions &options, const std::function<bool()> &stopRequested) {
  const uint64_t rowsOfRank = plan->batch()->micro_batch_size();
  const uint64_t vocabulary = plan->model()->vocab_size();
  const auto ranks = static_cast<uint64_t>(world.size());
  // Row p of `found` is 1 + Continuation::End (0: Length) of prompt p, then 1 + each new id (0:
  // none). A rank sets <= `rowsOfRank` rows at a time, from `first` on; other ranks' rows stay 0.
  const uint64_t width = options.maxNewTokens + 1;
  std::vector<double> found(prompts.size() * width);
  for (size_t done = 0; done < prompts.size(); done += rowsOfRank * ranks) {
    const size_t first = done + static_cast<size_t>(world.rank()) * rowsOfRank;
    std::vector<Row> rows;
    for (size_t p = first; p < std::min(first + rowsOfRank, prompts.size()); ++p)
      rows.push_back({p, prompts[p]});
    for (uint64_t i = 0; i < options.maxNewTokens; ++i) {
      const auto open = static_cast<double>(
          std::ranges::count_if(rows, [](const Row &row) { return !row.ended; }));
      double facts[] = {stopRequested() ? 1.0 : 0.0, open};
      LMC_TRY(world.all().allReduce(facts, std::size(facts), plan::DType::F64));
      if (facts[0] > 0)
        return std::optional<std::vector<Continuation>>();
      if (facts[1] == 0)
        break;
      LMC_LET(logits, nextLogits(rows));
      for (size_t r = 0; r < rows.size(); ++r) {
        Row &row = rows[r];
        if (row.ended)
          continue;
        const std::array<uint64_t, 3> place = {options.step, row.prompt, i};
        const auto token = chooseToken(std::span(*logits).subspan(r * vocabulary, vocabulary),
                                       options.sampling, uniformAt(options.seed, place));
        double *of = &found[row.prompt * width];
        if (!token)
          of[0] = 1 + double(Continuation::End::NotFinite);
        else if (static_cast<int64_t>(*token) == options.endOfDocument)
          of[0] = 1 + double(Continuation::End::EndOfDocument);
        else
          of[1 + i] = 1 + double(*token);
        row.ended = of[0] > 0;
        if (!row.ended)
          row.ids.push_back(static_cast<int32_t>(*token));
      }
    }
  }
  LMC_TRY(world.all().allReduce(found.data(), found.size(), plan::DType::F64));
  std::vector<Continuation> all(prompts.size());
  for (size_t p = 0; p < prompts.size(); ++p) {
    const double *of = &found[p * width];
    if (of[0] > 0)
      all[p].end = static_cast<Continuation::End>(static_cast<int>(of[0]) - 1);
    for (size_t i = 1; i < width && of[i] > 0; ++i)
      all[p].ids.push_back(static_cast<int32_t>(of[i]) - 1);
  }
  return std::optional(std::move(all));
}

} // namespace lmc
