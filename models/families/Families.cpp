#include "models/families/Families.h"

namespace lmc {

const ModelFamily &llama();
const ModelFamily &mistral();

const ModelFamilies &modelFamilies() {
  static const ModelFamilies families = {&llama(), &mistral()};
  return families;
}

} // namespace lmc
