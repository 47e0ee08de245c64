#include "tools/lmc-run/end/Restarts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

namespace lmc {

std::string textOf(const ProcessEnd &end) {
  if (end.signal != 0)
    return fmt::format("signal {} ({}{})", end.signal, ::strsignal(end.signal),
                       end.signal == SIGKILL ? "; is the memory of this machine full?" : "");
  const auto code = static_cast<ExitCode>(end.code);
  return fmt::format("exit code {}{}", end.code,
                     code == ExitCode::Failure      ? " (the machine failed)"
                     : code == ExitCode::RankFailed ? " (another rank failed)"
                                                    : "");
}

bool mayPass(const ProcessEnd &end) {
  return end.signal != 0 || end.code == static_cast<int>(ExitCode::Failure) ||
         end.code == static_cast<int>(ExitCode::RankFailed);
}

std::optional<RestartPolicy::Restart> RestartPolicy::next(const ProcessEnd &end, uint64_t step) {
  if (step > best)
    vain = 0;
  best = std::max(best, step);
  if (!mayPass(end) || vain >= most)
    return std::nullopt;
  ++vain;
  const double doublings = static_cast<double>(std::min<int64_t>(vain - 1, 30));
  return Restart{vain, std::min(std::exp2(doublings), kLongestWait)};
}

} // namespace lmc
