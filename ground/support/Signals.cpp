#include "ground/support/Signals.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <pthread.h>
#include <unistd.h>

namespace lmc {

namespace {

// The state that the process's signals had before this file changed it.
struct AtStart {
  sigset_t mask;
  sigset_t ignored;
  struct sigaction brokenPipe, largeFile; // of SIGPIPE, SIGXFSZ
};

// Variables that the signal thread and other threads share.
std::atomic<int> runs = 0;       // the number of StopSignals that exist
std::atomic<int> stopsCame = 0;  // the number of signals of kStopSignals that came during a run
std::atomic<int> interrupts = 0; // the number of SIGINT among them, since the first run began

const sigset_t &blockedSignals() {
  static const sigset_t blocked = [] {
    sigset_t set;
    sigemptyset(&set);
    for (int signal : kStopSignals)
      sigaddset(&set, signal);
    for (int signal : {SIGQUIT, SIGCHLD, SIGPROF, SIGVTALRM, SIGIO, SIGURG, SIGWINCH, SIGPWR})
      sigaddset(&set, signal);
#ifdef SIGSTKFLT
    sigaddset(&set, SIGSTKFLT);
#endif
    for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal)
      sigaddset(&set, signal);
    return set;
  }();
  return blocked;
}

const AtStart &atStart() {
  static const AtStart found = [] {
    AtStart start;
    pthread_sigmask(SIG_SETMASK, nullptr, &start.mask);
    sigemptyset(&start.ignored);
    for (int signal = 1; signal < SIGRTMIN; ++signal)
      if (struct sigaction action; sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN)
        sigaddset(&start.ignored, signal);
    sigaction(SIGPIPE, nullptr, &start.brokenPipe);
    sigaction(SIGXFSZ, nullptr, &start.largeFile);
    return start;
  }();
  return found;
}

void setAction(int signal, sighandler_t handler) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);
}

void unblock(int signal) {
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
}

// Ends the program by the default action of `signal`. All other threads must block `signal`.
void endBy(int signal) {
  setAction(signal, SIG_DFL);
  unblock(signal);
  (void)::kill(::getpid(), signal);
  ::_exit(128 + signal); // a container's first process survives signals that it sends to itself
}

void take(int signal) {
  if (std::ranges::find(kStopSignals, signal) == kStopSignals.end() && signal != SIGQUIT)
    return;
  // This thread also receives signals that the program ignores. For example, a shell starts
  // background jobs with SIGINT ignored. SIGINT can still stop a run in such a job.
  const bool endsProgram = signal == SIGQUIT || runs == 0;
  if (sigismember(&atStart().ignored, signal) && (endsProgram || signal == SIGHUP))
    return;
  if (endsProgram || (signal == SIGINT && interrupts++ > 0))
    return endBy(signal);
  ++stopsCame;
}

} // namespace

void blockSignals() {
  (void)atStart();
  pthread_sigmask(SIG_BLOCK, &blockedSignals(), nullptr);
  setAction(SIGCHLD, SIG_DFL);
}

void ignoreFailedWrites() {
  (void)atStart();
  setAction(SIGPIPE, SIG_IGN);
  setAction(SIGXFSZ, SIG_IGN);
}

bool hangUpIsIgnored() { return sigismember(&atStart().ignored, SIGHUP); }

void unblockQuit() { unblock(SIGQUIT); }

sigset_t signalMaskAtStart() { return atStart().mask; }

void restoreSignals() {
  sigaction(SIGPIPE, &atStart().brokenPipe, nullptr);
  sigaction(SIGXFSZ, &atStart().largeFile, nullptr);
  pthread_sigmask(SIG_SETMASK, &atStart().mask, nullptr);
}

void startSignalThread() {
  blockSignals();
  // A forked process has only one thread, so it needs its own signal thread.
  static std::atomic<pid_t> started = 0;
  if (started.exchange(::getpid()) == ::getpid())
    return;
  std::thread([] {
    pthread_setname_np(pthread_self(), "lmc-signals");
    for (int signal = 0;;)
      if (sigwait(&blockedSignals(), &signal) == 0)
        take(signal);
  }).detach();
}

StopSignals::StopSignals() {
  startSignalThread();
  ignoreFailedWrites();
  if (runs++ == 0)
    interrupts = 0;
  before = stopsCame;
}

StopSignals::~StopSignals() { --runs; }

bool StopSignals::requested() const { return stopsCame != before; }

} // namespace lmc
