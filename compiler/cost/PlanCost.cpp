#include "compiler/cost/PlanCost.h"

#include "ground/plan/Operands.h"
#include "ground/plan/PlanFile.h"
#include "ground/plan/Steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

namespace lmc::cost {

// A CPU makes products in bf16 of those of 8-bit floats. The time in which it makes bf16 of the
// codes has no price.
static DataType dataType(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::F64:
    return DataType::F64;
  case plan::DType::BF16:
  case plan::DType::F8E4M3:
  case plan::DType::F8E5M2:
    return DataType::BF16;
  default:
    return DataType::F32;
  }
}

Group groupOf(const plan::Plan &plan, plan::Axis axis) {
  const int64_t perNode = plan.devices_per_node();
  const int64_t ranks = perNode * int64_t(plan.nodes());
  const int64_t members = axis == plan::Axis::Replicate ? ranks / int64_t(plan.shard_ranks())
                                                        : int64_t(ranksAlong(plan, axis));
  // The difference of the numbers of two neighbouring ranks of a group: 1 for Shard and Expert.
  const int64_t distance = axis == plan::Axis::Replicate     ? int64_t(plan.shard_ranks())
                           : axis == plan::Axis::ExpertShard ? int64_t(plan.expert_ranks())
                                                             : 1;
  const int64_t together = std::clamp(perNode / distance, int64_t(1), members);
  return {together, (members + together - 1) / together};
}

// Returns the first command of the plan that sorts choices of experts; null if there is none.
static const plan::SortRows *sortOf(const plan::Plan &plan) {
  for (const plan::Function *function : *plan.functions())
    for (const plan::Command *command : *function->commands())
      if (const plan::SortRows *sort = command->body_as_SortRows())
        return sort;
  return nullptr;
}

// Returns the number of experts that a token chooses, for a command with `rows` rows of choices.
static int64_t chosenOf(const plan::Plan &plan, uint64_t rows) {
  const plan::BatchInfo &batch = *plan.batch();
  const uint64_t tokens = std::max<uint64_t>(batch.micro_batch_size() * batch.sequence_length(), 1);
  if (plan.expert_ranks() > 1) // the rank has rows only for some of the choices
    if (const plan::SortRows *sort = sortOf(plan))
      return std::max(int64_t(1), int64_t(sort->choices() / plan.expert_ranks() / tokens));
  return std::max(int64_t(1), int64_t(rows / tokens));
}

static KernelWork workOf(const plan::Kernel &kernel) {
  return {double(kernel.read_bytes()), double(kernel.written_bytes()), double(kernel.flops())};
}

namespace {

// Each operator() returns the work of a command whose body has the type of the parameter.
class WorkOf {
public:
  WorkOf(const plan::Plan &plan, Routing routing) : plan(plan), routing(routing) {}

