#include "runtime/checkpoint/HuggingFace.h"

#include "TestFolder.h"
#include "ground/plan/FloatConvert.h"
#include "runtime/checkpoint/SafeTensors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

using namespace lmc;
using namespace lmc::test;
using plan::DType;

namespace {

// Named host tensors and the callbacks to and from them.
struct Weights {
  std::vector<TensorView> views;
  std::vector<std::string> contents;

  template <typename T>
  void add(const std::string &name, DType dtype, std::vector<uint64_t> shape,
           const std::vector<T> &values) {
    views.push_back({name, dtype, std::move(shape), nullptr, values.size() * sizeof(T)});
    contents.emplace_back(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T));
  }
  FetchTensor fetch() const {
    return [this](size_t index, void *data) {
      std::memcpy(data, contents[index].data(), contents[index].size());
      return Result<void>();
    };
  }
  StoreTensor store() {
    contents.assign(views.size(), "");
    return [this](size_t index, const void *data, uint64_t bytes, uint64_t offset) {
      contents[index].resize(views[index].bytes);
      std::memcpy(contents[index].data() + offset, data, bytes);
      return Result<void>();
    };
  }
  template <typename T> std::vector<T> values(size_t index) const {
    std::vector<T> result(contents[index].size() / sizeof(T));
    std::memcpy(result.data(), contents[index].data(), contents[index].size());
    return result;
  }
};

Weights sampleModel() {
  std::mt19937 random(3);
  auto bits = [&](size_t count) {
    std::vector<float> values(count);
    for (float &value : values)
      value = std::bit_cast<float>(static_cast<uint32_t>(random())); // NaNs too
    return values;
  };
  Weights model;
  model.add("model.embed_tokens.weight", DType::F32, {4, 3}, bits(12));
  model.add("model.layers.0.input_layernorm.weight", DType::F32, {3}, bits(3));
  model.add("model.norm.weight", DType::F32, {3}, bits(3));
  return model;
}

// A model of one tensor, written as `from` and read as `to`.
template <typename To, typename From>
std::vector<To> convertThrough(DType from, DType to, const std::vector<From> &values) {
  TestFolder folder;
  Weights source, target;
  source.add("w", from, {values.size()}, values);
  target.views.push_back({"w", to, {values.size()}, nullptr, values.size() * sizeof(To)});
  Result<void> written =
      writeSafeTensors(folder / "a.safetensors", source.views, source.fetch(), {});
  EXPECT_TRUE(bool(written));
  Result<void> imported = importHuggingFace(folder / "a.safetensors", target.views, target.store());
  EXPECT_TRUE(bool(imported)) << imported.error().message;
  return target.values<To>(0);
}

} // namespace

TEST(HuggingFace, ExportThenImportIsBitForBit) {
  TestFolder folder;
  Weights model = sampleModel(), back = sampleModel();
  std::string config = "{\n  \"tie_word_embeddings\": true\n}\n";
  ASSERT_OK(exportHuggingFace(folder / "new/export/", config, model.views, model.fetch()));
  EXPECT_EQ(read(folder / "new/export/config.json"),
            "{\n  \"tie_word_embeddings\": true,\n  \"torch_dtype\": \"float32\",\n  \"dtype\": "
            "\"float32\"\n}\n");
  auto file = SafeTensorsFile::open(folder / "new/export/model.safetensors");
  ASSERT_OK(file);
  EXPECT_EQ((*file)->metadata().at("format"), "pt"); // transformers insists
  ASSERT_OK(importHuggingFace(folder / "new/export", back.views, back.store()));
  EXPECT_EQ(back.contents, model.contents);
  ASSERT_OK(importHuggingFace(folder / "new/export/model.safetensors", back.views, back.store()));
  EXPECT_EQ(back.contents, model.contents);
  EXPECT_EQ(*listFolder(folder / "new"), std::vector<std::string>{"export"});
}

