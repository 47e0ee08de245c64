#include "compiler/cost/Refit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lmc::cost {
namespace {

constexpr int kMaxRounds = 100;
constexpr double kSame = 1e-7; // the fit ends when no rate changes by a larger fraction

struct Weighted {
  double value, weight;
};

// Returns the weighted median.
double median(std::vector<Weighted> values) {
  std::ranges::sort(values, {}, &Weighted::value);
  double all = 0, sum = 0;
  for (const Weighted &each : values)
    all += each.weight;
  for (const Weighted &each : values) {
    sum += each.weight;
    if (2 * sum >= all)
      return each.value;
  }
  return 0;
}

struct Rate {
  std::string key;
  double *value;
  double before = 0;
  double floor = 0;              // the highest rate that a command reached, if known
  std::vector<Weighted> factors; // per command that the rate limits: measured rate / *value
  size_t commands = 0;
};

class Fit {
public:
  Fit(const DeviceSpec &start, const std::vector<MeasuredWork> &measured,
      const MakeModel &makeModel)
      : measured(measured), makeModel(makeModel), start(start), spec(start) {
    // During the fit, memoryBandwidth is the bandwidth that kernels reach, and reachable is 1.
    // Afterwards, result() sets both.
    spec.memoryBandwidth *= spec.reachable;
    spec.reachable = 1;
    add("memory.bandwidth", spec.memoryBandwidth);
    if (spec.cacheBytes > 0)
      add("memory.cache_bandwidth", spec.cacheBandwidth);
    add("vector.flops", spec.vectorFlops);
    const char *dtypes[] = {"f32", "bf16", "f64"};
    static_assert(int(DataType::F32) == 0 && int(DataType::BF16) == 1 && int(DataType::F64) == 2);
    for (size_t i = 0; i < spec.gemm.size(); ++i)
      add(fmt::format("gemm.{}.sustained", dtypes[i]), spec.gemm[i].sustained);
    for (size_t i = 0; i < spec.attention.size(); ++i) {
      add(fmt::format("attention.{}.forward", i), spec.attention[i].forward);
      add(fmt::format("attention.{}.backward", i), spec.attention[i].backward);
    }
    if (spec.clock > 0)
      add("clock.hertz", spec.clock);
  }

  Refit run() {
    startHigh();
    for (int round = 0; round < kMaxRounds && improve(); ++round) {
    }
    return result();
  }

private:
  void add(const std::string &key, double &value) { rates.push_back({key, &value, value, 0, {}}); }
  Rate *rateOf(const double &value) {
    const auto rate = std::ranges::find(rates, &value, &Rate::value);
    return rate == rates.end() ? nullptr : &*rate;
  }

  // Sets the rates of memory, cache and vector units to the highest rates that commands reached.
  void startHigh() {
    auto reached = [&](double &value, double work, double seconds) {
      if (work <= 0)
        return;
      Rate &rate = *rateOf(value);
      rate.floor = std::max(rate.floor, work / seconds);
      value = rate.floor;
    };
    for (const MeasuredWork &command : measured) {
      if (!std::holds_alternative<KernelWork>(command.work) &&
          !std::holds_alternative<ScatterWork>(command.work))
        continue;
      const Estimate estimate = cost::estimate(command.work, start);
      // A command that takes at most two launch times says too little about a rate.
      const double seconds = command.seconds - start.launchSeconds;
      if (seconds <= start.launchSeconds)
        continue;
      reached(bandwidthFor(estimate.bytes), estimate.bytes, seconds);
      reached(spec.vectorFlops, estimate.flops, seconds);
    }
  }

  double &bandwidthFor(double bytes) {
    return bytes <= double(spec.cacheBytes) ? spec.cacheBandwidth : spec.memoryBandwidth;
  }

