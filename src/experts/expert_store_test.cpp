#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/half.h"
#include "experts/direct_file.h"
#include "experts/expert_hash.h"
#include "experts/expert_pack.h"
#include "experts/expert_reader.h"
#include "experts/packed_store.h"
#include "experts/shard_store.h"
#include "formats/test_tools.h"
#include "models/random_checkpoint.h"

namespace chorus::experts {
namespace {

using formats::testing::TemporaryFolder;
using models::LanguageCheckpoint;

using Bytes = std::vector<std::byte>;

void write_checkpoint(const std::filesystem::path& folder, const models::RandomMoeSizes& sizes, const char* layout = "qwen3_moe",
                      DType dtype = DType::bf16, uint64_t shard_bytes_max = 1 << 16) {
  const auto config = models::random_moe_config(layout, sizes);
  ASSERT_TRUE(config.ok());
  models::RandomCheckpointOptions options;
  options.dtype = dtype;
  options.shard_bytes_max = shard_bytes_max;
  const auto written = models::write_random_checkpoint(folder, *config, options);
  ASSERT_TRUE(written.ok()) << written.error().to_line();
}

LanguageCheckpoint open_checked(const std::filesystem::path& path) {
  auto checkpoint = models::open_language_checkpoint(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().to_line();
  return checkpoint.ok() ? std::move(checkpoint).value() : LanguageCheckpoint();
}

// Memory whose start and size an expert's record may have anywhere in a program.
struct Memory {
  Memory(uint64_t bytes, uint64_t alignment) : raw(bytes + 2 * 4096, std::byte{0xcd}) {
    void* start = raw.data();
    size_t room = raw.size();
    std::align(4096, 1, start, room);
    record = {static_cast<std::byte*>(start) + (alignment == 4096 ? 0 : alignment), bytes};
  }
  Bytes raw;
  std::span<std::byte> record;
};

Bytes read_expert(const ExpertStore& store, ExpertKey key, uint64_t room, uint64_t alignment) {
  const Memory memory(room, alignment);
  const auto status = read_record(store, key, memory.record);
  EXPECT_TRUE(status.ok()) << status.error().to_line();
  return {memory.record.begin(), memory.record.begin() + static_cast<ptrdiff_t>(store.record_bytes())};
}

std::map<ExpertKey, Bytes> records_of(const LanguageCheckpoint& checkpoint, DType dtype) {
  std::map<ExpertKey, Bytes> records;
  auto reader = ExpertReader::open(checkpoint.store, checkpoint.blueprint, dtype);
  EXPECT_TRUE(reader.ok()) << reader.error().to_line();
  if (!reader.ok()) return records;
  for (uint32_t layer = 0; layer < reader->layers(); ++layer) {
    for (uint32_t expert = 0; expert < reader->experts(layer); ++expert) {
      Bytes record(compute::ExpertRecord(reader->shape(layer)).bytes, std::byte{0});
      EXPECT_TRUE(reader->read(layer, expert, record).ok());
      records.emplace(ExpertKey{layer, expert}, std::move(record));
    }
  }
  return records;
}

void expect_same_records(const ExpertStore& store, const std::map<ExpertKey, Bytes>& records) {
  ASSERT_FALSE(records.empty());
  ASSERT_EQ(store.total_bytes(), records.size() * store.record_bytes());
  for (const auto& [key, record] : records) {
    ASSERT_EQ(store.record_bytes(), record.size());
    EXPECT_TRUE(read_expert(store, key, packed_stride(record.size()), 4096) == record) << place_text(key);
    EXPECT_TRUE(read_expert(store, key, record.size(), 64) == record) << place_text(key);
  }
}

// Sizes whose rows need padding take another path than those whose do not; large ones are read in several parts.
constexpr models::RandomMoeSizes kPlain{2, 64, 32, 6, 2, 4, 2, 16, 128, 512};
constexpr models::RandomMoeSizes kPadded{2, 60, 36, 3, 2, 2, 1, 30, 128, 512};
constexpr models::RandomMoeSizes kLarge{1, 768, 512, 2, 1, 2, 1, 16, 64, 512};

class Stores : public ::testing::TestWithParam<std::tuple<int, DType, DType, bool>> {};

TEST_P(Stores, GiveTheReadersRecords) {
  const auto [which, stored, wanted, direct] = GetParam();
  const models::RandomMoeSizes sizes = which == 0 ? kPlain : which == 1 ? kPadded : kLarge;
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_checkpoint(folder.path() / "model", sizes, which == 1 ? "olmoe" : "qwen3_moe", stored, 1 << 20));
  const LanguageCheckpoint checkpoint = open_checked(folder.path() / "model");
  const auto records = records_of(checkpoint, wanted);
  const auto store = open_shard_store(checkpoint, wanted, direct);
  ASSERT_TRUE(store.ok()) << store.error().to_line();
  expect_same_records(**store, records);

  const auto packed_path = folder.path() / "packed.chorus";
  const auto packing = write_model_pack(checkpoint, store->get(), packed_path);
  ASSERT_TRUE(packing.ok()) << packing.error().to_line();
  const LanguageCheckpoint packed = open_checked(packed_path);
  const auto packed_store = open_packed_store(packed, wanted, direct);
  ASSERT_TRUE(packed_store.ok()) << packed_store.error().to_line();
  expect_same_records(**packed_store, records);
}

INSTANTIATE_TEST_SUITE_P(Types, Stores,
                         ::testing::Combine(::testing::Values(0, 1, 2), ::testing::Values(DType::bf16, DType::f32),
                                            ::testing::Values(DType::bf16, DType::f16, DType::f32), ::testing::Bool()));

TEST(PackedStore, ConvertsWhileReading) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_checkpoint(folder.path() / "model", kPadded));
  const LanguageCheckpoint checkpoint = open_checked(folder.path() / "model");
  const auto store = open_shard_store(checkpoint, DType::bf16, true);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(write_model_pack(checkpoint, store->get(), folder.path() / "packed").ok());
  const LanguageCheckpoint packed = open_checked(folder.path() / "packed");
  for (const DType wanted : {DType::f32, DType::f16}) {
    const auto converted = open_packed_store(packed, wanted, true);
    ASSERT_TRUE(converted.ok()) << converted.error().to_line();
    expect_same_records(**converted, records_of(checkpoint, wanted));
  }
}

