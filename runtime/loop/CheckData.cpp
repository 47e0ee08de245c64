#include "runtime/loop/CheckData.h"

#include "runtime/data/SampleTokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace lmc {

namespace {

// Samples token files. Each file is sampled once, even if several data sets share it.
class Sampler {
public:
  // Leaves out files of at most `least` tokens, and samples at most `most` files per call.
  Sampler(const Session &session, uint64_t least, size_t most = SIZE_MAX)
      : session(session), least(least), most(most) {}

  // Samples the files of `data`. Calls warn() for each warning, and fail() for each error.
  template <typename Warn, typename Fail>
  void sample(const DataSource &data, const Warn &warn, const Fail &fail) {
    const auto format = parseDataFormat(session.settings.config.data.format);
    if (!format)
      return;
    std::vector<std::pair<std::string, std::string>> all; // (path, key) of each file
    for (const SourceFacts &source : data.sources())
      for (const std::string &path : source.paths)
        if (seen.insert(path).second)
          all.emplace_back(path, source.key);
    for (const size_t i : spreadOver(all.size(), most)) {
      const auto &[path, key] = all[i];
      session.world.progress().move();
      auto file = TokenFile::open(path, *format);
      if (!file) {
        fail(file.error().message);
        continue;
      }
      if ((*file)->size() <= least)
        continue;
      auto warnings = sampleTokens(**file, (*session.plan)->model()->vocab_size(),
                                   session.settings.config.data.endOfDocument);
      if (!warnings)
        fail(fmt::format("{} ({}); give the file of this model's tokenizer, or pack it again",
                         warnings.error().message, key));
      else
        std::ranges::for_each(*warnings, warn);
      tokens += std::min((*file)->size(), kSampledTokens);
      ++files;
    }
  }

  uint64_t tokens = 0, files = 0; // numbers of sampled tokens and files

private:
  const Session &session;
  const uint64_t least;
  const size_t most;
  std::set<std::string> seen;
};

} // namespace

std::vector<size_t> spreadOver(size_t count, size_t most) {
  const size_t chosen = std::min(count, most);
  std::vector<size_t> numbers;
  for (size_t i = 0; i < chosen; ++i)
    numbers.push_back(chosen == 1 ? 0 : i * (count - 1) / (chosen - 1));
  return numbers;
}

void checkData(const PlanFile &job, const std::vector<std::string> &overrides, World &world,
               Findings &findings) {
  const size_t phases = std::max<size_t>(job.phases().size(), 1);
  uint64_t tokens = 0, files = 0;
  bool failed = false;
  auto warn = [&](const std::string &text) { findings.warning("data", text); };
  auto fail = [&](const std::string &text) {
    failed = true;
    findings.error("data", text);
  };
  for (size_t phase = 0; phase < phases; ++phase) {
    auto session = Session::open(job, phase, overrides, world);
    if (!session)
      return; // no error here, because prepare() reports mistakes in the settings
    Sampler sampler(**session, 0);
    auto look = [&](const Result<std::unique_ptr<DataSource>> &data) {
      if (!data)
        return fail(data.error().message);
      std::ranges::for_each((*data)->warnings(), warn);
      sampler.sample(**data, warn, fail);
    };
    look((*session)->openTrainData());
    if (phase == 0)
      for (const ValidationSettings &set : (*session)->settings.validations)
        look((*session)->openValidationData(set));
    tokens = std::max(tokens, sampler.tokens);
    files = std::max(files, sampler.files);
  }
  if (!failed)
    findings.ok("data", fmt::format("{} file(s) can be read, and the ids of {} sampled tokens are "
                                    "below model.vocab_size, {}",
                                    files, tokens, job->model()->vocab_size()));
}

std::vector<std::string> sampleAtStart(const Session &session, const DataSource &data) {
  std::vector<std::string> warnings;
  auto note = [&](const std::string &text) { warnings.push_back(text); };
  Sampler(session, kSampledTokens, kFilesAtStart).sample(data, note, note);
  return warnings;
}

} // namespace lmc
