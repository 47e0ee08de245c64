#include "runtime/text/TextGeneration.h"

#include "corpus/tokenizer/unicode/Utf8.h"
#include "ground/support/File.h"
#include "runtime/comm/Agree.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>

namespace lmc {

// The maximum number of bytes of a text that the console shows.
static constexpr size_t kShownBytes = 120;

static constexpr uint64_t kMaximumPromptBytes = 64 << 20;

Result<std::vector<TextGeneration::Prompt>> TextGeneration::readPrompts(const std::string &path) {
  auto read = readTextFile(path, kMaximumPromptBytes);
  if (!read)
    return Error{"generation.prompts: " + read.error().message, read.error().code};
  const bool isJson = path.ends_with(".jsonl");
  std::vector<Prompt> prompts;
  std::string_view rest = *read;
  for (uint64_t line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (text.ends_with('\r'))
      text.remove_suffix(1);
    if (text.empty())
      continue;
    if (replaceInvalidUtf8(text) != text)
      return userError("{}:{}: not valid UTF-8", path, line);
    if (!isJson) {
      prompts.push_back({line, std::string(text)});
      continue;
    }
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto prompt = json.is_object() ? json.find("prompt") : json.end();
    if (!json.is_object() || prompt == json.end() || !prompt->is_string())
      return userError("{}:{}: expected an object {{\"prompt\": TEXT}}", path, line);
    prompts.push_back({line, prompt->get<std::string>()});
  }
  if (prompts.empty())
    return userError("{}: has no prompt", path);
  return prompts;
}

Result<void> TextGeneration::readPromptsOf(const DataSource &data) {
  const GenerationConfig &settings = session.settings.config.generation;
  const plan::Plan &plan = **session.plan;
  std::filesystem::path path = settings.prompts;
  if (path.is_relative() && plan.config_directory())
    path = std::filesystem::path(plan.config_directory()->str()) / path;
  LMC_SET(texts, readPrompts(path.string()));
  LMC_LET(format, parseDataFormat(session.settings.config.data.format));
  LMC_SET(codec, TextCodec::open(data.sources().front().paths.front(), *format,
                                 session.settings.config.data.endOfDocument));
  endOfDocument = codec->endOfDocument();
  const auto vocabulary = static_cast<int64_t>(plan.model()->vocab_size());
  const uint64_t length = plan.batch()->sequence_length();
  for (const Prompt &prompt : texts) {
    const std::string place = fmt::format("{}:{}", path.string(), prompt.line);
    auto encoded = codec->encode(prompt.text);
    if (!encoded)
      return userError("{}: {}", place, encoded.error().message);
    if (const int32_t most = std::ranges::max(*encoded); most >= vocabulary)
      return userError("{}: the prompt has id {}, beyond the model's vocabulary of {}", place, most,
                       vocabulary);
    if (encoded->size() + settings.maxNewTokens > length)
      return userError("{}: the prompt has {} tokens, and with generation.max_new_tokens = {} they "
                       "do not fit in a sequence of {}",
                       place, encoded->size(), settings.maxNewTokens, length);
    ids.push_back(std::move(*encoded));
  }
  return {};
}

Result<void> TextGeneration::share() {
  nlohmann::json mine = {{"ids", ids}, {"end", endOfDocument}};
  LMC_LET(text, broadcastText(session.world.all(), session.world.rank() == 0 ? mine.dump() : ""));
  const auto all = nlohmann::json::parse(*text);
  ids = all["ids"].get<std::vector<std::vector<int32_t>>>();
  endOfDocument = all["end"].get<int32_t>();
  return {};
}

Result<std::unique_ptr<TextGeneration>>
TextGeneration::open(Session &session, const DataSource &data, RunDirectory &directory,
                     Console &console, RunLog &log, RunObserver *observer) {
  if (session.settings.config.generation.prompts.empty())
    return std::unique_ptr<TextGeneration>();
  std::unique_ptr<TextGeneration> made(new TextGeneration(session, console, log, observer));
  LMC_SET(made->generator,
          allSucceed(session.world.all(),
                     Generator::open(*session.plan, *session.device, *session.functions,
                                     *session.inputs, session.world)));
  auto read = [&]() -> Result<void> {
    if (session.world.rank() != 0)
      return {};
    LMC_TRY(made->readPromptsOf(data));
    LMC_LET(file, LineFile::openAfter(directory.path() + "/generated.jsonl",
                                      static_cast<int64_t>(session.progress.step),
                                      [&] { return directory.undone(); }));
    made->file.emplace(std::move(*file));
    return {};
  };
  LMC_TRY(allSucceed(session.world.all(), read()));
  LMC_TRY(made->share());
  return made;
}

Result<bool> TextGeneration::generate(uint64_t step, const std::function<bool()> &stopRequested) {
  const auto start = std::chrono::steady_clock::now();
  const GenerationConfig &settings = session.settings.config.generation;
  session.device->setPurpose(fmt::format("generation after step {}", step));
  LMC_LET(all, generator->generate(ids,
                                   {.sampling = {settings.temperature, settings.topP},
                                    .maxNewTokens = static_cast<uint64_t>(settings.maxNewTokens),
                                    .seed = session.settings.config.training.seed,
                                    .step = step,
                                    .endOfDocument = endOfDocument},
                                   stopRequested));
  if (!*all)
    return false;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  LMC_TRY(allSucceed(session.world.all(), session.world.rank() == 0
                                              ? report(step, **all, seconds.count())
                                              : Result<void>()));
  return true;
}

static std::string shown(const std::string &text) {
  const auto replace = nlohmann::json::error_handler_t::replace;
  return nlohmann::json(text.size() > kShownBytes ? text.substr(0, kShownBytes) + "..." : text)
      .dump(-1, ' ', false, replace);
}

Result<void> TextGeneration::report(uint64_t step, const std::vector<Continuation> &all,
                                    double seconds) {
  uint64_t tokens = 0;
  std::string lines;
  std::vector<GeneratedText> generated;
  for (size_t p = 0; p < all.size(); ++p) {
    LMC_LET(text, codec->decode(ids[p], all[p].ids));
    tokens += all[p].ids.size();
    *text = replaceInvalidUtf8(*text); // the last character may be incomplete
    const nlohmann::ordered_json line = {{"step", step},
                                         {"prompt", texts[p].text},
                                         {"text", *text},
                                         {"ids", all[p].ids},
                                         {"end", nameOf(all[p].end)}};
    lines += (p > 0 ? "\n" : "") + line.dump();
    generated.push_back({texts[p].text, std::move(*text)});
  }
  if (const auto warning = file->writeOrWarn(lines, "generated texts"); !warning.empty())
    console.warning(warning);
  console.note(fmt::format("step {}: {} goes on {}", step, shown(generated.front().prompt),
                           shown(generated.front().text)));
  log.event("generation",
            {{"step", step}, {"prompts", all.size()}, {"tokens", tokens}, {"seconds", seconds}});
  if (observer)
    observer->generated(static_cast<int64_t>(step), generated);
  return {};
}

} // namespace lmc