TEST(PackedModel, KeepsWeightsAndTexts) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_checkpoint(folder.path() / "model", kPlain));
  folder.write("model/tokenizer.json", "{\"tokens\": 1}");
  folder.write("model/chat_template.jinja", "{{ messages }}");
  const LanguageCheckpoint checkpoint = open_checked(folder.path() / "model");
  const auto store = open_shard_store(checkpoint, DType::bf16, true);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(write_model_pack(checkpoint, store->get(), folder.path() / "packed").ok());
  const LanguageCheckpoint packed = open_checked(folder.path() / "packed");
  EXPECT_TRUE(packed.files.packed);
  EXPECT_EQ(packed.config_json, checkpoint.config_json);
  EXPECT_EQ(packed.files.tokenizer_json, "{\"tokens\": 1}");
  EXPECT_EQ(packed.files.chat_template, "{{ messages }}");
  EXPECT_FALSE(packed.files.generation_config_json);
  ASSERT_EQ(packed.weights->names(), checkpoint.weights->names());
  for (const auto& name : checkpoint.weights->names()) {
    const auto* a = checkpoint.store->find(name);
    const auto* b = packed.store->find(name);
    ASSERT_TRUE(a != nullptr && b != nullptr) << name;
    EXPECT_EQ(a->dtype, b->dtype);
    EXPECT_EQ(as_text(checkpoint.store->raw(*a)), as_text(packed.store->raw(*b))) << name;
  }
  for (const auto& tensor : packed.store->tensors()) {
    if (tensor.name.starts_with("chorus.experts")) {
      EXPECT_EQ(tensor.offset % 4096, 0u) << tensor.name;
    }
  }
}

