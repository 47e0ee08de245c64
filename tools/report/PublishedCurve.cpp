#include "tools/report/PublishedCurve.h"

#include "ground/support/File.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <vector>

namespace lmc {

// Returns the fields of a line of CSV, without the spaces and quotes around each.
static std::vector<std::string_view> csvFields(std::string_view line) {
  constexpr std::string_view kAround = " \t\r\"";
  std::vector<std::string_view> fields;
  while (true) {
    const size_t comma = line.find(',');
    std::string_view field = line.substr(0, comma);
    field.remove_prefix(std::min(field.find_first_not_of(kAround), field.size()));
    field = field.substr(0, field.find_last_not_of(kAround) + 1);
    fields.push_back(field);
    if (comma == std::string_view::npos)
      return fields;
    line.remove_prefix(comma + 1);
  }
}

static bool readFinite(std::string_view text, double &value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

Result<PublishedCurve> readPublishedCurve(const std::string &path) {
  auto text = readTextFile(path, uint64_t{256} << 20);
  LMC_TRY(text);
  std::string_view rest = *text;
  if (rest.starts_with("\xef\xbb\xbf")) // spreadsheets write a byte order mark
    rest.remove_prefix(3);
  PublishedCurve curve;
  curve.name = std::filesystem::path(path).stem().string();
  size_t tokensColumn = std::string_view::npos, lossColumn = std::string_view::npos;
  double lastTokens = -1;
  for (int64_t number = 1, points = 0; !rest.empty(); ++number) {
    const size_t newline = std::min(rest.find('\n'), rest.size());
    const std::vector<std::string_view> fields = csvFields(rest.substr(0, newline));
    rest.remove_prefix(std::min(newline + 1, rest.size()));
    if (number == 1) {
      for (size_t i = 0; i < fields.size(); ++i) {
        if (fields[i] == "tokens")
          tokensColumn = i;
        else if (fields[i] == "loss")
          lossColumn = i;
      }
      if (tokensColumn == std::string_view::npos || lossColumn == std::string_view::npos)
        return userError("{}:1: the header has no columns tokens and loss; begin the file with the "
                         "line tokens,loss",
                         path);
      continue;
    }
    if (fields.size() == 1 && fields[0].empty())
      continue;
    double tokens = 0, loss = 0;
    if (fields.size() <= std::max(tokensColumn, lossColumn) ||
        !readFinite(fields[tokensColumn], tokens) || !readFinite(fields[lossColumn], loss))
      return userError("{}:{}: not two numbers, tokens and loss, as in 1e9,3.25", path, number);
    if (tokens <= lastTokens)
      return userError("{}:{}: tokens do not rise; sort the lines by tokens", path, number);
    lastTokens = tokens;
    curve.line.add({static_cast<double>(++points), tokens, 0}, loss);
  }
  if (curve.line.empty())
    return userError("{}: has no points; give lines with tokens and loss below the header", path);
  return curve;
}

} // namespace lmc
