// Handles signals of programs that compute: no handler ever runs on a thread that computes.
//
// Why: a matrix product that a library generates may use the stack pointer as a pointer into its
// data (oneDNN 2.6.3 does so for f32). The kernel writes the frame of a signal handler, some
// kilobytes with the AVX-512 registers, below the address in the stack pointer. A handler on such a
// thread therefore overwrites memory of the run: it crashes later, or saves wrong weights.
//
// The rule: main() calls blockSignals() before anything else. Threads inherit the mask of the
// thread that starts them, so that each of these signals is blocked in all threads of the program,
// those of libraries too. One thread that does nothing else takes them: the one of
// startSignalThread(), or, in a process that only waits for its children, the main thread by means
// of ChildSignals. No other place may install a handler (test/structure.test); the SIMT executor of
// kernels has one for its own faults, on an alternate stack.
//
// Not blocked are the signals of a fault in the thread itself (SIGSEGV, SIGBUS, SIGFPE, SIGILL,
// SIGTRAP, SIGSYS, SIGABRT), those that stop and continue a process (SIGTSTP, SIGTTIN, SIGTTOU,
// SIGCONT), and SIGPIPE and SIGXFSZ, which belong to a write and are ignored in a run. lmc has no
// handler for any of these.
#pragma once

#include <array>
#include <csignal>

namespace lmc {

// Signals that ask a run to stop: it finishes the current step and writes a checkpoint. Batch
// systems warn with SIGUSR1, SIGUSR2 or SIGXCPU before they kill; SIGALRM comes from a parent that
// has set an alarm. Without a run (see StopSignals) they end the program, as they do by default.
inline constexpr std::array<int, 7> kStopSignals = {SIGTERM, SIGINT,  SIGHUP, SIGUSR1,
                                                    SIGUSR2, SIGXCPU, SIGALRM};

// Blocks, in the calling thread and in all that it starts, the signals of kStopSignals, SIGQUIT, and
// those that need no answer: SIGCHLD, SIGPROF, SIGVTALRM, SIGIO, SIGURG, SIGWINCH, SIGPWR,
// SIGSTKFLT, and the real-time signals, which timers and libraries use. SIGCHLD gets its default
// action: a process that ignores it cannot wait for its children.
void blockSignals();

// Lets SIGQUIT end the program as it does by default: for a process with one thread, which has no
// startSignalThread().
void unblockQuit();

// Ignores SIGPIPE (nobody reads the console or a connection any more) and SIGXFSZ (a file is too
// large) from now on: the write returns an error instead.
void ignoreFailedWrites();

// Returns whether SIGHUP was ignored when the program started, as under nohup. It stays ignored.
bool hangUpIsIgnored();

// Returns the mask that the process had before blockSignals().
sigset_t signalMaskAtStart();

// Restores, for the calling thread, the mask of signals and the actions of SIGPIPE and SIGXFSZ that
// the process had at its start. A new process calls it before it starts another program.
void restoreSignals();

// Starts the thread that takes the signals of blockSignals(), which it calls; does nothing if this
// process has one. While a StopSignals exists, a signal of kStopSignals sets its flag, and a second
// SIGINT ends the program at once. Without one, and for SIGQUIT, the thread ends the program, as
// the system does by default. A signal that was ignored when the program started stays ignored, but
// all of kStopSignals except SIGHUP, which nohup ignores, can stop a run. Signals that need no
// answer are dropped.
void startSignalThread();

// A run that signals ask to stop. While an object of this class exists, a signal of kStopSignals
// makes requested() true and does nothing else. The constructor calls startSignalThread() and
// ignoreFailedWrites(). Several objects may exist at a time: a signal reaches each object that
// exists when it comes.
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