TEST(PackedModel, IsTheSameFileEveryTimeAndPacksAgain) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_checkpoint(folder.path() / "model", kPlain));
  const LanguageCheckpoint checkpoint = open_checked(folder.path() / "model");
  const auto store = open_shard_store(checkpoint, DType::bf16, false);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(write_model_pack(checkpoint, store->get(), folder.path() / "a").ok());
  const LanguageCheckpoint packed = open_checked(folder.path() / "a");
  const auto packed_store = open_packed_store(packed, DType::bf16, false);
  ASSERT_TRUE(packed_store.ok());
  ASSERT_TRUE(write_model_pack(packed, packed_store->get(), folder.path() / "b").ok());
  const auto a = read_text_file(folder.path() / "a", 1 << 24), b = read_text_file(folder.path() / "b", 1 << 24);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(*a == *b);
  // Over itself or over the model's own files: refused.
  EXPECT_FALSE(write_model_pack(packed, packed_store->get(), folder.path() / "a").ok());
  EXPECT_FALSE(write_model_pack(checkpoint, store->get(), folder.path() / "model" / "model.safetensors").ok());
}

// --- Hostile files ---

// A packed model in memory, to be changed and written again.
class Hostile : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(write_checkpoint(folder_.path() / "model", kPlain));
    const LanguageCheckpoint checkpoint = open_checked(folder_.path() / "model");
    const auto store = open_shard_store(checkpoint, DType::bf16, true);
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(write_model_pack(checkpoint, store->get(), path()).ok());
    auto bytes = read_text_file(path(), 1 << 24);
    ASSERT_TRUE(bytes.ok());
    bytes_ = std::move(bytes).value();
  }

  std::filesystem::path path() const { return folder_.path() / "packed"; }
  // In the header, whose length stays.
  void replace(const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    const size_t at = bytes_.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bytes_.replace(at, from.size(), to);
  }
  uint64_t offset_of(ExpertKey key) const {
    const LanguageCheckpoint packed = open_checked(path());
    const auto* tensor = packed.store->find(packed_experts_name(key.layer));
    return tensor->offset + key.expert * tensor->shape[1];
  }
  void write() { folder_.write("packed", bytes_); }
  // The message of opening the file and its store.
  std::string refusal() {
    write();
    const auto packed = models::open_language_checkpoint(path());
    if (!packed.ok()) return packed.error().to_line();
    const auto store = open_packed_store(*packed, DType::bf16, true);
    return store.ok() ? "" : store.error().to_line();
  }

  TemporaryFolder folder_;
  std::string bytes_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Hostile, TheUnchangedFileIsTaken) { EXPECT_EQ(refusal(), ""); }

TEST_F(Hostile, DamageNamesFileLayerAndExpert) {
  const uint64_t at = offset_of({1, 4});
  bytes_[at + 100] = static_cast<char>(bytes_[at + 100] ^ 1);
  write();
  const LanguageCheckpoint packed = open_checked(path());
  for (const DType wanted : {DType::bf16, DType::f32}) {
    const auto store = open_packed_store(packed, wanted, true);
    ASSERT_TRUE(store.ok());
    Bytes record((*store)->record_bytes());
    const auto status = read_record(**store, {1, 4}, record);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::invalid_input);
    EXPECT_TRUE(has(status.error().message, path().string() + ": layer 1, expert 4: damaged")) << status.error().message;
    EXPECT_TRUE(read_record(**store, {1, 3}, record).ok());
    EXPECT_TRUE(read_record(**store, {1, 5}, record).ok());
  }
}

TEST_F(Hostile, AWrongHashIsDamageToo) {
  const LanguageCheckpoint packed = open_checked(path());
  const uint64_t at = packed.store->find(kPackedHashes)->offset + 16 * 2;
  bytes_[at] = static_cast<char>(bytes_[at] ^ 0x80);
  write();
  const auto store = open_packed_store(open_checked(path()), DType::bf16, true);
  ASSERT_TRUE(store.ok());
  Bytes record((*store)->record_bytes());
  const auto status = read_record(**store, {0, 2}, record);
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(has(status.error().message, "layer 0, expert 2: damaged")) << status.error().message;
}

