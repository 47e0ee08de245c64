// Finds harmful documents: repeated ones, control characters and lost characters (U+FFFD).
#pragma once

#include "tools/lmc-data/input/Documents.h"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lmc {

// The number of documents with a property, and the names of the first kPlaces of them.
struct Finding {
  static constexpr size_t kPlaces = 5;
  uint64_t count = 0;
  std::vector<std::string> places; // names of the first kPlaces documents

  void add(std::string place);
  // Returns ", such as PLACE", where PLACE is the first place; "" if there is no place.
  std::string example() const;
};

// Counts occurrences in documents, which may arrive in any order.
struct Occurrences {
  uint64_t count = 0, documents = 0;
  std::map<uint64_t, std::string> first; // names of the first kPlaces documents, by ordinal

  // Adds `times` occurrences in a document; does nothing if `times` is 0.
  void add(uint64_t times, const DocumentName &document);
  void add(const Occurrences &other);
  Finding finding() const;
};

class Audit : public DocumentReceiver {
public:
  // The maximum number of remembered texts. These take about 0.7 GiB (43 bytes each).
  static constexpr uint64_t kRemembered = 1 << 24;

  // The Audit passes all documents that it receives on to `next`.
  explicit Audit(DocumentReceiver &next);
  ~Audit() override;

  void beginFile(const std::string &path, InputFormat format) override;
  Result<void> text(std::string_view piece) override;
  Result<void> endDocument(const DocumentPlace &begin, const DocumentPlace &end) override;

  struct Findings {
    uint64_t documents = 0, bytes = 0; // numbers of all documents and bytes that were read
    Finding repeated;                  // repeated documents; each place also names the earlier one
    uint64_t repeatedBytes = 0;        // of their texts
    Finding control;                   // documents with control characters
    // Control characters (Unicode's category Cc), without \t, \n and \r.
    uint64_t controlCharacters = 0;
    Finding replaced; // documents with U+FFFD, the sign of lost characters
    uint64_t replacementCharacters = 0;
    bool complete = true; // false if there were more than kRemembered different texts
  };
  const Findings &findings() const;

  // The state that is on the disk when save() has returned.
  struct Saved {
    Findings findings;
    uint64_t texts = 0; // that are remembered
  };
  // Creates FOLDER/texts, to which save() appends. Before save(), call this or resume().
  Result<void> keepIn(const std::string &folder);
  Result<Saved> save();
  // Continues an interrupted process from its `saved` and FOLDER/texts. `before` lists the files
  // that this process had read completely. Error: FOLDER/texts has fewer texts than `saved` counts.
  Result<void> resume(const std::string &folder, const Saved &saved,
                      const std::vector<std::pair<std::string, InputFormat>> &before);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
