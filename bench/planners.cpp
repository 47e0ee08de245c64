// What the planners gain over simple methods, on the shipped models:
//
//   lmc-bench-planners [CONFIG.toml...]      default: models/configs/*.toml
//
// Packing. The buffers of every function of a plan are packed in three ways, for each recompute
// mode and for every candidate of "auto":
//   first fit    largest buffer first, each at the lowest offset that is free: one greedy order
//   greedy       the best of pack()'s greedy orders, without the search
//   search       pack() as the compiler calls it
// Recompute. chooseRecompute's candidates are compared with three ways to choose:
//   uniform      every layer takes the same option
//   first n      the first n layers take one option, the others the fastest one (Megatron-LM's
//                --recompute-num-layers)
//   greedy       from the fastest choice on, the change of one layer that saves the most kept
//                bytes per second, again and again
// A simple method may take as many seconds as a candidate does. What its peak is above the
// candidate's is what the planner gains.
//
// The report of memory. How long memoryTimeline() takes for llama3-8b with 80 layers; the goal is
// 0.2 s.
//
// Every job is planned for one device with 400 GiB, so that each recompute mode fits. Percentages
// are of the peak: all arenas of the plan that the planner made.
#include "compiler/algorithms/Packing.h"
#include "compiler/analysis/Memory.h"
#include "compiler/driver/Compile.h"
#include "compiler/driver/Registration.h"
#include "compiler/emit/Emit.h"
#include "compiler/kernels/Target.h"
#include "compiler/search/RecomputeSearch.h"
#include "ground/plan/PlanFile.h"
#include "models/decoder/Model.h"
#include "models/families/Families.h"

#include "mlir/IR/MLIRContext.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>

using namespace lmc;

namespace {

double percent(uint64_t more, uint64_t less, uint64_t of) {
  return 100.0 * (double(more) - double(less)) / double(of);
}

bool load(const std::string &path, std::vector<std::string> settings, Config &config) {
  for (const char *always : {"distributed.nodes=1", "distributed.devices_per_node=1"})
    settings.push_back(always);
  settings.push_back("memory.budget=\"400GiB\"");
  Result<Config> loaded = loadConfig(path, settings, modelFamilies());
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return false;
  }
  config = *loaded;
  return true;
}

//===-- Packing -----------------------------------------------------------------------------===//

// The buffers of function `index`: slices with one live range that overlap in bytes.
PackingProblem problemOf(const plan::Plan &plan, int index) {
  struct Extent {
    int64_t first, last;
    uint64_t begin, end;
  };
  std::vector<Extent> extents;
  for (const plan::Slice *slice : *plan.slices())
    if (slice->function() == index) {
      uint64_t bytes = slice->pitch()
                           ? (slice->rows() - 1) * slice->pitch() + slice->bytes() / slice->rows()
                           : slice->bytes();
      extents.push_back({slice->first_command(), slice->last_command(), slice->offset(),
                         slice->offset() + bytes});
    }
  std::stable_sort(extents.begin(), extents.end(), [](const Extent &a, const Extent &b) {
    return std::tuple(a.first, a.last, a.begin) < std::tuple(b.first, b.last, b.begin);
  });
  std::vector<Extent> buffers;
  for (const Extent &extent : extents) {
    if (!buffers.empty() && buffers.back().first == extent.first &&
        buffers.back().last == extent.last && extent.begin < buffers.back().end)
      buffers.back().end = std::max(buffers.back().end, extent.end);
    else
      buffers.push_back(extent);
  }
  PackingProblem problem;
  problem.alignment = plan.arenas()->Get(1)->alignment();
  for (const Extent &buffer : buffers)
    problem.buffers.push_back({buffer.end - buffer.begin, buffer.first, buffer.last});
  return problem;
}

uint64_t firstFit(const PackingProblem &problem) {
  std::vector<PackingBuffer> order = problem.buffers;
  std::stable_sort(order.begin(), order.end(), [](const PackingBuffer &a, const PackingBuffer &b) {
    return a.bytes > b.bytes;
  });
  struct Placed {
    uint64_t begin, end;
    int64_t first, last;
  };
  std::vector<Placed> placed; // by rising `begin`
  uint64_t arena = 0;
  for (const PackingBuffer &buffer : order) {
    uint64_t bytes = (buffer.bytes + problem.alignment - 1) & ~(problem.alignment - 1), at = 0;
    for (const Placed &other : placed)
      if (other.first <= buffer.last && buffer.first <= other.last) {
        if (other.begin >= at + bytes)
          break;
        at = std::max(at, other.end);
      }
    Placed entry{at, at + bytes, buffer.first, buffer.last};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), entry,
                         [](const Placed &a, const Placed &b) { return a.begin < b.begin; }),
        entry);
    arena = std::max(arena, at + bytes);
  }
  return arena;
}

