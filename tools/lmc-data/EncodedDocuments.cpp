#include "tools/lmc-data/EncodedDocuments.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

namespace lmc {

// The number of bytes of text per thread that are encoded at a time.
static constexpr size_t kBatchBytes = 4 << 20;

void EncodedDocuments::Counts::add(const Counts &other) {
  for (const auto count : {&Counts::merged, &Counts::inside, &Counts::empty, &Counts::spelled,
                           &Counts::unknown, &Counts::fallback})
    (this->*count).add(other.*count);
}

static IdSet fallbackIds(const Tokenizer &tokenizer) {
  IdSet ids;
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = tokenizer.idOf(bytePiece(byte));
    if (!id)
      return {};
    lmc::add(ids, *id);
  }
  return ids;
}

Result<std::unique_ptr<EncodedDocuments>>
EncodedDocuments::create(const Tokenizer &tokenizer, const DocumentTokens &borders,
                         SpecialTokens mode, uint32_t threads, TokenFileWriter &writer) {
  if (threads == 0)
    threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<uint32_t> special = borders.before;
  special.insert(special.end(), borders.after.begin(), borders.after.end());
  if (borders.between)
    special.push_back(*borders.between);
  LMC_LET(encoders, tokenizer.encoders(threads, mode, special));
  return std::unique_ptr<EncodedDocuments>(
      new EncodedDocuments(tokenizer, std::move(*encoders), borders, writer));
}

EncodedDocuments::EncodedDocuments(const Tokenizer &tokenizer,
                                   std::vector<std::unique_ptr<Encoder>> encoders,
                                   const DocumentTokens &borders, TokenFileWriter &writer)
    : borders(borders), writer(writer), unknown(tokenizer.unknown()),
      fallback(fallbackIds(tokenizer)), encoders(std::move(encoders)) {}

Result<void> EncodedDocuments::add(std::string document, const DocumentName &name) {
  waitingBytes += document.size();
  waiting.push_back({std::move(document), name});
  return waitingBytes >= kBatchBytes * encoders.size() ? finish() : Result<void>();
}

Result<void> EncodedDocuments::finish() {
  std::vector<std::vector<uint32_t>> ids(waiting.size());
  std::vector<std::optional<Error>> errors(waiting.size());
  std::vector<uint64_t> spelled(waiting.size());
  std::atomic<size_t> next = 0;
  const auto work = [&](Encoder &encoder) {
    for (size_t i; (i = next++) < waiting.size();)
      try {
        const uint64_t before = encoder.spelled();
        if (Result<void> done = encoder.encode(waiting[i].text, ids[i]); !done)
          errors[i] = done.error();
        spelled[i] = encoder.spelled() - before;
      } catch (const std::exception &thrown) { // such as std::bad_alloc
        errors[i] =
            machineError("cannot encode its {} bytes: {}", waiting[i].text.size(), thrown.what());
      }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min(encoders.size(), waiting.size()); ++i)
      threads.emplace_back([&, i] { work(*encoders[i]); });
    work(*encoders[0]);
  }
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (errors[i])
      return Error{fmt::format("{}: {}", waiting[i].name.text(), errors[i]->message),
                   errors[i]->code};
    total.spelled.add(spelled[i], waiting[i].name);
    LMC_TRY(write(ids[i], waiting[i].name));
  }
  waiting.clear();
  waitingBytes = 0;
  return {};
}

Result<void> EncodedDocuments::write(std::vector<uint32_t> &ids, const DocumentName &name) {
  std::span<const uint32_t> body = ids;
  if (borders.endOfDocument) {
    const uint32_t end = *borders.endOfDocument;
    while (!body.empty() && body.front() == end)
      body = body.subspan(1);
    while (!body.empty() && body.back() == end)
      body = body.first(body.size() - 1);
    total.merged.add(ids.size() - body.size(), name);
    total.inside.add(std::count(body.begin(), body.end(), end), name);
  }
  if (unknown)
    total.unknown.add(std::count(body.begin(), body.end(), *unknown), name);
  if (!fallback.empty())
    total.fallback.add(std::count_if(body.begin(), body.end(),
                                     [&](uint32_t id) { return contains(fallback, id); }),
                       name);
  if (body.empty()) {
    total.empty.add(1, name);
    return {};
  }
  if (writer.documents() > 0 && borders.between)
    LMC_TRY(writer.append({&*borders.between, 1}));
  writer.beginDocument();
  LMC_TRY(writer.append(borders.before));
  LMC_TRY(writer.append(body));
  return writer.append(borders.after);
}

} // namespace lmc