// The bytes of a file in which one expert's number is NaN and its hash says that this is right.
std::string with_nan(std::string bytes, const LanguageCheckpoint& packed, ExpertKey key, uint64_t at, const ExpertStore& store) {
  const auto* experts = packed.store->find(packed_experts_name(key.layer));
  const uint64_t begin = experts->offset + key.expert * experts->shape[1];
  std::memset(bytes.data() + begin + at, 0xff, 4);  // NaN in every type
  uint64_t index = key.expert;
  for (uint32_t layer = 0; layer < key.layer; ++layer) index += store.experts(layer);
  const ExpertHash hash = hash_of(as_bytes(std::string_view(bytes).substr(begin, store.record_bytes())));
  std::memcpy(bytes.data() + packed.store->find(kPackedHashes)->offset + kHashBytes * index, hash.data(), hash.size());
  return bytes;
}

TEST_F(Hostile, NumbersThatAreNoneNameLayerAndExpertThoughTheHashIsRight) {
  const LanguageCheckpoint packed = open_checked(path());
  const auto unchanged = open_packed_store(packed, DType::bf16, true);
  ASSERT_TRUE(unchanged.ok());
  const compute::ExpertRecord layout((*unchanged)->shape());
  const std::string whole = bytes_;
  for (const uint64_t at : {uint64_t{100}, layout.down_offset + 8}) {
    bytes_ = with_nan(whole, packed, {1, 4}, at, **unchanged);
    write();
    const LanguageCheckpoint poisoned = open_checked(path());
    for (const DType wanted : {DType::bf16, DType::f32}) {
      const auto store = open_packed_store(poisoned, wanted, true);
      ASSERT_TRUE(store.ok());
      Bytes record((*store)->record_bytes());
      const auto status = read_record(**store, {1, 4}, record);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::invalid_input);
      EXPECT_TRUE(has(status.error().message, path().string())) << status.error().message;
      EXPECT_TRUE(has(status.error().message, "layer 1, expert 4: ")) << status.error().message;
      EXPECT_TRUE(has(status.error().message, "expected finite numbers, found NaN or infinity")) << status.error().message;
      EXPECT_TRUE(read_record(**store, {1, 3}, record).ok());
    }
  }
}

TEST(PackedModel, BiasesThatAreNoNumbersNameLayerAndExpert) {
  const TemporaryFolder folder;
  const LanguageCheckpoint checkpoint = open_checked(std::string(CHORUS_TEST_DATA) + "/gpt_oss");
  const auto source = open_shard_store(checkpoint, DType::bf16, false);
  ASSERT_TRUE(source.ok()) << source.error().to_line();
  ASSERT_TRUE((*source)->shape().biases);
  const auto path = folder.path() / "packed";
  ASSERT_TRUE(write_model_pack(checkpoint, source->get(), path).ok());
  const LanguageCheckpoint packed = open_checked(path);
  const auto whole = read_text_file(path, 1 << 26);
  ASSERT_TRUE(whole.ok());
  const compute::ExpertRecord layout((*source)->shape());
  for (const uint64_t at : {layout.gate_up_bias_offset, layout.down_bias_offset + 4}) {
    folder.write("packed", with_nan(*whole, packed, {1, 1}, at, **source));
    const LanguageCheckpoint poisoned = open_checked(path);
    for (const DType wanted : {DType::bf16, DType::f32}) {
      const auto store = open_packed_store(poisoned, wanted, false);
      ASSERT_TRUE(store.ok()) << store.error().to_line();
      Bytes record((*store)->record_bytes());
      const auto status = read_record(**store, {1, 1}, record);
      ASSERT_FALSE(status.ok());
      EXPECT_TRUE(has(status.error().message, "layer 1, expert 1: biases")) << status.error().message;
      EXPECT_TRUE(read_record(**store, {1, 0}, record).ok());
    }
  }
}

