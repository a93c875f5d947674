// A pickle reader that can only build data: the subset that torch.save writes for a dictionary of numbers, texts and tensors.
//
// Python's pickle is a stack program that may import and call anything. This machine knows a fixed list of opcodes and four
// kinds of names (torch._utils._rebuild_tensor_v2, the torch storages listed below, collections.OrderedDict); everything
// else is refused by name. It never calls anything: a REDUCE of a known name becomes a node of that kind. Values live in one
// arena and refer to each other by index, so deep, shared or cyclic structures cost nothing and nothing is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace chorus::formats {

enum class StorageType : uint8_t { f32, f16, bf16 };

struct PickleNode {
  enum class Kind : uint8_t { none, boolean, integer, big_integer, floating, text, bytes, tuple, list, dict, name, storage, tensor };
  enum class Name : uint8_t { rebuild_tensor, float_storage, half_storage, bfloat16_storage, ordered_dict };

  Kind kind = Kind::none;
  Name name = Name::rebuild_tensor;  // of kind name
  StorageType storage_type{};        // of kind storage
  int64_t integer = 0;               // of boolean and integer; number of elements of a storage; first element of a tensor
  double floating = 0;
  std::string text;  // of text; key of a storage inside the archive
  // Arena indices. tuple, list: the items. dict: key, value, key, value, ... tensor: its storage.
  std::vector<uint32_t> items;
  std::vector<uint64_t> shape;    // of a tensor
  std::vector<uint64_t> strides;  // of a tensor, in elements
};

const char* pickle_kind_name(PickleNode::Kind kind);

struct PickleValue {
  std::vector<PickleNode> nodes;
  uint32_t root = 0;
};

// Reads protocols 2 to 5. `where` names the file in errors.
Result<PickleValue> read_pickle(std::span<const std::byte> bytes, std::string_view where);

}  // namespace chorus::formats
