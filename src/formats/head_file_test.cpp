#include "formats/head_file.h"

#include <gtest/gtest.h>
#include <zip.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/half.h"
#include "formats/pickle.h"
#include "formats/safetensors.h"
#include "formats/test_tools.h"

namespace chorus::formats {
namespace {

using testing::bytes_of;
using testing::expect_error;
using testing::read_all;
using testing::TemporaryFolder;

using Entries = std::vector<std::pair<std::string, std::string>>;

// A zip archive in memory, written by the zip library.
std::string zip_bytes(const Entries& entries, int32_t method = ZIP_CM_STORE) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* target = zip_source_buffer_create(nullptr, 0, 0, &error);
  zip_source_keep(target);
  zip_t* archive = zip_open_from_source(target, ZIP_TRUNCATE, &error);
  for (const auto& [name, bytes] : entries) {
    zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
    const zip_int64_t index = zip_file_add(archive, name.c_str(), source, 0);
    EXPECT_GE(index, 0);
    EXPECT_EQ(zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), method, 0), 0);
  }
  EXPECT_EQ(zip_close(archive), 0);
  EXPECT_EQ(zip_source_open(target), 0);
  zip_stat_t status;
  EXPECT_EQ(zip_source_stat(target, &status), 0);
  std::string bytes(status.size, '\0');
  EXPECT_EQ(zip_source_read(target, bytes.data(), bytes.size()), static_cast<zip_int64_t>(bytes.size()));
  zip_source_close(target);
  zip_source_free(target);
  return bytes;
}

// Pickle opcodes written by hand, protocol 2 unless the test says otherwise.
std::string text(std::string_view value) { return "X" + bytes_of<uint32_t>({static_cast<uint32_t>(value.size())}) + std::string(value); }
std::string integer(int32_t value) { return "J" + bytes_of<int32_t>({value}); }
std::string floating(double value) { return "G" + bytes_of<uint64_t>({__builtin_bswap64(std::bit_cast<uint64_t>(value))}); }
std::string global(const std::string& module, const std::string& name) { return "c" + module + "\n" + name + "\n"; }
std::string entry(std::string_view key, const std::string& value) { return text(key) + value; }

std::string integer_tuple(const std::vector<int32_t>& values) {
  std::string code = "(";
  for (const int32_t value : values) code += integer(value);
  return code + "t";
}

struct TensorCode {
  std::string storage_class = "FloatStorage";
  std::string key = "0";
  int32_t stored = 0;
  int32_t first = 0;
  std::vector<int32_t> shape;
  std::vector<int32_t> strides;
};

std::string tensor(const TensorCode& code) {
  return global("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") + global("torch", code.storage_class) + text(code.key) +
         text("cpu") + integer(code.stored) + "tQ" + integer(code.first) + integer_tuple(code.shape) + integer_tuple(code.strides) +
         "\x89" + global("collections", "OrderedDict") + ")RtR";
}

constexpr int32_t kDim = 2;
constexpr int32_t kHidden = 3;

TensorCode matrix_code(const std::string& key) { return {"FloatStorage", key, kDim * kHidden, 0, {kDim, kHidden}, {kHidden, 1}}; }
TensorCode vector_code(const std::string& key) { return {"FloatStorage", key, kDim, 0, {kDim}, {1}}; }

// A small head file whose parts a test can change before it is put together.
struct SmallHead {
  TensorCode q_weight = matrix_code("0");
  TensorCode q_bias = vector_code("1");
  TensorCode k_weight = matrix_code("2");
  TensorCode k_bias = vector_code("3");
  std::vector<std::pair<std::string, std::string>> keys{
      {"head_dim", integer(kDim)}, {"lora", integer(16)}, {"temperature", floating(1.25)}};
  std::string head_code;  // in place of the dictionary of tensors
  std::map<std::string, std::string> storages{{"0", bytes_of<float>({1, 2, 3, 4, 5, 6})},
                                              {"1", bytes_of<float>({-1, -2})},
                                              {"2", bytes_of<float>({6, 5, 4, 3, 2, 1})},
                                              {"3", bytes_of<float>({0.5f, 0.25f})}};
  std::string byteorder = "little";