struct Packed {
  size_t buffers = 0; // of the function with the most
  uint64_t state = 0, bound = 0, firstFit = 0, greedy = 0, searched = 0;
  double greedySeconds = 0, searchSeconds = 0;
  bool isSame = false; // the problems are those that the compiler packed

  uint64_t peak() const { return state + searched; }
};

Packed packAgain(const plan::Plan &plan) {
  auto timed = [](double &seconds, const PackingProblem &problem, uint64_t nodes) {
    auto start = std::chrono::steady_clock::now();
    uint64_t bytes = pack(problem, nodes).bytes;
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return bytes;
  };
  Packed packed;
  packed.state = plan.arenas()->Get(0)->bytes();
  for (unsigned f = 0; f < plan.functions()->size(); ++f) {
    PackingProblem problem = problemOf(plan, int(f));
    packed.buffers = std::max(packed.buffers, problem.buffers.size());
    packed.bound = std::max(packed.bound, problem.lowerBound());
    packed.firstFit = std::max(packed.firstFit, firstFit(problem));
    packed.greedy = std::max(packed.greedy, timed(packed.greedySeconds, problem, 0));
    packed.searched =
        std::max(packed.searched, timed(packed.searchSeconds, problem, kPackingSearchNodes));
  }
  const plan::Arena &workspace = *plan.arenas()->Get(1);
  packed.isSame =
      packed.bound == workspace.lower_bound_bytes() && packed.searched == workspace.bytes();
  return packed;
}

// A line for plans of one job: the mean and the maximum over them.
void printPacking(const std::string &name, const std::string &job,
                  const std::vector<Packed> &plans) {
  auto row = [&](auto value) {
    double sum = 0, most = 0;
    for (const Packed &packed : plans) {
      double of = value(packed);
      sum += of;
      most = std::max(most, of);
    }
    std::printf("  %6.2f %6.2f", sum / double(plans.size()), most);
  };
  double greedy = 0, searched = 0;
  size_t buffers = 0, other = 0;
  uint64_t peak = 0;
  for (const Packed &packed : plans) {
    greedy += packed.greedySeconds;
    searched += packed.searchSeconds;
    buffers = std::max(buffers, packed.buffers);
    peak = std::max(peak, packed.peak());
    other += !packed.isSame;
  }
  std::printf("%-18s %-20s %5zu %6zu %8.2f", name.c_str(), job.c_str(), plans.size(), buffers,
              double(peak) / (1 << 30));
  row([](const Packed &p) { return percent(p.firstFit, p.searched, p.peak()); });
  row([](const Packed &p) { return percent(p.greedy, p.searched, p.peak()); });
  row([](const Packed &p) { return percent(p.searched, p.bound, p.peak()); });
  std::printf("  %7.3f %7.3f", greedy / double(plans.size()), searched / double(plans.size()));
  if (other)
    std::printf("  (%zu with other buffers than the compiler's)", other);
  std::printf("\n");
  std::fflush(stdout);
}

//===-- Recompute ---------------------------------------------------------------------------===//

struct Point {
  double seconds;
  uint64_t peak;
};

Point pointOf(const RecomputeChoiceProblem &problem, const std::vector<size_t> &options) {
  uint64_t held = 0, most = 0;
  double seconds = 0;
  for (size_t l = 0; l < options.size(); ++l) {
    const LayerOption &option = problem.kinds[size_t(problem.layers[l])][options[l]];
    held += option.keptBytes;
    most = std::max(most, held + option.transientBytes);
    seconds += option.seconds;
  }
  return {seconds, problem.fixedBytes + std::max(most, problem.headAndLossBytes + held)};
}

std::vector<size_t> fastest(const RecomputeChoiceProblem &problem) {
  std::vector<size_t> options;
  for (int kind : problem.layers) {
    const std::vector<LayerOption> &list = problem.kinds[size_t(kind)];
    options.push_back(size_t(std::min_element(list.begin(), list.end(),
                                              [](const LayerOption &a, const LayerOption &b) {
                                                return std::pair(a.seconds, a.keptBytes) <
                                                       std::pair(b.seconds, b.keptBytes);
                                              }) -
                             list.begin()));
  }
  return options;
}

