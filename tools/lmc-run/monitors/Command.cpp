#include "tools/lmc-run/monitors/Command.h"

#include "ground/support/File.h"
#include "ground/support/Signals.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

namespace lmc {

static std::vector<char *> pointersTo(const std::vector<std::string> &texts) {
  std::vector<char *> pointers;
  for (const std::string &text : texts)
    pointers.push_back(const_cast<char *>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Returns the environment of this process, changed by the texts "NAME=value" in `changes`.
static std::vector<std::string> environmentWith(const std::vector<std::string> &changes) {
  std::vector<std::string> all = changes;
  for (char **entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    if (std::ranges::none_of(changes, [&](const auto &change) { return change.starts_with(name); }))
      all.emplace_back(text);
  }
  return all;
}

// fork() would be slow: it copies the page tables of this process, which may use much memory.
Result<Command> Command::start(const std::vector<std::string> &arguments,
                               const std::vector<std::string> &environment, int input,
                               const std::string &output) {
  int to = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (to < 0)
    to = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, to, STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  sigset_t set = signalMaskAtStart();
  ::posix_spawnattr_setsigmask(&attributes, &set);
  // The run ignores SIGPIPE and SIGXFSZ. The program must get the default behaviour.
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  sigaddset(&set, SIGXFSZ);
  ::posix_spawnattr_setsigdefault(&attributes, &set);

  const std::vector<std::string> whole = environmentWith(environment);
  pid_t process = -1;
  const int failure = ::posix_spawnp(&process, arguments.front().c_str(), &actions, &attributes,
                                     pointersTo(arguments).data(), pointersTo(whole).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (to >= 0)
    ::close(to);
  if (failure != 0)
    return systemError("start", arguments.front(), failure);
  return Command(process);
}

std::optional<int> Command::ended() {
  int status = 0;
  if (code)
    return code;
  const pid_t found = ::waitpid(process, &status, WNOHANG);
  if (found == process)
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  else if (found < 0 && errno == ECHILD) // SIGCHLD is ignored, so there is no exit code
    code = 0;
  return code;
}

} // namespace lmc
