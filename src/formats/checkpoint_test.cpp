#include "formats/checkpoint.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "base/bytes.h"
#include "base/half.h"
#include "formats/adapter.h"
#include "formats/pack.h"
#include "formats/safetensors.h"
#include "formats/test_tools.h"
#include "formats/weight_table.h"

namespace chorus::formats {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::read_all;
using testing::replaced;
using testing::same_bits;
using testing::TemporaryFolder;

const fs::path kModels = CHORUS_MODELS;
const fs::path kAdapter = kModels / "kev-mini";
const fs::path kBase = kModels / "kev-mini-base";
const fs::path kFixture = fs::path(CHORUS_TEST_DATA) / "qwen3_5_text";
constexpr const char* kAdapted = "layers.0.mlp.down_proj.weight";

std::vector<float> read_weight(const WeightSource& weights, const std::string& name) {
  const auto shape = weights.shape(name);
  EXPECT_TRUE(shape.ok()) << name;
  const MatrixShape matrix = matrix_shape(*shape);
  std::vector<float> values(matrix.rows * matrix.cols);
  const auto status = weights.read_rows(name, 0, matrix.rows, values);
  EXPECT_TRUE(status.ok()) << status.error().to_line();
  return values;
}

std::vector<float> read_tensor(const TensorStore& store, const std::string& name) {
  const TensorInfo* tensor = store.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<float> values(tensor->elements);
  EXPECT_TRUE(store.read_f32(*tensor, 0, values).ok());
  return values;
}

// A folder that holds a changeable copy of the shipped checkpoint, its base beside it.
struct CopiedCheckpoint {
  TemporaryFolder folder;
  fs::path adapter = folder.path() / "checkpoint";
  fs::path base = folder.path() / "kev-mini-base";

  CopiedCheckpoint() {
    fs::copy(kAdapter, adapter);
    fs::copy(kBase, base);
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      fs::permissions(entry.path(), fs::perms::owner_write, fs::perm_options::add);
    }
  }
  void edit(const std::string& name, std::string_view from, std::string_view to) const {
    folder.write(name, replaced(read_all(folder.path() / name), from, to));
  }
};

