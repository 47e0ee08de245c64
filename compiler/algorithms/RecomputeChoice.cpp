#include "compiler/algorithms/RecomputeChoice.h"

#include "compiler/algorithms/Femtoseconds.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

using namespace lmc;

// All sums of bytes are below this limit, and so below kNever, which stands for infinity.
static constexpr uint64_t kMaxChoiceBytes = uint64_t(1) << 61;

Result<void> RecomputeChoiceProblem::check() const {
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    if (kinds[kind].empty())
      return userError("kind {} has no options", kind);
    for (const LayerOption &option : kinds[kind])
      if (!(option.seconds >= 0))
        return userError("an option of kind {} takes no time that could be measured", kind);
  }
  uint64_t bytes = 0;
  auto add = [&](uint64_t more) {
    return more < kMaxChoiceBytes && (bytes += more) < kMaxChoiceBytes;
  };
  if (!add(fixedBytes) || !add(headAndLossBytes))
    return Error{"2^61 bytes or more"};
  double seconds = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    if (layers[l] < 0 || size_t(layers[l]) >= kinds.size())
      return userError("layer {} is of no kind that exists", l);
    uint64_t kept = 0, transient = 0;
    double longest = 0;
    for (const LayerOption &option : kinds[size_t(layers[l])]) {
      kept = std::max(kept, option.keptBytes);
      transient = std::max(transient, option.transientBytes);
      longest = std::max(longest, option.seconds);
    }
    if (!add(kept) || !add(transient))
      return Error{"2^61 bytes or more"};
    if ((seconds += longest) > kMaxPlannedSeconds)
      return Error{"the layers may take more than an hour"};
  }
  return {};
}

static uint64_t peakOf(const RecomputeChoiceProblem &problem, const std::vector<int> &options) {
  uint64_t held = 0, most = 0;
  for (size_t l = 0; l < options.size(); ++l) {
    const LayerOption &option = problem.kinds[size_t(problem.layers[l])][size_t(options[l])];
    held += option.keptBytes;
    most = std::max(most, held + option.transientBytes);
  }
  return problem.fixedBytes + std::max(most, problem.headAndLossBytes + held);
}

static int64_t femtosecondsOf(const RecomputeChoiceProblem &problem,
                              const std::vector<int> &options) {
  int64_t sum = 0;
  for (size_t l = 0; l < options.size(); ++l)
    sum += toFemtoseconds(problem.kinds[size_t(problem.layers[l])][size_t(options[l])].seconds);
  return sum;
}

Result<void> RecomputeChoice::verify(const RecomputeChoiceProblem &problem) const {
  if (options.size() != problem.layers.size())
    return userError("chooses for {} layers of {}", options.size(), problem.layers.size());
  for (size_t l = 0; l < options.size(); ++l)
    if (options[l] < 0 || size_t(options[l]) >= problem.kinds[size_t(problem.layers[l])].size())
      return userError("layer {} takes an option that does not exist", l);
  if (uint64_t peak = peakOf(problem, options); peak != peakBytes)
    return userError("the peak is {} bytes, not {}", peak, peakBytes);
  if (toSeconds(femtosecondsOf(problem, options)) != seconds)
    return Error{"the options do not take the seconds stated"};
  if (boundSeconds > seconds)
    return Error{"is faster than any choice can be"};
  return {};
}

namespace {

struct Option {
  int64_t kept, transient, time; // bytes, bytes, femtoseconds
  int index;                     // index into problem.kinds[kind of the layer]
};

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 2; // stands for infinity

// Returns need(l) if layer l has this option and `after` is need(l+1). need(l) is the number of
// bytes that layers l..L-1 need, beside the bytes that layers 0..l-1 keep:
//   need(L) = headAndLossBytes,  need(l) = kept(l) + max(transient(l), need(l+1)).
// The peak is fixedBytes + need(0).
int64_t needOf(const Option &option, int64_t after) {
  return option.kept + std::max(option.transient, after);
}

// Returns the minimum of need(l) over all choices, for each l from 0 to L.
std::vector<int64_t> leastNeeds(const RecomputeChoiceProblem &problem) {
  std::vector<int64_t> least(problem.layers.size() + 1, kNever);
  least.back() = int64_t(problem.headAndLossBytes);
  for (size_t l = problem.layers.size(); l-- > 0;)
    for (const LayerOption &option : problem.kinds[size_t(problem.layers[l])])
      least[l] = std::min(
          least[l],
          needOf({int64_t(option.keptBytes), int64_t(option.transientBytes), 0, 0}, least[l + 1]));
  return least;
}

// Returns the options that no other option dominates. An option dominates another if neither its
// kept bytes, nor its transient bytes, nor its time is larger. The first of equal options stays.
std::vector<Option> undominated(const std::vector<LayerOption> &options) {
  std::vector<Option> kept;
  auto betters = [](const LayerOption &a, const LayerOption &b) {
    return a.keptBytes <= b.keptBytes && a.transientBytes <= b.transientBytes &&
           toFemtoseconds(a.seconds) <= toFemtoseconds(b.seconds);
  };
  for (size_t i = 0; i < options.size(); ++i) {
    bool dominated = false;
    for (size_t j = 0; j < options.size() && !dominated; ++j)
      dominated =
          j != i && betters(options[j], options[i]) && (j < i || !betters(options[i], options[j]));
    if (!dominated)
      kept.push_back({int64_t(options[i].keptBytes), int64_t(options[i].transientBytes),
                      toFemtoseconds(options[i].seconds), int(i)});
  }
  return kept;
}

// The minimum time of some layers as a function of the bytes that they may keep, if each layer
// could mix its options (the continuous relaxation). It is convex and falling. Its edges are the
// edges of all layers' convex hulls, in order of their seconds per byte (Sinha and Zoltners 1979).
struct Relaxation {
  struct Corner {
    int64_t kept, time;
  };
  std::vector<Corner> corners; // in order of falling kept bytes

