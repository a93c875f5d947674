// Filters that walk over the items of a value.
#include <algorithm>

#include "base/bytes.h"
#include "generation/jinja/functions.h"
#include "generation/jinja/python_text.h"

namespace chorus::generation::jinja {

namespace {

Result<Value> length(Machine&, const Value& input, const Arguments&) {
  switch (input.kind()) {
    case Kind::undefined:
      return Value::integer(0);
    case Kind::string:
      return Value::integer(static_cast<int64_t>(character_count(input.text())));
    case Kind::list:
    case Kind::tuple:
      return Value::integer(static_cast<int64_t>(input.items().size()));
    case Kind::dict:
      return Value::integer(static_cast<int64_t>(input.members().size()));
    default:
      return bad_value(std::string("object of type '") + type_name(input) + "' has no length");
  }
}

// The value at a path "a.b.0" of attributes and items.
Result<Value> at_path(Machine& machine, Value value, const Value& path) {
  if (path.is(Kind::integer)) return machine.item(value, path);
  CHORUS_ASSIGN(const std::string_view text, text_of(path, "attribute"));
  for (const std::string& part : split_text(text, ".", -1)) {
    const bool index =
        !part.empty() && part.size() < 10 && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    CHORUS_ASSIGN(value, machine.item(value, index ? Value::integer(std::stol(part)) : Value::string(part)));
  }
  return value;
}

Result<Value> join(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"d", "attribute"}, 0));
  CHORUS_ASSIGN(const std::vector<Value> items, machine.items_of(input));
  const std::string separator = bound[0] ? to_text(*bound[0]) : "";
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (bound[1]) {
      CHORUS_ASSIGN(item, at_path(machine, std::move(item), *bound[1]));
    }
    const std::string text = to_text(item);
    CHORUS_TRY(machine.charge(1, text.size() + separator.size()));
    if (i > 0) out += separator;
    out += text;
  }
  return Value::string(std::move(out));
}

Result<Value> first(Machine& machine, const Value& input, const Arguments&) {
  CHORUS_ASSIGN(const std::vector<Value> items, machine.items_of(input));
  return items.empty() ? Value::undefined("no first item, the sequence was empty") : items.front();
}

Result<Value> last(Machine& machine, const Value& input, const Arguments&) {
  CHORUS_ASSIGN(const std::vector<Value> items, machine.items_of(input));
  return items.empty() ? Value::undefined("no last item, the sequence was empty") : items.back();
}

Result<Value> list(Machine& machine, const Value& input, const Arguments&) {
  CHORUS_ASSIGN(std::vector<Value> items, machine.items_of(input));
  return Value::list(std::move(items));
}

Result<Value> reverse(Machine& machine, const Value& input, const Arguments&) {
  if (input.is(Kind::string)) return slice_value(machine, input, Value::none(), Value::none(), Value::integer(-1));
  CHORUS_ASSIGN(std::vector<Value> items, machine.items_of(input));
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

Result<Value> items_filter(Machine& machine, const Value& input, const Arguments& arguments) {
  if (input.is(Kind::undefined)) return Value::list({});
  if (!input.is(Kind::dict)) return bad_value("items: expected a dict");
  return call_method(machine, input, "items", arguments);
}

// What a value is ordered by: strings without regard to case unless asked.
Value order_key(const Value& value, bool case_sensitive) {
  return value.is(Kind::string) && !case_sensitive ? Value::string(lower_text(value.text())) : value;
}

Result<std::vector<Value>> sorted(Machine& machine, std::vector<Value> items, const std::vector<Value>& keys, bool backwards) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Checked first, so that the order below cannot fail: each key must have an order with its neighbour.
  for (size_t i = 1; i < keys.size(); ++i) CHORUS_TRY(compare(keys[i - 1], keys[i]));
  CHORUS_TRY(machine.charge(items.size() * 8));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto result = backwards ? compare(keys[b], keys[a]) : compare(keys[a], keys[b]);
    return result.ok() && *result < 0;
  });
  std::vector<Value> out;
  for (const size_t i : order) out.push_back(std::move(items[i]));
  return out;
}

Result<Value> sort(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"reverse", "case_sensitive", "attribute"}, 0));
  CHORUS_ASSIGN(std::vector<Value> items, machine.items_of(input));
  std::vector<Value> keys;
  for (const Value& item : items) {
    Value key = item;
    if (bound[2] && !bound[2]->is(Kind::none)) {
      CHORUS_ASSIGN(key, at_path(machine, item, *bound[2]));
    }
    keys.push_back(order_key(key, bound[1] && is_true(*bound[1])));
  }
  CHORUS_ASSIGN(items, sorted(machine, std::move(items), keys, bound[0] && is_true(*bound[0])));
  return Value::list(std::move(items));
}

Result<Value> dictsort(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"case_sensitive", "by", "reverse"}, 0));
  if (!input.is(Kind::dict)) return bad_value("dictsort: expected a dict");
  CHORUS_ASSIGN(const Value pairs, call_method(machine, input, "items", {}));
  const size_t half = bound[1] && to_text(*bound[1]) == "value" ? 1 : 0;
  std::vector<Value> keys;
  for (const Value& pair : pairs.items()) keys.push_back(order_key(pair.items()[half], bound[0] && is_true(*bound[0])));
  CHORUS_ASSIGN(std::vector<Value> items, sorted(machine, pairs.items(), keys, bound[2] && is_true(*bound[2])));
  return Value::list(std::move(items));
}

