// Measures the processor time, page faults, swapping and clock frequency during a period of time.
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
  double otherCpu = 0;    // time of other processes
  double stolen = 0;      // time that a hypervisor gave to other machines
  double involuntary = 0; // number of involuntary context switches of this process
  double majorFaults = 0; // number of page faults of this process that read a disk
  double swapped = 0;     // number of pages that the machine moved from or to swap
  double clockGHz = 0;    // clock of one processor near the end of the period; 0: unknown
};

// Counters whose start is some moment in the past, so only their differences have a meaning.
struct MachineCounters {
  double time = 0, ownCpu = 0; // seconds
  double busy = 0, stolen = 0; // processor seconds
  double involuntary = 0, majorFaults = 0, swapped = 0;
  double clockGHz = 0; // latest clock frequency of one processor; it is no counter
};

// Returns the use of the machine between two readings.
MachineUse operator-(const MachineCounters &after, const MachineCounters &before);

// Processor times in ticks, from the text of /proc/stat (proc_stat(5)), summed over `cpus`. busy is
// user + nice + system + irq + softirq; stolen is steal.
struct CpuTicks {
  double busy = 0, stolen = 0;
};
CpuTicks parseCpuTicks(std::string_view procStat, const std::vector<int> &cpus);

// Returns pswpin + pswpout in the text of /proc/vmstat.
double parseSwappedPages(std::string_view procVmstat);

// Reads the counters of this process and machine. A counter that the system does not have is 0.
class MachineReader {
public:
  // The minimum time in seconds between two readings of the clock frequency. On some kernels one
  // reading takes 10 ms (Linux 5.10: arch/x86/kernel/cpu/aperfmperf.c).
  static constexpr double kClockSeconds = 10;

  // `clockGHz` returns the clock frequency of a processor.
  explicit MachineReader(std::function<double()> clockGHz = ownClockGHz)
      : clockGHz(std::move(clockGHz)) {}

  // `now` is the time of the steady clock, in seconds.
  MachineCounters read(double now);

private:
  // Returns the clock, in GHz, of this thread's processor.
  static double ownClockGHz();

  std::function<double()> clockGHz;
  std::optional<double> readAt; // when the processors' clock was read
  double latest = 0;            // the value that was read
};

} // namespace lmc
