#include "runtime/settings/TimeLimit.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>

namespace lmc {

double unixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// All times are before 2200: the nanoseconds of std::chrono::system_clock end in 2262.
static constexpr double kYear2200 = 7258118400; // output of date -u -d 2200-01-01 +%s
static constexpr double kTenYears = 10 * 366 * 86400.0;

std::string textOf(const TimeLimit &limit) { return fmt::format("{} {}", limit.end, limit.source); }

static std::optional<double> takeNumber(std::string_view &text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value) || value < 0)
    return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

Result<double> parseDuration(std::string_view text) {
  const Error wrong{fmt::format("'{}' is no duration; give hours (3.5), or numbers with the units "
                                "d, h, m and s (3h50m)",
                                text)};
  const std::string_view units = "dhms";
  constexpr double kSeconds[] = {86400, 3600, 60, 1};
  double total = 0;
  size_t next = 0; // index of the next unit; units go from long to short
  for (std::string_view rest = text; !rest.empty();) {
    const auto value = takeNumber(rest);
    if (!value)
      return wrong;
    if (rest.empty() && next == 0) {
      total = *value * 3600;
      break;
    }
    const size_t unit = rest.empty() ? std::string_view::npos : units.find(rest.front());
    if (unit == std::string_view::npos || unit < next)
      return wrong;
    total += *value * kSeconds[unit];
    next = unit + 1;
    rest.remove_prefix(1);
  }
  if (!(total > 0))
    return wrong;
  if (total > kTenYears)
    return userError("'{}' is longer than 10 years", text);
  return total;
}

// Returns the seconds by which a zone is ahead of UTC: 0 for "Z", 7200 for "+02:00" and "+0200".
static std::optional<double> zoneOffset(std::string_view zone) {
  if (zone == "Z" || zone == "z")
    return 0.0;
  if (zone.size() < 3 || (zone[0] != '+' && zone[0] != '-'))
    return std::nullopt;
  std::string digits(zone.substr(1));
  if (digits.size() == 5 && digits[2] == ':')
    digits.erase(2, 1);
  if ((digits.size() != 2 && digits.size() != 4) ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  digits.resize(4, '0');
  const int value = std::stoi(digits);
  const double seconds = value / 100 * 3600 + value % 100 * 60;
  return zone[0] == '-' ? -seconds : seconds;
}

Result<double> parseTime(const std::string &text) {
  auto early = [&](double seconds) -> Result<double> {
    if (seconds >= kYear2200)
      return userError("'{}' is not before the year 2200", text);
    return seconds;
  };
  std::string_view rest = text;
  if (const auto seconds = takeNumber(rest); seconds && rest.empty() && !text.empty())
    return early(*seconds);
  const Error wrong{fmt::format("'{}' is no time; give ISO 8601, as 2026-11-22T13:40 or "
                                "2026-11-22T13:40:00Z, or seconds since 1970",
                                text)};
  for (const char *format :
       {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"}) {
    std::tm fields{};
    const char *end = ::strptime(text.c_str(), format, &fields);
    if (!end)
      continue;
    fields.tm_isdst = -1; // unknown: mktime decides if it is summer time
    if (*end == '\0')
      return early(static_cast<double>(::mktime(&fields)));
    if (const auto offset = zoneOffset(end))
      return early(static_cast<double>(::timegm(&fields)) - *offset);
  }
  return wrong;
}

Result<std::optional<TimeLimit>> findTimeLimit(const std::string &maxHours,
                                               const std::string &deadline,
                                               const Environment &environment, double began) {
  std::optional<TimeLimit> limit;
  if (const char *given = environment(kTimeLimitVariable); given && *given) {
    std::string_view rest = given;
    const auto end = takeNumber(rest);
    if (!end || !rest.starts_with(' ') || *end >= kYear2200)
      return userError("{}={}: not \"SECONDS SOURCE\"; unset it", kTimeLimitVariable, given);
    return std::optional(TimeLimit{*end, std::string(rest.substr(1))});
  }
  auto add = [&](double end, std::string source) {
    if (!limit || end < limit->end)
      limit = TimeLimit{end, std::move(source)};
  };
  if (!maxHours.empty()) {
    auto seconds = parseDuration(maxHours);
    if (!seconds)
      return Error{"--max-hours: " + seconds.error().message};
    add(began + *seconds, "--max-hours=" + maxHours);
  }
  if (!deadline.empty() && deadline != "none") {
    auto end = parseTime(deadline);
    if (!end)
      return Error{"--deadline: " + end.error().message + ", or none"};
    if (*end <= began)
      return userError("--deadline={}: this time is over", deadline);
    add(*end, "--deadline=" + deadline);
  }
  constexpr const char *kSlurm = "SLURM_JOB_END_TIME";
  const char *slurm = environment(kSlurm);
  if (deadline.empty() && slurm && *slurm) {
    std::string_view rest = slurm;
    const auto end = takeNumber(rest);
    if (!end || !rest.empty())
      return userError("{}={}: not a number of seconds; --deadline=none ignores it", kSlurm, slurm);
    if (*end < kYear2200) // a time from 2200 on means that the job has no end
      add(*end, kSlurm);
  }
  return limit;
}

static void keepLatest(std::deque<double> &latest, double seconds, size_t count) {
  latest.push_back(seconds);
  if (latest.size() > count)
    latest.pop_front();
}

double expectedSaveSeconds(uint64_t bytes, const std::string &folder) {
  std::deque<double> saves;
  std::ifstream events(folder + "/events.jsonl");
  for (std::string line; std::getline(events, line);) {
    if (line.find("\"checkpoint\"") == std::string::npos)
      continue;
    const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object() || event.value("event", "") != "checkpoint" ||
        !event.contains("seconds") || !event["seconds"].is_number())
      continue;
    keepLatest(saves, event["seconds"], TimeBudget::kLatestSaves);
  }
  if (!saves.empty())
    return std::ranges::max(saves);
  constexpr double kBytesPerSecond = 100e6;
  return static_cast<double>(bytes) / kBytesPerSecond;
}

void TimeBudget::stepped(double seconds) { keepLatest(steps, seconds, kLatestSteps); }

void TimeBudget::saved(double seconds) { keepLatest(saves, seconds, kLatestSaves); }

double TimeBudget::step() const { return steps.empty() ? expectedStep : std::ranges::max(steps); }

double TimeBudget::save() const { return saves.empty() ? expectedSave : std::ranges::max(saves); }

bool TimeBudget::mustLeave(size_t enqueued, double besides) const {
  return limit &&
         secondsLeft() < neededSeconds() + static_cast<double>(enqueued) * step() + besides;
}

bool TimeBudget::mustSave(double besides) const {
  return limit && secondsLeft() < 2 * save() + kEnd + besides;
}

} // namespace lmc