Result<Value> unique(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"case_sensitive", "attribute"}, 0));
  CHORUS_ASSIGN(std::vector<Value> items, machine.items_of(input));
  std::vector<Value> keys, out;
  for (Value& item : items) {
    Value key = item;
    if (bound[1] && !bound[1]->is(Kind::none)) {
      CHORUS_ASSIGN(key, at_path(machine, item, *bound[1]));
    }
    key = order_key(key, bound[0] && is_true(*bound[0]));
    CHORUS_TRY(machine.charge(keys.size()));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& seen) { return equal(seen, key); })) continue;
    keys.push_back(std::move(key));
    out.push_back(std::move(item));
  }
  return Value::list(std::move(out));
}

Result<Value> sum(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"attribute", "start"}, 0));
  CHORUS_ASSIGN(const std::vector<Value> items, machine.items_of(input));
  Value total = bound[1] ? *bound[1] : Value::integer(0);
  for (Value item : items) {
    if (bound[0] && !bound[0]->is(Kind::none)) {
      CHORUS_ASSIGN(item, at_path(machine, std::move(item), *bound[0]));
    }
    CHORUS_ASSIGN(total, binary_operation(machine, "+", total, item));
  }
  return total;
}

template <bool kMaximum>
Result<Value> extreme(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(const auto bound, bind_arguments(arguments, {"case_sensitive", "attribute"}, 0));
  CHORUS_ASSIGN(const std::vector<Value> items, machine.items_of(input));
  Value best = Value::undefined("no aggregated item, the sequence was empty"), best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    Value key = items[i];
    if (bound[1] && !bound[1]->is(Kind::none)) {
      CHORUS_ASSIGN(key, at_path(machine, key, *bound[1]));
    }
    key = order_key(key, bound[0] && is_true(*bound[0]));
    if (i > 0) {
      CHORUS_ASSIGN(const int order, compare(key, best_key));
      if (kMaximum ? order <= 0 : order >= 0) continue;
    }
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

// map(attribute=..., default=...), map("filter", arguments...)
Result<Value> map(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(std::vector<Value> items, machine.items_of(input));
  Value path, otherwise;
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") path = value;
    if (name == "default") otherwise = value;
  }
  if (!path.is(Kind::undefined)) {
    for (Value& item : items) {
      CHORUS_ASSIGN(item, at_path(machine, std::move(item), path));
      if (item.is(Kind::undefined)) item = otherwise;
    }
    return Value::list(std::move(items));
  }
  if (arguments.positional.empty()) return bad_value("map: expected the name of a filter or attribute=");
  CHORUS_ASSIGN(const std::string_view name, text_of(arguments.positional[0], "map"));
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (Value& item : items) {
    CHORUS_ASSIGN(item, machine.apply_filter(std::string(name), item, rest));
  }
  return Value::list(std::move(items));
}

// select("test", ...), reject; and with an attribute first: selectattr("path", "test", ...), rejectattr.
template <bool kAttribute, bool kKeep>
Result<Value> select(Machine& machine, const Value& input, const Arguments& arguments) {
  CHORUS_ASSIGN(std::vector<Value> items, machine.items_of(input));
  Arguments rest;
  const size_t taken = kAttribute ? 1 : 0;
  if (arguments.positional.size() < taken) return bad_value("selectattr: expected the name of an attribute");
  std::string test;
  if (arguments.positional.size() > taken) {
    CHORUS_ASSIGN(test, text_of(arguments.positional[taken], "select"));
    rest.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(taken) + 1, arguments.positional.end());
  }
  std::vector<Value> out;
  for (Value& item : items) {
    Value tested = item;
    if (kAttribute) {
      CHORUS_ASSIGN(tested, at_path(machine, item, arguments.positional[0]));
    }
    bool holds = is_true(tested);
    if (!test.empty()) {
      CHORUS_ASSIGN(holds, machine.apply_test(test, tested, rest));
    }
    if (holds == kKeep) out.push_back(std::move(item));
  }
  return Value::list(std::move(out));
}

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  struct Row {
    std::string_view name;
    FilterFunction function;
  };
  constexpr Row kRows[] = {{"length", length},
                           {"count", length},
                           {"join", join},
                           {"first", first},
                           {"last", last},
                           {"list", list},
                           {"reverse", reverse},
                           {"items", items_filter},
                           {"sort", sort},
                           {"dictsort", dictsort},
                           {"unique", unique},
                           {"sum", sum},
                           {"min", extreme<false>},
                           {"max", extreme<true>},
                           {"map", map},
                           {"select", select<false, true>},
                           {"reject", select<false, false>},
                           {"selectattr", select<true, true>},
                           {"rejectattr", select<true, false>}};
  for (const Row& row : kRows) {
    if (row.name == name) return row.function;
  }
  return nullptr;
}

}  // namespace chorus::generation::jinja
