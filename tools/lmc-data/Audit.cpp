#include "tools/lmc-data/Audit.h"

#include "ground/support/File.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_map>

namespace lmc {

void Finding::add(std::string place) {
  if (++count; places.size() < kPlaces)
    places.push_back(std::move(place));
}

std::string Finding::example() const { return places.empty() ? "" : ", such as " + places[0]; }

void Occurrences::add(uint64_t times, const DocumentName &document) {
  if (times == 0)
    return;
  count += times;
  ++documents;
  // Stores the name of a document only if it is one of the first kPlaces documents added so far.
  if (first.size() < Finding::kPlaces || document.ordinal < first.rbegin()->first)
    add({0, 0, {{document.ordinal, document.text()}}});
}

void Occurrences::add(const Occurrences &other) {
  count += other.count;
  documents += other.documents;
  first.insert(other.first.begin(), other.first.end());
  while (first.size() > Finding::kPlaces)
    first.erase(std::prev(first.end()));
}

Finding Occurrences::finding() const {
  Finding finding{documents, {}};
  for (const auto &[ordinal, place] : first)
    finding.places.push_back(place);
  return finding;
}

namespace {

struct Counts {
  uint64_t control = 0, replacements = 0;
};

// Counts control characters and U+FFFD in a text that arrives in pieces.
class CharacterCounter {
public:
  Counts counts;

  void add(std::string_view piece) {
    // A character that began in the previous piece may end in the first two bytes of this piece.
    for (size_t i = 0; i < std::min<size_t>(piece.size(), 2); ++i)
      addBytes(piece[i]);
    if (piece.size() <= 2)
      return;
    uint64_t control = 0, replacements = 0;
    const auto *bytes = reinterpret_cast<const uint8_t *>(piece.data());
    for (size_t i = 2; i < piece.size(); ++i) {
      const uint8_t byte = bytes[i], before = bytes[i - 1];
      control += isAsciiControl(byte) | isSecondOfControl(before, byte);
      replacements += (byte == 0xbd) & (before == 0xbf) & (bytes[i - 2] == 0xef);
    }
    counts.control += control;
    counts.replacements += replacements;
    last[0] = bytes[piece.size() - 2];
    last[1] = bytes[piece.size() - 1];
  }

private:
  uint8_t last[2] = {0, 0}; // the last two bytes of the text so far

  static bool isAsciiControl(uint8_t byte) {
    return ((byte < 0x20) & (byte != '\t') & (byte != '\n') & (byte != '\r')) | (byte == 0x7f);
  }
  // U+0080 to U+009F
  static bool isSecondOfControl(uint8_t before, uint8_t byte) {
    return (before == 0xc2) & (byte >= 0x80) & (byte < 0xa0);
  }
  void addBytes(char next) {
    const auto byte = static_cast<uint8_t>(next);
    counts.control += isAsciiControl(byte) || isSecondOfControl(last[1], byte);
    counts.replacements += byte == 0xbd && last[1] == 0xbf && last[0] == 0xef;
    last[0] = last[1];
    last[1] = byte;
  }
};

// Identifies a document in 8 bytes, by the index of its file and by its position in the file.
struct DocumentKey {
  uint64_t file : 24;
  uint64_t at : 40;
};
static_assert(sizeof(DocumentKey) == 8);

// save() writes a Record of each remembered text.
struct Record {
  uint64_t hash;
  DocumentKey document;
};
static_assert(sizeof(Record) == 16);

} // namespace

struct Audit::State {
  DocumentReceiver &next;
  Findings findings;
  struct Input {
    std::string path;
    InputFormat format;
  };
  std::vector<Input> files;
  std::unordered_map<uint64_t, DocumentKey> texts; // by the hash of the text
  std::optional<File> log;     // file with `texts` in the order of the documents
  std::vector<Record> unsaved; // records that are not in `log` yet
  XXH3_state_t *hash = XXH3_createState();
  // Counts of the current document:
  uint64_t bytes = 0;
  CharacterCounter characters;