  // Returns the rate that limits a command; null if several rates do.
  Rate *limitOf(const Work &work, const CostModel &model, const std::vector<Estimate> &kernels) {
    if (const auto *attention = std::get_if<AttentionWork>(&work)) {
      // If the target predicts the times of its attention kernels, these times depend on the clock.
      const bool byClock = !model.attentionKernels(*attention).empty();
      const Estimate whole = sumOf(kernels);
      if (whole.bound == Bound::MemoryBandwidth)
        return byClock ? nullptr : rateOf(bandwidthFor(whole.bytes));
      if (byClock)
        return rateOf(spec.clock);
      AttentionModel &table = spec.attention[attentionModelOf(*attention, spec)];
      return rateOf(attention->backward ? table.backward : table.forward);
    }
    if (std::holds_alternative<SwigluWork>(work))
      return nullptr; // two kernels may compute the work, so that no single rate limits it
    const Estimate &only = kernels.front();
    if (only.bound == Bound::MemoryBandwidth)
      return rateOf(bandwidthFor(only.bytes));
    if (const auto *gemm = std::get_if<GemmWork>(&work)) {
      // Matrix products that do not run on the matrix units have the rate of f32.
      const DataType dtype = only.bound == Bound::MatrixUnits ? gemm->input : DataType::F32;
      return rateOf(spec.gemm[size_t(dtype)].sustained);
    }
    return rateOf(spec.vectorFlops);
  }

  // Sets each rate to a median over the commands that it limits. Returns true if a rate changed.
  bool improve() {
    const std::unique_ptr<CostModel> model = makeModel(spec);
    std::vector<Weighted> launches;
    for (Rate &rate : rates)
      rate.factors.clear();
    for (const MeasuredWork &command : measured) {
      const std::vector<Estimate> kernels = model->kernels(command.work);
      const Estimate whole = sumOf(kernels);
      const double launch = double(kernels.size()) * spec.launchSeconds;
      const double busy = whole.seconds - launch, measuredBusy = command.seconds - launch;
      if (whole.bound == Bound::Launch) {
        launches.push_back({(command.seconds - busy) / double(kernels.size()), command.runs});
        continue;
      }
      Rate *rate = measuredBusy > 0 ? limitOf(command.work, *model, kernels) : nullptr;
      if (rate)
        rate->factors.push_back({busy / measuredBusy, command.runs * busy});
    }
    bool changed = false;
    auto set = [&](double &value, double to) {
      changed |= std::abs(to - value) > kSame * value;
      value = to;
    };
    launchCommands = launches.size();
    if (!launches.empty())
      set(spec.launchSeconds, std::max(0.0, median(std::move(launches))));
    for (Rate &rate : rates) {
      rate.commands = rate.factors.size();
      if (!rate.factors.empty())
        set(*rate.value, *rate.value * median(rate.factors));
    }
    return changed;
  }

  Refit result() {
    Refit result;
    for (Rate &rate : rates) {
      if (rate.commands == 0)
        *rate.value = std::max(rate.before, rate.floor);
      if (rate.commands > 0 || *rate.value != rate.before)
        result.numbers.push_back({rate.key, rate.before, *rate.value, rate.commands});
    }
    if (launchCommands > 0)
      result.numbers.push_back(
          {"launch.seconds", start.launchSeconds, spec.launchSeconds, launchCommands});
    result.spec = spec;
    result.spec.memoryBandwidth = std::max(start.memoryBandwidth, spec.memoryBandwidth);
    result.spec.reachable = spec.memoryBandwidth / result.spec.memoryBandwidth;
    result.spec.clockAlone = std::max(start.clockAlone, spec.clock);
    return result;
  }

  const std::vector<MeasuredWork> &measured;
  const MakeModel &makeModel;
  const DeviceSpec start;
  DeviceSpec spec; // `start` with the rates fitted so far
  std::vector<Rate> rates;
  size_t launchCommands = 0;
};

} // namespace

Refit refit(const DeviceSpec &spec, const std::vector<MeasuredWork> &measured,
            const MakeModel &makeModel) {
  return Fit(spec, measured, makeModel).run();
}

} // namespace lmc::cost
