#include "formats/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <optional>
#include <unordered_map>

#include "base/bytes.h"
#include "base/limits.h"

namespace chorus::formats {
namespace {

using Kind = PickleNode::Kind;
using Name = PickleNode::Name;

constexpr size_t kNodesMax = 1u << 18;
constexpr size_t kMarksMax = 1u << 16;
constexpr size_t kNameBytesMax = 256;
constexpr uint64_t kExtentMax = 1ull << 40;  // of a shape, a stride or an element count

struct KnownName {
  std::string_view module;
  std::string_view name;
  Name value;
};
constexpr std::array<KnownName, 5> kKnownNames{{{"torch._utils", "_rebuild_tensor_v2", Name::rebuild_tensor},
                                                {"torch", "FloatStorage", Name::float_storage},
                                                {"torch", "HalfStorage", Name::half_storage},
                                                {"torch", "BFloat16Storage", Name::bfloat16_storage},
                                                {"collections", "OrderedDict", Name::ordered_dict}}};

// Opcodes by the names of Python's pickletools.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kNone = 'N',
  kTrue = 0x88,
  kFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinBytes8 = 0x8e,
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kBinGet = 'h',
  kLongBinGet = 'j',
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kBuild = 'b',
  kBinPersistentId = 'Q',
  kProtocol = 0x80,
  kFrame = 0x95,
};

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  Result<PickleValue> run() {
    CHORUS_TRY(read_protocol());
    for (;;) {
      opcode_at_ = position_;
      CHORUS_ASSIGN(const uint8_t opcode, read<uint8_t>());
      if (opcode == kStop) break;
      CHORUS_TRY(step(opcode));
    }
    CHORUS_ASSIGN(const uint32_t root, pop());
    if (!stack_.empty() || !marks_.empty()) return failure("values are left on the stack at the end");
    if (position_ != bytes_.size()) return failure(std::to_string(bytes_.size() - position_) + " bytes follow the end");
    return PickleValue{std::move(nodes_), root};
  }

 private:
  Error failure(const std::string& what, ErrorCode code = ErrorCode::invalid_input) const {
    return make_error(code, std::string(where_) + ": pickle at byte " + std::to_string(opcode_at_) + ": " + what);
  }

  // Bytes.

