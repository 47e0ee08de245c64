#include "compiler/analysis/Memory.h"

#include "compiler/analysis/Fusion.h"
#include "ground/plan/Names.h"
#include "ground/plan/SliceGeometry.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace lmc {
namespace {

// If slices of several categories cover a byte, it counts for the category that is first in this
// list. Values kept for the backward pass come first.
constexpr plan::Category kOrder[] = {
    plan::Category::Activations,    plan::Category::LibraryWorkspace, plan::Category::Temporaries,
    plan::Category::Parameters,     plan::Category::ComputeCopies,    plan::Category::Gradients,
    plan::Category::OptimizerState, plan::Category::Tables,           plan::Category::Scalars,
    plan::Category::Inputs};
static_assert(std::size(kOrder) == kCategories);

using Slices = std::vector<const plan::Slice *>;

// Returns the number of distinct bytes of `slices` per category; each byte counts once.
CategoryBytes coveredBytes(const Slices &slices) {
  CategoryBytes bytes{};
  if (slices.size() == 1) {
    bytes[size_t(slices[0]->category())] = slices[0]->bytes();
    return bytes;
  }
  Slices counted;
  uint64_t covered = 0;
  for (plan::Category category : kOrder) {
    size_t before = counted.size();
    for (const plan::Slice *slice : slices)
      if (slice->category() == category)
        counted.push_back(slice);
    if (counted.size() == before)
      continue;
    uint64_t now = unionBytes(counted);
    bytes[size_t(category)] = now - covered;
    covered = now;
  }
  return bytes;
}

// Groups slices that share bytes while both are live. At any command, different groups cover
// disjoint bytes.
std::vector<Slices> groupByBuffer(Slices slices) {
  std::ranges::stable_sort(slices, {}, &plan::Slice::first_command);
  struct Group {
    Slices slices;
    int last;
  };
  std::vector<Group> groups;
  struct Extent {
    uint64_t end;
    size_t group;
  };
  std::map<uint64_t, Extent> extents; // key: the extent's first byte; extents are disjoint
  for (const plan::Slice *slice : slices) {
    Group made{{slice}, slice->last_command()};
    uint64_t begin = slice->offset(), end = endOf(*slice);
    auto it = extents.lower_bound(begin);
    if (it != extents.begin() && std::prev(it)->second.end > begin)
      --it;
    while (it != extents.end() && it->first < end) {
      Group &other = groups[it->second.group];
      if (other.last >= slice->first_command()) { // both groups are live, so they are one buffer
        begin = std::min(begin, it->first);
        end = std::max(end, it->second.end);
        if (other.slices.size() > made.slices.size())
          std::swap(other.slices, made.slices);
        made.slices.insert(made.slices.end(), other.slices.begin(), other.slices.end());
        made.last = std::max(made.last, other.last);
        other.slices.clear();
      }
      it = extents.erase(it);
    }
    extents[begin] = {end, groups.size()};
    groups.push_back(std::move(made));
  }
  std::vector<Slices> buffers;
  for (Group &group : groups)
    if (!group.slices.empty())
      buffers.push_back(std::move(group.slices));
  return buffers;
}

// Adds the bytes of `buffer` to `change`, which has the change of the live bytes at each command.
void addBuffer(Slices buffer, std::vector<std::array<int64_t, kCategories>> &change) {
  int commands = int(change.size()) - 1;
  std::vector<int> times;
  for (const plan::Slice *slice : buffer) {
    times.push_back(std::max(0, slice->first_command()));
    times.push_back(std::min(commands, slice->last_command() + 1));
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  std::ranges::sort(buffer, {}, &plan::Slice::first_command);
  Slices live;
  size_t next = 0;
  for (size_t i = 0; i + 1 < times.size(); ++i) {
    while (next < buffer.size() && buffer[next]->first_command() <= times[i])
      live.push_back(buffer[next++]);
    std::erase_if(live, [&](const plan::Slice *slice) { return slice->last_command() < times[i]; });
    if (live.empty())
      continue;
    CategoryBytes bytes = coveredBytes(live);
    for (size_t category = 0; category < kCategories; ++category) {
      change[size_t(times[i])][category] += int64_t(bytes[category]);
      change[size_t(times[i + 1])][category] -= int64_t(bytes[category]);
    }
  }
}

std::vector<LiveBuffer> buffersAt(int command, const std::vector<Slices> &buffers) {
  std::vector<LiveBuffer> found;
  for (const Slices &buffer : buffers) {
    Slices live;
    for (const plan::Slice *slice : buffer)
      if (slice->first_command() <= command && command <= slice->last_command())
        live.push_back(slice);
    if (live.empty())
      continue;
    const plan::Slice *largest = *std::ranges::max_element(live, {}, &plan::Slice::bytes);
    found.push_back({largest->name() ? largest->name()->str() : "", largest->category(),
                     total(coveredBytes(live))});
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &LiveBuffer::bytes);
  return found;
}

std::vector<MemoryPhase> phasesOf(const plan::Function &function, const FunctionMemory &memory) {
  int commands = int(function.commands()->size()), backward = int(firstBackward(function));
  std::vector<MemoryPhase> phases;
  if (backward == commands || backward == 0) {
    phases.push_back({"", 0, commands - 1});
  } else {
    phases.push_back({"forward", 0, backward - 1});
    phases.push_back({"backward", backward, commands - 1});
  }
  for (MemoryPhase &phase : phases) {
    uint64_t most = 0;
    for (int i = phase.first; i <= phase.last; ++i)
      if (uint64_t bytes = total(memory.live[size_t(i)]); bytes > most) {
        most = bytes;
        phase.peakCommand = i;
      }
  }
  return phases;
}

} // namespace

uint64_t total(const CategoryBytes &bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t(0));
}

