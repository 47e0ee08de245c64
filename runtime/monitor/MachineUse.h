// Measures what the machine and this process did in a period: whose work the processors did, at
// which clock, and which pages came from disks.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace lmc {

// Processor times are in seconds, summed over the processors that this process may use.
struct MachineUse {
  double seconds = 0;     // wall time
  double ownCpu = 0;      // time of all threads of this process
  double otherCpu = 0;    // of other processes
  double stolen = 0;      // time that a hypervisor gave to other machines
  double involuntary = 0; // involuntary context switches of this process
  double majorFaults = 0; // page faults of this process that read a disk
  double swapped = 0;     // pages that the machine moved from or to swap
  double clockGHz = 0;    // clock of one processor near the end; 0: the system does not give it
};

// Counters since some moment in the past.
struct MachineCounters {
  double time = 0, ownCpu = 0; // seconds
  double busy = 0, stolen = 0; // of the processors, in seconds
  double involuntary = 0, majorFaults = 0, swapped = 0;
  double clockGHz = 0; // the latest clock of one processor; not a counter
};

// Returns the use of the machine between two readings.
MachineUse operator-(const MachineCounters &after, const MachineCounters &before);

// Returns the busy and stolen ticks of the processors `cpus` in the text of /proc/stat
// (proc_stat(5)): user + nice + system + irq + softirq, and steal. Time of guests is part of user.
struct CpuTicks {
  double busy = 0, stolen = 0;
};
CpuTicks parseCpuTicks(std::string_view procStat, const std::vector<int> &cpus);

// Returns pswpin + pswpout in the text of /proc/vmstat.
double parseSwappedPages(std::string_view procVmstat);

// Reads the counters of this process and machine. A counter that the system does not give is 0.
class MachineReader {
public:
  // The minimum time between two readings of the clock, because some kernels measure for 10 ms to
  // answer (APERF and MPERF, for instance Linux 5.10: arch/x86/kernel/cpu/aperfmperf.c).
  static constexpr double kClockSeconds = 10;

  // `clockGHz` returns the clock of a processor.
  explicit MachineReader(std::function<double()> clockGHz = ownClockGHz)
      : clockGHz(std::move(clockGHz)) {}

  // `now`: the time in seconds, of the steady clock. The processors' clock is read only if it was
  // not in the kClockSeconds before.
  MachineCounters read(double now);

private:
  // Returns the clock of the processor that this thread runs on, from
  // /sys/devices/system/cpu/cpuN/cpufreq/scaling_cur_freq (kHz).
  static double ownClockGHz();

  std::function<double()> clockGHz;
  std::optional<double> readAt; // when the clock was read
  double latest = 0;            // what it was
};

} // namespace lmc