TEST(HuggingFace, TiedHeadIsNotWrittenTwice) {
  TestFolder folder;
  Weights model = sampleModel();
  model.add("lm_head.weight", DType::F32, {4, 3}, model.values<float>(0));
  std::rotate(model.views.begin(), model.views.end() - 1, model.views.end());
  std::rotate(model.contents.begin(), model.contents.end() - 1, model.contents.end());
  ASSERT_OK(exportHuggingFace(folder / "tied", R"({"tie_word_embeddings": true})", model.views,
                              model.fetch()));
  ASSERT_OK(exportHuggingFace(folder / "untied", R"({"tie_word_embeddings": false})", model.views,
                              model.fetch()));
  Weights tied = sampleModel(), untied = model;
  ASSERT_OK(importHuggingFace(folder / "tied", tied.views, tied.store()));
  EXPECT_EQ(tied.contents, sampleModel().contents);
  EXPECT_EQ((*SafeTensorsFile::open(folder / "tied/model.safetensors"))->find("lm_head.weight"),
            nullptr);
  ASSERT_OK(importHuggingFace(folder / "untied", untied.views, untied.store()));
  EXPECT_EQ(untied.contents, model.contents);

  EXPECT_ERROR(importHuggingFace(folder / "tied", untied.views, untied.store()),
               "set model.tie_word_embeddings = true");
  EXPECT_ERROR(importHuggingFace(folder / "untied", tied.views, tied.store()),
               "set model.tie_word_embeddings = false");
  // Without a config.json that says otherwise, the second copy is ignored.
  ASSERT_OK(importHuggingFace(folder / "untied/model.safetensors", tied.views, tied.store()));
  EXPECT_EQ(tied.contents, sampleModel().contents);
}

TEST(HuggingFace, ExportReplacesOnlyAnEarlierExport) {
  TestFolder folder;
  Weights model = sampleModel();
  ASSERT_OK(exportHuggingFace(folder / "out", "{}", model.views, model.fetch()));
  ASSERT_OK(exportHuggingFace(folder / "out", R"({"second": 1})", model.views, model.fetch()));
  EXPECT_NE(read(folder / "out/config.json").find("\"second\": 1"), std::string::npos);
  write(folder / "out/notes.txt", "mine");
  EXPECT_ERROR(exportHuggingFace(folder / "out", "{}", model.views, model.fetch()), "notes.txt");
  EXPECT_EQ(read(folder / "out/notes.txt"), "mine");
  EXPECT_ERROR(exportHuggingFace(folder / "x", "[]", model.views, model.fetch()),
               "not a JSON object");
  EXPECT_ERROR(exportHuggingFace("/", "{}", model.views, model.fetch()), "name a folder");
  auto failing = [](size_t, void *) -> Result<void> { return Error{"device lost"}; };
  EXPECT_ERROR(exportHuggingFace(folder / "x", "{}", model.views, failing), "device lost");
  EXPECT_EQ(*listFolder(folder.path), std::vector<std::string>{"out"});
}

TEST(HuggingFace, ExportIsDividedAsSavePretrainedDivides) {
  TestFolder folder;
  Weights model;
  std::mt19937 random(5);
  // Sizes in bytes: 40, 40, 160, 40, 80. The limit is 100.
  for (uint64_t count : {10, 10, 40, 10, 20}) {
    std::vector<float> values(count);
    for (float &value : values)
      value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    model.add("t" + std::to_string(model.views.size()), DType::F32, {count}, values);
  }
  ExportOptions options;
  options.maximumShardBytes = 100;
  ASSERT_OK(exportHuggingFace(folder / "out", "{}", model.views, model.fetch(), options));
  EXPECT_EQ(*listFolder(folder / "out"),
            (std::vector<std::string>{
                "config.json", "generation_config.json", "model-00001-of-00004.safetensors",
                "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors",
                "model-00004-of-00004.safetensors", "model.safetensors.index.json"}));
  auto index = nlohmann::json::parse(read(folder / "out/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"], (nlohmann::json{{"total_parameters", 90}, {"total_size", 360}}));
  // t2 is larger than the limit and goes to a file of its own, before the file that is not yet
  // full.
  const char *files[] = {"2", "2", "1", "3", "4"};
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(index["weight_map"]["t" + std::to_string(i)],
              fmt::format("model-0000{}-of-00004.safetensors", files[i]));
  Weights back = model;
  ASSERT_OK(importHuggingFace(folder / "out", back.views, back.store()));
  EXPECT_EQ(back.contents, model.contents);
  // An export in one file replaces the shards and their index.
  ASSERT_OK(exportHuggingFace(folder / "out", "{}", model.views, model.fetch()));
  EXPECT_EQ(
      *listFolder(folder / "out"),
      (std::vector<std::string>{"config.json", "generation_config.json", "model.safetensors"}));
}