std::string categoryName(plan::Category category) {
  return names::snakeCase(plan::EnumNameCategory(category));
}

uint64_t MemoryTimeline::activationBytes() const {
  uint64_t most = 0;
  for (const FunctionMemory &function : functions)
    for (const CategoryBytes &live : function.live)
      most = std::max(most, live[size_t(plan::Category::Activations)]);
  return most;
}

MemoryTimeline memoryTimeline(const plan::Plan &plan) {
  MemoryTimeline timeline;
  Slices state; // of one arena
  for (const plan::Variable *variable : *plan.variables())
    state.push_back(plan.slices()->Get(variable->slice()));
  for (const Slices &buffer : groupByBuffer(state)) {
    CategoryBytes bytes = coveredBytes(buffer);
    for (size_t category = 0; category < kCategories; ++category)
      timeline.state[category] += bytes[category];
  }

  size_t functions = plan.functions()->size();
  std::vector<Slices> own(functions);
  for (const plan::Slice *slice : *plan.slices())
    if (slice->function() >= 0 && size_t(slice->function()) < functions &&
        slice->first_command() <= slice->last_command())
      own[size_t(slice->function())].push_back(slice);
  uint64_t most = 0;
  for (size_t f = 0; f < functions; ++f) {
    const plan::Function &function = *plan.functions()->Get(unsigned(f));
    FunctionMemory memory;
    std::vector<std::array<int64_t, kCategories>> change(function.commands()->size() + 1);
    std::vector<Slices> buffers = groupByBuffer(own[f]);
    for (const Slices &buffer : buffers)
      addBuffer(buffer, change);
    memory.live.resize(function.commands()->size());
    std::array<int64_t, kCategories> now{};
    for (size_t i = 0; i < memory.live.size(); ++i) {
      for (size_t category = 0; category < kCategories; ++category) {
        now[category] += change[i][category];
        memory.live[i][category] = uint64_t(now[category]);
      }
      if (uint64_t bytes = total(memory.live[i]); bytes > memory.peakBytes) {
        memory.peakBytes = bytes;
        memory.peakCommand = int(i);
      }
    }
    if (memory.peakCommand >= 0)
      memory.largest = buffersAt(memory.peakCommand, buffers);
    memory.phases = phasesOf(function, memory);
    if (memory.peakBytes > most) {
      most = memory.peakBytes;
      timeline.worst = int(f);
    }
    timeline.functions.push_back(std::move(memory));
  }
  return timeline;
}

} // namespace lmc