  std::string pickle() const {
    std::string head = head_code;
    if (head.empty()) {
      head = "}(" + entry("q.weight", tensor(q_weight)) + entry("q.bias", tensor(q_bias)) + entry("k.weight", tensor(k_weight)) +
             entry("k.bias", tensor(k_bias)) + "u";
    }
    std::string code = "\x80\x02}(" + entry("head", head);
    for (const auto& [key, value] : keys) code += entry(key, value);
    return code + "u.";
  }
  Entries entries() const {
    Entries list{{"head/data.pkl", pickle()}, {"head/byteorder", byteorder}, {"head/version", "3\n"}};
    for (const auto& [key, bytes] : storages) list.emplace_back("head/data/" + key, bytes);
    return list;
  }
  Result<HeadFile> parse() const { return parse_head_pt(as_bytes(keep_ = zip_bytes(entries())), "head.pt"); }

  mutable std::string keep_;
};

Result<HeadFile> parse_pickle(const std::string& pickle) {
  SmallHead head;
  Entries entries = head.entries();
  entries[0].second = pickle;
  const std::string bytes = zip_bytes(entries);
  return parse_head_pt(as_bytes(bytes), "head.pt");
}

TEST(HeadFile, ReadsTheShippedHead) {
  const std::string path = std::string(CHORUS_MODELS) + "/kev-mini/head.pt";
  const auto file = read_head_file(path);
  ASSERT_TRUE(file.ok()) << file.error().to_line();
  EXPECT_EQ(file->head.head_dim, 256u);
  EXPECT_EQ(file->head.hidden_size, 192u);
  EXPECT_EQ(file->metadata.base, "kev-mini-base");
  EXPECT_FALSE(file->metadata.base_revision.has_value());
  EXPECT_EQ(file->metadata.lora_rank, 16u);
  EXPECT_EQ(file->metadata.temperature, 1.1755479062836087);
  EXPECT_EQ(file->metadata.weights, "lora");
  EXPECT_EQ(file->metadata.weights_dtype, "fp32");
  EXPECT_TRUE(file->metadata.holdout.empty());
  // sha256sum of the file.
  EXPECT_EQ(file->checkpoint_id.size(), 7u + 64u);
  EXPECT_TRUE(file->checkpoint_id.starts_with("sha256:"));
  // The storages lie uncompressed in the archive: the weights must occur in it byte for byte.
  const std::string bytes = read_all(path);
  for (const auto* values : {&file->head.q_weight, &file->head.k_weight, &file->head.q_bias, &file->head.k_bias}) {
    EXPECT_NE(bytes.find(std::string(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float))), std::string::npos);
  }
}

