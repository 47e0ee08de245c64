#include "runtime/monitor/MachineUse.h"

#include "ground/support/Number.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

namespace lmc {

MachineUse operator-(const MachineCounters &after, const MachineCounters &before) {
  MachineUse use;
  use.seconds = after.time - before.time;
  use.ownCpu = after.ownCpu - before.ownCpu;
  // /proc/stat has coarser units than this process's own time, so the difference may be negative.
  use.otherCpu = std::max(0.0, after.busy - before.busy - use.ownCpu);
  use.stolen = after.stolen - before.stolen;
  use.involuntary = after.involuntary - before.involuntary;
  use.majorFaults = after.majorFaults - before.majorFaults;
  use.swapped = after.swapped - before.swapped;
  use.clockGHz = after.clockGHz;
  return use;
}

CpuTicks parseCpuTicks(std::string_view procStat, const std::vector<int> &cpus) {
  constexpr std::string_view kProcessor = "cpu"; // lines of a processor begin with this word
  CpuTicks ticks;
  std::istringstream lines{std::string(procStat)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!name.starts_with(kProcessor))
      continue;
    const auto cpu = parseWhole<int>(std::string_view(name).substr(kProcessor.size()));
    if (!cpu || std::ranges::find(cpus, *cpu) == cpus.end())
      continue;
    // The fields of a line: user nice system idle iowait irq softirq steal.
    double fields[8] = {};
    for (double &field : fields)
      words >> field;
    ticks.busy += fields[0] + fields[1] + fields[2] + fields[5] + fields[6];
    ticks.stolen += fields[7];
  }
  return ticks;
}

double parseSwappedPages(std::string_view procVmstat) {
  double pages = 0;
  std::istringstream words{std::string(procVmstat)};
  std::string name;
  for (double value; words >> name >> value;)
    if (name == "pswpin" || name == "pswpout")
      pages += value;
  return pages;
}

// Returns the processors that this process may use.
static std::vector<int> ownCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set))
        cpus.push_back(cpu);
  return cpus;
}

static std::string textOfFile(const std::string &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

double MachineReader::ownClockGHz() {
  std::ifstream file(
      fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq", ::sched_getcpu()));
  double kiloHertz = 0;
  return file >> kiloHertz ? kiloHertz / 1e6 : 0;
}

MachineCounters MachineReader::read(double time) {
  MachineCounters now;
  now.time = time;
  timespec cpu{};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0)
    now.ownCpu = static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) / 1e9;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    now.involuntary = static_cast<double>(usage.ru_nivcsw);
    now.majorFaults = static_cast<double>(usage.ru_majflt);
  }
  const std::vector<int> cpus = ownCpus();
  const CpuTicks ticks = parseCpuTicks(textOfFile("/proc/stat"), cpus);
  const auto perSecond = static_cast<double>(::sysconf(_SC_CLK_TCK));
  now.busy = ticks.busy / perSecond;
  now.stolen = ticks.stolen / perSecond;
  now.swapped = parseSwappedPages(textOfFile("/proc/vmstat"));
  if (!readAt || time - *readAt >= kClockSeconds) {
    latest = clockGHz();
    readAt = time;
  }
  now.clockGHz = latest;
  return now;
}

} // namespace lmc
