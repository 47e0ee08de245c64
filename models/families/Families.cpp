#include "models/families/Families.h"

namespace lmc {

const ModelFamily &llama();
const ModelFamily &mistral();
const ModelFamily &qwen2();
const ModelFamily &qwen3();
const ModelFamily &olmo2();
const ModelFamily &gpt2();
const ModelFamily &mixtral();
const ModelFamily &qwen3Moe();
const ModelFamily &olmoe();
const ModelFamily &dots1();

const ModelFamilies &modelFamilies() {
  static const ModelFamilies families = {&llama(), &mistral(), &qwen2(),    &qwen3(), &olmo2(),
                                         &gpt2(),  &mixtral(), &qwen3Moe(), &olmoe(), &dots1()};
  return families;
}

} // namespace lmc
