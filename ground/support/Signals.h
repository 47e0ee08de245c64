// Handles signals so that no handler ever runs on a thread that computes.
//
// Why: a matrix product that a library generates may use the stack pointer as a pointer into its
// data (oneDNN 2.6.3 does so for f32). The operating system writes the frame of a signal handler,
// some kilobytes with the AVX-512 registers, below the address in the stack pointer. On such a
// thread, a handler overwrites memory of the run, which then crashes or saves wrong weights.
//
// The rule: main() calls blockSignals() before anything else. Threads inherit the mask of the
// thread that starts them, so all threads of the program, also those of libraries, block these
// signals. One thread that does nothing else receives them: that of startSignalThread() or, in a
// process that only waits for its children, the main thread, with ChildSignals. No other code may
// install a handler (test/structure.test). The exception is the SIMT executor of kernels, which has
// a handler for its own faults, on an alternate stack.
//
// Other signals are not blocked, and lmc has no handler for them: signals of a fault in the thread
// itself (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT), those that stop and continue
// a process (SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT), and SIGPIPE and SIGXFSZ, which come from a write
// and are ignored in a run.
#pragma once

#include <array>
#include <csignal>

namespace lmc {

// Signals that ask a run to stop: the run finishes its step and writes a checkpoint. Batch systems
// send SIGUSR1, SIGUSR2 or SIGXCPU before they kill a job; SIGALRM comes from a parent that has set
// an alarm. Without a run (see StopSignals), they end the program, as by default.
inline constexpr std::array<int, 7> kStopSignals = {SIGTERM, SIGINT,  SIGHUP, SIGUSR1,
                                                    SIGUSR2, SIGXCPU, SIGALRM};

// Blocks, in the calling thread and in threads that it starts, the signals of kStopSignals,
// SIGQUIT, and signals that need no answer: SIGCHLD, SIGPROF, SIGVTALRM, SIGIO, SIGURG, SIGWINCH,
// SIGPWR, SIGSTKFLT, and the real-time signals, which timers and libraries use. SIGCHLD gets its
// default action, because a process that ignores it cannot wait for its children.
void blockSignals();

// Lets SIGQUIT end the program as by default. For a process with only one thread, which does not
// call startSignalThread().
void unblockQuit();

// Ignores SIGPIPE (nobody reads the console or a connection any more) and SIGXFSZ (a file is too
// large) from now on. The write then returns an error instead.
void ignoreFailedWrites();

// Returns true if SIGHUP was ignored at the start, as under nohup. It then stays ignored.
bool hangUpIsIgnored();

// Returns the mask that the process had before blockSignals().
sigset_t signalMaskAtStart();

// Restores the calling thread's mask of signals, and the actions of SIGPIPE and SIGXFSZ, as they
// were when the process started. A new process must call it before it starts another program.
void restoreSignals();

// Calls blockSignals(), and starts the thread that receives these signals; does nothing if this
// process has such a thread. While a StopSignals exists, a signal of kStopSignals makes its
// requested() true, and a second SIGINT ends the program at once. Without a StopSignals, and for
// SIGQUIT, the thread ends the program, as the system does by default. Signals that were ignored
// when the program started stay ignored, but all of kStopSignals except SIGHUP, which nohup
// ignores, can stop a run. Signals that need no answer are dropped.
void startSignalThread();

// A run that signals can stop. While an object of this class exists, a signal of kStopSignals only
// makes requested() true. The constructor calls startSignalThread() and ignoreFailedWrites().
// Several objects may exist at a time: a signal reaches each object that exists when the signal
// comes.
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