  Result<std::span<const std::byte>> take(uint64_t count) {
    if (count > bytes_.size() - position_) {
      return failure("expected " + std::to_string(count) + " bytes, found " + std::to_string(bytes_.size() - position_));
    }
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  template <typename T>
  Result<T> read() {
    CHORUS_ASSIGN(const auto taken, take(sizeof(T)));
    return load_unaligned<T>(taken.data());
  }

  Result<std::string_view> read_line() {
    const size_t limit = std::min(bytes_.size() - position_, kNameBytesMax);
    const std::string_view rest = as_text(bytes_.subspan(position_, limit));
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return failure("a name without an end within " + std::to_string(kNameBytesMax) + " bytes");
    position_ += end + 1;
    return rest.substr(0, end);
  }

  // Stack. pop() never reaches below the last mark.

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  Status push(PickleNode node) {
    if (nodes_.size() >= kNodesMax) return failure("over the limit of " + std::to_string(kNodesMax) + " values", ErrorCode::limit_exceeded);
    stack_.push_back(static_cast<uint32_t>(nodes_.size()));
    nodes_.push_back(std::move(node));
    return {};
  }

  Status push_existing(uint32_t index) {
    if (stack_.size() >= kNodesMax)
      return failure("over the limit of " + std::to_string(kNodesMax) + " values on the stack", ErrorCode::limit_exceeded);
    stack_.push_back(index);
    return {};
  }

  Result<uint32_t> pop() {
    if (stack_.size() <= floor()) return failure("takes a value from an empty stack");
    const uint32_t index = stack_.back();
    stack_.pop_back();
    return index;
  }

  Result<uint32_t> top() const {
    if (stack_.size() <= floor()) return failure("needs a value on an empty stack");
    return stack_.back();
  }

  Result<std::vector<uint32_t>> pop_to_mark() {
    if (marks_.empty()) return failure("needs a mark, there is none");
    std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  // Simple values.

  Status push_integer(int64_t value, Kind kind = Kind::integer) {
    PickleNode node;
    node.kind = kind;
    node.integer = value;
    return push(std::move(node));
  }

  Status push_text(Kind kind, uint64_t length) {
    CHORUS_ASSIGN(const auto taken, take(length));
    PickleNode node;
    node.kind = kind;
    node.text = as_text(taken);
    return push(std::move(node));
  }

  // A little-endian two's complement integer. Those past 64 bits occur in provenance only: kept as a kind without value.
  Status push_long(uint64_t length) {
    CHORUS_ASSIGN(const auto taken, take(length));
    if (length > 8) return push_integer(0, Kind::big_integer);
    uint64_t value = length > 0 && (static_cast<uint8_t>(taken.back()) & 0x80u) ? ~0ull : 0;
    for (size_t i = taken.size(); i-- > 0;) value = (value << 8) | static_cast<uint8_t>(taken[i]);
    return push_integer(static_cast<int64_t>(value));
  }

  Status push_float() {
    CHORUS_ASSIGN(const auto bits, read<uint64_t>());
    PickleNode node;
    node.kind = Kind::floating;
    node.floating = std::bit_cast<double>(__builtin_bswap64(bits));  // stored big-endian
    return push(std::move(node));
  }

  Status push_items(Kind kind, std::vector<uint32_t> items) {
    PickleNode node;
    node.kind = kind;
    node.items = std::move(items);
    return push(std::move(node));
  }

  Status push_tuple(size_t count) {
    std::vector<uint32_t> items(count);
    for (size_t i = count; i-- > 0;) {
      CHORUS_ASSIGN(items[i], pop());
    }
    return push_items(Kind::tuple, std::move(items));
  }

  Status extend(Kind kind, const std::vector<uint32_t>& items) {
    CHORUS_ASSIGN(const uint32_t target, top());
    if (nodes_[target].kind != kind) {
      return failure(std::string("expected a ") + pickle_kind_name(kind) + " to add to, found a " + pickle_kind_name(nodes_[target].kind));
    }
    if (kind == Kind::dict && items.size() % 2 != 0) return failure("a dictionary is given a key without a value");
    auto& list = nodes_[target].items;
    if (items.size() > kNodesMax - list.size()) {  // one value may be added many times
      return failure("a " + std::string(pickle_kind_name(kind)) + " of more than " + std::to_string(kNodesMax) + " values",
                     ErrorCode::limit_exceeded);
    }
    list.insert(list.end(), items.begin(), items.end());
    return {};
  }

  Status extend_with(Kind kind, size_t count) {
    std::vector<uint32_t> items(count);
    for (size_t i = count; i-- > 0;) {
      CHORUS_ASSIGN(items[i], pop());
    }
    return extend(kind, items);
  }

  // Memo.

  Status put(uint64_t slot) {
    CHORUS_ASSIGN(const uint32_t value, top());
    if (memo_.size() >= kNodesMax)
      return failure("over the limit of " + std::to_string(kNodesMax) + " memo slots", ErrorCode::limit_exceeded);
    memo_[slot] = value;
    return {};
  }

  Status get(uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) return failure("memo slot " + std::to_string(slot) + " is empty");
    return push_existing(found->second);
  }

  // Names, storages, tensors.

  Status push_name(std::string_view module, std::string_view name) {
    for (const auto& known : kKnownNames) {
      if (known.module != module || known.name != name) continue;
      PickleNode node;
      node.kind = Kind::name;
      node.name = known.value;
      return push(std::move(node));
    }
    return failure("the name " + quote_text(std::string(module) + "." + std::string(name)) + " is not one a head file needs: refused",
                   ErrorCode::unsupported);
  }

  Status stack_global() {
    CHORUS_ASSIGN(const uint32_t name, pop());
    CHORUS_ASSIGN(const uint32_t module, pop());
    if (nodes_[name].kind != Kind::text || nodes_[module].kind != Kind::text) return failure("STACK_GLOBAL expects two texts");
    return push_name(nodes_[module].text, nodes_[name].text);
  }

  // ("storage", <storage class>, key, device, number of elements)
  Status persistent_id() {
    CHORUS_ASSIGN(const uint32_t index, pop());
    const std::vector<uint32_t> items = nodes_[index].items;
    if (nodes_[index].kind != Kind::tuple || items.size() != 5 || nodes_[items[0]].kind != Kind::text ||
        nodes_[items[0]].text != "storage" || nodes_[items[1]].kind != Kind::name || nodes_[items[2]].kind != Kind::text ||
        nodes_[items[3]].kind != Kind::text || nodes_[items[4]].kind != Kind::integer) {
      return failure("a persistent id that is not (\"storage\", class, key, device, element count)");
    }
    PickleNode node;
    node.kind = Kind::storage;
    switch (nodes_[items[1]].name) {
      case Name::float_storage:
        node.storage_type = StorageType::f32;
        break;
      case Name::half_storage:
        node.storage_type = StorageType::f16;
        break;
      case Name::bfloat16_storage:
        node.storage_type = StorageType::bf16;
        break;
      default:
        return failure("a persistent id whose class is not a storage");
    }
    node.text = nodes_[items[2]].text;
    node.integer = nodes_[items[4]].integer;
    if (node.integer < 0 || static_cast<uint64_t>(node.integer) > kExtentMax)
      return failure("a storage of " + std::to_string(node.integer) + " elements");
    return push(std::move(node));
  }

  std::optional<std::vector<uint64_t>> extents(uint32_t index) const {
    const PickleNode& tuple = nodes_[index];
    if (tuple.kind != Kind::tuple || tuple.items.size() > limits::kTensorRankMax) return std::nullopt;
    std::vector<uint64_t> values;
    for (const uint32_t item : tuple.items) {
      const PickleNode& value = nodes_[item];
      if (value.kind != Kind::integer || value.integer < 0 || static_cast<uint64_t>(value.integer) > kExtentMax) return std::nullopt;
      values.push_back(static_cast<uint64_t>(value.integer));
    }
    return values;
  }

  // _rebuild_tensor_v2(storage, first element, shape, strides, requires_grad, backward_hooks[, metadata])
  Status push_tensor(const std::vector<uint32_t>& arguments) {
    if (arguments.size() < 6 || arguments.size() > 7 || nodes_[arguments[0]].kind != Kind::storage ||
        nodes_[arguments[1]].kind != Kind::integer || nodes_[arguments[1]].integer < 0 ||
        static_cast<uint64_t>(nodes_[arguments[1]].integer) > kExtentMax) {
      return failure("_rebuild_tensor_v2 is given other arguments than storage, first element, shape, strides, flag, hooks");
    }
    auto shape = extents(arguments[2]);
    auto strides = extents(arguments[3]);
    if (!shape || !strides || shape->size() != strides->size())
      return failure("_rebuild_tensor_v2 is given an impossible shape or strides");
    PickleNode node;
    node.kind = Kind::tensor;
    node.integer = nodes_[arguments[1]].integer;
    node.items = {arguments[0]};
    node.shape = std::move(*shape);
    node.strides = std::move(*strides);
    return push(std::move(node));
  }

  Status reduce() {
    CHORUS_ASSIGN(const uint32_t arguments, pop());
    CHORUS_ASSIGN(const uint32_t callee, pop());
    if (nodes_[arguments].kind != Kind::tuple) return failure("REDUCE without a tuple of arguments");
    if (nodes_[callee].kind != Kind::name)
      return failure(std::string("REDUCE of a ") + pickle_kind_name(nodes_[callee].kind) + ": refused");
    const std::vector<uint32_t> items = nodes_[arguments].items;
    switch (nodes_[callee].name) {
      case Name::rebuild_tensor:
        return push_tensor(items);
      case Name::ordered_dict:
        if (!items.empty()) return failure("OrderedDict with arguments");
        return push_items(Kind::dict, {});
      default:
        return failure("REDUCE of a storage class: refused");
    }
  }

  // Attributes of an OrderedDict (a state_dict carries `_metadata`): dropped.
  Status build() {
    CHORUS_ASSIGN(const uint32_t state, pop());
    CHORUS_ASSIGN(const uint32_t target, top());
    if (nodes_[state].kind != Kind::dict || nodes_[target].kind != Kind::dict)
      return failure("BUILD of anything but an OrderedDict: refused");
    return {};
  }

  Status read_protocol() {
    CHORUS_ASSIGN(const uint8_t opcode, read<uint8_t>());
    if (opcode != kProtocol) return failure("expected PROTO first, found byte " + std::to_string(opcode));
    CHORUS_ASSIGN(const uint8_t protocol, read<uint8_t>());
    if (protocol < 2 || protocol > 5) return failure("expected protocol 2 to 5, found " + std::to_string(protocol), ErrorCode::unsupported);
    return {};
  }

  template <typename Length>
  Status push_counted(Kind kind) {
    CHORUS_ASSIGN(const Length length, read<Length>());
    return push_text(kind, length);
  }

  Status step(uint8_t opcode);
  Status step_container(uint8_t opcode);
  Status step_reference(uint8_t opcode);

  std::span<const std::byte> bytes_;
  std::string_view where_;
  size_t position_ = 0;
  size_t opcode_at_ = 0;
  std::vector<PickleNode> nodes_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint64_t, uint32_t> memo_;
};

// Scalars; the rest is passed on.
Status Machine::step(uint8_t opcode) {
  switch (opcode) {
    case kNone:
      return push({});
    case kTrue:
      return push_integer(1, Kind::boolean);
    case kFalse:
      return push_integer(0, Kind::boolean);
    case kBinInt: {
      CHORUS_ASSIGN(const auto value, read<int32_t>());
      return push_integer(value);
    }
    case kBinInt1: {
      CHORUS_ASSIGN(const auto value, read<uint8_t>());
      return push_integer(value);
    }
    case kBinInt2: {
      CHORUS_ASSIGN(const auto value, read<uint16_t>());
      return push_integer(value);
    }
    case kLong1: {
      CHORUS_ASSIGN(const auto length, read<uint8_t>());
      return push_long(length);
    }
    case kLong4: {
      CHORUS_ASSIGN(const auto length, read<uint32_t>());
      return push_long(length);
    }
    case kBinFloat:
      return push_float();
    case kBinUnicode:
      return push_counted<uint32_t>(Kind::text);
    case kShortBinUnicode:
      return push_counted<uint8_t>(Kind::text);
    case kBinUnicode8:
      return push_counted<uint64_t>(Kind::text);
    case kBinBytes:
      return push_counted<uint32_t>(Kind::bytes);
    case kShortBinBytes:
      return push_counted<uint8_t>(Kind::bytes);
    case kBinBytes8:
      return push_counted<uint64_t>(Kind::bytes);
    case kFrame: {  // a hint about reading ahead
      CHORUS_ASSIGN(const auto length, read<uint64_t>());
      if (length > bytes_.size() - position_) return failure("a frame of " + std::to_string(length) + " bytes passes the end");
      return {};
    }
    default:
      return step_container(opcode);
  }
}

Status Machine::step_container(uint8_t opcode) {
  switch (opcode) {
    case kMark:
      if (marks_.size() >= kMarksMax)
        return failure("over the limit of " + std::to_string(kMarksMax) + " marks", ErrorCode::limit_exceeded);
      marks_.push_back(stack_.size());
      return {};
    case kPop: {
      CHORUS_TRY(pop());
      return {};
    }
    case kPopMark: {
      CHORUS_TRY(pop_to_mark());
      return {};
    }
    case kEmptyTuple:
      return push_items(Kind::tuple, {});
    case kTuple: {
      CHORUS_ASSIGN(auto items, pop_to_mark());
      return push_items(Kind::tuple, std::move(items));
    }
    case kTuple1:
      return push_tuple(1);
    case kTuple2:
      return push_tuple(2);
    case kTuple3:
      return push_tuple(3);
    case kEmptyList:
      return push_items(Kind::list, {});
    case kEmptyDict:
      return push_items(Kind::dict, {});
    case kAppend:
      return extend_with(Kind::list, 1);
    case kSetItem:
      return extend_with(Kind::dict, 2);
    case kAppends: {
      CHORUS_ASSIGN(const auto items, pop_to_mark());
      return extend(Kind::list, items);
    }
    case kSetItems: {
      CHORUS_ASSIGN(const auto items, pop_to_mark());
      return extend(Kind::dict, items);
    }
    default:
      return step_reference(opcode);
  }
}

Status Machine::step_reference(uint8_t opcode) {
  switch (opcode) {
    case kBinPut: {
      CHORUS_ASSIGN(const auto slot, read<uint8_t>());
      return put(slot);
    }
    case kLongBinPut: {
      CHORUS_ASSIGN(const auto slot, read<uint32_t>());
      return put(slot);
    }
    case kMemoize:
      return put(memo_.size());
    case kBinGet: {
      CHORUS_ASSIGN(const auto slot, read<uint8_t>());
      return get(slot);
    }
    case kLongBinGet: {
      CHORUS_ASSIGN(const auto slot, read<uint32_t>());
      return get(slot);
    }
    case kGlobal: {
      CHORUS_ASSIGN(const std::string_view module, read_line());
      CHORUS_ASSIGN(const std::string_view name, read_line());
      return push_name(module, name);
    }
    case kStackGlobal:
      return stack_global();
    case kBinPersistentId:
      return persistent_id();
    case kReduce:
      return reduce();
    case kBuild:
      return build();
    default:
      break;
  }
  std::array<char, 8> hexadecimal{};
  std::snprintf(hexadecimal.data(), hexadecimal.size(), "0x%02x", opcode);
  return failure(std::string("opcode ") + hexadecimal.data() + " is not one a head file needs: refused", ErrorCode::unsupported);
}

}  // namespace

const char* pickle_kind_name(PickleNode::Kind kind) {
  switch (kind) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big_integer:
      return "int";
    case Kind::floating:
      return "float";
    case Kind::text:
      return "text";
    case Kind::bytes:
      return "bytes";
    case Kind::tuple:
      return "tuple";
    case Kind::list:
      return "list";
    case Kind::dict:
      return "dictionary";
    case Kind::name:
      return "name";
    case Kind::storage:
      return "storage";
    case Kind::tensor:
      return "tensor";
  }
  return "?";
}

Result<PickleValue> read_pickle(std::span<const std::byte> bytes, std::string_view where) { return Machine(bytes, where).run(); }

}  // namespace chorus::formats
