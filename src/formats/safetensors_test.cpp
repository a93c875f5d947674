#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "formats/test_tools.h"

namespace chorus::formats {
namespace {

using testing::bytes_of;
using testing::expect_error;
using testing::padded;
using testing::read_all;
using testing::safetensors_bytes;
using testing::TemporaryFolder;

Result<SafetensorsHeader> parse(const std::string& bytes) { return parse_safetensors_header(as_bytes(bytes), "test file"); }

TEST(SafetensorsHeader, ReadsWhatIsThere) {
  const std::string header = padded(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("empty":{"dtype":"BF16","shape":[0,7],"data_offsets":[24,24]},"scalar":{"dtype":"I64","shape":[],"data_offsets":[24,32]}})");
  const auto parsed = parse(safetensors_bytes(header, std::string(32, '\0')));
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_line();
  EXPECT_EQ(parsed->metadata.at("format"), "pt");
  ASSERT_EQ(parsed->tensors.size(), 3u);
  EXPECT_EQ(parsed->tensors[0].name, "a");
  EXPECT_EQ(parsed->tensors[0].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(parsed->tensors[0].offset, 8 + header.size());
  EXPECT_EQ(parsed->tensors[1].elements, 0u);
  EXPECT_EQ(parsed->tensors[2].elements, 1u);
  EXPECT_EQ(parsed->tensors[2].bytes, 8u);
}

struct HostileHeader {
  const char* name;
  std::string bytes;
  const char* says;
};

std::string one_tensor(const std::string& entry, size_t data_bytes) {
  return safetensors_bytes(padded("{\"t\":" + entry + "}"), std::string(data_bytes, '\0'));
}

std::string two_tensors(const std::string& first, const std::string& second, size_t data_bytes) {
  return safetensors_bytes(padded("{\"a\":" + first + ",\"b\":" + second + "}"), std::string(data_bytes, '\0'));
}

std::vector<HostileHeader> hostile_headers() {
  const std::string good = R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})";
  std::string deep = "{\"t\":";
  for (int i = 0; i < 100000; ++i) deep += '[';
  return {
      {"empty file", "", "found a file of 0"},
      {"short length", "1234567", "found a file of 7"},
      {"header length past the file", bytes_of<uint64_t>({100}) + "{}", "header length 100, but only 2 bytes follow"},
      {"header length over the limit", bytes_of<uint64_t>({1ull << 40}) + "{}",
       "header length 1099511627776 is over the limit of 104857600"},
      {"header length near 2^64", bytes_of<uint64_t>({UINT64_MAX}) + "{}", "header length 18446744073709551615"},
      {"no object", safetensors_bytes("[1,2,3] ", ""), "does not begin with '{'"},
      {"empty header", safetensors_bytes("", ""), "does not begin with '{'"},
      {"broken JSON", safetensors_bytes("{\"t\":}  ", ""), "reading the header of test file"},
      {"truncated JSON", safetensors_bytes("{\"t\":{\"dtype\":\"F32\"", ""), "reading the header of test file"},
      {"deep JSON", safetensors_bytes(deep, ""), "reading the header of test file"},
      {"invalid UTF-8", safetensors_bytes("{\"\xff\":1}   ", ""), "reading the header of test file"},
      {"two tensors of one name", safetensors_bytes(padded("{\"t\":" + good + ",\"t\":" + good + "}"), std::string(16, 'x')), "t"},
      {"entry is no object", one_tensor("7", 0), "tensor \"t\""},
      {"no dtype", one_tensor(R"({"shape":[4],"data_offsets":[0,16]})", 16), "dtype"},
      {"no shape", one_tensor(R"({"dtype":"F32","data_offsets":[0,16]})", 16), "shape"},
      {"no offsets", one_tensor(R"({"dtype":"F32","shape":[4]})", 16), "data_offsets"},
      {"unknown key", one_tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16],"extra":1})", 16), "found the key \"extra\""},
      {"unknown dtype", one_tensor(R"({"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]})", 4), "dtype \"F8_E4M3\""},
      {"dtype is a number", one_tensor(R"({"dtype":4,"shape":[4],"data_offsets":[0,16]})", 16), "dtype"},
      {"negative extent", one_tensor(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})", 16), "shape"},
      {"fractional extent", one_tensor(R"({"dtype":"F32","shape":[4.0],"data_offsets":[0,16]})", 16), "shape"},
      {"extent past 64 bits", one_tensor(R"({"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,16]})", 16), "shape"},
      {"element count overflows", one_tensor(R"({"dtype":"F32","shape":[8589934592,8589934592],"data_offsets":[0,16]})", 16),
       "does not fit 64 bits"},
      {"byte count overflows", one_tensor(R"({"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]})", 4), "more than 2^64"},
      {"overflow hidden by a zero", one_tensor(R"({"dtype":"F32","shape":[8589934592,8589934592,0],"data_offsets":[0,0]})", 0),
       "does not fit 64 bits"},
      {"rank 9", one_tensor(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]})", 1), "rank 9 is over the limit of 8"},
      {"shape larger than the data", one_tensor(R"({"dtype":"F32","shape":[5],"data_offsets":[0,16]})", 16),
       "F32 [5] takes 20 bytes, data_offsets give 16"},
      {"shape smaller than the data", one_tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})", 16),
       "F32 [3] takes 12 bytes, data_offsets give 16"},
      {"end past the data", one_tensor(R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})", 16), "do not lie in the 16 bytes"},
      {"end near 2^64", one_tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[0,18446744073709551615]})", 16),
       "do not lie in the 16 bytes"},
      {"begin after end", one_tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})", 16), "do not lie in"},
      {"one offset", one_tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[16]})", 16), "expected 2 data_offsets, found 1"},
      {"negative offset", one_tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[-16,0]})", 16), "data_offsets"},
      {"misaligned header", safetensors_bytes(padded("{\"t\":" + good + "}") + " ", std::string(16, 'x')), "misaligned"},
      {"misaligned tensor",
       two_tensors(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})", R"({"dtype":"F32","shape":[1],"data_offsets":[1,5]})", 5),
       "misaligned"},
      {"overlap", two_tensors(good, R"({"dtype":"F32","shape":[4],"data_offsets":[8,24]})", 24), "\"b\" overlaps the tensor before it"},
      {"same place twice", two_tensors(good, good, 16), "overlaps the tensor before it"},
      {"gap", two_tensors(good, R"({"dtype":"F32","shape":[4],"data_offsets":[20,36]})", 36), "leaves a gap before it"},
      {"gap at the start", one_tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[4,20]})", 20), "leaves a gap before it"},
      {"bytes left over", one_tensor(good, 17), "the tensors end at byte"},
      {"data truncated", one_tensor(good, 15), "do not lie in the 15 bytes"},
      {"metadata is a list", safetensors_bytes(padded(R"({"__metadata__":[]})"), ""), "__metadata__: expected an object"},
      {"metadata value is a number", safetensors_bytes(padded(R"({"__metadata__":{"a":1}})"), ""), "__metadata__ \"a\": expected a string"},
      {"name with a line feed", safetensors_bytes(padded(R"({"bad\nname":7})"), ""), "bad\\x0aname"},
  };
}

