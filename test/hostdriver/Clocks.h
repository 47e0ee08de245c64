// Vector clocks: which commands are ordered, whatever order they happen to run in.
//
// Every stream, and every stream of a capture in each graph that is instantiated from it, has a
// line: a counter that its commands advance. A command's clock says, per line, how many commands
// of it are certain to be complete before this one starts. See Lamport 1978, Fidge 1988, and
// FastTrack (Flanagan, Freund 2009), which keeps only the last accesses of each byte, as here.
#pragma once

#include "test/hostdriver/Memory.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lmc::hostdriver {

class Clock {
public:
  uint32_t of(uint32_t line) const { return line < counts.size() ? counts[line] : 0; }
  // Adds all that is complete for `other` to what is complete for this clock.
  void join(const Clock &other);
  // Returns true if all that is complete for `other` is complete for this clock.
  bool includes(const Clock &other) const;
  // Counts one more command of `line`.
  void tick(uint32_t line);

private:
  std::vector<uint32_t> counts;
};

// The last commands that accessed each byte of device and pinned memory.
class AccessHistory {
public:
  // Adds a command of `line`, whose clock counts itself. Fails if it conflicts with an earlier
  // command (one of the two writes a byte that both access) and no order between them is certain.
  // The error names both.
  void add(const std::shared_ptr<const std::string> &name, const std::vector<Access> &accesses,
           uint32_t line, const Clock &clock);
  // Forgets bytes that are freed. With `check`, fails if a command that accessed them is not
  // complete for `host`; the error begins with `action`.
  void release(const Access &bytes, const Clock &host, const std::string &action, bool check);

private:
  struct Event {
    std::shared_ptr<const std::string> name;
    uint32_t line = 0, count = 0;
    bool isBefore(const Clock &clock) const { return !name || count <= clock.of(line); }
  };
  struct Bytes {
    uint64_t end;
    Event writer;
    std::vector<Event> readers; // since the last write, at most one per line
  };
  using Map = std::map<uint64_t, Bytes>; // by the first byte; no two overlap

  Map::iterator cutAt(uint64_t address);
  void addRun(uint64_t begin, uint64_t end, bool write, const Event &event, const Clock &clock);

  Map map;
};

} // namespace lmc::hostdriver
