// The same experts stored in every form give the same records.
#include "experts/expert_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/half.h"
#include "formats/test_tools.h"

namespace chorus::experts {
namespace {

using formats::testing::expect_error;
using formats::testing::TemporaryFolder;
using models::ExpertTensors;
using Form = models::ExpertTensors::Form;

constexpr uint32_t kExperts = 3, kHidden = 64, kInner = 32;

uint32_t mixed(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  uint32_t h = a * 0x9e3779b1u ^ (b + 1) * 0x85ebca77u ^ (c + 1) * 0xc2b2ae3du ^ (d + 1) * 0x27d4eb2fu;
  h ^= h >> 15;
  return h * 0x2c1b3c6du >> 7;
}

// E2M1: a sign, two bits of exponent with bias 1, one of mantissa.
double e2m1(uint32_t bits) {
  const uint32_t exponent = bits >> 1 & 3;
  const double magnitude = exponent == 0 ? 0.5 * (bits & 1) : (1 + 0.5 * (bits & 1)) * std::exp2(exponent - 1.0);
  return bits & 8 ? -magnitude : magnitude;
}

enum Matrix : uint32_t { kGate, kUp, kDown };
uint32_t nibble(uint32_t expert, uint32_t matrix, uint32_t row, uint32_t col) { return mixed(expert, matrix, row, col) & 15; }
uint32_t block_exponent(uint32_t expert, uint32_t matrix, uint32_t row, uint32_t block) {
  return 120 + mixed(expert, matrix + 7, row, block) % 10;
}
float weight(uint32_t expert, uint32_t matrix, uint32_t row, uint32_t col) {
  return static_cast<float>(e2m1(nibble(expert, matrix, row, col)) * std::exp2(block_exponent(expert, matrix, row, col / 32) - 127.0));
}
float bias(uint32_t expert, uint32_t matrix, uint32_t row) { return static_cast<float>(mixed(expert, matrix, row, 99) % 200) / 64 - 1; }

// Tensors of a file, in order.
class FileMaker {
 public:
  void add(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& bytes) {
    header_ += (header_.empty() ? "" : ",") + ("\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
                                               std::to_string(data_.size()) + "," + std::to_string(data_.size() + bytes.size()) + "]}");
    data_ += bytes;
  }
  void add_floats(const std::string& name, const std::string& shape, const std::vector<float>& values) {
    add(name, "F32", shape, std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  }
  std::string bytes() const { return formats::testing::safetensors_bytes(formats::testing::padded("{" + header_ + "}"), data_); }

 private:
  std::string header_, data_;
};

std::string shape_of(std::initializer_list<uint32_t> extents) {
  std::string text = "[";
  for (const uint32_t extent : extents) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

std::vector<float> rows_of_matrix(uint32_t expert, uint32_t matrix, uint32_t rows, uint32_t cols) {
  std::vector<float> values;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t col = 0; col < cols; ++col) values.push_back(weight(expert, matrix, row, col));
  }
  return values;
}

void append(std::vector<float>& to, const std::vector<float>& from) { to.insert(to.end(), from.begin(), from.end()); }

void add_separate(FileMaker& file) {
  for (uint32_t e = 0; e < kExperts; ++e) {
    const std::string at = "e." + std::to_string(e);
    file.add_floats(at + ".gate", shape_of({kInner, kHidden}), rows_of_matrix(e, kGate, kInner, kHidden));
    file.add_floats(at + ".up", shape_of({kInner, kHidden}), rows_of_matrix(e, kUp, kInner, kHidden));
    file.add_floats(at + ".down", shape_of({kHidden, kInner}), rows_of_matrix(e, kDown, kHidden, kInner));
  }
}

void add_fused(FileMaker& file) {
  std::vector<float> gate_up, down;
  for (uint32_t e = 0; e < kExperts; ++e) {
    append(gate_up, rows_of_matrix(e, kGate, kInner, kHidden));
    append(gate_up, rows_of_matrix(e, kUp, kInner, kHidden));
    append(down, rows_of_matrix(e, kDown, kHidden, kInner));
  }
  file.add_floats("gate_up", shape_of({kExperts, 2 * kInner, kHidden}), gate_up);
  file.add_floats("down", shape_of({kExperts, kHidden, kInner}), down);
}

void add_biases(FileMaker& file) {
  std::vector<float> gate_up, down;
  for (uint32_t e = 0; e < kExperts; ++e) {
    for (uint32_t i = 0; i < 2 * kInner; ++i) gate_up.push_back(bias(e, i % 2 == 0 ? kGate : kUp, i / 2));
    for (uint32_t i = 0; i < kHidden; ++i) down.push_back(bias(e, kDown, i));
  }
  file.add_floats("gate_up_bias", shape_of({kExperts, 2 * kInner}), gate_up);
  file.add_floats("down_bias", shape_of({kExperts, kHidden}), down);
}

void add_interleaved(FileMaker& file) {
  std::vector<float> gate_up, down;
  for (uint32_t e = 0; e < kExperts; ++e) {
    for (uint32_t col = 0; col < kHidden; ++col) {
      for (uint32_t i = 0; i < 2 * kInner; ++i) gate_up.push_back(weight(e, i % 2 == 0 ? kGate : kUp, i / 2, col));
    }
    for (uint32_t col = 0; col < kInner; ++col) {
      for (uint32_t row = 0; row < kHidden; ++row) down.push_back(weight(e, kDown, row, col));
    }
  }
  file.add_floats("gate_up", shape_of({kExperts, kHidden, 2 * kInner}), gate_up);
  file.add_floats("down", shape_of({kExperts, kInner, kHidden}), down);
  add_biases(file);
}

void add_mxfp4(FileMaker& file, bool with_nan = false) {
  std::string blocks[2], scales[2];
  const auto add_row = [&](uint32_t e, uint32_t matrix, uint32_t row, uint32_t cols, size_t tensor) {
    for (uint32_t col = 0; col < cols; col += 2)
      blocks[tensor] += static_cast<char>(nibble(e, matrix, row, col) | nibble(e, matrix, row, col + 1) << 4);
    for (uint32_t block = 0; block < cols / 32; ++block) scales[tensor] += static_cast<char>(block_exponent(e, matrix, row, block));
  };
  for (uint32_t e = 0; e < kExperts; ++e) {
    for (uint32_t i = 0; i < 2 * kInner; ++i) add_row(e, i % 2 == 0 ? kGate : kUp, i / 2, kHidden, 0);
    for (uint32_t row = 0; row < kHidden; ++row) add_row(e, kDown, row, kInner, 1);
  }
  if (with_nan) scales[1].back() = static_cast<char>(255);
  file.add("gate_up_blocks", "U8", shape_of({kExperts, 2 * kInner, kHidden / 32, 16}), blocks[0]);
  file.add("gate_up_scales", "U8", shape_of({kExperts, 2 * kInner, kHidden / 32}), scales[0]);
  file.add("down_blocks", "U8", shape_of({kExperts, kHidden, kInner / 32, 16}), blocks[1]);
  file.add("down_scales", "U8", shape_of({kExperts, kHidden, kInner / 32}), scales[1]);
  add_biases(file);
}

models::Blueprint blueprint_of(Form form) {
  models::Blueprint blueprint;
  blueprint.hidden = kHidden;
  blueprint.layers.resize(2);
  models::MoeSpec moe;
  moe.experts = kExperts;
  moe.top_k = 2;
  moe.inner = kInner;
  moe.tensors.form = form;
  if (form == Form::separate) {
    moe.tensors.gate = "e.{E}.gate";
    moe.tensors.up = "e.{E}.up";
    moe.tensors.down = "e.{E}.down";
  } else {
    moe.tensors.gate_up = "gate_up";
    moe.tensors.down = "down";
  }
  if (form == Form::interleaved || form == Form::mxfp4) {
    moe.tensors.gate_up_bias = "gate_up_bias";
    moe.tensors.down_bias = "down_bias";
  }
  blueprint.layers[1].feed_forward = moe;
  return blueprint;
}

std::string file_of(Form form) {
  FileMaker file;
  if (form == Form::separate) add_separate(file);
  if (form == Form::fused) add_fused(file);
  if (form == Form::interleaved) add_interleaved(file);
  if (form == Form::mxfp4) add_mxfp4(file);
  return file.bytes();
}

std::shared_ptr<const formats::TensorStore> open_store(const TemporaryFolder& folder, const std::string& bytes) {
  auto store = formats::TensorStore::open(folder.write("model.safetensors", bytes));
  EXPECT_TRUE(store.ok()) << store.error().to_line();
  return std::make_shared<const formats::TensorStore>(std::move(store).value());
}

// Element `index` of numbers of `dtype`.
float element(const std::vector<std::byte>& record, uint64_t offset, uint64_t index, DType dtype) {
  if (dtype == DType::f32) return load_unaligned<float>(record.data() + offset + 4 * index);
  const auto bits = load_unaligned<uint16_t>(record.data() + offset + 2 * index);
  return dtype == DType::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

void expect_record(const std::vector<std::byte>& record, const compute::ExpertShape& shape, uint32_t expert) {
  const compute::ExpertRecord layout(shape);
  for (uint32_t row = 0; row < 2 * kInner; ++row) {
    for (uint32_t col = 0; col < layout.hidden_padded; ++col) {
      const float expected = col >= kHidden ? 0 : weight(expert, row < kInner ? kGate : kUp, row % kInner, col);
      ASSERT_EQ(element(record, 0, uint64_t{row} * layout.hidden_padded + col, shape.dtype), expected) << "gate_up " << row << ", " << col;
    }
  }
  for (uint32_t row = 0; row < kHidden; ++row) {
    for (uint32_t col = 0; col < layout.inner_padded; ++col) {
      const float expected = col >= kInner ? 0 : weight(expert, kDown, row, col);
      ASSERT_EQ(element(record, layout.down_offset, uint64_t{row} * layout.inner_padded + col, shape.dtype), expected)
          << "down " << row << ", " << col;
    }
  }
  if (!shape.biases) return;
  for (uint32_t row = 0; row < 2 * kInner; ++row)
    ASSERT_EQ(element(record, layout.gate_up_bias_offset, row, DType::f32), bias(expert, row < kInner ? kGate : kUp, row % kInner));
  for (uint32_t row = 0; row < kHidden; ++row)
    ASSERT_EQ(element(record, layout.down_bias_offset, row, DType::f32), bias(expert, kDown, row));
}

TEST(ExpertReader, EveryFormGivesTheSameRecords) {
  for (const Form form : {Form::separate, Form::fused, Form::interleaved, Form::mxfp4}) {
    const TemporaryFolder folder;
    const auto store = open_store(folder, file_of(form));
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const auto reader = ExpertReader::open(store, blueprint_of(form), dtype);
      ASSERT_TRUE(reader.ok()) << reader.error().to_line();
      EXPECT_EQ(reader->experts(0), 0u);
      EXPECT_TRUE(reader->pieces(0, 0).empty());
      EXPECT_TRUE(reader->pieces(1, kExperts).empty());
      for (uint32_t expert = 0; expert < kExperts; ++expert) {
        std::vector<std::byte> record(compute::ExpertRecord(reader->shape(1)).bytes, std::byte{0x7f});
        const Status done = reader->read(1, expert, record);
        ASSERT_TRUE(done.ok()) << done.error().to_line();
        expect_record(record, reader->shape(1), expert);
      }
    }
  }
}

TEST(ExpertReader, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  const auto open = [&](Form form, const std::string& bytes) {
    return ExpertReader::open(open_store(folder, bytes), blueprint_of(form), DType::f32);
  };
  using formats::testing::replaced;
  const std::string separate = file_of(Form::separate);
  expect_error(open(Form::separate, replaced(separate, "\"e.2.up\"", "\"e.9.up\"")), "no tensor \"e.2.up\"");
  expect_error(open(Form::separate, replaced(separate, "\"e.1.gate\":{\"dtype\":\"F32\",\"shape\":[32,64]",
                                             "\"e.1.gate\":{\"dtype\":\"F32\",\"shape\":[64,32]")),
               "tensor \"e.1.gate\": config.json calls for shape [32, 64], found [64, 32]");
  expect_error(open(Form::fused, replaced(file_of(Form::fused), "[3,64,64]", "[4,64,48]")),
               "calls for shape [3, 64, 64], found [4, 64, 48]");
  expect_error(open(Form::mxfp4, file_of(Form::interleaved)), "no tensor \"gate_up_blocks\"");
}

TEST(ExpertReader, NamesLayerExpertAndTensorOfBadNumbers) {
  const TemporaryFolder folder;
  std::vector<std::byte> record;
  const auto read = [&](Form form, const std::string& bytes, uint32_t expert, DType dtype) {
    const auto reader = ExpertReader::open(open_store(folder, bytes), blueprint_of(form), dtype);
    EXPECT_TRUE(reader.ok());
    record.resize(compute::ExpertRecord(reader->shape(1)).bytes);
    return reader->read(1, expert, record);
  };
  FileMaker file;
  add_mxfp4(file, true);
  expect_error(read(Form::mxfp4, file.bytes(), 2, DType::f32), "layer 1, expert 2: tensor \"down_blocks\": expected finite numbers");
  EXPECT_TRUE(read(Form::mxfp4, file.bytes(), 1, DType::f32).ok());
  const auto last_number = [&](float value) {
    std::string bytes = file_of(Form::separate);
    std::memcpy(bytes.data() + bytes.size() - 4, &value, 4);
    return bytes;
  };
  expect_error(read(Form::separate, last_number(std::numeric_limits<float>::quiet_NaN()), 2, DType::bf16),
               "layer 1, expert 2: tensor \"e.2.down\": expected finite numbers");
  expect_error(read(Form::separate, last_number(-65520), 2, DType::f16),
               "layer 1, expert 2: tensor \"e.2.down\": f16 holds magnitudes below 65520");
  EXPECT_TRUE(read(Form::separate, last_number(-65504), 2, DType::f16).ok());
  EXPECT_TRUE(read(Form::separate, last_number(1e6f), 2, DType::bf16).ok());
}

}  // namespace
}  // namespace chorus::experts