TEST(SafetensorsHeader, RefusesHostileHeaders) {
  for (const auto& hostile : hostile_headers()) {
    SCOPED_TRACE(hostile.name);
    expect_error(parse(hostile.bytes), hostile.says);
  }
}

TEST(SafetensorsHeader, EveryTruncationOfARealFileIsRefused) {
  const std::string whole = read_all(std::string(CHORUS_TEST_DATA) + "/qwen3_5_text/golden.safetensors");
  ASSERT_TRUE(parse(whole).ok());
  for (size_t length = 0; length < whole.size(); length += length < 1500 ? 1 : 997) {
    EXPECT_FALSE(parse(whole.substr(0, length)).ok()) << length;
  }
}

TEST(TensorStore, ReadsTheShippedModel) {
  auto store = TensorStore::open(std::string(CHORUS_MODELS) + "/kev-mini-base");
  ASSERT_TRUE(store.ok()) << store.error().to_line();
  EXPECT_EQ(store->tensors().size(), 108u);
  EXPECT_EQ(store->metadata().at("format"), "pt");
  const TensorInfo* conv = store->find("model.layers.0.linear_attn.conv1d.weight");
  ASSERT_NE(conv, nullptr);
  EXPECT_EQ(conv->dtype, FileDType::BF16);
  EXPECT_EQ(conv->shape, (std::vector<uint64_t>{512, 1, 4}));
  std::vector<float> values(conv->elements);
  ASSERT_TRUE(store->read_f32(*conv, 0, values).ok());
  const auto raw = store->raw(*conv);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(reinterpret_cast<char*>(&bits) + 2, raw.data() + 2 * i, 2);
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), bits) << i;
  }
  expect_error(store->require("model.nothing"), "no tensor \"model.nothing\" among its 108");
}