  Work operator()(const plan::Launch &op) const {
    return workOf(*plan.kernels()->Get(op.kernel()));
  }
  Work operator()(const plan::Gemm &op) const {
    GemmWork work{int64_t(op.m()), int64_t(op.n()), int64_t(op.k()),
                  typeOf(op.a()),  typeOf(op.d()),  plan::accumulates(op)};
    work.residual = plan::residualOf(op) >= 0;
    for (uint32_t matrix : {op.a(), op.b(), op.d()})
      for (int64_t row : {rowOf(matrix), pitchOf(matrix)})
        if (!work.unalignedRow && !isAligned(matrix, row))
          work.unalignedRow = row;
    work.batch = int64_t(op.batch());
    work.eightBits = op.scale_a() >= 0;
    return work;
  }
  Work operator()(const plan::LinearSwiglu &op) const {
    const plan::Gemm &product = *op.product();
    SwigluWork work{std::get<GemmWork>((*this)(product)), {}, 0, false};
    const auto x = bytesOf(product.a()), w = bytesOf(product.b());
    const auto gu = bytesOf(product.d()), a = bytesOf(op.a());
    work.rows = {gu, a, 6 * double(product.m()) * double(product.n()) / 2};
    work.wholeBytes = x + w + a + (op.both() ? gu : 0);
    return work;
  }
  Work operator()(const plan::SwigluLinearGrad &op) const {
    const plan::Gemm &product = *op.product();
    SwigluWork work{std::get<GemmWork>((*this)(product)), {}, 0, true};
    const auto dy = bytesOf(product.a()), w = bytesOf(product.b());
    const auto gu = bytesOf(op.dgu()), a = bytesOf(product.d());
    const double written = gu + (op.both() ? a : 0);
    work.rows = {a + gu, written, 13 * double(product.m()) * double(product.n())};
    work.wholeBytes = dy + w + gu + written;
    return work;
  }
  Work operator()(const plan::Attention &op) const {
    return attention(op, {op.q(), op.k(), op.v(), op.out()});
  }
  Work operator()(const plan::AttentionGrad &op) const {
    AttentionWork work =
        attention(op, {op.q(), op.k(), op.v(), op.out(), op.dout(), op.dq(), op.dk(), op.dv()});
    work.backward = true;
    work.rope = op.cos() >= 0;
    return work;
  }
  Work operator()(const plan::ScatterAdd &op) const {
    return ScatterWork{int64_t(op.rows()), int64_t(op.columns()), int64_t(op.vocabulary()),
                       widthOf(op.x()),    widthOf(op.d()),       op.accumulate()};
  }
  Work operator()(const plan::ExpertLinear &op) const {
    const int64_t busy = busyOf(op);
    GemmWork work{rowsOf(op, busy), int64_t(op.columns()), int64_t(op.inner()),
                  typeOf(op.x()),   typeOf(op.y()),        false};
    work.batch = busy;
    work.experts = true;
    work.uneven = routing == Routing::Balanced;
    work.unalignedRow = unalignedOf(op);
    return work;
  }
  Work operator()(const plan::ExpertScaledLinear &op) const {
    const int64_t busy = busyOf(op), block = 128;
    GemmWork work{rowsOf(op, busy),
                  block * int64_t(op.across()),
                  block * int64_t(op.depth()),
                  typeOf(op.x()),
                  typeOf(op.y()),
                  false};
    work.batch = busy;
    work.experts = true;
    work.uneven = routing == Routing::Balanced;
    work.eightBits = true;
    return work;
  }
  Work operator()(const plan::ExpertLinearGrad &op) const {
    const int64_t busy = busyOf(op);
    GemmWork work{int64_t(op.columns()), int64_t(op.inner()), rowsOf(op, busy),
                  typeOf(op.x()),        typeOf(op.d()),      op.accumulate()};
    work.batch = busy;
    work.experts = true;
    work.zeros = op.accumulate() ? 0 : int64_t(op.experts()) - busy;
    work.unalignedRow = unalignedOf(op);
    return work;
  }
  Work operator()(const plan::TakeRows &op) const {
    return readAgain(movedOf(op, {op.y()}), op, op.x(), op.y());
  }
  Work operator()(const plan::TakeRowsGrad &op) const { return movedOf(op, {op.dy()}); }
  Work operator()(const plan::CombineRows &op) const { return movedOf(op, {op.y()}); }
  Work operator()(const plan::CombineRowsGrad &op) const {
    return readAgain(movedOf(op, {op.y(), op.dy()}), op, op.dout(), op.dy());
  }
  Work operator()(const plan::ExpertSwiglu &op) const {
    return trafficOf(op, {op.x(), op.y()}, double(allRowsOf(op)) / double(op.rows()));
  }
  Work operator()(const plan::ExpertSwigluGrad &op) const {
    return trafficOf(op, {op.dy(), op.x(), op.dx()}, double(allRowsOf(op)) / double(op.rows()));
  }
  Work operator()(const plan::Collective &op) const {
    CollectiveWork work;
    work.isAllReduce = op.kind() == plan::CollectiveKind::AllReduce;
    work.bytes = std::max(bytesOf(op.x()), bytesOf(op.d()));
    work.group = groupOf(plan, op.axis());
    return work;
  }
  // A wait has no memory traffic. planCost() computes how long it takes.
  Work operator()(const plan::Wait &) const { return KernelWork(); }
  // All other commands do little arithmetic, so only their memory traffic counts.
  template <typename Body> Work operator()(const Body &op) const { return trafficOf(op); }

private:
  const plan::Slice &slice(uint32_t index) const { return *plan.slices()->Get(index); }
  DataType typeOf(uint32_t index) const { return dataType(slice(index).dtype()); }
  double bytesOf(uint32_t index) const { return double(slice(index).bytes()); }
  int64_t widthOf(uint32_t index) const { return int64_t(byteWidth(slice(index).dtype())); }
  // Returns the traffic of a command that reads and writes its operands. Slices in `parts` count
  // only the fraction `part` of their bytes.
  template <typename Op>
  KernelWork trafficOf(const Op &op, std::initializer_list<uint32_t> parts = {},
                       double part = 1) const {
    KernelWork work;
    for (const plan::Operand &operand : plan::operandsOf(op)) {
      const auto index = uint32_t(operand.slice);
      const double bytes = bytesOf(index) * (std::ranges::count(parts, index) > 0 ? part : 1);
      work.readBytes += operand.isRead() ? bytes : 0;
      work.writtenBytes += operand.isResult() ? bytes : 0;
    }
    return work;
  }
  // Returns the work of a command that moves rows. The slices `ofChoices` have one row per choice
  // of an expert. Only rows with an expert of this rank are moved.
  template <typename Op>
  KernelWork movedOf(const Op &op, std::initializer_list<uint32_t> ofChoices) const {
    return trafficOf(op, ofChoices, shareWithExperts(op));
  }
  // Returns the fraction of the rows of choices that belong to an expert of this rank.
  template <typename Op> double shareWithExperts(const Op &op) const {
    const plan::SortRows *sort = sortOf(plan);
    const uint64_t rows = op.held() ? op.held() : op.tokens() * op.chosen();
    return sort ? double(rowsOfExperts(rows, sort->count())) / double(rows) : 1;
  }
  // Adds the traffic of repeated reads to `work`. Each row of the slice `of` belongs to a token,
  // and is read once per choice of the token. The slice `to` has a row per choice. The reads of a
  // row lie far apart, because choices are sorted by expert. If `of` is larger than a cache, they
  // come from memory. On an H100, combine_rows_grad of 64 MiB took 1.41 times as long as with one
  // read of each row (bench/results/gpu-2026-11-26-h100.md).
  template <typename Op>
  KernelWork readAgain(KernelWork work, const Op &op, uint32_t of, uint32_t to) const {
    constexpr double kLargestCached = 32 << 20;
    const double once = bytesOf(of);
    if (once > kLargestCached)
      work.readBytes += std::max(0.0, shareWithExperts(op) * bytesOf(to) - once);
    return work;
  }
  // Returns the work of attention. Its kernels access the rows of `tensors` in units of 16 bytes.
  template <typename Op>
  AttentionWork attention(const Op &op, std::initializer_list<uint32_t> tensors) const {
    AttentionWork work{op.batch(),    op.seq(),    op.heads(),    op.kv_heads(),
                       op.head_dim(), op.window(), typeOf(op.q())};
    work.documents = op.starts() >= 0;
    for (uint32_t tensor : tensors)
      if (int64_t pitch = pitchOf(tensor); !work.unalignedPitch && !isAligned(tensor, pitch))
        work.unalignedPitch = pitch;
    return work;
  }
  // Returns the number of elements of a row.
  int64_t rowOf(uint32_t index) const {
    const plan::Slice &of = slice(index);
    return int64_t(of.shape()->Get(of.shape()->size() - 1));
  }
  // Returns the number of elements from the start of a row to the start of the next.
  int64_t pitchOf(uint32_t index) const {
    const uint64_t pitch = slice(index).pitch();
    return pitch ? int64_t(pitch) / widthOf(index) : rowOf(index);
  }
  // Returns true if the bytes of `elements` elements of the slice are a multiple of 16.
  bool isAligned(uint32_t index, int64_t elements) const {
    return elements * widthOf(index) % 16 == 0;
  }

