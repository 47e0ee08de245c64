#include "runtime/monitor/MachineUse.h"

#include <algorithm>
#include <charconv>
#include <chrono>
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
  // The ticks of /proc/stat are coarser than this process's own time.
  use.otherCpu = std::max(0.0, after.busy - before.busy - use.ownCpu);
  use.stolen = after.stolen - before.stolen;
  use.involuntary = after.involuntary - before.involuntary;
  use.majorFaults = after.majorFaults - before.majorFaults;
  use.swapped = after.swapped - before.swapped;
  use.clockGHz = after.clockGHz;
  return use;
}

CpuTicks parseCpuTicks(std::string_view procStat, const std::vector<int> &cpus) {
  constexpr std::string_view kProcessor = "cpu"; // begins the name of a line
  CpuTicks ticks;
  std::istringstream lines{std::string(procStat)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    int cpu = -1;
    if (!name.starts_with(kProcessor) ||
        std::from_chars(name.data() + kProcessor.size(), name.data() + name.size(), cpu).ec !=
            std::errc() ||
        std::ranges::find(cpus, cpu) == cpus.end())
      continue;
    // user nice system idle iowait irq softirq steal
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

// The processors that this process may use.
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

// Returns the mean clock of some of the processors; each costs the system a look at its registers.
static double clockOf(const std::vector<int> &cpus) {
  constexpr size_t kMost = 8;
  const size_t stride = std::max<size_t>(1, cpus.size() / kMost);
  double sum = 0, count = 0;
  for (size_t i = 0; i < cpus.size(); i += stride) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpus[i]) +
                       "/cpufreq/scaling_cur_freq"); // kHz
    if (double kiloHertz = 0; file >> kiloHertz)
      sum += kiloHertz / 1e6, ++count;
  }
  return count > 0 ? sum / count : 0;
}

MachineCounters readMachineCounters() {
  MachineCounters now;
  now.time =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
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
  now.clockGHz = clockOf(cpus);
  return now;
}

} // namespace lmc