// Sets an environment variable for one test.
class Environment {
 public:
  Environment(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Environment() { set(old_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    if (value) {
      ::setenv(name_, value->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

TEST(Checkpoint, OpensTheShippedAdapterOnTheBaseBesideIt) {
  const auto checkpoint = open_checkpoint(kAdapter);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_line();
  EXPECT_EQ(checkpoint->metadata.form, CheckpointForm::lora);
  EXPECT_EQ(checkpoint->metadata.weights, "lora");
  EXPECT_EQ(checkpoint->metadata.base, "kev-mini-base");
  EXPECT_EQ(checkpoint->metadata.lora_rank, 16u);
  EXPECT_EQ(checkpoint->metadata.temperature, 1.1755479062836087);
  EXPECT_TRUE(checkpoint->metadata.checkpoint_id.starts_with("sha256:"));
  ASSERT_TRUE(checkpoint->head.has_value());
  EXPECT_EQ(checkpoint->head->hidden_size, checkpoint->config.hidden_size);
  EXPECT_TRUE(fs::equivalent(checkpoint->tokenizer_path, kBase / "tokenizer.json"));
  EXPECT_EQ(*checkpoint->tokenizer_json(), read_all(kBase / "tokenizer.json"));
  EXPECT_TRUE(checkpoint->ignored_tensors.empty());
  EXPECT_EQ(checkpoint->weights->names().size(), backbone_weights(checkpoint->config).size());
  EXPECT_FALSE(checkpoint->weights->has("lm_head.weight"));
  EXPECT_EQ(*checkpoint->weights->stored_type("norm.weight"), FileDType::BF16);
  // A trailing slash is the same folder.
  EXPECT_TRUE(open_checkpoint(kAdapter / "").ok());
}

TEST(Checkpoint, MergesTheAdapterLikeTheFormula) {
  const auto checkpoint = open_checkpoint(kAdapter);
  ASSERT_TRUE(checkpoint.ok());
  const auto base = TensorStore::open(kBase);
  const auto adapter = TensorStore::open(kAdapter / "adapter_model.safetensors");
  ASSERT_TRUE(base.ok() && adapter.ok());
  constexpr uint64_t kRank = 16;
  constexpr double kScaling = 32.0 / 16.0;  // lora_alpha / r
  size_t adapted = 0;
  double largest_change = 0;
  for (const auto& name : checkpoint->weights->names()) {
    const std::vector<float> merged = read_weight(*checkpoint->weights, name);
    const std::vector<float> w = read_tensor(*base, "model." + name);
    const std::string module = "base_model.model." + name.substr(0, name.rfind(".weight"));
    if (adapter->find(module + ".lora_A.weight") == nullptr) {
      EXPECT_TRUE(same_bits(merged, w)) << name;
      continue;
    }
    ++adapted;
    const std::vector<float> a = read_tensor(*adapter, module + ".lora_A.weight");
    const std::vector<float> b = read_tensor(*adapter, module + ".lora_B.weight");
    const uint64_t rows = b.size() / kRank;
    const uint64_t columns = a.size() / kRank;
    for (uint64_t i = 0; i < rows; ++i) {
      for (uint64_t j = 0; j < columns; ++j) {
        double delta = 0;
        double magnitude = 0;
        for (uint64_t r = 0; r < kRank; ++r) {
          const double product = static_cast<double>(b[i * kRank + r]) * a[r * columns + j];
          delta += product;
          magnitude += std::fabs(product);
        }
        const double exact = w[i * columns + j] + kScaling * delta;
        // kRank products and sums, one scaling, one addition, each rounded once.
        const double bound = 0x1p-24 * ((kRank + 2) * kScaling * magnitude + std::fabs(exact));
        ASSERT_LE(std::fabs(merged[i * columns + j] - exact), bound) << name << " " << i << " " << j;
        largest_change = std::max(largest_change, std::fabs(kScaling * delta));
      }
    }
  }
  EXPECT_EQ(adapted, 62u);
  EXPECT_GT(largest_change, 1e-3);  // the adapter of the shipped model is trained: it changes something
}

TEST(Checkpoint, RowsReadInPiecesHaveTheSameBits) {
  const auto checkpoint = open_checkpoint(kAdapter);
  ASSERT_TRUE(checkpoint.ok());
  const std::vector<float> whole = read_weight(*checkpoint->weights, kAdapted);
  const MatrixShape matrix = matrix_shape(*checkpoint->weights->shape(kAdapted));
  for (const uint64_t step : {1, 7, 100}) {
    std::vector<float> pieces;
    for (uint64_t row = 0; row < matrix.rows; row += step) {
      const uint64_t rows = std::min<uint64_t>(step, matrix.rows - row);
      std::vector<float> piece(rows * matrix.cols);
      ASSERT_TRUE(checkpoint->weights->read_rows(kAdapted, row, rows, piece).ok());
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    EXPECT_TRUE(same_bits(pieces, whole)) << step;
  }
  const auto conv_shape = checkpoint->weights->shape("layers.0.linear_attn.conv1d.weight");
  EXPECT_EQ(matrix_shape(*conv_shape).rows, 512u);
  EXPECT_EQ(matrix_shape(*conv_shape).cols, 4u);
  std::vector<float> row(matrix.cols);
  expect_error(checkpoint->weights->read_rows(kAdapted, matrix.rows, 1, row), "rows 192 + 1");
  expect_error(checkpoint->weights->read_rows(kAdapted, UINT64_MAX, 2, row), "rows 18446744073709551615 + 2");
  expect_error(checkpoint->weights->read_rows(kAdapted, 0, 1, std::span(row).first(1)), "into 1 elements");
  expect_error(checkpoint->weights->read_rows("layers.0.nothing", 0, 1, row), "no weight \"layers.0.nothing\"");
  EXPECT_TRUE(checkpoint->weights->read_rows(kAdapted, matrix.rows, 0, {}).ok());
}

TEST(Checkpoint, OpensAPlainBase) {
  const auto checkpoint = open_checkpoint(kFixture);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_line();
  EXPECT_EQ(checkpoint->metadata.form, CheckpointForm::base);
  EXPECT_FALSE(checkpoint->head.has_value());
  EXPECT_TRUE(checkpoint->tokenizer_path.empty());
  expect_error(checkpoint->tokenizer_json(), "no tokenizer.json");
  expect_error(open_checkpoint(kModels / "missing"), "no such file or folder");
  expect_error(open_checkpoint(kModels), "expected adapter_config.json or config.json in the folder, found neither");
  expect_error(open_checkpoint(kBase / "model.safetensors"), "expected a folder, or a file made by `chorus pack`");
  expect_error(open_checkpoint(kBase / "config.json"), "config.json");
}

// Base lookup.

TEST(BaseLookup, FindsTheBaseWhereItMayLie) {
  CopiedCheckpoint copy;
  const Environment cache("HF_HUB_CACHE", (copy.folder.path() / "cache").string());
  EXPECT_TRUE(fs::equivalent(open_checkpoint(copy.adapter)->base_path, copy.base));

  const auto set_base = [&](const std::string& from, const std::string& to) {
    copy.edit("checkpoint/adapter_config.json", "\"base_model_name_or_path\": \"" + from + "\"",
              "\"base_model_name_or_path\": \"" + to + "\"");
  };
  set_base("kev-mini-base", copy.base.string());  // an absolute path
  EXPECT_TRUE(fs::equivalent(open_checkpoint(copy.adapter)->base_path, copy.base));
  set_base(copy.base.string(), "org/kev-mini-base");  // the last part beside the adapter
  EXPECT_TRUE(fs::equivalent(open_checkpoint(copy.adapter)->base_path, copy.base));
  fs::rename(copy.base, copy.adapter / "base");
  set_base("org/kev-mini-base", "base");  // inside the adapter's folder
  EXPECT_TRUE(fs::equivalent(open_checkpoint(copy.adapter)->base_path, copy.adapter / "base"));
  fs::rename(copy.adapter / "base", copy.folder.path() / "elsewhere");
  const auto lost = open_checkpoint(copy.adapter);
  expect_error(lost, "base model \"base\" not found; tried ");
  expect_error(lost, (copy.folder.path() / "cache" / "models--base" / "snapshots" / "main").string());
  expect_error(lost, "give --base");
  EXPECT_TRUE(open_checkpoint(copy.adapter, {copy.folder.path() / "elsewhere"}).ok());
  expect_error(open_checkpoint(copy.adapter, {copy.folder.path() / "nowhere"}), "nowhere: expected the folder of the base model");
  expect_error(open_checkpoint(copy.adapter, {copy.adapter}), "found no config.json");
}

TEST(BaseLookup, FindsTheBaseInTheHuggingFaceCache) {
  CopiedCheckpoint copy;
  copy.edit("checkpoint/adapter_config.json", "\"kev-mini-base\"", "\"Org/Base-Model\"");
  const fs::path cache = copy.folder.path() / "hub";
  const fs::path repository = cache / "models--Org--Base-Model";
  fs::create_directories(repository / "snapshots");
  fs::rename(copy.base, repository / "snapshots" / "0123abcd");
  const Environment hub("HF_HUB_CACHE", std::nullopt);
  const Environment home("HF_HOME", std::nullopt);
  const Environment xdg("XDG_CACHE_HOME", std::nullopt);
  const Environment user("HOME", copy.folder.path().string());
  {
    const Environment set("HF_HUB_CACHE", cache.string());
    expect_error(open_checkpoint(copy.adapter), "snapshots/main");
    copy.folder.write("hub/models--Org--Base-Model/refs/main", "0123abcd\n");
    const auto found = open_checkpoint(copy.adapter);
    ASSERT_TRUE(found.ok()) << found.error().to_line();
    EXPECT_TRUE(fs::equivalent(found->base_path, repository / "snapshots" / "0123abcd"));
    // A pinned revision that is not there is not replaced by another one.
    copy.edit("checkpoint/adapter_config.json", "\"revision\": null", "\"revision\": \"ffff\"");
    expect_error(open_checkpoint(copy.adapter), "snapshots/ffff");
    copy.edit("checkpoint/adapter_config.json", "\"revision\": \"ffff\"", "\"revision\": \"0123abcd\"");
    EXPECT_TRUE(open_checkpoint(copy.adapter).ok());
    copy.edit("checkpoint/adapter_config.json", "\"revision\": \"0123abcd\"", "\"revision\": \"../../..\"");
    expect_error(open_checkpoint(copy.adapter), "is no plain name");
    copy.edit("checkpoint/adapter_config.json", "\"revision\": \"../../..\"", "\"revision\": null");
    copy.folder.write("hub/models--Org--Base-Model/refs/main", "../../../etc");
    expect_error(open_checkpoint(copy.adapter), "expected the name of a snapshot");
    copy.folder.write("hub/models--Org--Base-Model/refs/main", "0123abcd");
  }
  {
    const Environment set("HF_HOME", copy.folder.path().string());
    EXPECT_TRUE(open_checkpoint(copy.adapter).ok());
  }
  fs::create_directories(copy.folder.path() / ".cache" / "huggingface");
  expect_error(open_checkpoint(copy.adapter), ".cache/huggingface/hub");
  fs::rename(cache, copy.folder.path() / ".cache" / "huggingface" / "hub");
  EXPECT_TRUE(open_checkpoint(copy.adapter).ok());
}

// Disagreements between the files of a checkpoint.

TEST(Checkpoint, RefusesAdaptersItCannotMerge) {
  const auto parse = [](std::string_view from, std::string_view to) {
    return parse_adapter_config(replaced(read_all(kAdapter / "adapter_config.json"), from, to), "adapter_config.json");
  };
  EXPECT_EQ(parse("", "")->scaling, 2.0);
  EXPECT_EQ(parse("\"use_rslora\": false", "\"use_rslora\": true")->scaling, 8.0);
  const struct {
    const char* from;
    const char* to;
    const char* says;
  } cases[] = {
      {"\"use_dora\": false", "\"use_dora\": true", "use_dora"},
      {"\"lora_bias\": false", "\"lora_bias\": true", "lora_bias"},
      {"\"bias\": \"none\"", "\"bias\": \"all\"", "bias: this program runs \"none\", found \"all\""},
      {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", "modules_to_save"},
      {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 8}", "rank_pattern"},
      {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": 8}", "alpha_pattern"},
      {"\"fan_in_fan_out\": false", "\"fan_in_fan_out\": true", "fan_in_fan_out"},
      {"\"layer_replication\": null", "\"layer_replication\": [[0, 4]]", "layer_replication"},
      {"\"trainable_token_indices\": null", "\"trainable_token_indices\": [1]", "trainable_token_indices"},
      {"\"use_bdlora\": null", "\"use_bdlora\": {\"a\": 1}", "use_bdlora"},
      {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"", "\"pissa\" may have changed the base weights"},
      {"\"peft_type\": \"LORA\"", "\"peft_type\": \"LOHA\"", "peft_type: this program runs \"LORA\", found \"LOHA\""},
      {"\"r\": 16", "\"r\": 0", "r: expected 1 to 65536, found 0"},
      {"\"r\": 16", "\"r\": -1", "r"},
      {"\"r\": 16", "\"rr\": 16", "\"r\""},
      {"\"lora_alpha\": 32", "\"lora_alpha\": 0", "lora_alpha: expected a finite number other than 0"},
      {"\"lora_alpha\": 32", "\"lora_alpha\": 1e300", "lora_alpha: expected a finite number other than 0"},
      {"\"lora_alpha\": 32", "\"lora_alpha\": \"32\"", "lora_alpha"},
      {"{", "[", "reading adapter_config.json"},
  };
  for (const auto& refused : cases) {
    SCOPED_TRACE(refused.to);
    expect_error(parse(refused.from, refused.to), refused.says);
  }
  EXPECT_EQ(parse("\"lora_alpha\": 32", "\"lora_alpha\": 24.0")->scaling, 1.5);
}

TEST(Checkpoint, RefusesAdapterFilesThatDoNotFit) {
  CopiedCheckpoint copy;
  const std::string adapter = read_all(kAdapter / "adapter_model.safetensors");
  const std::string config = read_all(kAdapter / "adapter_config.json");
  const auto refuse = [&](std::string_view from, std::string_view to, const char* says) {
    SCOPED_TRACE(says);
    copy.folder.write("checkpoint/adapter_model.safetensors", replaced(adapter, from, to));
    expect_error(open_checkpoint(copy.adapter), says);
  };
  refuse("layers.0.mlp.up_proj.lora_A", "layers.9.mlp.up_proj.lora_A", "the base has no weight \"layers.9.mlp.up_proj.weight\"");
  refuse("layers.0.mlp.up_proj.lora_A", "layers.0.mlp.up_proj.lora_C",
         "expected base_model.model.<module>.lora_A.weight or .lora_B.weight");
  refuse("base_model.model.layers.0.mlp.up_proj", "base_model_model.layers.0.mlp.up_proj", "expected base_model.model.");
  refuse("layers.0.mlp.up_proj.lora_A", "layers.1.mlp.up_proj.lora_A", "layers.1.mlp.up_proj.lora_A.weight");
  refuse("\"shape\":[16,192]", "\"shape\":[192,16]", "expected shape [16, 192]");
  copy.folder.write("checkpoint/adapter_model.safetensors", adapter);
  copy.folder.write("checkpoint/adapter_config.json", replaced(config, "\"r\": 16", "\"r\": 8"));
  expect_error(open_checkpoint(copy.adapter), "lora 16, but adapter_config.json has r 8");
  copy.folder.write("checkpoint/adapter_config.json", replaced(config, "\"o_proj\"", "\"embed_tokens\""));
  expect_error(open_checkpoint(copy.adapter), "target_modules names \"embed_tokens\", but there is no adapter for \"embed_tokens.weight\"");
  copy.folder.write("checkpoint/adapter_config.json", config);
  fs::remove(copy.adapter / "adapter_model.safetensors");
  expect_error(open_checkpoint(copy.adapter), "adapter_model.safetensors: cannot open");
}

// An adapter may name the modules of a multimodal model.
TEST(Checkpoint, AcceptsTheOtherAdapterPrefixes) {
  CopiedCheckpoint copy;
  const auto expected = open_checkpoint(copy.adapter);
  ASSERT_TRUE(expected.ok());
  auto store = TensorStore::open(kAdapter / "adapter_model.safetensors");
  ASSERT_TRUE(store.ok());
  std::vector<TensorToWrite> tensors;
  for (const auto& tensor : store->tensors()) {
    tensors.push_back({replaced(tensor.name, "base_model.model.", "base_model.model.model.language_model."), tensor.dtype, tensor.shape,
                       [&store, &tensor](const TensorToWrite::Sink& sink) { return sink(store->raw(tensor)); }});
  }
  ASSERT_TRUE(write_safetensors(copy.adapter / "adapter_model.safetensors", {}, std::move(tensors)).ok());
  const auto found = open_checkpoint(copy.adapter);
  ASSERT_TRUE(found.ok()) << found.error().to_line();
  EXPECT_TRUE(same_bits(read_weight(*found->weights, kAdapted), read_weight(*expected->weights, kAdapted)));
}

TEST(Checkpoint, RefusesAMissingOrForeignHead) {
  CopiedCheckpoint copy;
  fs::remove(copy.adapter / "head.pt");
  expect_error(open_checkpoint(copy.adapter), "expected head.pt or head.safetensors beside adapter_config.json, found neither");
  // The head of the shipped model takes 192 numbers; a model of 64 cannot use it.
  for (const char* name : {"config.json", "model.safetensors"}) fs::copy(kFixture / name, copy.adapter / name);
  fs::remove(copy.adapter / "adapter_config.json");
  fs::copy(kAdapter / "head.pt", copy.adapter / "head.pt");
  expect_error(open_checkpoint(copy.adapter), "weights: the folder has the full form, found \"lora\"");
}

// Writes the weights of a source under other names, as another checkpoint form has them.
Status write_weights(const fs::path& path, const WeightSource& source, const std::string& prefix,
                     const std::vector<std::string>& extra = {}) {
  std::vector<TensorToWrite> tensors;
  for (const auto& name : source.names()) {
    CHORUS_ASSIGN(const std::vector<uint64_t> shape, source.shape(name));
    tensors.push_back({prefix + name, FileDType::F32, shape, [&source, name](const TensorToWrite::Sink& sink) {
                         const std::vector<float> values = read_weight(source, name);
                         return sink(std::as_bytes(std::span(values)));
                       }});
  }
  for (const auto& name : extra) {
    tensors.push_back({name, FileDType::F32, {4}, [](const TensorToWrite::Sink& sink) {
                         const std::vector<float> values(4);
                         return sink(std::as_bytes(std::span(values)));
                       }});
  }
  return write_safetensors(path, {}, std::move(tensors));
}

Status write_head_safetensors(const fs::path& path, const PointerHead& head, const std::map<std::string, std::string>& metadata) {
  const auto part = [](const char* name, const std::vector<float>& values, std::vector<uint64_t> shape) {
    return TensorToWrite{name, FileDType::F32, std::move(shape),
                         [&values](const TensorToWrite::Sink& sink) { return sink(std::as_bytes(std::span(values))); }};
  };
  return write_safetensors(
      path, metadata,
      {part("q.weight", head.q_weight, {head.head_dim, head.hidden_size}), part("q.bias", head.q_bias, {head.head_dim}),
       part("k.weight", head.k_weight, {head.head_dim, head.hidden_size}), part("k.bias", head.k_bias, {head.head_dim})});
}

// Full-weight form: merged weights under bare names, config.json and a head beside them.
TEST(Checkpoint, OpensTheFullWeightForm) {
  const auto lora = open_checkpoint(kAdapter);
  ASSERT_TRUE(lora.ok());
  const TemporaryFolder folder;
  fs::copy(kBase / "config.json", folder.path() / "config.json");
  fs::copy(kBase / "tokenizer.json", folder.path() / "tokenizer.json");
  ASSERT_TRUE(write_weights(folder.path() / "model.safetensors", *lora->weights, "").ok());
  const auto head = folder.path() / "head.safetensors";
  ASSERT_TRUE(
      write_head_safetensors(head, *lora->head, {{"weights", "full"}, {"lora", "0"}, {"weights_dtype", "bf16"}, {"temperature", "1.5"}})
          .ok());
  const auto full = open_checkpoint(folder.path());
  ASSERT_TRUE(full.ok()) << full.error().to_line();
  EXPECT_EQ(full->metadata.form, CheckpointForm::full);
  EXPECT_EQ(full->metadata.weights, "full");
  EXPECT_EQ(full->metadata.weights_dtype, "bf16");
  EXPECT_EQ(full->metadata.temperature, 1.5);
  EXPECT_EQ(full->tokenizer_path, folder.path() / "tokenizer.json");
  for (const auto& name : lora->weights->names()) {
    EXPECT_TRUE(same_bits(read_weight(*full->weights, name), read_weight(*lora->weights, name))) << name;
  }
  ASSERT_TRUE(write_head_safetensors(head, *lora->head, {{"weights", "lora"}}).ok());
  expect_error(open_checkpoint(folder.path()), "weights: the folder has the full form, found \"lora\"");
  ASSERT_TRUE(write_head_safetensors(head, *lora->head, {}).ok());
  expect_error(open_checkpoint(folder.path()), "expected weights \"full\" and lora 0 beside full weights, found no weights entry");
  ASSERT_TRUE(write_head_safetensors(head, *lora->head, {{"weights", "full"}, {"lora", "16"}}).ok());
  expect_error(open_checkpoint(folder.path()), "expected weights \"full\" and lora 0");
  PointerHead narrow = *lora->head;
  narrow.hidden_size = 96;
  narrow.q_weight.resize(static_cast<size_t>(narrow.head_dim) * 96);
  narrow.k_weight.resize(static_cast<size_t>(narrow.head_dim) * 96);
  ASSERT_TRUE(write_head_safetensors(head, narrow, {{"weights", "full"}}).ok());
  expect_error(open_checkpoint(folder.path()), "the head takes vectors of 96, the model's hidden_size is 192");
}

TEST(Checkpoint, ResolvesEveryPrefixAndListsWhatItIgnores) {
  const auto expected = open_checkpoint(kFixture);
  ASSERT_TRUE(expected.ok());
  for (const std::string prefix : {"", "model.", "model.language_model.", "language_model.model."}) {
    SCOPED_TRACE(prefix);
    const TemporaryFolder folder;
    fs::copy(kFixture / "config.json", folder.path() / "config.json");
    const std::vector<std::string> extra{"model.visual.blocks.0.weight", "mtp.layers.0.weight"};
    ASSERT_TRUE(write_weights(folder.path() / "model.safetensors", *expected->weights, prefix, extra).ok());
    const auto found = open_checkpoint(folder.path());
    ASSERT_TRUE(found.ok()) << found.error().to_line();
    EXPECT_EQ(found->ignored_tensors, extra);
    EXPECT_EQ(found->weights->names(), expected->weights->names());
    EXPECT_TRUE(same_bits(read_weight(*found->weights, "norm.weight"), read_weight(*expected->weights, "norm.weight")));

    ASSERT_TRUE(
        write_weights(folder.path() / "model.safetensors", *expected->weights, prefix, {prefix + "layers.0.mlp.up_proj.bias"}).ok());
    expect_error(open_checkpoint(folder.path()), "is not part of the model that config.json describes");
    ASSERT_TRUE(write_weights(folder.path() / "model.safetensors", *expected->weights, prefix, {"lm_head.weight"}).ok());
    expect_error(open_checkpoint(folder.path()), "tensor \"lm_head.weight\": config.json calls for shape [512, 64], found [4]");
  }
}

TEST(Checkpoint, RefusesWeightsThatConfigDoesNotDescribe) {
  const TemporaryFolder folder;
  fs::copy(kFixture / "config.json", folder.path() / "config.json");
  const std::string weights = read_all(kFixture / "model.safetensors");
  const auto refuse = [&](std::string_view from, std::string_view to, const char* says) {
    SCOPED_TRACE(says);
    folder.write("model.safetensors", replaced(weights, from, to));
    expect_error(open_checkpoint(folder.path()), says);
  };
  refuse("model.norm.weight", "model.morn.weight", "no tensor \"model.norm.weight\"");
  refuse("model.embed_tokens.weight", "model.embed_takens.weight", "no tensor \"embed_tokens.weight\"");
  refuse("[512,64]", "[64,512]", "tensor \"model.embed_tokens.weight\": config.json calls for shape [512, 64], found [64, 512]");
  refuse("[128,1,4]", "[128,4,1]", "config.json calls for shape [128, 1, 4], found [128, 4, 1]");
  refuse("\"BF16\",\"shape\":[512", "\"I16\",\"shape\":[512", "");
  folder.write("model.safetensors", weights);
  folder.write("config.json", replaced(read_all(kFixture / "config.json"), "\"hidden_size\": 64", "\"hidden_size\": 65"));
  expect_error(open_checkpoint(folder.path()), "config.json calls for shape [512, 65], found [512, 64]");
  folder.write("config.json", "{}");
  expect_error(open_checkpoint(folder.path()), "config.json");
  fs::remove(folder.path() / "model.safetensors");
  folder.write("config.json", read_all(kFixture / "config.json"));
  expect_error(open_checkpoint(folder.path()), "expected model.safetensors");
}

// The last tensor of the fixture's file gets a NaN: opening works, reading names tensor and element.
TEST(Checkpoint, ANotANumberInAWeightIsFoundWhenItIsRead) {
  const TemporaryFolder folder;
  fs::copy(kFixture / "config.json", folder.path() / "config.json");
  auto store = TensorStore::open(kFixture);
  ASSERT_TRUE(store.ok());
  std::string bytes = read_all(kFixture / "model.safetensors");
  const TensorInfo* tensor = store->find("model.layers.1.mlp.up_proj.weight");
  const uint16_t not_a_number = 0x7fc0;
  std::memcpy(bytes.data() + tensor->offset + 2 * 130, &not_a_number, 2);
  folder.write("model.safetensors", bytes);
  const auto checkpoint = open_checkpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  std::vector<float> row(64);
  EXPECT_TRUE(checkpoint->weights->read_rows("layers.1.mlp.up_proj.weight", 1, 1, row).ok());
  expect_error(checkpoint->weights->read_rows("layers.1.mlp.up_proj.weight", 2, 1, row),
               "tensor \"model.layers.1.mlp.up_proj.weight\": element 130 is NaN");
  expect_error(write_pack(*checkpoint, "", DType::f32, folder.path() / "out.safetensors"), "element 130 is NaN");
  EXPECT_FALSE(fs::exists(folder.path() / "out.safetensors"));
}

// Packs.

Result<Checkpoint> pack_and_open(const Checkpoint& checkpoint, DType type, const fs::path& path) {
  auto tokenizer = checkpoint.tokenizer_json();
  CHORUS_TRY(write_pack(checkpoint, tokenizer.ok() ? *tokenizer : "", type, path));
  return open_checkpoint(path);
}

void expect_same_metadata(const CheckpointMetadata& a, const CheckpointMetadata& b) {
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.base, b.base);
  EXPECT_EQ(a.base_revision, b.base_revision);
  EXPECT_EQ(std::bit_cast<uint64_t>(a.temperature), std::bit_cast<uint64_t>(b.temperature));
  EXPECT_EQ(a.lora_rank, b.lora_rank);
  EXPECT_EQ(a.checkpoint_id, b.checkpoint_id);
  EXPECT_EQ(a.holdout, b.holdout);
}

TEST(Pack, F32IsBitIdentical) {
  const TemporaryFolder folder;
  auto source = open_checkpoint(kAdapter);
  ASSERT_TRUE(source.ok());
  source->metadata.base_revision = "dc7cdfe2";
  source->metadata.holdout = {"one", "two \"quoted\""};
  const auto path = folder.path() / "kev.safetensors";
  const auto packed = pack_and_open(*source, DType::f32, path);
  ASSERT_TRUE(packed.ok()) << packed.error().to_line();
  EXPECT_EQ(packed->metadata.form, CheckpointForm::packed);
  EXPECT_EQ(packed->metadata.weights_dtype, "f32");
  expect_same_metadata(packed->metadata, source->metadata);
  EXPECT_EQ(packed->config_json, source->config_json);
  EXPECT_EQ(*packed->tokenizer_json(), read_all(kBase / "tokenizer.json"));
  ASSERT_TRUE(packed->head.has_value());
  EXPECT_TRUE(same_bits(packed->head->q_weight, source->head->q_weight));
  EXPECT_TRUE(same_bits(packed->head->q_bias, source->head->q_bias));
  EXPECT_TRUE(same_bits(packed->head->k_weight, source->head->k_weight));
  EXPECT_TRUE(same_bits(packed->head->k_bias, source->head->k_bias));
  EXPECT_EQ(packed->weights->names(), source->weights->names());
  for (const auto& name : source->weights->names()) {
    EXPECT_EQ(*packed->weights->shape(name), *source->weights->shape(name)) << name;
    EXPECT_TRUE(same_bits(read_weight(*packed->weights, name), read_weight(*source->weights, name))) << name;
  }
  // Packing again, from the folder and from the pack, gives the same bytes.
  const std::string bytes = read_all(path);
  ASSERT_TRUE(pack_and_open(*source, DType::f32, folder.path() / "again.safetensors").ok());
  EXPECT_EQ(read_all(folder.path() / "again.safetensors"), bytes);
  ASSERT_TRUE(pack_and_open(*packed, DType::f32, folder.path() / "twice.safetensors").ok());
  EXPECT_EQ(read_all(folder.path() / "twice.safetensors"), bytes);
}

TEST(Pack, HalfTypesRoundMatricesOnce) {
  const TemporaryFolder folder;
  const auto source = open_checkpoint(kAdapter);
  ASSERT_TRUE(source.ok());
  for (const DType type : {DType::f16, DType::bf16}) {
    SCOPED_TRACE(dtype_name(type));
    const auto packed = pack_and_open(*source, type, folder.path() / "half.safetensors");
    ASSERT_TRUE(packed.ok()) << packed.error().to_line();
    EXPECT_EQ(packed->metadata.weights_dtype, dtype_name(type));
    for (const auto& name : source->weights->names()) {
      std::vector<float> expected = read_weight(*source->weights, name);
      if (source->weights->shape(name)->size() == 2) {
        for (float& value : expected) value = type == DType::f16 ? f16_to_float(float_to_f16(value)) : bf16_to_float(float_to_bf16(value));
      }
      EXPECT_TRUE(same_bits(read_weight(*packed->weights, name), expected)) << name;
    }
  }
}

TEST(Pack, APlainBaseHasNoHeadAndSaysSo) {
  const TemporaryFolder folder;
  const auto source = open_checkpoint(kFixture);
  ASSERT_TRUE(source.ok());
  const auto packed = pack_and_open(*source, DType::f32, folder.path() / "base.safetensors");
  ASSERT_TRUE(packed.ok()) << packed.error().to_line();
  EXPECT_FALSE(packed->head.has_value());
  EXPECT_EQ(packed->metadata.weights, "base");
  expect_error(packed->tokenizer_json(), "no tokenizer.json");
}

TEST(Pack, RefusesChangedPacks) {
  const TemporaryFolder folder;
  const auto source = open_checkpoint(kAdapter);
  ASSERT_TRUE(source.ok());
  const auto path = folder.path() / "kev.safetensors";
  ASSERT_TRUE(pack_and_open(*source, DType::bf16, path).ok());
  const std::string bytes = read_all(path);
  const auto refuse = [&](std::string_view from, std::string_view to, const char* says) {
    SCOPED_TRACE(says);
    folder.write("changed.safetensors", replaced(bytes, from, to));
    expect_error(open_checkpoint(folder.path() / "changed.safetensors"), says);
  };
  refuse("chorus-pack", "chorus_pack", "made by `chorus pack`");
  refuse("\"version\":\"1\"", "\"version\":\"2\"", "pack version \"2\", this program reads \"1\"");
  refuse("\"config\":", "\"konfig\":", "");
  refuse("pointer_head.k.bias", "pointer_head.k.bios", "no tensor \"pointer_head.k.bias\"");
  refuse("pointer_head.q.bias", "pointer_head.q.bios", "a part of the pointer head is missing");
  refuse("\"tokenizer.json\":{\"dtype\":\"U8\"", "\"tokenizer.json\":{\"dtype\":\"I8\"", "tensor \"tokenizer.json\": expected at most");
  refuse("\\\"temperature\\\": 1.", "\\\"temperature\\\": -.", "");
  refuse("layers.0.mlp.up_proj.weight", "layers.0.mlp.op_proj.weight", "no tensor \"layers.0.mlp.up_proj.weight\"");
  for (size_t length = 0; length < bytes.size(); length += 50021) {
    folder.write("changed.safetensors", std::string_view(bytes).substr(0, length));
    EXPECT_FALSE(open_checkpoint(folder.path() / "changed.safetensors").ok()) << length;
  }
}

TEST(Pack, RefusesAWeightTooLargeForTheType) {
  const TemporaryFolder folder;
  fs::copy(kFixture / "config.json", folder.path() / "config.json");
  const auto source = open_checkpoint(kFixture);
  ASSERT_TRUE(source.ok());
  std::vector<TensorToWrite> tensors;
  for (const auto& name : source->weights->names()) {
    std::vector<float> values = read_weight(*source->weights, name);
    if (name == "layers.2.mlp.up_proj.weight") values[7] = 70000.0f;
    tensors.push_back({name, FileDType::F32, *source->weights->shape(name),
                       [values](const TensorToWrite::Sink& sink) { return sink(std::as_bytes(std::span(values))); }});
  }
  ASSERT_TRUE(write_safetensors(folder.path() / "model.safetensors", {}, std::move(tensors)).ok());
  const auto large = open_checkpoint(folder.path());
  ASSERT_TRUE(large.ok()) << large.error().to_line();
  expect_error(write_pack(*large, "", DType::f16, folder.path() / "out"),
               "weight \"layers.2.mlp.up_proj.weight\": the value 70000.000000 is too large for f16");
  EXPECT_FALSE(fs::exists(folder.path() / "out"));
  EXPECT_TRUE(write_pack(*large, "", DType::bf16, folder.path() / "out").ok());
}

}  // namespace
}  // namespace chorus::formats