TEST(TensorStore, WidensEveryType) {
  const TemporaryFolder folder;
  const std::string header =
      padded(R"({"f32":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"f16":{"dtype":"F16","shape":[4],"data_offsets":[8,16]},)"
             R"("bf16":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]},"i32":{"dtype":"I32","shape":[1],"data_offsets":[20,24]},)"
             R"("i64":{"dtype":"I64","shape":[2],"data_offsets":[24,40]}})");
  const std::string data = bytes_of<float>({1.5f, -3.0f}) + bytes_of<uint16_t>({0x3c00, 0xc000, 0x0001, 0x7bff}) +
                           bytes_of<uint16_t>({0x3f80, 0xc040}) + bytes_of<int32_t>({-7}) + bytes_of<int64_t>({5, 1ll << 31});
  auto store = TensorStore::open(folder.write("all.safetensors", safetensors_bytes(header, data)));
  ASSERT_TRUE(store.ok()) << store.error().to_line();
  const auto floats = [&](const char* name) {
    std::vector<float> values(store->find(name)->elements);
    EXPECT_TRUE(store->read_f32(*store->find(name), 0, values).ok());
    return values;
  };
  EXPECT_EQ(floats("f32"), (std::vector<float>{1.5f, -3.0f}));
  EXPECT_EQ(floats("f16"), (std::vector<float>{1.0f, -2.0f, 0x1p-24f, 65504.0f}));
  EXPECT_EQ(floats("bf16"), (std::vector<float>{1.0f, -3.0f}));
  int32_t integer = 0;
  ASSERT_TRUE(store->read_i32(*store->find("i32"), 0, {&integer, 1}).ok());
  EXPECT_EQ(integer, -7);
  ASSERT_TRUE(store->read_i32(*store->find("i64"), 0, {&integer, 1}).ok());
  EXPECT_EQ(integer, 5);
  expect_error(store->read_i32(*store->find("i64"), 1, {&integer, 1}), "element 1 is 2147483648");
  expect_error(store->read_i32(*store->find("f32"), 0, {&integer, 1}), "expected I32 or I64, found F32");
  float value = 0;
  expect_error(store->read_f32(*store->find("i32"), 0, {&value, 1}), "expected F32, F16 or BF16, found I32");
  expect_error(store->read_f32(*store->find("f32"), 2, {&value, 1}), "elements 2 to 2 + 1 asked of 2");
  expect_error(store->read_f32(*store->find("f32"), UINT64_MAX, {&value, 1}), "asked of 2");
  EXPECT_TRUE(store->read_f32(*store->find("f32"), 2, {}).ok());
}

TEST(TensorStore, NotANumberNamesTensorAndElement) {
  const TemporaryFolder folder;
  const std::string header =
      padded(R"({"w32":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"w16":{"dtype":"F16","shape":[2],"data_offsets":[12,16]},)"
             R"("wb":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]}})");
  const std::string data = bytes_of<float>({1, 2, std::numeric_limits<float>::quiet_NaN()}) + bytes_of<uint16_t>({0x3c00, 0xfc00}) +
                           bytes_of<uint16_t>({0x7fc1, 0});
  auto store = TensorStore::open(folder.write("nan.safetensors", safetensors_bytes(header, data)));
  ASSERT_TRUE(store.ok()) << store.error().to_line();
  std::vector<float> values(3);
  expect_error(store->read_f32(*store->find("w32"), 0, values), "tensor \"w32\": element 2 is NaN");
  values.resize(1);
  expect_error(store->read_f32(*store->find("w16"), 1, values), "tensor \"w16\": element 1 is infinite");
  expect_error(store->read_f32(*store->find("wb"), 0, values), "tensor \"wb\": element 0 is NaN");
  EXPECT_TRUE(store->read_f32(*store->find("wb"), 1, values).ok());
}

std::string shard(const std::string& name, float value) {
  return safetensors_bytes(padded("{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"), bytes_of<float>({value}));
}

TEST(TensorStore, OpensShardsThroughTheIndex) {
  const TemporaryFolder folder;
  folder.write("model-00001-of-00002.safetensors", shard("a", 1));
  folder.write("model-00002-of-00002.safetensors", shard("b", 2));
  const std::string index =
      R"({"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})";
  folder.write("model.safetensors.index.json", index);
  auto store = TensorStore::open(folder.path());
  ASSERT_TRUE(store.ok()) << store.error().to_line();
  EXPECT_EQ(store->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(store->data_bytes(), 8u);
  float value = 0;
  ASSERT_TRUE(store->read_f32(*store->find("b"), 0, {&value, 1}).ok());
  EXPECT_EQ(value, 2);

  folder.write("model.safetensors.index.json", testing::replaced(index, "\"b\":\"model-00002", "\"b\":\"model-00001"));
  expect_error(TensorStore::open(folder.path()), "");
  folder.write("model.safetensors.index.json", testing::replaced(index, "\"b\":", "\"c\":"));
  expect_error(TensorStore::open(folder.path()), "places tensor \"c\" in \"model-00002-of-00002.safetensors\"");
  folder.write("model.safetensors.index.json", testing::replaced(index, "model-00002", "../model-00002"));
  expect_error(TensorStore::open(folder.path()), "expected the name of a file beside it");
  folder.write("model.safetensors.index.json", testing::replaced(index, "model-00002", "model-00003"));
  expect_error(TensorStore::open(folder.path()), "model-00003-of-00002.safetensors: cannot open");
  folder.write("model.safetensors.index.json", R"({"weight_map":{}})");
  expect_error(TensorStore::open(folder.path()), "names no tensor");
  folder.write("model.safetensors.index.json", "{}");
  expect_error(TensorStore::open(folder.path()), "weight_map");
  folder.write("model.safetensors.index.json", index);
  folder.write("model-00002-of-00002.safetensors", shard("a", 2));
  expect_error(TensorStore::open(folder.path()), "tensor \"a\" is also in");
}