  // Return the number of experts that have rows, and the number of rows of each such expert.
  template <typename Op> int64_t busyOf(const Op &op) const {
    const auto experts = int64_t(op.experts());
    return std::clamp(routing == Routing::Balanced ? experts : chosenOf(plan, op.rows()),
                      int64_t(1), std::max(int64_t(1), std::min(experts, allRowsOf(op))));
  }
  template <typename Op> int64_t rowsOf(const Op &op, int64_t busy) const {
    return (allRowsOf(op) + busy - 1) / busy;
  }
  template <typename Op> int64_t allRowsOf(const Op &op) const {
    return rowsOfExperts(op.rows(), op.experts());
  }
  // Returns how many rows of a buffer of `rows` rows hold data. The buffer has rows for the case
  // that all tokens of all ranks choose only the `experts` experts of this rank. If the routing is
  // balanced, these experts get fewer rows: one for each choice of each token of this rank.
  int64_t rowsOfExperts(uint64_t rows, uint64_t experts) const {
    const auto ranks = int64_t(plan.expert_ranks());
    if (ranks == 1 || routing != Routing::Balanced)
      return int64_t(rows);
    const int64_t chosen = chosenOf(plan, rows);
    return std::max(int64_t(1),
                    int64_t(rows) * chosen / (ranks * std::min(chosen, int64_t(experts))));
  }
  // Returns the first row length (in elements) that is no multiple of 16 bytes; 0: there is none.
  template <typename Op> int64_t unalignedOf(const Op &op) const {
    for (const auto row : {int64_t(op.inner()), int64_t(op.columns())})
      if (!isAligned(op.x(), row))
        return row;
    return 0;
  }