TEST(HeadFile, ReadsASmallHead) {
  const auto file = SmallHead().parse();
  ASSERT_TRUE(file.ok()) << file.error().to_line();
  EXPECT_EQ(file->head.q_weight, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(file->head.q_bias, (std::vector<float>{-1, -2}));
  EXPECT_EQ(file->head.k_weight, (std::vector<float>{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(file->head.k_bias, (std::vector<float>{0.5f, 0.25f}));
  EXPECT_EQ(file->metadata.temperature, 1.25);
  EXPECT_EQ(file->metadata.lora_rank, 16u);
}

TEST(HeadFile, MissingKeysHaveDefaultsAndUnknownOnesAreIgnored) {
  SmallHead head;
  head.keys = {{"head_dim", integer(kDim)},
               {"temperature", integer(2)},
               {"suite_sha256", text("abc")},
               {"args", "}(" + text("deep") + "]" + integer(1) + "a" + integer(7) + "Nu"},
               {"big", std::string("\x8a\x09", 2) + std::string(9, '\x01')},
               {"holdout", "](" + text("a") + integer(1) + text("b") + "e"}};
  const auto file = head.parse();
  ASSERT_TRUE(file.ok()) << file.error().to_line();
  EXPECT_EQ(file->metadata.temperature, 2.0);
  EXPECT_EQ(file->metadata.lora_rank, 0u);
  EXPECT_EQ(file->metadata.weights_dtype, "fp32");
  EXPECT_FALSE(file->metadata.weights.has_value());
  EXPECT_EQ(file->metadata.holdout, (std::vector<std::string>{"a", "b"}));
  head.keys = {{"head_dim", integer(kDim)}};
  EXPECT_EQ(head.parse()->metadata.temperature, 1.0);
  head.keys = {};
  expect_error(head.parse(), "head q.weight: expected shape [256, 3], found [2, 3]");
}

TEST(HeadFile, ReadsAStateDictionaryWithItsAttributes) {
  const SmallHead plain;
  SmallHead head;
  head.head_code = global("collections", "OrderedDict") + ")R(" + entry("q.weight", tensor(plain.q_weight)) +
                   entry("q.bias", tensor(plain.q_bias)) + entry("k.weight", tensor(plain.k_weight)) +
                   entry("k.bias", tensor(plain.k_bias)) + "u}" + text("_metadata") + global("collections", "OrderedDict") + ")Rsb";
  const auto file = head.parse();
  ASSERT_TRUE(file.ok()) << file.error().to_line();
  EXPECT_EQ(file->head.k_bias, (std::vector<float>{0.5f, 0.25f}));
}

TEST(HeadFile, ReadsHalfStoragesAndOffsets) {
  SmallHead head;
  head.q_bias.storage_class = "HalfStorage";
  head.storages["1"] = bytes_of<uint16_t>({0x3c00, 0xc000});
  head.k_bias.storage_class = "BFloat16Storage";
  head.k_bias.stored = 3;
  head.k_bias.first = 1;
  head.storages["3"] = bytes_of<uint16_t>({0x7fc0, 0x3f80, 0xc040});  // the NaN in front is not part of the tensor
  const auto file = head.parse();
  ASSERT_TRUE(file.ok()) << file.error().to_line();
  EXPECT_EQ(file->head.q_bias, (std::vector<float>{1, -2}));
  EXPECT_EQ(file->head.k_bias, (std::vector<float>{1, -3}));
}

// What torch.save writes with pickle protocol 4: frames, short texts, MEMOIZE, STACK_GLOBAL.
TEST(HeadFile, ReadsProtocol4) {
  const auto short_text = [](std::string_view value) {
    return "\x8c" + std::string(1, static_cast<char>(value.size())) + std::string(value) + "\x94";
  };
  const auto stack_global = [&](const char* module, const char* name) { return short_text(module) + short_text(name) + "\x93\x94"; };
  const auto tensor4 = [&](const TensorCode& code) {
    return stack_global("torch._utils", "_rebuild_tensor_v2") + "((" + short_text("storage") + stack_global("torch", "FloatStorage") +
           short_text(code.key) + short_text("cpu") + "K" + std::string(1, static_cast<char>(code.stored)) + "t\x94QK" +
           std::string(1, '\0') + integer_tuple(code.shape) + integer_tuple(code.strides) + "\x89" +
           stack_global("collections", "OrderedDict") + ")R\x94t\x94R\x94";
  };
  const SmallHead plain;
  const std::string body = "}\x94(" + short_text("head") + "}\x94(" + short_text("q.weight") + tensor4(plain.q_weight) +
                           short_text("q.bias") + tensor4(plain.q_bias) + short_text("k.weight") + tensor4(plain.k_weight) +
                           short_text("k.bias") + tensor4(plain.k_bias) + "u" + short_text("head_dim") + "K\x02" +
                           short_text("temperature") + floating(0.5) + "u.";
  const auto file = parse_pickle("\x80\x04\x95" + bytes_of<uint64_t>({body.size()}) + body);
  ASSERT_TRUE(file.ok()) << file.error().to_line();
  EXPECT_EQ(file->metadata.temperature, 0.5);
  EXPECT_EQ(file->head.q_weight, (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

std::string pickle_of(const std::string& code) { return "\x80\x02" + code; }

TEST(HeadFile, RefusesHostilePickles) {
  std::string deep(300000, ']');
  std::string marks(70000, '(');
  std::string doubling = "]q" + std::string(1, '\0');
  for (int i = 0; i < 20; ++i) doubling += std::string("(h\0h\0e", 6);  // a list that holds itself, again and again
  const struct {
    const char* name;
    std::string pickle;
    const char* says;
  } cases[] = {
      {"empty", "", "expected 1 bytes, found 0"},
      {"no protocol", "}.", "expected PROTO first, found byte 125"},
      {"protocol 1", "\x80\x01}.", "expected protocol 2 to 5, found 1"},
      {"protocol 6", "\x80\x06}.", "expected protocol 2 to 5, found 6"},
      {"os.system", pickle_of("cos\nsystem\n(" + text("echo harm") + "tR."),
       "the name \"os.system\" is not one a head file needs: refused"},
      {"builtins.eval", pickle_of("c__builtin__\neval\n(" + text("1") + "tR."), "__builtin__.eval"},
      {"os.system by stack", "\x80\x04" + text("os") + text("system") + "\x93" + text("x") + "\x85R.", "os.system"},
      {"posix.system with a dotted name", "\x80\x04" + text("torch") + text("FloatStorage.__init__.__globals__") + "\x93.", "refused"},
      {"INST", pickle_of("(ios\nsystem\n."), "opcode 0x69 is not one a head file needs: refused"},
      {"OBJ", pickle_of("(cos\nsystem\no."), "os.system"},
      {"NEWOBJ", pickle_of(global("collections", "OrderedDict") + ")\x81."), "opcode 0x81"},
      {"NEWOBJ_EX", pickle_of(global("collections", "OrderedDict") + ")}\x92."), "opcode 0x92"},
      {"EXT1", pickle_of("\x82\x01."), "opcode 0x82"},
      {"PERSID", pickle_of("Pabc\n."), "opcode 0x50"},
      {"text opcodes of protocol 0", pickle_of("I1\n."), "opcode 0x49"},
      {"REDUCE of a text", pickle_of(text("os.system") + ")R."), "REDUCE of a text: refused"},
      {"REDUCE of a storage class", pickle_of(global("torch", "FloatStorage") + ")R."), "REDUCE of a storage class: refused"},
      {"REDUCE without tuple", pickle_of(global("collections", "OrderedDict") + "NR."), "REDUCE without a tuple"},
      {"OrderedDict with arguments", pickle_of(global("collections", "OrderedDict") + integer(1) + "\x85R."), "OrderedDict with arguments"},
      {"BUILD of a tensor", pickle_of(tensor(vector_code("1")) + "}b."), "BUILD of anything but an OrderedDict: refused"},
      {"a name without an end", pickle_of("c" + std::string(1000, 'a')), "a name without an end"},
      {"text of 4 GiB",
       pickle_of("X\xff\xff\xff\xff"
                 "abc"),
       "expected 4294967295 bytes, found 3"},
      {"text of 2^64",
       pickle_of("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                 "abc"),
       "expected 18446744073709551615 bytes"},
      {"integer of 4 GiB",
       pickle_of("\x8b\xff\xff\xff\xff"
                 "abc"),
       "expected 4294967295 bytes"},
      {"frame past the end", pickle_of("\x95\xff\xff\xff\xff\xff\xff\xff\x7f."), "passes the end"},
      {"memo slot not set", pickle_of("h\x05."), "memo slot 5 is empty"},
      {"memo slot not set, long", pickle_of("j\xff\xff\xff\xff."), "memo slot 4294967295 is empty"},
      {"memo of an empty stack", pickle_of("q\x01."), "needs a value on an empty stack"},
      {"pop below a mark", pickle_of("}(s."), "takes a value from an empty stack"},
      {"pop of an empty stack", pickle_of("0."), "takes a value from an empty stack"},
      {"tuple without a mark", pickle_of("t."), "needs a mark"},
      {"append to a dictionary", pickle_of("}Na."), "expected a list to add to, found a dictionary"},
      {"set items of a list", pickle_of("](NNu."), "expected a dictionary to add to, found a list"},
      {"key without a value", pickle_of("}(Nu."), "a key without a value"},
      {"values left", pickle_of("NN."), "values are left on the stack"},
      {"mark left", pickle_of("N(."), "takes a value from an empty stack"},
      {"bytes after the end", pickle_of("}.x"), "1 bytes follow the end"},
      {"no end", pickle_of("}"), "expected 1 bytes, found 0"},
      {"truncated integer", pickle_of("J\x01"), "expected 4 bytes, found 1"},
      {"deep nesting", pickle_of(deep), "over the limit of 262144 values"},
      {"marks", pickle_of(marks), "over the limit of 65536 marks"},
      {"a list inside itself", pickle_of(doubling + "."), "expected a dictionary, found a list"},
      {"persistent id without tuple", pickle_of("NQ."), "a persistent id that is not"},
      {"persistent id of another class",
       pickle_of("(" + text("storage") + global("collections", "OrderedDict") + text("0") + text("cpu") + integer(1) + "tQ."),
       "whose class is not a storage"},
      {"unknown storage", pickle_of("(" + text("storage") + global("torch", "LongStorage") + text("0") + text("cpu") + integer(1) + "tQ."),
       "torch.LongStorage"},
      {"negative storage",
       pickle_of("(" + text("storage") + global("torch", "FloatStorage") + text("0") + text("cpu") + integer(-1) + "tQ."),
       "a storage of -1 elements"},
      {"tensor of other arguments", pickle_of(global("torch._utils", "_rebuild_tensor_v2") + ")R."),
       "_rebuild_tensor_v2 is given other arguments"},
      {"root is no dictionary", pickle_of("N."), "expected a dictionary, found a None"},
      {"key is no text", pickle_of("}(K\x01Nu."), "expected texts as keys, found a int"},
      {"key twice", pickle_of("}(" + entry("head", "N") + entry("head", "N") + "u."), "the key \"head\" occurs twice"},
      {"no head", pickle_of("}."), "head: missing"},
      {"head is a list", pickle_of("}(" + entry("head", "]") + "u."), "head: expected a dictionary, found a list"},
  };
  for (const auto& hostile : cases) {
    SCOPED_TRACE(hostile.name);
    expect_error(parse_pickle(hostile.pickle), hostile.says);
  }
}

TEST(HeadFile, RefusesLyingTensors) {
  const auto refuse = [](const char* says, auto change) {
    SCOPED_TRACE(says);
    SmallHead head;
    change(head);
    expect_error(head.parse(), says);
  };
  refuse("the pickle claims 28 bytes of storage \"0\", the archive holds 24", [](SmallHead& head) { head.q_weight.stored = 7; });
  refuse("elements 1 to 7 of a storage of 6", [](SmallHead& head) { head.q_weight.first = 1; });
  refuse("elements 0 to 6 of a storage of 5", [](SmallHead& head) { head.q_weight.stored = 5; });
  refuse("_rebuild_tensor_v2 is given other arguments", [](SmallHead& head) { head.q_weight.first = -1; });
  refuse("impossible shape or strides", [](SmallHead& head) { head.q_weight.shape = {kDim, -kHidden}; });
  refuse("impossible shape or strides", [](SmallHead& head) { head.q_weight.strides = {1}; });
  refuse("impossible shape or strides", [](SmallHead& head) { head.q_weight.shape = std::vector<int32_t>(9, 1); });
  refuse("expected a contiguous tensor, found strides [1, 2]", [](SmallHead& head) { head.q_weight.strides = {1, 2}; });
  refuse("expected a contiguous tensor, found strides [0]", [](SmallHead& head) { head.q_bias.strides = {0}; });
  refuse("head q.weight: expected shape [2, hidden size], found [6]", [](SmallHead& head) {
    head.q_weight.shape = {6};
    head.q_weight.strides = {1};
  });
  refuse("head k.weight: expected shape [2, 3], found [3, 2]", [](SmallHead& head) {
    head.k_weight.shape = {3, 2};
    head.k_weight.strides = {2, 1};
  });
  refuse("head q.bias: expected shape [2], found [1]", [](SmallHead& head) { head.q_bias.shape = {1}; });
  refuse("head k.bias: expected shape [2], found [2, 1]", [](SmallHead& head) {
    head.k_bias.shape = {2, 1};
    head.k_bias.strides = {1, 1};
  });
  refuse("head q.weight: expected shape [2, hidden size], found [2, 0]", [](SmallHead& head) { head.q_weight.shape = {2, 0}; });
  refuse("head q.weight: expected shape [4, 3]", [](SmallHead& head) { head.keys[0].second = integer(4); });
  refuse("no entry \"head/data/9\"", [](SmallHead& head) { head.q_bias.key = "9"; });
  refuse("no entry \"head/data/../version\"", [](SmallHead& head) { head.q_bias.key = "../version"; });
  refuse("head q.weight: element 4 is NaN", [](SmallHead& head) {
    head.storages["0"] = bytes_of<float>({1, 2, 3, 4, std::numeric_limits<float>::quiet_NaN(), 6});
  });
  refuse("head k.bias: element 0 is infinite", [](SmallHead& head) {
    head.storages["3"] = bytes_of<float>({-std::numeric_limits<float>::infinity(), 0});
  });
}

TEST(HeadFile, RefusesValuesItCannotUse) {
  const auto refuse = [](const char* key, const std::string& value, const char* says) {
    SCOPED_TRACE(says);
    SmallHead head;
    head.keys = {{key, value}};
    if (std::string_view(key) != "head_dim") head.keys.emplace_back("head_dim", integer(kDim));
    expect_error(head.parse(), says);
  };
  refuse("temperature", floating(0), "temperature: expected a finite number above 0");
  refuse("temperature", floating(-1), "temperature: expected a finite number above 0");
  refuse("temperature", floating(std::numeric_limits<double>::infinity()), "temperature: expected a finite number above 0");
  refuse("temperature", floating(std::numeric_limits<double>::quiet_NaN()), "temperature: expected a finite number above 0");
  refuse("temperature", text("1.0"), "temperature: expected a number, found a text");
  refuse("head_dim", integer(0), "head_dim: expected 1 to 1048576, found 0");
  refuse("head_dim", integer(-2), "head_dim: expected 0 or more, found -2");
  refuse("head_dim", integer(INT32_MAX), "head_dim: expected 1 to 1048576, found 2147483647");
  refuse("head_dim", floating(2), "head_dim: expected a int, found a float");
  refuse("lora", integer(-1), "lora: expected 0 or more, found -1");
  refuse("lora", integer(1 << 20), "lora: expected a rank of at most 65536");
  refuse("weights", text("none"), "weights: expected \"lora\" or \"full\", found \"none\"");
  refuse("weights", integer(1), "weights: expected a text, found a int");
  refuse("option_isolation", "\x88", "option_isolation: this program runs false");
  refuse("special_embeddings", "}", "special_embeddings: this program runs false");
}

TEST(HeadFile, RefusesDamagedArchives) {
  const SmallHead head;
  const std::string whole = zip_bytes(head.entries());
  const auto parse = [](const std::string& bytes) { return parse_head_pt(as_bytes(bytes), "head.pt"); };
  ASSERT_TRUE(parse(whole).ok());
  for (size_t length = 0; length < whole.size(); length += 13) EXPECT_FALSE(parse(whole.substr(0, length)).ok()) << length;
  expect_error(parse("not a zip archive"), "expected the zip archive that torch.save writes");
  expect_error(parse(zip_bytes(head.entries(), ZIP_CM_DEFLATE)), "is compressed or encrypted");

  std::string damaged = whole;  // one bit of the first weight: the checksum must notice
  damaged[whole.find(bytes_of<float>({1, 2, 3}))] ^= 1;
  expect_error(parse(damaged), "\"head/data/0\" is damaged");

  Entries entries = head.entries();
  entries[0].first = "head/data.pickle";
  expect_error(parse(zip_bytes(entries)), "no data.pkl in the archive");
  entries = head.entries();
  entries.emplace_back("other/data.pkl", "x");
  expect_error(parse(zip_bytes(entries)), "two folders with data.pkl");
  SmallHead big_endian;
  big_endian.byteorder = "big";
  expect_error(big_endian.parse(), "byte order \"big\", expected \"little\"");

  // Every byte changed in turn, one after the other: an answer or an error, nothing else.
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x5a);
    const auto result = parse(changed);
    if (!result.ok()) {
      EXPECT_EQ(result.error().to_line().find('\n'), std::string::npos);
    }
  }
}

// head.safetensors as another port writes it.
std::vector<TensorToWrite> head_tensors(const std::vector<uint64_t>& matrix, uint64_t bias) {
  const auto make = [](const char* name, std::vector<uint64_t> shape) {
    uint64_t elements = 1;
    for (const uint64_t extent : shape) elements *= extent;
    return TensorToWrite{name, FileDType::F32, shape, [elements](const TensorToWrite::Sink& sink) {
                           const std::vector<float> values(elements, 0.5f);
                           return sink(std::as_bytes(std::span(values)));
                         }};
  };
  return {make("q.weight", matrix), make("q.bias", {bias}), make("k.weight", matrix), make("k.bias", {bias})};
}

TEST(HeadFile, ReadsTheSafetensorsForm) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "head.safetensors";
  const std::map<std::string, std::string> metadata{
      {"temperature", "2.3510958125672174"}, {"lora", "16"}, {"base", "ORG/NAME"}, {"weights", "lora"}, {"head_dim", "4"}};
  ASSERT_TRUE(write_safetensors(path, metadata, head_tensors({4, 3}, 4)).ok());
  const auto file = read_head_file(path);
  ASSERT_TRUE(file.ok()) << file.error().to_line();
  EXPECT_EQ(file->head.head_dim, 4u);
  EXPECT_EQ(file->head.hidden_size, 3u);
  EXPECT_EQ(file->head.q_weight, std::vector<float>(12, 0.5f));
  EXPECT_EQ(file->metadata.temperature, 2.3510958125672174);
  EXPECT_EQ(file->metadata.lora_rank, 16u);
  EXPECT_EQ(file->metadata.base, "ORG/NAME");
  EXPECT_EQ(file->checkpoint_id.size(), 71u);

  const auto refuse = [&](std::map<std::string, std::string> changed, std::vector<uint64_t> matrix, const char* says) {
    ASSERT_TRUE(write_safetensors(path, changed, head_tensors(matrix, 4)).ok());
    expect_error(read_head_file(path), says);
  };
  refuse({{"head_dim", "5"}}, {4, 3}, "head q.weight: expected shape [5, 3], found [4, 3]");
  refuse({}, {3, 3}, "head q.bias: expected shape [3], found [4]");
  refuse({{"temperature", "0"}}, {4, 3}, "temperature: expected a finite number above 0");
  refuse({{"temperature", "hot"}}, {4, 3}, "temperature: expected a number, found \"hot\"");
  refuse({{"lora", "1.5"}}, {4, 3}, "lora");
  refuse({{"option_isolation", "true"}}, {4, 3}, "option_isolation: this program runs false");
  expect_error(read_head_file(folder.path() / "missing.pt"), "cannot open");
}

}  // namespace
}  // namespace chorus::formats
