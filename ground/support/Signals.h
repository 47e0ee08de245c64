// Handles signals so that no handler ever runs on a thread that computes.
//
// Why: a library's matrix product may use the stack pointer as a pointer into its data (oneDNN
// 2.6.3 does so for f32). The operating system writes the frame of a signal handler below the
// address in the stack pointer. A handler on such a thread therefore overwrites data of the run.
//
// The rule: main() calls blockSignals() before anything else. All threads of the program, also
// those of libraries, inherit this mask. One thread that does nothing else receives the signals:
// that of startSignalThread(), or the main thread of a process that only waits for its children
// (ChildSignals). No other code may install a handler (test/structure.test), except the SIMT
// executor of kernels, whose handler for its own faults has an alternate stack.
//
// Other signals are not blocked: signals of a fault in the thread itself (such as SIGSEGV), those
// that stop and continue a process (such as SIGTSTP), SIGPIPE and SIGXFSZ.
#pragma once

#include <array>
#include <csignal>

namespace lmc {

// Signals that make a run finish its step, write a checkpoint and stop. Batch systems send SIGUSR1,
// SIGUSR2 or SIGXCPU before they kill a job. Without a run (see StopSignals), they end the program.
inline constexpr std::array<int, 7> kStopSignals = {SIGTERM, SIGINT,  SIGHUP, SIGUSR1,
                                                    SIGUSR2, SIGXCPU, SIGALRM};

// Blocks the signals of kStopSignals, SIGQUIT, and signals that need no answer, such as SIGPROF, in
// the calling thread and in threads that it starts. SIGCHLD gets its default action, because a
// process that ignores it cannot wait for its children.
void blockSignals();

// Lets SIGQUIT end the program, in a process that does not call startSignalThread().
void unblockQuit();

// Ignores SIGPIPE (nobody reads a pipe or connection any more) and SIGXFSZ (a file is too large).
// The write then returns an error instead.
void ignoreFailedWrites();

// Returns true if SIGHUP was ignored at the start, as under nohup. It then stays ignored.
bool hangUpIsIgnored();

// Returns the mask that the process had before blockSignals().
sigset_t signalMaskAtStart();

// Restores the thread's mask of signals, and the actions of SIGPIPE and SIGXFSZ, as they were when
// the process started. A new process must call it before it starts another program.
void restoreSignals();

// Calls blockSignals(), and starts the thread that receives these signals unless this process has
// such a thread. While a StopSignals exists, a second SIGINT ends the program at once. Without a
// StopSignals, and for SIGQUIT, the thread ends the program, as the system does by default. Signals
// that were ignored when the program started stay ignored. Of these, all of kStopSignals except
// SIGHUP, which nohup ignores, can still stop a run.
void startSignalThread();

// A run that signals can stop. The constructor calls startSignalThread() and ignoreFailedWrites().
// A signal of kStopSignals only makes requested() true, of all objects that exist at that time.
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