  const plan::Plan &plan;
  const Routing routing;
};

} // namespace

Work workOf(const plan::Plan &plan, const plan::Command &command, Routing routing) {
  return plan::visitBody(command, WorkOf(plan, routing));
}

int64_t sameExperts(const plan::Plan &plan) {
  int64_t most = 0;
  auto add = [&](const auto *product) {
    if (product)
      most = std::max(most, std::min(chosenOf(plan, product->rows()), int64_t(product->experts())));
  };
  for (const plan::Function *function : *plan.functions())
    for (const plan::Command *command : *function->commands()) {
      add(command->body_as_ExpertLinear());
      add(command->body_as_ExpertScaledLinear());
    }
  return most;
}

static std::vector<Estimate> divided(const Estimate &whole,
                                     const std::vector<const plan::Launch *> &launches,
                                     const plan::Plan &plan, const DeviceSpec &spec) {
  std::vector<Estimate> parts;
  double sum = 0;
  for (const plan::Launch *launch : launches) {
    parts.push_back(estimate(workOf(*plan.kernels()->Get(launch->kernel())), spec));
    sum += parts.back().seconds;
  }
  for (Estimate &part : parts) {
    const double share = sum > 0 ? part.seconds / sum : 1 / double(parts.size());
    part = {whole.seconds * share, part.bound, whole.flops * share, whole.bytes * share};
  }
  return parts;
}

static void addLaunch(KernelCost &kernel, const Estimate &estimate, uint64_t runs) {
  kernel.launches += runs;
  kernel.seconds += double(runs) * estimate.seconds;
  kernel.launch = estimate;
}

namespace {

// Simulates the streams in one run of a function, command by command.
class Streams {
public:
  Streams(const plan::Plan &plan, const DeviceSpec &spec, FunctionCost &cost)
      : plan(plan), spec(spec), cost(cost) {}

  // Adds a command. `estimate` is the estimate for the command alone. For a wait or a command of
  // stream 0, estimate.seconds becomes the time that stream 0 spends on the command.
  void add(const plan::Command &command, uint32_t number, Estimate &estimate) {
    cost.starts.push_back(cost.seconds);
    if (const plan::Wait *wait = command.body_as_Wait()) {
      estimate = {waitFor(indexOf.at(wait->command())), Bound::Links, 0, 0};
    } else if (const plan::Collective *collective = command.body_as_Collective()) {
      const uint32_t index = start(command, *collective, number, estimate.seconds);
      if (command.stream() != 0) {
        cost.starts.back() = cost.collectives[index].start;
        return;
      }
      estimate.seconds = waitFor(index);
    } else {
      const double alone = estimate.seconds;
      estimate.seconds = besideCollectives(alone);
      cost.slowed += estimate.seconds - alone;
    }
    cost.seconds += estimate.seconds;
  }

private:
  // Adds a collective. It starts when the earlier collectives on its stream and on its links have
  // ended. Returns the index of the collective.
  uint32_t start(const plan::Command &command, const plan::Collective &collective, uint32_t number,
                 double seconds) {
    std::optional<uint32_t> before; // the collective that ends last among those this one waits for
    auto comesAfter = [&](std::optional<uint32_t> other) {
      if (other && (!before || endOf(*other) > endOf(*before)))
        before = other;
    };
    for (const auto &[stream, last] : lastOf)
      if (command.stream() == 0 || stream == 0 || stream == command.stream())
        comesAfter(last);
    if (collective.after() >= 0)
      comesAfter(indexOf.at(uint32_t(collective.after())));
    const Group group = groupOf(plan, collective.axis());
    const auto index = uint32_t(cost.collectives.size());
    if (group.devicesPerNode > 1)
      comesAfter(std::exchange(lastInNodes, index));
    if (group.nodes > 1)
      comesAfter(std::exchange(lastBetweenNodes, index));
    const double begin = before ? std::max(cost.seconds, endOf(*before)) : cost.seconds;
    cost.collectives.push_back({number, begin, begin + seconds, 0});
    causes.push_back(before);
    indexOf[number] = lastOf[command.stream()] = index;
    if (const double taken = processorsOf(group, spec); taken > 0)
      moving.push_back({begin, begin + seconds, 1 - taken});
    return index;
  }

