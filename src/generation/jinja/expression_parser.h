// Expressions of a template, by recursive descent with Jinja's precedences.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "generation/jinja/lexer.h"
#include "generation/jinja/syntax.h"

namespace chorus::generation::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  uint32_t line() const { return current().line; }
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_mark(std::string_view mark) const { return is(TokenKind::mark) && current().text == mark; }
  bool is_name(std::string_view name) const { return is(TokenKind::name) && current().text == name; }
  const Token& take();  // the end is never passed
  bool skip_mark(std::string_view mark);
  bool skip_name(std::string_view name);
  Status expect(TokenKind kind, std::string_view shown_as);
  Status expect_mark(std::string_view mark);
  std::string shown() const;  // the current token, for messages

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  Result<ExpressionPtr> parse();  // one expression
  // One expression, or a tuple without brackets. Without conditions `a if b` ends before the if.
  Result<ExpressionPtr> parse_tuple(bool conditions = true);
  // "| filter ..." after an input, which may be null; then null is returned when there is no filter.
  Result<ExpressionPtr> parse_filters(ExpressionPtr input);
  // What stands after {% filter: a name and more filters.
  Result<ExpressionPtr> parse_filter_after_word();

 private:
  ExpressionPtr node(ExpressionKind kind) const;
  // Takes the depth of the parts, and refuses what is too deep.
  Result<ExpressionPtr> finish(ExpressionPtr expression) const;
  Result<ExpressionPtr> binary(ExpressionPtr left, Result<ExpressionPtr> right, std::string text) const;
  using Level = Result<ExpressionPtr> (ExpressionParser::*)();
  Result<ExpressionPtr> left_associative(Level operand, std::initializer_list<std::string_view> marks);

  Result<ExpressionPtr> parse_conditional();
  Result<ExpressionPtr> parse_or();
  Result<ExpressionPtr> parse_and();
  Result<ExpressionPtr> parse_not();
  Result<ExpressionPtr> parse_comparison();
  Result<ExpressionPtr> parse_sum();
  Result<ExpressionPtr> parse_concatenation();
  Result<ExpressionPtr> parse_product();
  Result<ExpressionPtr> parse_power();
  Result<ExpressionPtr> parse_unary();
  Result<ExpressionPtr> parse_unary_without_filters();
  Result<ExpressionPtr> parse_signed(bool with_filters);
  Result<ExpressionPtr> parse_primary();
  Result<ExpressionPtr> parse_name();
  Result<ExpressionPtr> parse_number();
  Result<ExpressionPtr> parse_list();
  Result<ExpressionPtr> parse_dict();
  Result<ExpressionPtr> parse_brackets();
  Result<ExpressionPtr> parse_postfix(ExpressionPtr expression);
  Result<ExpressionPtr> parse_filters_and_tests(ExpressionPtr expression);
  Result<ExpressionPtr> parse_subscript(ExpressionPtr object);
  Result<ExpressionPtr> parse_slice();
  Result<ExpressionPtr> parse_one_filter(ExpressionPtr input);
  Result<ExpressionPtr> parse_test(ExpressionPtr input);
  Status parse_arguments(Expression& call);

  TokenStream& stream_;
  uint32_t depth_ = 0;
};

}  // namespace chorus::generation::jinja