// The first `count` layers take option `option`, or their kind's last.
std::vector<size_t> withFirst(const RecomputeChoiceProblem &problem, size_t option, size_t count) {
  std::vector<size_t> options = fastest(problem);
  for (size_t l = 0; l < count; ++l)
    options[l] = std::min(option, problem.kinds[size_t(problem.layers[l])].size() - 1);
  return options;
}

std::vector<Point> greedyPoints(const RecomputeChoiceProblem &problem) {
  std::vector<size_t> options = fastest(problem);
  std::vector<Point> points = {pointOf(problem, options)};
  while (true) {
    double best = 0;
    size_t layer = 0, to = 0;
    for (size_t l = 0; l < options.size(); ++l) {
      const std::vector<LayerOption> &list = problem.kinds[size_t(problem.layers[l])];
      const LayerOption &now = list[options[l]];
      for (size_t o = 0; o < list.size(); ++o)
        if (list[o].keptBytes < now.keptBytes) {
          double rate = double(now.keptBytes - list[o].keptBytes) /
                        std::max(list[o].seconds - now.seconds, 1e-15);
          if (rate > best) {
            best = rate;
            layer = l;
            to = o;
          }
        }
    }
    if (best == 0)
      return points;
    options[layer] = to;
    points.push_back(pointOf(problem, options));
  }
}

void compareRecompute(const std::string &name, const RecomputeChoiceProblem &problem) {
  size_t most = 0;
  for (const std::vector<LayerOption> &kind : problem.kinds)
    most = std::max(most, kind.size());
  std::vector<Point> uniform, firstLayers;
  for (size_t option = 0; option < most; ++option)
    for (size_t count = 0; count <= problem.layers.size(); ++count) {
      Point point = pointOf(problem, withFirst(problem, option, count));
      firstLayers.push_back(point);
      if (count == problem.layers.size())
        uniform.push_back(point);
    }
  const std::vector<Point> methods[] = {uniform, firstLayers, greedyPoints(problem)};
  auto start = std::chrono::steady_clock::now();
  std::vector<RecomputeChoice> candidates = recomputeChoices(problem, 32, {});
  double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%-18s %3zu %4zu %8.1f %8.1f", name.c_str(), most, candidates.size(),
              double(candidates.back().peakBytes) / (1 << 30),
              double(candidates.front().peakBytes) / (1 << 30));
  for (const std::vector<Point> &points : methods) {
    double sum = 0, worst = 0, sumSeconds = 0;
    size_t unmet = 0;
    for (const RecomputeChoice &candidate : candidates) {
      uint64_t peak = candidates.front().peakBytes; // the fastest is always there
      double seconds = INFINITY;
      for (const Point &point : points) {
        if (point.seconds <= candidate.seconds * (1 + 1e-12))
          peak = std::min(peak, point.peak);
        if (point.peak <= candidate.peakBytes)
          seconds = std::min(seconds, point.seconds);
      }
      double gain = std::max(0.0, percent(peak, candidate.peakBytes, candidate.peakBytes));
      sum += gain;
      worst = std::max(worst, gain);
      if (seconds == INFINITY)
        ++unmet;
      else
        sumSeconds += 100 * (seconds / candidate.seconds - 1);
    }
    std::printf("  %6.2f %6.2f %6.2f %3zu", sum / double(candidates.size()), worst,
                sumSeconds / double(std::max<size_t>(1, candidates.size() - unmet)), unmet);
  }
  std::printf("  %7.3f\n", spent);
}

// Searches as `recompute = "auto"` does, and packs the plan of every candidate.
mlir::FailureOr<RecomputeChoiceProblem> searchJob(const Config &config, mlir::MLIRContext &context,
                                                  std::vector<Packed> &plans) {
  CompileOptions options;
  PhaseRunner phases(config, options);
  Result<cost::DeviceSpec> spec = cost::deviceSpecOf(config.target, config.directory);
  if (!spec)
    return mlir::failure();
  auto make = [&](const Config &job) -> mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> {
    mlir::OwningOpRef<mlir::ModuleOp> module = buildModel(job, context);
    for (Phase phase : {Phase::Autodiff, Phase::Distribute})
      if (mlir::failed(phases.run(phase, *module, PhaseUse::Attempt)))
        return mlir::failure();
    return module;
  };
  auto start = make(config);
  if (mlir::failed(start))
    return mlir::failure();
  auto model = codegen::costModelOf(config.target.device, *spec);
  auto search = RecomputeSearch::begin(**start, config, *model, phases, [&](int64_t layers) {
    Config job = config;
    job.model.numHiddenLayers = layers;
    return make(job);
  });
  if (mlir::failed(search) || mlir::failed((*search)->complete()))
    return mlir::failure();
  for (size_t i = 0; i < (*search)->candidates().size(); ++i) {
    auto module = (*search)->planned(i);
    std::string bytes;
    if (mlir::failed(module) || mlir::failed(emitPlan(**module, config, PlanDetails(), bytes)))
      return mlir::failure();
    plans.push_back(packAgain(*plan::GetPlan(bytes.data())));
  }
  return (*search)->measured();
}