  // Returns the seconds of a command that starts now and takes `alone` seconds without collectives.
  double besideCollectives(double alone) {
    std::erase_if(moving, [&](const Moving &each) { return each.end <= cost.seconds; });
    double now = cost.seconds, left = alone; // `left`: the remaining seconds at full speed
    while (left > 0 && !moving.empty()) {
      double speed = 1, change = INFINITY; // `change`: seconds until a collective starts or ends
      for (const Moving &each : moving) {
        if (each.start <= now && now < each.end)
          speed *= each.speed;
        for (double time : {each.start, each.end})
          if (time > now)
            change = std::min(change, time);
      }
      const double end = std::min(now + left / speed, change);
      if (end != change)
        return now + left / speed - cost.seconds;
      left -= (change - now) * speed;
      now = change;
    }
    return now > cost.seconds ? now + std::max(left, 0.0) - cost.seconds : alone;
  }

  // Returns the seconds until the collective has ended. Adds them to the exposed times of this
  // collective and of those that it waited for.
  double waitFor(uint32_t index) {
    const double now = cost.seconds, end = endOf(index);
    for (std::optional<uint32_t> each = index; each && endOf(*each) > now; each = causes[*each])
      cost.collectives[*each].exposed +=
          endOf(*each) - std::max(cost.collectives[*each].start, now);
    return std::max(end - now, 0.0);
  }

  double endOf(uint32_t index) const { return cost.collectives[index].end; }

  // A collective that occupies processors. Commands beside it run at `speed` times their speed.
  struct Moving {
    double start, end, speed;
  };

  const plan::Plan &plan;
  const DeviceSpec &spec;
  FunctionCost &cost;
  std::vector<Moving> moving;
  std::map<uint32_t, uint32_t> indexOf;        // index of a collective, by the index of its command
  std::map<uint16_t, uint32_t> lastOf;         // the last collective of each stream
  std::optional<uint32_t> lastInNodes, lastBetweenNodes; // last collective on each kind of link
  std::vector<std::optional<uint32_t>> causes; // per collective, the earlier one that it waited for
};

} // namespace