  explicit State(DocumentReceiver &next) : next(next) { XXH3_64bits_reset(hash); }
  ~State() { XXH3_freeState(hash); }

  // If an earlier document has the same text, returns "PLACE repeats EARLIER PLACE"; else "".
  std::string repeats(uint64_t at) {
    const uint64_t key = XXH3_64bits_digest(hash);
    const DocumentKey document{files.size() - 1, at};
    if (auto found = texts.find(key); found != texts.end()) {
      const Input &first = files[found->second.file], &second = files.back();
      return fmt::format("{} repeats {}", placeOf(second.path, second.format, at),
                         placeOf(first.path, first.format, found->second.at));
    }
    if (texts.size() == kRemembered) {
      findings.complete = false;
      return "";
    }
    texts.emplace(key, document);
    if (log)
      unsaved.push_back({key, document});
    return "";
  }
};

Audit::Audit(DocumentReceiver &next) : state(std::make_unique<State>(next)) {}
Audit::~Audit() = default;
const Audit::Findings &Audit::findings() const { return state->findings; }

static std::string logIn(const std::string &folder) { return folder + "/texts"; }

Result<void> Audit::keepIn(const std::string &folder) {
  LMC_LET(log, File::create(logIn(folder)));
  state->log.emplace(std::move(*log));
  return {};
}

Result<Audit::Saved> Audit::save() {
  State &s = *state;
  LMC_TRY(s.log->write(s.unsaved.data(), s.unsaved.size() * sizeof(Record)));
  LMC_TRY(s.log->sync());
  s.unsaved.clear();
  return Saved{s.findings, s.texts.size()};
}

Result<void> Audit::resume(const std::string &folder, const Saved &saved,
                           const std::vector<std::pair<std::string, InputFormat>> &before) {
  State &s = *state;
  LMC_LET(records, File::openForReading(logIn(folder)));
  for (uint64_t i = 0; i < saved.texts; ++i) {
    Record record;
    LMC_LET(bytes, records->read(&record, sizeof(record)));
    if (*bytes < sizeof(record))
      return userError("{}: has less than was saved", logIn(folder));
    s.texts.emplace(record.hash, record.document);
  }
  LMC_LET(log, File::openForAppending(logIn(folder), saved.texts * sizeof(Record)));
  s.log.emplace(std::move(*log));
  s.findings = saved.findings;
  for (const auto &[path, format] : before)
    s.files.push_back({path, format});
  return {};
}

void Audit::beginFile(const std::string &path, InputFormat format) {
  state->files.push_back({path, format});
  state->next.beginFile(path, format);
}

Result<void> Audit::text(std::string_view piece) {
  State &s = *state;
  s.bytes += piece.size();
  XXH3_64bits_update(s.hash, piece.data(), piece.size());
  s.characters.add(piece);
  return s.next.text(piece);
}

Result<void> Audit::endDocument(const DocumentPlace &begin, const DocumentPlace &end) {
  State &s = *state;
  Findings &findings = s.findings;
  const uint64_t at = begin.in(s.files.back().format);
  const auto place = [&] { return placeOf(s.files.back().path, s.files.back().format, at); };
  ++findings.documents;
  findings.bytes += s.bytes;
  if (std::string repeats = s.bytes > 0 ? s.repeats(at) : ""; !repeats.empty()) {
    findings.repeated.add(std::move(repeats));
    findings.repeatedBytes += s.bytes;
  }
  if (const Counts &counts = s.characters.counts; counts.control > 0) {
    findings.control.add(place());
    findings.controlCharacters += counts.control;
  }
  if (const Counts &counts = s.characters.counts; counts.replacements > 0) {
    findings.replaced.add(place());
    findings.replacementCharacters += counts.replacements;
  }
  s.bytes = 0;
  s.characters = {};
  XXH3_64bits_reset(s.hash);
  return s.next.endDocument(begin, end);
}

} // namespace lmc