TEST_F(Hostile, TruncatedFilesAreRefusedAtEveryLength) {
  const std::string whole = bytes_;
  for (const size_t length : {size_t{0}, size_t{7}, size_t{8}, size_t{100}, size_t{4096}, size_t{20000}, whole.size() - 1}) {
    bytes_ = whole.substr(0, length);
    EXPECT_NE(refusal(), "") << length;
  }
}

TEST_F(Hostile, AFileThatShrinksWhileItIsOpenIsAnError) {
  const LanguageCheckpoint packed = open_checked(path());
  const auto store = open_packed_store(packed, DType::bf16, true);
  ASSERT_TRUE(store.ok());
  ASSERT_EQ(::truncate(path().c_str(), static_cast<off_t>(offset_of({1, 2}) + 64)), 0);
  Bytes record((*store)->record_bytes());
  EXPECT_TRUE(read_record(**store, {1, 1}, record).ok());
  const auto status = read_record(**store, {1, 2}, record);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::io_failed);
  EXPECT_TRUE(has(status.error().message, "layer 1, expert 2")) << status.error().message;
  EXPECT_TRUE(has(status.error().message, path().string())) << status.error().message;
}

TEST_F(Hostile, LyingNumbersAreRefused) {
  const std::string whole = bytes_;
  const std::pair<const char*, const char*> lies[] = {
      {"\\\"inner\\\": 32", "\\\"inner\\\": 31"},
      {"\\\"inner\\\": 32", "\\\"inner\\\": 00"},
      {"\\\"hidden\\\": 64", "\\\"hidden\\\": 65"},
      {"\\\"inner\\\": 32", "\\\"inner\\\": -2"},
      {"\\\"dtype\\\": \\\"bf16\\\"", "\\\"dtype\\\": \\\"bf61\\\""},
      {"\\\"biases\\\": false", "\\\"biases\\\":  true"},
      {"chorus.experts.1", "chorus.experts.7"},
      {"chorus.expert_hashes", "chorus.expert_hashez"},
      {"\\\"num_experts\\\": 6", "\\\"num_experts\\\": 5"},
      {"\\\"num_experts\\\": 6", "\\\"num_experts\\\": 7"},
      {"\"version\":\"1\"", "\"version\":\"2\""},
      {"chorus-model-pack", "chorus-motel-pack"},
      {"\"experts\":", "\"exberts\":"},
      {"\"shape\":[12,16]", "\"shape\":[16,12]"},
  };
  for (const auto& [from, to] : lies) {
    bytes_ = whole;
    ASSERT_NO_FATAL_FAILURE(replace(from, to));
    const std::string message = refusal();
    EXPECT_NE(message, "") << to;
    EXPECT_TRUE(has(message, path().string()) || has(message, "config")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST_F(Hostile, ExpertsOffTheBorderAreRefused) {
  // The same tensors in another order: nothing is wrong with the file but the place of the experts.
  const LanguageCheckpoint packed = open_checked(path());
  std::vector<formats::TensorToWrite> tensors;
  tensors.push_back({"filler", formats::FileDType::U8, {64}, [](const auto& sink) { return sink(Bytes(64)); }});
  for (const auto& tensor : packed.store->tensors()) {
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape,
                       [&](const formats::TensorToWrite::Sink& sink) { return sink(packed.store->raw(tensor)); }});
  }
  const auto other = folder_.path() / "moved";
  ASSERT_TRUE(formats::write_safetensors(other, packed.store->metadata(), std::move(tensors)).ok());
  formats::ModelFiles files = packed.files;
  LanguageCheckpoint moved = open_checked(path());
  auto store = formats::TensorStore::open(other);
  ASSERT_TRUE(store.ok());
  moved.store = std::make_shared<const formats::TensorStore>(std::move(store).value());
  moved.path = other;
  const auto opened = open_packed_store(moved, DType::bf16, true);
  ASSERT_FALSE(opened.ok());
  EXPECT_TRUE(has(opened.error().message, "multiple of 4096")) << opened.error().message;
}

// A folder whose tensors are changed one by one before it is written again.
using Change = std::function<void(formats::TensorToWrite&, Bytes&)>;
void rewrite(const std::filesystem::path& folder, const std::filesystem::path& target, const Change& change) {
  const auto store = formats::TensorStore::open(folder);
  ASSERT_TRUE(store.ok());
  std::vector<formats::TensorToWrite> tensors;
  for (const auto& tensor : store->tensors()) {
    const auto raw = store->raw(tensor);
    Bytes bytes(raw.begin(), raw.end());
    formats::TensorToWrite copy{tensor.name, tensor.dtype, tensor.shape, {}};
    change(copy, bytes);
    if (copy.name.empty()) continue;
    copy.write = [bytes = std::move(bytes)](const formats::TensorToWrite::Sink& sink) { return sink(bytes); };
    tensors.push_back(std::move(copy));
  }
  std::filesystem::create_directories(target);
  std::filesystem::copy_file(folder / "config.json", target / "config.json");
  ASSERT_TRUE(formats::write_safetensors(target / "model.safetensors", {}, std::move(tensors)).ok());
}

std::string folder_refusal(const std::filesystem::path& folder) {
  const auto checkpoint = models::open_language_checkpoint(folder);
  if (!checkpoint.ok()) return checkpoint.error().to_line();
  const auto store = open_shard_store(*checkpoint, DType::bf16, true);
  return store.ok() ? "" : store.error().to_line();
}

TEST(HostileFolder, MissingAndMisshapenExpertsAreNamed) {
  const TemporaryFolder folder;
  const auto model = folder.path() / "model";
  ASSERT_NO_FATAL_FAILURE(write_checkpoint(model, kPlain));
  const std::string victim = "model.layers.1.mlp.experts.3.up_proj.weight";
  const std::pair<const char*, Change> changes[] = {
      {"missing",
       [&](auto& tensor, auto&) {
         if (tensor.name == victim) tensor.name.clear();
       }},
      {"transposed",
       [&](auto& tensor, auto&) {
         if (tensor.name == victim) std::swap(tensor.shape[0], tensor.shape[1]);
       }},
      {"one more",
       [&](auto& tensor, auto&) {
         if (tensor.name == "model.layers.1.mlp.experts.0.up_proj.weight") tensor.name = "model.layers.1.mlp.experts.6.up_proj.weight";
       }},
      {"integers",
       [&](auto& tensor, auto&) {
         if (tensor.name == victim) tensor.dtype = formats::FileDType::I16;
       }},
  };
  for (const auto& [name, change] : changes) {
    ASSERT_NO_FATAL_FAILURE(rewrite(model, folder.path() / name, change));
    const std::string message = folder_refusal(folder.path() / name);
    EXPECT_TRUE(has(message, "model.layers.1.mlp.experts.")) << name << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(HostileFolder, OtherTypesInOneLayerAreConverted) {
  const TemporaryFolder folder;
  const auto model = folder.path() / "model";
  ASSERT_NO_FATAL_FAILURE(write_checkpoint(model, kPlain));
  ASSERT_NO_FATAL_FAILURE(rewrite(model, folder.path() / "mixed", [](formats::TensorToWrite& tensor, Bytes& bytes) {
    if (!has(tensor.name, "layers.1.mlp.experts.2.down")) return;
    Bytes wide(bytes.size() * 2);
    for (size_t i = 0; i < bytes.size() / 2; ++i) {
      const float value = bf16_to_float(load_unaligned<uint16_t>(bytes.data() + 2 * i));
      std::memcpy(wide.data() + 4 * i, &value, sizeof(value));
    }
    tensor.dtype = formats::FileDType::F32;
    bytes = std::move(wide);
  }));
  const LanguageCheckpoint checkpoint = open_checked(folder.path() / "mixed");
  const auto store = open_shard_store(checkpoint, DType::bf16, true);
  ASSERT_TRUE(store.ok());
  expect_same_records(**store, records_of(open_checked(model), DType::bf16));
}

TEST(HostileFolder, NumbersThatAreNoneAreRefusedByName) {
  const TemporaryFolder folder;
  const auto model = folder.path() / "model";
  ASSERT_NO_FATAL_FAILURE(write_checkpoint(model, kPlain));
  const std::string victim = "model.layers.0.mlp.experts.5.gate_proj.weight";
  ASSERT_NO_FATAL_FAILURE(rewrite(model, folder.path() / "nan", [&](formats::TensorToWrite& tensor, Bytes& bytes) {
    const uint16_t nan = 0x7fc0;
    if (tensor.name == victim) std::memcpy(bytes.data() + 20, &nan, sizeof(nan));
  }));
  const LanguageCheckpoint checkpoint = open_checked(folder.path() / "nan");
  for (const DType wanted : {DType::bf16, DType::f16, DType::f32}) {
    const auto store = open_shard_store(checkpoint, wanted, true);
    ASSERT_TRUE(store.ok());
    Bytes record((*store)->record_bytes());
    const auto status = read_record(**store, {0, 5}, record);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::invalid_input);
    EXPECT_TRUE(has(status.error().message, "layer 0, expert 5") && has(status.error().message, victim)) << status.error().message;
    EXPECT_TRUE(read_record(**store, {0, 4}, record).ok());
  }
}

TEST(HostileFolder, AShardThatShrinksWhileItIsOpenIsAnError) {
  const TemporaryFolder folder;
  const auto model = folder.path() / "model";
  ASSERT_NO_FATAL_FAILURE(write_checkpoint(model, kPlain));
  const LanguageCheckpoint checkpoint = open_checked(model);
  const auto store = open_shard_store(checkpoint, DType::bf16, true);
  ASSERT_TRUE(store.ok());
  const auto* tensor = checkpoint.store->find("model.layers.1.mlp.experts.5.down_proj.weight");
  ASSERT_NE(tensor, nullptr);
  const auto file = checkpoint.store->files()[tensor->file].path();
  ASSERT_EQ(::truncate(file.c_str(), static_cast<off_t>(tensor->offset + 10)), 0);
  Bytes record((*store)->record_bytes());
  const auto status = read_record(**store, {1, 5}, record);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::io_failed);
  EXPECT_TRUE(has(status.error().message, "layer 1, expert 5") && has(status.error().message, file.string())) << status.error().message;
}

TEST(DirectFile, ReadsAnyRangeOfAnyFile) {
  const TemporaryFolder folder;
  std::string content(3 * DirectFile::kStagingBytes + 777, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 + i / 4096);
  const auto path = folder.write("file", content);
  for (const bool direct : {true, false}) {
    const auto file = DirectFile::open(path, direct);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->size(), content.size());
    const std::pair<uint64_t, uint64_t> ranges[] = {{0, 0},
                                                    {0, 1},
                                                    {0, 4096},
                                                    {4095, 2},
                                                    {4096, 8192},
                                                    {100, 2 * DirectFile::kStagingBytes},
                                                    {0, content.size()},
                                                    {content.size() - 1, 1},
                                                    {DirectFile::kStagingBytes - 5, 4101}};
    for (const auto& [offset, length] : ranges) {
      for (const uint64_t alignment : {uint64_t{4096}, uint64_t{3}}) {
        const Memory memory(length, alignment);
        const auto status = file->read(offset, memory.record);
        ASSERT_TRUE(status.ok()) << status.error().to_line();
        EXPECT_TRUE(as_text(memory.record) == std::string_view(content).substr(offset, length)) << offset << " " << length;
      }
    }
    Bytes beyond(10);
    const auto status = file->read(content.size() - 5, beyond);
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(has(status.error().message, "the file ends after 5 of them")) << status.error().message;
  }
}

TEST(DirectFile, WhatIsNoFileIsAnError) {
  const TemporaryFolder folder;
  EXPECT_EQ(DirectFile::open(folder.path() / "none", true).error().code, ErrorCode::not_found);
  EXPECT_FALSE(DirectFile::open(folder.path(), true).ok());
}

}  // namespace
}  // namespace chorus::experts