  // Returns a lower bound of the time if the layers keep at most `kept` bytes. To save time, starts
  // at corner `hint` and updates it. `hint` must first be 0; `kept` must not rise between calls.
  int64_t within(int64_t kept, size_t &hint) const {
    while (hint < corners.size() && corners[hint].kept > kept)
      ++hint;
    if (hint == 0)
      return corners[0].time;
    if (hint == corners.size())
      return kNever;
    const Corner &a = corners[hint - 1], &b = corners[hint];
    int64_t rise = b.time - a.time;
    double part = double(kept - b.kept) / double(a.kept - b.kept);
    // The interpolation has a relative error below 2^-50. The result stays a lower bound, because
    // this error is subtracted from it.
    return b.time - std::min(rise, int64_t(double(rise) * part) + (rise >> 50) + 1);
  }
};

// Returns L + 1 relaxations. Relaxation l is that of layers 0..l-1.
std::vector<Relaxation> relax(const std::vector<std::vector<Option>> &options) {
  struct Edge { // from one corner of a layer's hull to the next
    size_t layer;
    int64_t saved, time; // bytes, femtoseconds
  };
  auto cheaper = [](const Edge &a, const Edge &b) { // compares seconds per byte saved
    return __int128(a.time) * b.saved < __int128(b.time) * a.saved;
  };
  std::vector<Edge> edges;
  std::vector<Relaxation::Corner> fastest;
  for (size_t l = 0; l < options.size(); ++l) {
    std::vector<Option> byTime = options[l];
    std::ranges::sort(byTime, {}, [](const Option &of) { return std::pair(of.time, of.kept); });
    Relaxation::Corner at{byTime.front().kept, byTime.front().time};
    fastest.push_back(at);
    size_t first = edges.size();
    for (const Option &option : byTime) {
      if (option.kept >= at.kept)
        continue;
      Edge edge{l, at.kept - option.kept, option.time - at.time};
      at = {option.kept, option.time};
      while (edges.size() > first && !cheaper(edges.back(), edge)) {
        edge.saved += edges.back().saved;
        edge.time += edges.back().time;
        edges.pop_back();
      }
      edges.push_back(edge);
    }
  }
  std::stable_sort(edges.begin(), edges.end(), cheaper);
  std::vector<Relaxation> relaxations(options.size() + 1);
  Relaxation::Corner start{0, 0};
  for (size_t l = 0; l <= options.size(); ++l) {
    std::vector<Relaxation::Corner> &corners = relaxations[l].corners;
    corners.push_back(start);
    const Edge *before = nullptr;
    for (const Edge &edge : edges) {
      if (edge.layer >= l)
        continue;
      Relaxation::Corner next{corners.back().kept - edge.saved, corners.back().time + edge.time};
      if (before && !cheaper(*before, edge)) // merges equally steep edges of layers of one kind
        corners.back() = next;
      else
        corners.push_back(next);
      before = &edge;
    }
    if (l < options.size()) {
      start.kept += fastest[l].kept;
      start.time += fastest[l].time;
    }
  }
  return relaxations;
}

// The maximum number of partial choices per layer in the thorough search. Real and random problems
// with 80 layers of 8 options give some hundreds.
constexpr size_t kMaxLabels = 4096;
// The maximum number of partial choices per layer in a quick first search. The time of its result
// lets the thorough search discard most partial choices.
constexpr size_t kFewLabels = 64;

class LabelSearch {
public:
  // `capacity` is the maximum of need(0). There must be a choice within it.
  LabelSearch(const RecomputeChoiceProblem &problem, int64_t capacity)
      : problem(problem), layers(problem.layers.size()), capacity(capacity) {
    std::vector<std::vector<Option>> kinds;
    for (const std::vector<LayerOption> &kind : problem.kinds)
      kinds.push_back(undominated(kind));
    std::vector<int64_t> least = leastNeeds(problem);
    allowed.assign(layers + 1, 0);
    allowed[0] = capacity;
    options.resize(layers);
    for (size_t l = 0; l < layers; ++l)
      for (const Option &option : kinds[size_t(problem.layers[l])])
        if (needOf(option, least[l + 1]) <= allowed[l]) {
          options[l].push_back(option);
          allowed[l + 1] = std::max(allowed[l + 1], allowed[l] - option.kept);
        }
    relaxations = relax(options);
  }