// Prints the seconds of memoryTimeline() for a model of 80 layers.
int timeTimeline(mlir::MLIRContext &context) {
  Config config;
  if (!load("models/configs/llama3-8b.toml",
            {"target.device=cuda:sm_90a", "model.num_hidden_layers=80", "memory.recompute=none"},
            config))
    return 2;
  CompileOptions options;
  options.withCode = false;
  mlir::FailureOr<CompileResult> result = compile(config, options, context);
  if (mlir::failed(result))
    return 1;
  const plan::Plan &plan = *plan::GetPlan(result->plan.data());
  const std::clock_t start = std::clock();
  const MemoryTimeline timeline = memoryTimeline(plan);
  const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf(
      "\nmemoryTimeline of llama3-8b with 80 layers: %.3f s for %zu functions and %u slices; "
      "the goal is 0.2 s\n",
      seconds, timeline.functions.size(), plan.slices()->size());
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  std::vector<std::string> configs(argv + 1, argv + argc);
  if (configs.empty())
    for (const auto &entry : std::filesystem::directory_iterator("models/configs"))
      if (entry.path().extension() == ".toml")
        configs.push_back(entry.path());
  std::sort(configs.begin(), configs.end());
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);

  std::printf(
      "Packing: plans of the job; buffers of the largest function; GiB of the largest plan; "
      "mean and maximum over the\nplans of what first fit and greedy need beyond the search, "
      "and the search beyond the lower bound, in %% of the\npeak; seconds a plan for greedy "
      "and with the search\n\n%-18s %-20s %5s %6s %8s  %13s  %13s  %13s  %7s %7s\n",
      "config", "job", "plans", "number", "GiB", "first fit", "greedy", "lower bound", "greedy",
      "search");
  std::vector<std::pair<std::string, RecomputeChoiceProblem>> problems;
  for (const std::string &path : configs) {
    std::string name = std::filesystem::path(path).stem();
    for (const char *device : {"cpu", "cuda:sm_90a"}) {
      std::string target = std::string("target.device=") + device;
      for (RecomputeMode mode :
           {RecomputeMode::KeepAll, RecomputeMode::None, RecomputeMode::Block}) {
        Config config;
        if (!load(path, {target}, config))
          return 2;
        config.memory.recompute = mode;
        CompileOptions options;
        options.withCode = false;
        mlir::FailureOr<CompileResult> result = compile(config, options, context);
        if (mlir::failed(result))
          return 1;
        printPacking(name, std::string(device) + " " + recomputeModeName(mode).str(),
                     {packAgain(*plan::GetPlan(result->plan.data()))});
      }
      Config config;
      if (!load(path, {target, "memory.recompute=auto"}, config))
        return 2;
      std::vector<Packed> plans;
      mlir::FailureOr<RecomputeChoiceProblem> problem = searchJob(config, context, plans);
      if (mlir::failed(problem))
        return 1;
      printPacking(name, std::string(device) + " auto", plans);
      if (device != std::string("cpu")) // where a step of some models takes hours
        problems.emplace_back(name, std::move(*problem));
    }
  }

  std::printf(
      "\nRecompute on cuda:sm_90a: options of a layer; candidates; GiB of the smallest and of the "
      "fastest; "
      "then for uniform, first n and\ngreedy: mean and maximum of the peak beyond a "
      "candidate's at its seconds (%% of the candidate's peak), mean of the\nseconds beyond a "
      "candidate's at its peak (%% of the layers' seconds), candidates whose peak the method "
      "cannot\nreach; seconds of the planner\n\n%-18s %3s %4s %8s %8s  %s\n",
      "config", "opt", "cand", "smallest", "fastest",
      "-------- uniform -------  -------- first n -------  --------- greedy -------");
  for (const auto &[name, problem] : problems)
    compareRecompute(name, problem);
  return timeTimeline(context);
}