TEST(HuggingFace, ExportConvertsAndSaysSo) {
  TestFolder folder;
  Weights model = sampleModel();
  ExportOptions options;
  options.dtype = DType::BF16;
  ASSERT_OK(exportHuggingFace(folder / "out", R"({"dtype": "float32", "vocab_size": 4})",
                              model.views, model.fetch(), options));
  auto config = nlohmann::json::parse(read(folder / "out/config.json"));
  EXPECT_EQ(config["dtype"], "bfloat16");
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["vocab_size"], 4);
  auto file = SafeTensorsFile::open(folder / "out/model.safetensors");
  ASSERT_OK(file);
  for (size_t i = 0; i < model.views.size(); ++i) {
    const SafeTensorsFile::Entry *entry = (*file)->find(model.views[i].name);
    ASSERT_TRUE(entry && entry->storage == "BF16" && entry->shape == model.views[i].shape);
    const std::vector<float> values = model.values<float>(i);
    for (size_t k = 0; k < values.size(); ++k) {
      uint16_t bits;
      std::memcpy(&bits, static_cast<const char *>(entry->data) + 2 * k, sizeof bits);
      EXPECT_EQ(bits, toBFloat16(values[k]));
    }
  }
  Weights integers;
  integers.add("ids", DType::I32, {1}, std::vector<int32_t>{7});
  EXPECT_ERROR(exportHuggingFace(folder / "x", "{}", integers.views, integers.fetch(), options),
               "'ids' is I32, which does not convert to BF16");
}

TEST(HuggingFace, ExportNamesTheIdsOfDocuments) {
  TestFolder folder;
  Weights model = sampleModel();
  const std::string config = R"({"bos_token_id": null, "eos_token_id": null})";
  ASSERT_OK(exportHuggingFace(folder / "none", config, model.views, model.fetch()));
  auto none = nlohmann::json::parse(read(folder / "none/generation_config.json"));
  EXPECT_TRUE(none.at("eos_token_id").is_null());
  ExportOptions options;
  options.bosTokenId = 1;
  options.eosTokenId = 50256;
  ASSERT_OK(exportHuggingFace(folder / "ids", config, model.views, model.fetch(), options));
  for (const char *name : {"ids/config.json", "ids/generation_config.json"}) {
    auto json = nlohmann::json::parse(read(folder / name));
    EXPECT_EQ(json["bos_token_id"], 1) << name;
    EXPECT_EQ(json["eos_token_id"], 50256) << name;
  }
}

TEST(HuggingFace, ExportCopiesTheTokenizer) {
  TestFolder folder;
  Weights model = sampleModel();
  std::filesystem::create_directory(folder / "tokenizer");
  const std::string bytes("\0\xff{}", 4);
  write(folder / "tokenizer/tokenizer.json", bytes);
  write(folder / "tokenizer/merges.txt", "a b");
  write(folder / "tokenizer/model.safetensors", "not a tokenizer's");
  auto files = tokenizerFiles(folder / "tokenizer");
  ASSERT_OK(files);
  ExportOptions options;
  options.files = *files;
  ASSERT_OK(exportHuggingFace(folder / "out", "{}", model.views, model.fetch(), options));
  EXPECT_EQ(*listFolder(folder / "out"),
            (std::vector<std::string>{"config.json", "generation_config.json", "merges.txt",
                                      "model.safetensors", "tokenizer.json"}));
  EXPECT_EQ(read(folder / "out/tokenizer.json"), bytes);
  // It may be replaced by an export that brings its files again, and by no other.
  ASSERT_OK(exportHuggingFace(folder / "out", "{}", model.views, model.fetch(), options));
  EXPECT_ERROR(exportHuggingFace(folder / "out", "{}", model.views, model.fetch()), "merges.txt");
  auto one = tokenizerFiles(folder / "tokenizer/merges.txt");
  ASSERT_OK(one);
  EXPECT_EQ(*one, std::vector<std::string>{folder / "tokenizer/merges.txt"});
  EXPECT_ERROR(tokenizerFiles(folder / "absent"), "no such file or folder");
  EXPECT_ERROR(tokenizerFiles(folder / "out/model.safetensors"), "no tokenizer there");
}