  RecomputeChoice run() {
    sweep(kFewLabels);
    if (cut)
      sweep(kMaxLabels);
    RecomputeChoice choice;
    choice.options = best;
    choice.peakBytes = peakOf(problem, best);

    // At earlier layers, the backward pass finds fewer kept bytes live. So, among the layers of one
    // kind, earlier layers get the options with more transient bytes, unless that raises the peak.
    std::vector<int> sorted = best;
    for (size_t kind = 0; kind < problem.kinds.size(); ++kind) {
      std::vector<int> taken;
      for (size_t l = 0; l < layers; ++l)
        if (problem.layers[l] == int(kind))
          taken.push_back(best[l]);
      std::sort(taken.begin(), taken.end(), [&](int a, int b) {
        uint64_t ofA = problem.kinds[kind][size_t(a)].transientBytes;
        uint64_t ofB = problem.kinds[kind][size_t(b)].transientBytes;
        return ofA != ofB ? ofA > ofB : a < b;
      });
      for (size_t l = layers; l-- > 0;)
        if (problem.layers[l] == int(kind)) {
          sorted[l] = taken.back();
          taken.pop_back();
        }
    }
    if (peakOf(problem, sorted) <= choice.peakBytes) {
      choice.options = sorted;
      choice.peakBytes = peakOf(problem, sorted);
    }
    choice.seconds = toSeconds(bestTime);
    choice.boundSeconds = toSeconds(boundTime);
    return choice;
  }

private:
  // A partial choice: options for layers l..L-1. It dominates another one if neither its need nor
  // its time is larger. It is then never worse, as need(l) rises with need(l+1) and times add up.
  struct Label {
    int64_t need, time;
    uint32_t parent; // index, in the list of layer l+1, of the partial choice that this one extends
    uint32_t option; // index into options[l]
  };