TEST(TensorStore, OpensAFolderOnlyWhenTheChoiceIsClear) {
  const TemporaryFolder folder;
  expect_error(TensorStore::open(folder.path()), "found neither");
  folder.write("model-a.safetensors", shard("a", 1));
  folder.write("golden.safetensors", shard("g", 1));
  EXPECT_TRUE(TensorStore::open(folder.path()).ok());
  folder.write("model-b.safetensors", shard("b", 1));
  expect_error(TensorStore::open(folder.path()), "2 model*.safetensors files");
  folder.write("model.safetensors", shard("m", 1));
  auto store = TensorStore::open(folder.path());
  ASSERT_TRUE(store.ok());
  EXPECT_NE(store->find("m"), nullptr);
  expect_error(TensorStore::open(folder.path() / "missing"), "cannot open");
}

TensorToWrite tensor_of(std::string name, FileDType dtype, std::vector<uint64_t> shape, std::string bytes) {
  return {std::move(name), dtype, std::move(shape), [bytes](const TensorToWrite::Sink& sink) -> Status {
            const size_t half = bytes.size() / 2;
            CHORUS_TRY(sink(as_bytes(std::string_view(bytes).substr(0, half))));
            return sink(as_bytes(std::string_view(bytes).substr(half)));
          }};
}

std::vector<TensorToWrite> sample_tensors() {
  std::string big(64 * 3, '\0');
  for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i % 63);
  return {tensor_of("small", FileDType::U8, {3}, "abc"), tensor_of("half", FileDType::BF16, {1}, bytes_of<uint16_t>({0x3f80})),
          tensor_of("big", FileDType::F32, {4, 12}, big), tensor_of("one", FileDType::F32, {1}, bytes_of<float>({2.5f}))};
}

TEST(SafetensorsWriter, RoundTripsAlignedAndDeterministic) {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> metadata{{"key", "value \"quoted\" \n \xc3\xa9"}};
  const auto first = folder.path() / "first.safetensors";
  const auto second = folder.path() / "second.safetensors";
  ASSERT_TRUE(write_safetensors(first, metadata, sample_tensors()).ok());
  ASSERT_TRUE(write_safetensors(second, metadata, sample_tensors()).ok());
  EXPECT_EQ(read_all(first), read_all(second));
  auto store = TensorStore::open(first);
  ASSERT_TRUE(store.ok()) << store.error().to_line();
  EXPECT_EQ(store->metadata(), metadata);
  EXPECT_EQ(store->find("big")->offset % 64, 0u);
  EXPECT_EQ(as_text(store->raw(*store->find("small"))), "abc");
  EXPECT_EQ(store->find("big")->shape, (std::vector<uint64_t>{4, 12}));
  float value = 0;
  ASSERT_TRUE(store->read_f32(*store->find("one"), 0, {&value, 1}).ok());
  EXPECT_EQ(value, 2.5f);
  ASSERT_TRUE(store->read_f32(*store->find("half"), 0, {&value, 1}).ok());
  EXPECT_EQ(value, 1.0f);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST(SafetensorsWriter, AFailureLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  const auto path = folder.write("out.safetensors", "old");
  auto tensors = sample_tensors();
  tensors[3].write = [](const TensorToWrite::Sink&) -> Status { return make_error(ErrorCode::invalid_input, "source failed"); };
  expect_error(write_safetensors(path, {}, std::move(tensors)), "source failed");
  tensors = sample_tensors();
  tensors[0].shape = {4};
  EXPECT_FALSE(write_safetensors(path, {}, std::move(tensors)).ok());  // fewer bytes than the shape says
  tensors = sample_tensors();
  tensors[0].shape = {2};
  EXPECT_FALSE(write_safetensors(path, {}, std::move(tensors)).ok());  // more
  tensors = sample_tensors();
  tensors[1].name = "small";
  expect_error(write_safetensors(path, {}, std::move(tensors)), "\"small\" is given twice");
  EXPECT_EQ(read_all(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  expect_error(write_safetensors(folder.path() / "no folder" / "x", {}, {}), "cannot create");
  expect_error(write_safetensors(folder.path(), {}, {}), "found a folder");
}

}  // namespace
}  // namespace chorus::formats