TEST(HuggingFace, ReadsShards) {
  TestFolder folder;
  Weights model = sampleModel(), back = sampleModel();
  ASSERT_OK(writeSafeTensors(folder / "model-00001-of-00002.safetensors",
                             {model.views[0], model.views[1]}, model.fetch(), {}));
  Weights second;
  second.views = {model.views[2]};
  second.contents = {model.contents[2]};
  ASSERT_OK(writeSafeTensors(folder / "model-00002-of-00002.safetensors", second.views,
                             second.fetch(), {}));
  auto index = [&](const std::string &normFile) {
    return R"({"metadata": {"total_size": 72}, "weight_map": {
      "model.embed_tokens.weight": "model-00001-of-00002.safetensors",
      "model.layers.0.input_layernorm.weight": "model-00001-of-00002.safetensors",
      "model.norm.weight": ")" +
           normFile + "\"}}";
  };
  const std::string indexPath = folder / "model.safetensors.index.json";
  write(indexPath, index("model-00002-of-00002.safetensors"));
  ASSERT_OK(importHuggingFace(folder.path, back.views, back.store()));
  EXPECT_EQ(back.contents, model.contents);

  write(indexPath, index("model-00001-of-00002.safetensors"));
  EXPECT_ERROR(importHuggingFace(folder.path, back.views, back.store()),
               "no tensor 'model.norm.weight'");
  write(indexPath, index("../elsewhere.safetensors"));
  EXPECT_ERROR(importHuggingFace(folder.path, back.views, back.store()), "beside the index");
  write(indexPath, index("missing.safetensors"));
  EXPECT_ERROR(importHuggingFace(folder.path, back.views, back.store()), "No such file");
  write(indexPath, R"({"weight_map": 3})");
  EXPECT_ERROR(importHuggingFace(folder.path, back.views, back.store()), "no object 'weight_map'");
  write(indexPath, R"({"weight_map": )" + std::string(1'000'000, '['));
  EXPECT_ERROR(importHuggingFace(folder.path, back.views, back.store()), "nested more than");
}

TEST(HuggingFace, MissingExtraAndMisshapenTensorsAreNamedBeforeAnythingIsStored) {
  TestFolder folder;
  Weights model = sampleModel();
  ASSERT_OK(exportHuggingFace(folder / "m", "{}", model.views, model.fetch()));
  bool stored = false;
  auto store = [&](size_t, const void *, uint64_t, uint64_t) {
    stored = true;
    return Result<void>();
  };
  Weights more = model;
  more.add("model.layers.0.mlp.up_proj.bias", DType::F32, {1}, std::vector<float>{1});
  EXPECT_ERROR(importHuggingFace(folder / "m", more.views, store),
               "lacks 'model.layers.0.mlp.up_proj.bias'");
  EXPECT_ERROR(importHuggingFace(folder / "m", {model.views[0], model.views[1]}, store),
               "has 'model.norm.weight', which the model lacks");
  std::vector<TensorView> misshapen = model.views;
  misshapen[0].shape = {3, 4};
  EXPECT_ERROR(importHuggingFace(folder / "m", misshapen, store),
               "'model.embed_tokens.weight' is [4, 3] there and [3, 4] in the model");
  EXPECT_ERROR(importHuggingFace(folder / "none", model.views, store), "No such file");
  EXPECT_ERROR(importHuggingFace(folder.path, model.views, store), "neither model.safetensors");
  write(folder / "m/model.safetensors", "not one");
  EXPECT_ERROR(importHuggingFace(folder / "m", model.views, store), "damaged or not");
  EXPECT_FALSE(stored);
}

