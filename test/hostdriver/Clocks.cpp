#include "test/hostdriver/Clocks.h"

namespace lmc::hostdriver {

void Clock::join(const Clock &other) {
  counts.resize(std::max(counts.size(), other.counts.size()));
  for (size_t i = 0; i < other.counts.size(); ++i)
    counts[i] = std::max(counts[i], other.counts[i]);
}

void Clock::tick(uint32_t line) {
  if (line >= counts.size())
    counts.resize(line + 1);
  ++counts[line];
}

bool Clock::includes(const Clock &other) const {
  for (uint32_t line = 0; line < other.counts.size(); ++line)
    if (of(line) < other.counts[line])
      return false;
  return true;
}

// Makes `address` a border between two entries, and returns the first entry at or after it.
AccessHistory::Map::iterator AccessHistory::cutAt(uint64_t address) {
  auto after = map.lower_bound(address);
  if (after == map.begin())
    return after;
  auto before = std::prev(after);
  if (before->second.end <= address)
    return after;
  Bytes rest = before->second;
  before->second.end = address;
  return map.emplace_hint(after, address, std::move(rest));
}

static void raceBetween(const std::string &first, const std::string &second, uint64_t begin,
                        uint64_t end, bool firstWrites, bool secondWrites) {
  broken(kRuleBroken,
         "race: nothing orders '{}', which {} {} bytes at {:#x}, before '{}', which {} them", first,
         firstWrites ? "writes" : "reads", end - begin, begin, second,
         secondWrites ? "writes" : "reads");
}

void AccessHistory::addRun(uint64_t begin, uint64_t end, bool write, const Event &event,
                           const Clock &clock) {
  cutAt(end);
  auto at = cutAt(begin);
  for (auto look = at; look != map.end() && look->first < end; ++look) {
    const Bytes &bytes = look->second;
    if (!bytes.writer.isBefore(clock))
      raceBetween(*bytes.writer.name, *event.name, look->first, bytes.end, true, write);
    if (write)
      for (const Event &reader : bytes.readers)
        if (!reader.isBefore(clock))
          raceBetween(*reader.name, *event.name, look->first, bytes.end, false, true);
  }
  if (write) {
    auto last = map.lower_bound(end);
    map.erase(at, last);
    map[begin] = {end, event, {}};
    return;
  }
  uint64_t next = begin;
  for (; at != map.end() && at->first < end; ++at) {
    if (at->first > next)
      map[next] = {at->first, {}, {event}};
    auto &readers = at->second.readers;
    std::erase_if(readers, [&](const Event &reader) { return reader.line == event.line; });
    readers.push_back(event);
    next = at->second.end;
  }
  if (next < end)
    map[next] = {end, {}, {event}};
}

void AccessHistory::add(const std::shared_ptr<const std::string> &name,
                        const std::vector<Access> &accesses, uint32_t line, const Clock &clock) {
  const Event event{name, line, clock.of(line)};
  for (const Access &access : accesses)
    for (uint64_t row = 0; row < access.rows; ++row) {
      const uint64_t begin = access.begin + row * access.pitch;
      if (access.run)
        addRun(begin, begin + access.run, access.write, event, clock);
    }
}

void AccessHistory::release(const Access &bytes, const Clock &host, const std::string &action,
                            bool check) {
  cutAt(bytes.end());
  const auto first = cutAt(bytes.begin), last = map.lower_bound(bytes.end());
  for (auto at = first; check && at != last; ++at) {
    at->second.readers.push_back(at->second.writer);
    for (const Event &user : at->second.readers)
      if (!user.isBefore(host))
        broken(kRuleBroken, "{} before '{}', which uses it, is known to be complete", action,
               *user.name);
  }
  map.erase(first, last);
}

} // namespace lmc::hostdriver
