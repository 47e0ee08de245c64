#include "tools/lmc-run/launch/ChildSignals.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace lmc {

ChildSignals::ChildSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (int signal : kStopSignals)
    if (signal != SIGHUP || !hangUpIsIgnored())
      sigaddset(&set, signal);
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  blockSignals();
  unblockQuit();
  fd = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

ChildSignals::~ChildSignals() {
  ::close(fd);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::optional<int> ChildSignals::next() {
  signalfd_siginfo info;
  if (::read(fd, &info, sizeof(info)) != sizeof(info))
    return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void followParent(int parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent)
    ::_exit(1);
}

} // namespace lmc
