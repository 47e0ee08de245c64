// Handles signals so that no handler ever runs on a thread that computes.
//
// Why: a library's matrix product may use the stack pointer as a pointer into its data (oneDNN
// 2.6.3 does so for f32). The operating system writes the frame of a signal handler below the
// address in the stack pointer. A handler on such a thread therefore overwrites data of the run.
//
// The rule: main() calls blockSignals() before anything else. All threads of the program, also
// those of libraries, inherit the blocked signals. One thread that does nothing else receives the
// signals. It is the thread of startSignalThread(), or the main thread of a process that only waits
// for its children (ChildSignals). No other code may install a handler (test/structure.test). The
// only exception is the SIMT executor of kernels: its handler has a stack of its own.
//
// Some signals are not blocked: those that report a thread's own error (such as SIGSEGV), those
// that stop and continue a process (such as SIGTSTP), SIGPIPE and SIGXFSZ.
#pragma once

#include <array>
#include <csignal>

namespace lmc {

// Signals that make a run finish its step, write a checkpoint and stop. Batch systems send SIGUSR1,
// SIGUSR2 or SIGXCPU before they kill a job. Without a run (see StopSignals), they end the program.
inline constexpr std::array<int, 7> kStopSignals = {SIGTERM, SIGINT,  SIGHUP, SIGUSR1,
                                                    SIGUSR2, SIGXCPU, SIGALRM};

// Blocks signals in the calling thread, and in all threads that this thread starts later. Blocks
// kStopSignals, SIGQUIT, and signals that need no reaction, such as SIGPROF. Resets SIGCHLD to its
// default action, because a process that ignores SIGCHLD cannot wait for its children.
void blockSignals();

// Unblocks SIGQUIT, so that it ends a process that does not call startSignalThread().
void unblockQuit();

// Ignores SIGPIPE (a pipe or connection has no reader any more) and SIGXFSZ (a file is too large).
// The failed write then returns an error, and no signal ends the program.
void ignoreFailedWrites();

// Returns true if SIGHUP was ignored at the start, as under nohup. SIGHUP then stays ignored.
bool hangUpIsIgnored();

// Returns the mask that the process had before blockSignals().
sigset_t signalMaskAtStart();

// Restores the thread's mask of signals, and the actions of SIGPIPE and SIGXFSZ, as they were when
// the process started. A new process must call it before it starts another program.
void restoreSignals();

// Calls blockSignals(). Starts a thread that receives the blocked signals, unless it runs already.
// SIGQUIT ends the program, unless the program started with SIGQUIT ignored. If no StopSignals
// object exists, the same holds for each signal of kStopSignals. If one exists, a signal of
// kStopSignals requests a stop, even if the program started with this signal ignored; only an
// ignored SIGHUP (nohup) has no effect. A second SIGINT then ends the program at once.
void startSignalThread();

// After a signal of kStopSignals, requested() is true for all objects that existed at that time. A
// run then stops. The constructor calls startSignalThread() and ignoreFailedWrites().
class StopSignals {
public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals &) = delete;
  StopSignals &operator=(const StopSignals &) = delete;

  bool requested() const;

private:
  int before; // number of stop signals that came before this object was made
};

} // namespace lmc
