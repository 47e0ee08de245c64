// The rows of the table of keys, in the order of docs/config.md.
#pragma once

#include "ground/config/keys/Traits.h"
#include "ground/plan/Names.h"

// The function that returns a key's field: FIELD(training.seed) returns config.training.seed.
#define FIELD(PATH) [=](Config &config) -> Field { return &config.PATH; }

// Adds a key with the name of its field in snake case: KEY(training.zLoss, ...) adds `z_loss`.
#define KEY(PATH, ...) key(nameOfField(#PATH), FIELD(PATH), __VA_ARGS__)

namespace lmc::config::keys {

// The maximum values in this folder keep every product of sizes below 2^63.
constexpr double kMaxLayers = 4096, kMaxPositions = 1 << 26, kMaxSteps = 1e12;
constexpr double kMaxInt32 = 2147483647;

inline auto steps(double minimum) { return range(minimum, kMaxSteps, "steps"); }
inline auto tokens(double minimum) { return range(minimum, kMaxPositions, "tokens"); }
inline void fraction(Key &key) { range(0, 1)(key); }
inline void rate(Key &key) { range(0, kMaxRate)(key); } // a learning rate

class Rows {
public:
  // Makes the rows of all keys except those in tables of lists, such as [[data.source]].
  explicit Rows(const ModelFamilies &families);

  std::vector<Section> sections;
  std::vector<Key> keys;

private:
  Rows() = default;

  // Returns the name of the key of a field: "muon_ns_dtype" for "optimizer.muonNsDType".
  static std::string nameOfField(std::string_view path) {
    return names::snakeCase(path.substr(path.rfind('.') + 1));
  }

  // Begins a section. All of its keys get `traits`.
  template <typename... Traits>
  void section(const char *name, const char *doc, const Traits &...traits) {
    sections.push_back({name, doc});
    current = name;
    ofAll = [=](Key &key) { (traits(key), ...); };
  }
  // Adds a list of tables. `table` adds the keys of one table, which all get the trait `ofAll`.
  void list(const char *name, const char *doc, void (Rows::*table)(const std::string &name),
            void (*ofAll)(Key &));
  template <typename... Traits>
  void key(std::string name, std::function<Field(Config &)> field, const Traits &...traits) {
    keys.push_back(makeKey(std::move(name), std::move(field), ofAll, traits...));
    keys.back().section = current;
  }

  void model(const ModelFamilies &families);
  void training();
  void devices();
  void data();
  void run();
  void target();
  // Each adds the keys of the table `name` of a list, such as [[data.source]].
  void group(const std::string &name);
  void source(const std::string &name);
  void phase(const std::string &name);
  void validation(const std::string &name);

  std::string current; // name of the section
  std::function<void(Key &)> ofAll = [](Key &) {};
};

} // namespace lmc::config::keys