TEST(HuggingFace, RotaryFrequenciesAreIgnored) {
  TestFolder folder;
  Weights model = sampleModel(), back = sampleModel();
  model.add("model.layers.0.self_attn.rotary_emb.inv_freq", DType::F32, {1}, std::vector<float>{1});
  ASSERT_OK(exportHuggingFace(folder / "m", "{}", model.views, model.fetch()));
  ASSERT_OK(importHuggingFace(folder / "m", back.views, back.store()));
  EXPECT_EQ(back.contents, sampleModel().contents);
}

// The published GPT-2 was saved without its head, and with the masks of its layers.
TEST(HuggingFace, NamesMayLackTheirFirstPart) {
  TestFolder folder;
  auto model = [](const std::string &prefix) {
    Weights weights;
    weights.add(prefix + "wte.weight", DType::F32, {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
    weights.add(prefix + "h.0.attn.c_attn.bias", DType::F32, {2}, std::vector<float>{7, 8});
    return weights;
  };
  Weights saved = model(""), back = model("transformer.");
  saved.add("h.0.attn.bias", DType::F32, {1, 1, 2, 2}, std::vector<float>{1, 0, 1, 1});
  saved.add("h.0.attn.masked_bias", DType::F32, {1}, std::vector<float>{-1e4f});
  saved.add("lm_head.weight", DType::F32, {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const std::string file = folder / "gpt2.safetensors";
  ASSERT_OK(writeSafeTensors(file, saved.views, saved.fetch(), {}));
  ASSERT_OK(importHuggingFace(file, back.views, back.store()));
  EXPECT_EQ(back.contents, model("").contents);

  // Where one name has the first part, all must.
  saved.add("transformer.wte.weight", DType::F32, {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  ASSERT_OK(writeSafeTensors(file, saved.views, saved.fetch(), {}));
  EXPECT_ERROR(importHuggingFace(file, back.views, back.store()),
               "lacks 'transformer.h.0.attn.c_attn.bias'");

  // A name that is missing is the only one that the error names.
  Weights first;
  first.add("h.0.attn.c_attn.bias", DType::F32, {2}, std::vector<float>{7, 8});
  ASSERT_OK(writeSafeTensors(file, first.views, first.fetch(), {}));
  EXPECT_ERROR(importHuggingFace(file, back.views, back.store()),
               "lacks 'transformer.wte.weight', which the model has");
}

// transformers 5 holds the experts of a layer in two tensors, and can write them so.
TEST(HuggingFace, ReadsFusedExperts) {
  constexpr uint64_t kExperts = 3, kWidth = 2, kHidden = 4;
  constexpr uint64_t kMatrix = kWidth * kHidden;
  TestFolder folder;
  const std::string file = folder / "fused.safetensors";
  float next = 0;
  auto numbers = [&](uint64_t count) {
    std::vector<float> values(count);
    for (float &value : values)
      value = next++;
    return values;
  };
  Weights fused;
  fused.add("model.layers.1.mlp.experts.gate_up_proj", DType::F32, {kExperts, 2 * kWidth, kHidden},
            numbers(kExperts * 2 * kMatrix));
  fused.add("model.layers.1.mlp.experts.down_proj", DType::F32, {kExperts, kHidden, kWidth},
            numbers(kExperts * kMatrix));
  fused.add("model.layers.1.mlp.gate.weight", DType::F32, {kExperts, kHidden},
            numbers(kExperts * kHidden));
  ASSERT_OK(writeSafeTensors(file, fused.views, fused.fetch(), {}));

  auto wanted = [&](uint64_t experts, const std::string &module, const char *gate, const char *up,
                    const char *down) {
    Weights weights;
    auto add = [&](const std::string &name, std::vector<uint64_t> shape) {
      const uint64_t count = shape[0] * shape[1];
      weights.add("model.layers.1." + module + name + ".weight", DType::F32, std::move(shape),
                  std::vector<float>(count));
    };
    for (uint64_t e = 0; e < experts; ++e) {
      const std::string expert = fmt::format("experts.{}.", e);
      add(expert + down, {kHidden, kWidth});
      add(expert + gate, {kWidth, kHidden});
      add(expert + up, {kWidth, kHidden});
    }
    add("gate", {experts, kHidden});
    return weights;
  };
  auto qwen = [&](uint64_t experts) {
    return wanted(experts, "mlp.", "gate_proj", "up_proj", "down_proj");
  };
  auto from = [](uint64_t first, uint64_t count) {
    std::vector<float> values;
    for (uint64_t i = 0; i < count; ++i)
      values.push_back(float(first + i));
    return values;
  };
  for (Weights back : {qwen(kExperts), wanted(kExperts, "block_sparse_moe.", "w1", "w3", "w2")}) {
    ASSERT_OK(importHuggingFace(file, back.views, back.store()));
    for (uint64_t e = 0; e < kExperts; ++e) {
      EXPECT_EQ(back.values<float>(3 * e), from((2 * kExperts + e) * kMatrix, kMatrix));
      EXPECT_EQ(back.values<float>(3 * e + 1), from(2 * e * kMatrix, kMatrix));
      EXPECT_EQ(back.values<float>(3 * e + 2), from((2 * e + 1) * kMatrix, kMatrix));
    }
    EXPECT_EQ(back.values<float>(3 * kExperts), from(3 * kExperts * kMatrix, kExperts * kHidden));
  }

  Weights other = qwen(kExperts + 1);
  EXPECT_ERROR(importHuggingFace(file, other.views, other.store()),
               "'model.layers.1.mlp.experts' has 3 experts there and 4 in the model");
  Weights apart = qwen(kExperts);
  apart.store(); // gives each tensor no content
  for (size_t i = 0; i < apart.views.size(); ++i)
    apart.contents[i].resize(apart.views[i].bytes);
  const std::string apartFile = folder / "apart.safetensors";
  ASSERT_OK(writeSafeTensors(apartFile, apart.views, apart.fetch(), {}));
  for (uint64_t experts : {kExperts - 1, kExperts + 1}) {
    other = qwen(experts);
    EXPECT_ERROR(importHuggingFace(apartFile, other.views, other.store()),
                 fmt::format("'model.layers.1.mlp.experts' has 3 experts there and {} in the model",
                             experts));
  }
  Weights both = fused;
  both.add("model.layers.1.mlp.experts.1.up_proj.weight", DType::F32, {kWidth, kHidden},
           std::vector<float>(kMatrix));
  ASSERT_OK(writeSafeTensors(file, both.views, both.fetch(), {}));
  Weights back = qwen(kExperts);
  EXPECT_ERROR(importHuggingFace(file, back.views, back.store()),
               "has both 'model.layers.1.mlp.experts.gate_up_proj' and "
               "'model.layers.1.mlp.experts.1.up_proj.weight'");
  fused.views[0].shape = {kExperts * 2 * kWidth, kHidden};
  ASSERT_OK(writeSafeTensors(file, fused.views, fused.fetch(), {}));
  EXPECT_ERROR(importHuggingFace(file, back.views, back.store()),
               "'model.layers.1.mlp.experts.gate_up_proj' is [12, 4] there, which is not that of "
               "fused experts");
}

TEST(HuggingFace, IntegersDoNotConvertToFloats) {
  TestFolder folder;
  Weights model;
  model.add("w", DType::I32, {1}, std::vector<int32_t>{1});
  ASSERT_OK(exportHuggingFace(folder / "m", "{}", model.views, model.fetch()));
  std::vector<TensorView> wanted = {{"w", DType::F32, {1}, nullptr, 4}};
  EXPECT_ERROR(importHuggingFace(folder / "m", wanted, model.store()),
               "is I32 there, which does not convert to F32");
}

TEST(HuggingFace, EveryBf16WidensExactly) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<uint16_t>(i);
  std::vector<float> singles = convertThrough<float>(DType::BF16, DType::F32, all);
  std::vector<double> doubles = convertThrough<double>(DType::BF16, DType::F64, all);
  for (size_t i = 0; i < all.size(); ++i) {
    float expected = std::bit_cast<float>(static_cast<uint32_t>(i) << 16);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(singles[i]) && std::isnan(doubles[i])) << i;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(singles[i]), static_cast<uint32_t>(i) << 16);
    ASSERT_EQ(doubles[i], static_cast<double>(expected));
    ASSERT_EQ(std::signbit(doubles[i]), std::signbit(expected));
  }
  // And back: what came from bf16 rounds to itself.
  std::vector<uint16_t> back = convertThrough<uint16_t>(DType::F32, DType::BF16, singles);
  for (size_t i = 0; i < all.size(); ++i)
    if (!std::isnan(singles[i])) {
      ASSERT_EQ(back[i], all[i]);
    }
}

TEST(HuggingFace, HalfPrecisionWidensExactly) {
  struct Case {
    uint16_t bits;
    double value;
  };
  const Case cases[] = {{0x0000, 0.0},      {0x8000, -0.0},       {0x3c00, 1.0},
                        {0xc000, -2.0},     {0x3555, 0x1.554p-2}, {0x7bff, 65504.0},
                        {0x0400, 0x1p-14},  {0x0001, 0x1p-24},    {0x83ff, -0x1.ff8p-15},
                        {0x7c00, INFINITY}, {0xfc00, -INFINITY}};
  std::string header = R"({"w":{"dtype":"F16","shape":[12],"data_offsets":[0,24]}})", data;
  for (const Case &each : cases)
    data.append(reinterpret_cast<const char *>(&each.bits), 2);
  data += "\x01\x7e"; // a NaN
  uint64_t length = header.size();
  TestFolder folder;
  write(folder / "a", std::string(reinterpret_cast<char *>(&length), 8) + header + data);
  for (DType dtype : {DType::F32, DType::F64}) {
    uint64_t width = dtype == DType::F32 ? 4 : 8;
    Weights target;
    target.views = {{"w", dtype, {12}, nullptr, 12 * width}};
    ASSERT_OK(importHuggingFace(folder / "a", target.views, target.store()));
    std::vector<double> got;
    if (dtype == DType::F32)
      for (float value : target.values<float>(0))
        got.push_back(value);
    else
      got = target.values<double>(0);
    for (size_t i = 0; i < std::size(cases); ++i) {
      EXPECT_EQ(got[i], cases[i].value) << i;
      EXPECT_EQ(std::signbit(got[i]), std::signbit(cases[i].value)) << i;
    }
    EXPECT_TRUE(std::isnan(got[11]));
  }
}

TEST(HuggingFace, NarrowingRoundsOnceToNearestEven) {
  // bf16 near 1: 0x3f80 is 1, 0x3f81 is 0x1.02p0, 0x3f82 is 0x1.04p0.
  std::vector<double> doubles = {1.0,
                                 0x1.01p0,
                                 0x1.03p0,
                                 0x1.0100000001p0,
                                 0x1.02ffffffffp0,
                                 -0x1.0100000001p0,
                                 1e300,
                                 -1e300,
                                 1e-300,
                                 INFINITY,
                                 NAN};
  std::vector<uint16_t> bf16 = convertThrough<uint16_t>(DType::F64, DType::BF16, doubles);
  EXPECT_EQ(bf16[0], 0x3f80);
  EXPECT_EQ(bf16[1], 0x3f80); // a tie, down to even
  EXPECT_EQ(bf16[2], 0x3f82); // a tie, up to even
  // By way of a nearest f32 the next three would become ties, and go wrong.
  EXPECT_EQ(bf16[3], 0x3f81);
  EXPECT_EQ(bf16[4], 0x3f81);
  EXPECT_EQ(bf16[5], 0xbf81);
  EXPECT_EQ(bf16[6], 0x7f80);
  EXPECT_EQ(bf16[7], 0xff80);
  EXPECT_EQ(bf16[8], 0x0000);
  EXPECT_EQ(bf16[9], 0x7f80);
  EXPECT_EQ(bf16[10] & 0x7fc0, 0x7fc0);
  std::vector<float> singles = convertThrough<float>(DType::F64, DType::F32, doubles);
  for (size_t i = 0; i + 1 < doubles.size(); ++i)
    EXPECT_EQ(singles[i], static_cast<float>(doubles[i]));
  EXPECT_EQ(convertThrough<double>(DType::F32, DType::F64, std::vector<float>{0.1f})[0],
            static_cast<double>(0.1f));
}
