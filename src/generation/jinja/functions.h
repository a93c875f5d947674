// What templates can call: operators, filters, tests, methods of values and functions of the environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "generation/jinja/machine.h"
#include "generation/jinja/value.h"

namespace chorus::generation::jinja {

// Arguments by position or name, in the order of `names`; what was not given is absent. Errors: too many, unknown, given twice, fewer than
// `required`.
Result<std::vector<std::optional<Value>>> bind_arguments(const Arguments& arguments, const std::vector<std::string_view>& names,
                                                         size_t required);
Error bad_value(std::string message);
Status require_defined(const Value& value);
Result<int64_t> integer_of(const Value& value, std::string_view what);
Result<std::string_view> text_of(const Value& value, std::string_view what);

Result<Value> binary_operation(Machine& machine, const std::string& mark, const Value& a, const Value& b);
Result<Value> sign_operation(const std::string& mark, const Value& value);
Result<bool> contains(const Value& item, const Value& container);
Result<bool> compare_values(const std::string& sign, const Value& a, const Value& b);
Result<Value> slice_value(Machine& machine, const Value& object, const Value& start, const Value& stop, const Value& step);
Result<std::string> format_text(Machine& machine, std::string_view form, const std::vector<Value>& values);

bool has_method(const Value& object, std::string_view name);
Result<Value> call_method(Machine& machine, const Value& self, const std::string& name, const Arguments& arguments);
bool is_environment_function(std::string_view name);
Result<Value> call_environment(Machine& machine, const std::string& name, const Arguments& arguments);

// Nothing when there is no such filter or test.
using FilterFunction = Result<Value> (*)(Machine&, const Value&, const Arguments&);
FilterFunction find_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);  // those that walk over items; find_filter asks here too
using TestFunction = Result<bool> (*)(Machine&, const Value&, const Arguments&);
TestFunction find_test(std::string_view name);

}  // namespace chorus::generation::jinja