PlanCost planCost(const plan::Plan &plan, const CostModel &model, Routing routing,
                  const Reprice &reprice) {
  PlanCost cost;
  cost.kernels.resize(plan.kernels()->size());
  const plan::BatchInfo &batch = *plan.batch();
  for (const plan::Function *function : *plan.functions()) {
    FunctionCost entry;
    entry.runsPerStep =
        plan::runsPerStep(function->name()->string_view(), batch.gradient_accumulation_steps());
    Streams streams(plan, model.spec, entry);
    for (uint32_t number = 0; number < function->commands()->size(); ++number) {
      const plan::Command *command = function->commands()->Get(number);
      const Work work = workOf(plan, *command, routing);
      std::vector<Estimate> kernels = model.kernels(work);
      Estimate estimate = sumOf(kernels);
      std::vector<const plan::Launch *> launches = plan::launchesOf(*command);
      double behind = 0; // the share of the command's time that the kernel after a product takes
      if (const auto *swiglu = std::get_if<SwigluWork>(&work)) {
        // The plan has two kernels, of which only one runs: the SwiGLU kernel after a library's
        // product, or the kernel that computes both.
        const size_t runs = kernels.size() == 1 ? 1 : 0;
        behind = runs == 0 ? kernels[1].seconds / estimate.seconds : 0;
        for (size_t i = 0; i < launches.size(); ++i)
          if (i != runs)
            addLaunch(cost.kernels[launches[i]->kernel()],
                      i ? model.wholeSwiglu(*swiglu) : cost::estimate(swiglu->rows, model.spec), 0);
        launches = runs < launches.size() ? std::vector{launches[runs]} : decltype(launches)();
        kernels = {kernels.back()};
      } else if (plan::hasTwoWays(*command)) {
        // This is an ExpertLinear. Only one of its kernels runs. The first gets the whole cost.
        for (size_t i = 1; i < launches.size(); ++i)
          addLaunch(cost.kernels[launches[i]->kernel()], estimate, 0);
        launches.resize(1);
      } else if (kernels.size() != launches.size()) {
        kernels = divided(estimate, launches, plan, model.spec);
      }
      if (reprice)
        reprice(*command, estimate);
      streams.add(*command, number, estimate);
      entry.behindProducts.push_back(estimate.seconds * behind);
      for (size_t i = 0; i < launches.size(); ++i)
        addLaunch(cost.kernels[launches[i]->kernel()], kernels[i], entry.runsPerStep);
      entry.commands.push_back(estimate);
    }
    cost.stepSeconds += double(entry.runsPerStep) * entry.seconds;
    cost.slowedSeconds += double(entry.runsPerStep) * entry.slowed;
    for (const CollectiveTime &collective : entry.collectives)
      cost.exposedSeconds += double(entry.runsPerStep) * collective.exposed;
    cost.functions.push_back(std::move(entry));
  }
  cost.peakFlops = model.spec.peakOf(dataType(plan.compute_dtype()));
  if (cost.stepSeconds > 0) {
    double tokens = double(batch.micro_batch_size()) * double(batch.gradient_accumulation_steps()) *
                    double(batch.sequence_length());
    cost.tokensPerSecond = tokens / cost.stepSeconds;
    cost.mfuCausal = cost.tokensPerSecond * plan.model()->flops_per_token_causal() / cost.peakFlops;
    cost.mfuFull = cost.tokensPerSecond * plan.model()->flops_per_token_full() / cost.peakFlops;
  }
  return cost;
}

// Returns the name of a command's op without its layer: "mlp" for "layers.3/mlp".
static std::string placeOf(const plan::Command &command) {
  std::string source = command.source() ? command.source()->str() : "";
  return source.starts_with("layers.") ? source.substr(source.find('/') + 1) : source;
}

std::vector<std::string> warningsOf(const plan::Plan &plan, const CostModel &model) {
  constexpr size_t kMaxPlaces = 3;
  struct Warning {
    std::string text;
    std::vector<std::string> places; // distinct
  };
  std::vector<Warning> warnings;
  for (const plan::Function *function : *plan.functions())
    for (const plan::Command *command : *function->commands()) {
      const std::string text = model.warning(workOf(plan, *command));
      if (text.empty())
        continue;
      auto known = std::ranges::find(warnings, text, &Warning::text);
      if (known == warnings.end())
        known = warnings.insert(warnings.end(), {text, {}});
      if (const std::string place = placeOf(*command); !std::ranges::count(known->places, place))
        known->places.push_back(place);
    }
  std::vector<std::string> lines;
  for (const auto &[text, places] : warnings) {
    const size_t shown = std::min(places.size(), kMaxPlaces);
    const size_t more = places.size() - shown;
    lines.push_back(fmt::format("{} ({}{})", text,
                                fmt::join(places.begin(), places.begin() + ptrdiff_t(shown), ", "),
                                more ? fmt::format(" and {} more", more) : ""));
  }
  return lines;
}

std::string_view settingOf(const plan::Plan &plan, std::string_view key) {
  for (const plan::Setting *setting : *plan.settings())
    if (setting->key()->string_view() == key)
      return setting->value()->string_view();
  return "";
}

} // namespace lmc::cost