  // Decides the layers from the last to the first, with at most `mostLabels` partial choices per
  // layer. Sets `best` to a better choice if it finds one.
  void sweep(size_t mostLabels) {
    std::vector<std::vector<Label>> labels(layers + 1); // per layer: rising needs, falling times
    labels[layers].push_back({int64_t(problem.headAndLossBytes), 0, 0, 0});
    boundTime = kNever;
    cut = false;
    std::vector<size_t> next;                       // per option, its next entry's index in `from`
    std::vector<std::pair<int64_t, int64_t>> heads; // per option, need and time of its next entry
    std::vector<int64_t> bounds; // the lower bound of the time of each entry of `to`
    for (size_t l = layers; l-- > 0;) {
      const std::vector<Label> &from = labels[l + 1];
      std::vector<Label> &to = labels[l];
      // Combines each option of layer l with each partial choice of `from`. For one option, the new
      // needs rise along `from`, so the lists of all options can be merged into `to`. All
      // partial choices that need at most the option's transient bytes give the same new need. Only
      // the last of them, the fastest, counts.
      next.assign(options[l].size(), 0);
      heads.resize(options[l].size());
      auto advance = [&](size_t o) {
        if (next[o] < from.size())
          heads[o] = {needOf(options[l][o], from[next[o]].need),
                      from[next[o]].time + options[l][o].time};
        else
          heads[o] = {kNever, kNever};
      };
      for (size_t o = 0; o < heads.size(); ++o) {
        while (next[o] + 1 < from.size() && from[next[o] + 1].need <= options[l][o].transient)
          ++next[o];
        advance(o);
      }
      bounds.clear();
      size_t fasterHint = 0, smallerHint = 0;
      while (true) {
        size_t chosen = size_t(std::min_element(heads.begin(), heads.end()) - heads.begin());
        auto [need, time] = heads[chosen];
        if (need > allowed[l])
          break;
        if (!to.empty() && to.back().time <= time) {
          // Skips all entries of this option that are not faster than the last entry of `to`.
          next[chosen] = size_t(
              std::partition_point(from.begin() + ptrdiff_t(next[chosen]), from.end(),
                                   [&](const Label &label) {
                                     return to.back().time <= label.time + options[l][chosen].time;
                                   }) -
              from.begin());
          advance(chosen);
          continue;
        }
        size_t parent = next[chosen]++;
        advance(chosen);
        int64_t bound = time + relaxations[l].within(capacity - need, fasterHint);
        if (bound >= bestTime &&
            time + relaxations[l].within(bestNeed - 1 - need, smallerHint) > bestTime)
          continue;
        bounds.push_back(bound);
        to.push_back({need, time, uint32_t(parent), uint32_t(chosen)});
      }
      if (to.size() > mostLabels) {
        // Keeps the first partial choice, which can always be completed. Divides the others into
        // groups of neighbours, and keeps the one with the smallest bound of each group. Without
        // groups, nearly all kept ones would have the same need.
        cut = true;
        size_t group = (to.size() - 2) / (mostLabels - 1) + 1, kept = 1;
        for (size_t begin = 1; begin < to.size(); begin += group) {
          size_t end = std::min(begin + group, to.size()), most = begin;
          for (size_t i = begin; i < end; ++i)
            if (bounds[i] < bounds[most])
              most = i;
          for (size_t i = begin; i < end; ++i)
            if (i != most)
              boundTime = std::min(boundTime, bounds[i]);
          to[kept++] = to[most];
        }
        to.resize(kept);
      }
    }
    // All partial choices of layer 0 are complete, and better than the best choice so far. The last
    // one is the fastest.
    if (!labels[0].empty()) {
      size_t at = labels[0].size() - 1;
      bestTime = labels[0][at].time;
      bestNeed = labels[0][at].need;
      best.resize(layers);
      for (size_t l = 0; l < layers; ++l) {
        best[l] = options[l][labels[l][at].option].index;
        at = labels[l][at].parent;
      }
    }
    boundTime = std::min(boundTime, bestTime);
  }

  const RecomputeChoiceProblem &problem;
  const size_t layers;
  const int64_t capacity;
  std::vector<std::vector<Option>> options; // per layer, the options that fit the capacity
  // allowed[l] is the maximum need(l) at which layers 0..l-1 can still stay within `capacity`.
  std::vector<int64_t> allowed;
  std::vector<Relaxation> relaxations;
  // The time and need(0) of the best choice so far. At equal times, a smaller need(0) is better.
  int64_t bestTime = kNever, bestNeed = 0;
  std::vector<int> best;
  int64_t boundTime = 0; // a lower bound of the time of every choice
  bool cut = false; // true if the last sweep() dropped partial choices that might beat `best`
};

} // namespace

std::optional<RecomputeChoice> lmc::chooseRecompute(const RecomputeChoiceProblem &problem,
                                                    uint64_t budget) {
  if (budget < problem.fixedBytes)
    return std::nullopt;
  int64_t capacity = int64_t(std::min(budget - problem.fixedBytes, kMaxChoiceBytes));
  if (leastNeeds(problem)[0] > capacity)
    return std::nullopt;
  return LabelSearch(problem, capacity).run();
}

std::vector<RecomputeChoice> lmc::recomputeChoices(const RecomputeChoiceProblem &problem, int steps,
                                                   const std::vector<uint64_t> &budgets) {
  std::vector<RecomputeChoice> found = {*chooseRecompute(problem, UINT64_MAX)};
  uint64_t most = found[0].peakBytes;
  uint64_t least = problem.fixedBytes + uint64_t(leastNeeds(problem)[0]);
  std::vector<uint64_t> asked = budgets;
  for (int i = 0; i <= steps; ++i) // budgets from the smallest peak upwards
    asked.push_back(
        least + uint64_t((unsigned __int128)(most - least) * unsigned(i) / unsigned(steps + 1)));
  // Each thread computes the choices for some of the budgets.
  std::vector<std::optional<RecomputeChoice>> chosen(asked.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < asked.size();)
      chosen[i] = chooseRecompute(problem, asked[i]);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min<size_t>(std::thread::hardware_concurrency(), asked.size()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  for (std::optional<RecomputeChoice> &choice : chosen)
    if (choice)
      found.push_back(std::move(*choice));
  std::ranges::stable_sort(found, {}, [](const RecomputeChoice &choice) {
    return std::pair(choice.seconds, choice.peakBytes);
  });
  std::vector<RecomputeChoice> choices;
  for (RecomputeChoice &choice : found)
    if (choices.empty() || choice.peakBytes < choices.back().peakBytes)
      choices.push_back(std::move(choice));
  return choices;
}
