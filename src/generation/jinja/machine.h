// Carries a parsed template out. Front door: template.h. The functions of templates (filters, tests, methods, operators) are in files of
// their own and come back here for what needs the machine.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "generation/jinja/syntax.h"
#include "generation/jinja/value.h"

namespace chorus::generation::jinja {

// Values that an operation may walk over for one step.
inline constexpr uint64_t kValuesPerStep = 16;

struct MachineLimits {
  uint64_t steps_max = 5'000'000;          // evaluations, and items that functions walk over
  uint64_t text_bytes_max = 512ull << 20;  // of all texts made on the way
  uint64_t output_bytes_max = 64ull << 20;
  uint32_t depth_max = 500;  // evaluations and blocks inside one another
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Variables of a block. A scope that a macro was made in lives to the end of the rendering.
struct Scope {
  Scope* parent = nullptr;
  bool kept = false;
  std::vector<std::pair<std::string, Value>> variables;

  void set(std::string_view name, Value value);
};

class Machine {
 public:
  Machine(const Value& variables, int64_t unix_time, const MachineLimits& limits);
  ~Machine();
  Machine(const Machine&) = delete;

  Result<std::string> run(const std::vector<Statement>& program);

  // For functions. Errors come without a line; the expression that called adds it.
  Status charge(uint64_t steps, uint64_t text_bytes = 0);
  Result<Value> make_text(std::string text);
  Result<std::vector<Value>> items_of(const Value& value);  // what a loop over the value sees
  Result<Value> attribute(const Value& object, const std::string& name);
  Result<Value> item(const Value& object, const Value& key);
  Result<Value> call(const Callable& function, Arguments arguments);
  Result<Value> apply_filter(const std::string& name, const Value& input, const Arguments& arguments);
  Result<bool> apply_test(const std::string& name, const Value& input, const Arguments& arguments);
  int64_t unix_time() const { return unix_time_; }
  void keep_namespace(const std::shared_ptr<Namespace>& made) { namespaces_.push_back(made); }

 private:
  enum class Flow { next, break_loop, continue_loop };
  using Body = std::vector<Statement>;

  // statements: machine.cpp
  Result<Flow> execute(const Body& body);
  Result<Flow> execute_all(const Body& body);
  Result<Flow> execute_one(const Statement& statement);
  Result<Flow> execute_conditional(const Statement& statement);
  Result<Flow> execute_loop(const Statement& statement);
  Result<Flow> run_loop(const Statement& statement, const Value& iterable, uint32_t level);
  Result<Flow> run_iterations(const Statement& statement, const std::shared_ptr<Loop>& loop);
  Result<std::vector<Value>> filtered_items(const Statement& statement, const Value& iterable);
  Result<Flow> execute_inside(const Body& body, Scope& scope);
  Status execute_assignment(const Statement& statement);
  Status execute_block_assignment(const Statement& statement);
  Result<Flow> execute_with(const Statement& statement);
  Status execute_call_block(const Statement& statement);
  Status execute_filter_block(const Statement& statement);
  Status assign_targets(const std::vector<std::string>& names, const Value& value);
  Status write(std::string_view text);
  Result<std::string> captured(const Body& body, Scope& scope);
  Result<Value> invoke(const Callable& macro, Arguments arguments);
  Result<Value> loop_call(const Callable& function, Arguments arguments);
  Value make_macro(const Statement& statement, Callable::Type type);
  void keep(Scope* scope);
  void leave(std::unique_ptr<Scope> scope);
  Value lookup(const std::string& name) const;

  // expressions: machine_expressions.cpp
  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_kind(const Expression& expression);
  Result<Value> evaluate_items(const Expression& expression);
  Result<Value> evaluate_dict(const Expression& expression);
  Result<Value> evaluate_item(const Expression& expression);
  Result<Value> evaluate_slice(const Value& object, const Expression& slice);
  Result<Value> evaluate_call(const Expression& expression);
  Result<Value> evaluate_filter(const Expression& expression, const Value* block_text);
  Result<Value> evaluate_test(const Expression& expression);
  Result<Value> evaluate_binary(const Expression& expression);
  Result<Value> evaluate_comparison(const Expression& expression);
  Result<Value> evaluate_conditional(const Expression& expression);
  Result<Arguments> evaluate_arguments(const Expression& expression);

  const Value& variables_;
  int64_t unix_time_;
  MachineLimits limits_;
  uint64_t steps_ = 0, text_bytes_ = 0;
  uint32_t depth_ = 0;
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// Adds the line to an error that has none yet.
Error located(Error error, uint32_t line);

}  // namespace chorus::generation::jinja
