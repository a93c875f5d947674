#include "generation/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>

#include "base/bytes.h"
#include "generation/jinja/parser.h"

namespace chorus::generation::jinja {

const Token& TokenStream::take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::skip_mark(std::string_view mark) {
  if (!is_mark(mark)) return false;
  take();
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

Status TokenStream::expect(TokenKind kind, std::string_view shown_as) {
  if (!is(kind)) return template_error(line(), "expected " + std::string(shown_as) + ", found " + shown());
  take();
  return {};
}

Status TokenStream::expect_mark(std::string_view mark) {
  if (!is_mark(mark)) return template_error(line(), "expected '" + std::string(mark) + "', found " + shown());
  take();
  return {};
}

std::string TokenStream::shown() const {
  switch (current().kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::block_end:
      return "%}";
    case TokenKind::output_end:
      return "}}";
    default:
      return quote_text(current().text);
  }
}

ExpressionPtr ExpressionParser::node(ExpressionKind kind) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = stream_.line();
  return made;
}

Result<ExpressionPtr> ExpressionParser::finish(ExpressionPtr expression) const {
  for (const ExpressionPtr& part : expression->parts) {
    if (part) expression->depth = std::max(expression->depth, part->depth + 1);
  }
  for (const auto& keyword : expression->keywords) expression->depth = std::max(expression->depth, keyword.second->depth + 1);
  if (expression->depth > 4 * kSyntaxDepthMax) {
    return template_error(expression->line, "an expression nests too deep", ErrorCode::limit_exceeded);
  }
  return expression;
}

Result<ExpressionPtr> ExpressionParser::binary(ExpressionPtr left, Result<ExpressionPtr> right, std::string text) const {
  if (!right) return right;
  ExpressionPtr made = node(ExpressionKind::binary);
  made->line = left->line;
  made->text = std::move(text);
  made->parts.push_back(std::move(left));
  made->parts.push_back(std::move(right).value());
  return finish(std::move(made));
}

Result<ExpressionPtr> ExpressionParser::left_associative(Level operand, std::initializer_list<std::string_view> marks) {
  CHORUS_ASSIGN(ExpressionPtr left, (this->*operand)());
  while (stream_.is(TokenKind::mark) && std::find(marks.begin(), marks.end(), stream_.current().text) != marks.end()) {
    std::string text = stream_.take().text;
    CHORUS_ASSIGN(left, binary(std::move(left), (this->*operand)(), std::move(text)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse() {
  if (++depth_ > kSyntaxDepthMax) return template_error(stream_.line(), "an expression nests too deep", ErrorCode::limit_exceeded);
  CHORUS_ASSIGN(ExpressionPtr made, parse_conditional());
  --depth_;
  return made;
}

Result<ExpressionPtr> ExpressionParser::parse_tuple(bool conditions) {
  ExpressionPtr tuple = node(ExpressionKind::tuple);
  bool comma = false;
  while (true) {
    CHORUS_ASSIGN(ExpressionPtr item, conditions ? parse() : parse_or());
    tuple->parts.push_back(std::move(item));
    if (!stream_.skip_mark(",")) break;
    comma = true;
    if (stream_.is(TokenKind::output_end) || stream_.is(TokenKind::block_end) || stream_.is_mark(")")) break;
  }
  if (!comma) return std::move(tuple->parts[0]);
  return finish(std::move(tuple));
}

Result<ExpressionPtr> ExpressionParser::parse_conditional() {
  CHORUS_ASSIGN(ExpressionPtr left, parse_or());
  while (stream_.is_name("if")) {
    ExpressionPtr made = node(ExpressionKind::conditional);
    stream_.take();
    CHORUS_ASSIGN(ExpressionPtr condition, parse_or());
    ExpressionPtr otherwise;
    if (stream_.skip_name("else")) {
      CHORUS_ASSIGN(otherwise, parse());
    }
    made->parts.push_back(std::move(condition));
    made->parts.push_back(std::move(left));
    made->parts.push_back(std::move(otherwise));
    CHORUS_ASSIGN(left, finish(std::move(made)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_or() {
  CHORUS_ASSIGN(ExpressionPtr left, parse_and());
  while (stream_.skip_name("or")) {
    CHORUS_ASSIGN(left, binary(std::move(left), parse_and(), "or"));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_and() {
  CHORUS_ASSIGN(ExpressionPtr left, parse_not());
  while (stream_.skip_name("and")) {
    CHORUS_ASSIGN(left, binary(std::move(left), parse_not(), "and"));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_not() {
  if (!stream_.is_name("not")) return parse_comparison();
  if (++depth_ > kSyntaxDepthMax) return template_error(stream_.line(), "an expression nests too deep", ErrorCode::limit_exceeded);
  ExpressionPtr made = node(ExpressionKind::negation);
  stream_.take();
  CHORUS_ASSIGN(ExpressionPtr operand, parse_not());
  --depth_;
  made->parts.push_back(std::move(operand));
  return finish(std::move(made));
}

Result<ExpressionPtr> ExpressionParser::parse_comparison() {
  CHORUS_ASSIGN(ExpressionPtr left, parse_sum());
  ExpressionPtr made = node(ExpressionKind::comparison);
  made->line = left->line;
  made->parts.push_back(std::move(left));
  while (true) {
    std::string sign;
    constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
    if (stream_.is(TokenKind::mark) && std::find(std::begin(kSigns), std::end(kSigns), stream_.current().text) != std::end(kSigns)) {
      sign = stream_.take().text;
    } else if (stream_.skip_name("in")) {
      sign = "in";
    } else if (stream_.is_name("not") && stream_.next().kind == TokenKind::name && stream_.next().text == "in") {
      stream_.take();
      stream_.take();
      sign = "not in";
    } else {
      break;
    }
    CHORUS_ASSIGN(ExpressionPtr right, parse_sum());
    made->operators.push_back(std::move(sign));
    made->parts.push_back(std::move(right));
  }
  if (made->operators.empty()) return std::move(made->parts[0]);
  return finish(std::move(made));
}

Result<ExpressionPtr> ExpressionParser::parse_sum() { return left_associative(&ExpressionParser::parse_concatenation, {"+", "-"}); }
Result<ExpressionPtr> ExpressionParser::parse_concatenation() { return left_associative(&ExpressionParser::parse_product, {"~"}); }
Result<ExpressionPtr> ExpressionParser::parse_product() { return left_associative(&ExpressionParser::parse_power, {"*", "/", "//", "%"}); }
Result<ExpressionPtr> ExpressionParser::parse_power() { return left_associative(&ExpressionParser::parse_unary, {"**"}); }
Result<ExpressionPtr> ExpressionParser::parse_unary() { return parse_signed(true); }

Result<ExpressionPtr> ExpressionParser::parse_signed(bool with_filters) {
  ExpressionPtr made;
  if (stream_.is_mark("-") || stream_.is_mark("+")) {
    if (++depth_ > kSyntaxDepthMax) return template_error(stream_.line(), "an expression nests too deep", ErrorCode::limit_exceeded);
    ExpressionPtr sign = node(ExpressionKind::unary);
    sign->text = stream_.take().text;
    CHORUS_ASSIGN(ExpressionPtr operand, parse_signed(false));
    --depth_;
    sign->parts.push_back(std::move(operand));
    CHORUS_ASSIGN(made, finish(std::move(sign)));
  } else {
    CHORUS_ASSIGN(made, parse_primary());
  }
  CHORUS_ASSIGN(made, parse_postfix(std::move(made)));
  return with_filters ? parse_filters_and_tests(std::move(made)) : Result<ExpressionPtr>(std::move(made));
}

Result<ExpressionPtr> ExpressionParser::parse_name() {
  ExpressionPtr made = node(ExpressionKind::constant);
  const std::string& text = stream_.take().text;
  if (text == "true" || text == "True") {
    made->value = Value::boolean(true);
  } else if (text == "false" || text == "False") {
    made->value = Value::boolean(false);
  } else if (text == "none" || text == "None") {
    made->value = Value::none();
  } else {
    made->kind = ExpressionKind::name;
    made->text = text;
  }
  return made;
}

Result<ExpressionPtr> ExpressionParser::parse_number() {
  ExpressionPtr made = node(ExpressionKind::constant);
  const Token& token = stream_.take();
  const char* end = token.text.data() + token.text.size();
  if (token.kind == TokenKind::integer) {
    int64_t value = 0;
    if (std::from_chars(token.text.data(), end, value).ec != std::errc{})
      return template_error(made->line, "the number " + quote_text(token.text) + " is too large");
    made->value = Value::integer(value);
    return made;
  }
  double value = 0;
  if (std::from_chars(token.text.data(), end, value).ec != std::errc{})
    return template_error(made->line, "the number " + quote_text(token.text) + " is too large");
  made->value = Value::floating(value);
  return made;
}

Result<ExpressionPtr> ExpressionParser::parse_primary() {
  if (stream_.is(TokenKind::name)) return parse_name();
  if (stream_.is(TokenKind::integer) || stream_.is(TokenKind::floating)) return parse_number();
  if (stream_.is(TokenKind::string)) {
    ExpressionPtr made = node(ExpressionKind::constant);
    std::string text;
    while (stream_.is(TokenKind::string)) text += stream_.take().text;  // neighbours join
    made->value = Value::string(std::move(text));
    return made;
  }
  if (stream_.is_mark("(")) return parse_brackets();
  if (stream_.is_mark("[")) return parse_list();
  if (stream_.is_mark("{")) return parse_dict();
  return template_error(stream_.line(), "expected an expression, found " + stream_.shown());
}

Result<ExpressionPtr> ExpressionParser::parse_brackets() {
  ExpressionPtr empty = node(ExpressionKind::tuple);
  stream_.take();
  if (stream_.skip_mark(")")) return empty;
  CHORUS_ASSIGN(ExpressionPtr made, parse_tuple());
  CHORUS_TRY(stream_.expect_mark(")"));
  return made;
}

Result<ExpressionPtr> ExpressionParser::parse_list() {
  ExpressionPtr made = node(ExpressionKind::list);
  stream_.take();
  while (!stream_.is_mark("]")) {
    CHORUS_ASSIGN(ExpressionPtr item, parse());
    made->parts.push_back(std::move(item));
    if (!stream_.skip_mark(",")) break;
  }
  CHORUS_TRY(stream_.expect_mark("]"));
  return finish(std::move(made));
}

Result<ExpressionPtr> ExpressionParser::parse_dict() {
  ExpressionPtr made = node(ExpressionKind::dict);
  stream_.take();
  while (!stream_.is_mark("}")) {
    CHORUS_ASSIGN(ExpressionPtr key, parse());
    CHORUS_TRY(stream_.expect_mark(":"));
    CHORUS_ASSIGN(ExpressionPtr value, parse());
    made->parts.push_back(std::move(key));
    made->parts.push_back(std::move(value));
    if (!stream_.skip_mark(",")) break;
  }
  CHORUS_TRY(stream_.expect_mark("}"));
  return finish(std::move(made));
}

Result<ExpressionPtr> ExpressionParser::parse_postfix(ExpressionPtr expression) {
  while (true) {
    if (stream_.is_mark(".") || stream_.is_mark("[")) {
      CHORUS_ASSIGN(expression, parse_subscript(std::move(expression)));
    } else if (stream_.is_mark("(")) {
      ExpressionPtr call = node(ExpressionKind::call);
      call->parts.push_back(std::move(expression));
      CHORUS_TRY(parse_arguments(*call));
      CHORUS_ASSIGN(expression, finish(std::move(call)));
    } else {
      return expression;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_filters_and_tests(ExpressionPtr expression) {
  while (true) {
    if (stream_.is_mark("|")) {
      CHORUS_ASSIGN(expression, parse_filters(std::move(expression)));
    } else if (stream_.is_name("is")) {
      CHORUS_ASSIGN(expression, parse_test(std::move(expression)));
    } else if (stream_.is_mark("(")) {
      CHORUS_ASSIGN(expression, parse_postfix(std::move(expression)));
    } else {
      return expression;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_subscript(ExpressionPtr object) {
  if (stream_.skip_mark(".")) {
    ExpressionPtr made = node(ExpressionKind::attribute);
    if (stream_.is(TokenKind::integer)) {
      made->kind = ExpressionKind::item;
      CHORUS_ASSIGN(ExpressionPtr index, parse_number());
      made->parts.push_back(std::move(object));
      made->parts.push_back(std::move(index));
      return finish(std::move(made));
    }
    if (!stream_.is(TokenKind::name)) return template_error(stream_.line(), "expected a name after '.', found " + stream_.shown());
    made->text = stream_.take().text;
    made->parts.push_back(std::move(object));
    return finish(std::move(made));
  }
  ExpressionPtr made = node(ExpressionKind::item);
  stream_.take();
  CHORUS_ASSIGN(ExpressionPtr index, parse_slice());
  CHORUS_TRY(stream_.expect_mark("]"));
  made->parts.push_back(std::move(object));
  made->parts.push_back(std::move(index));
  return finish(std::move(made));
}

// What stands in square brackets: an expression, or a slice.
Result<ExpressionPtr> ExpressionParser::parse_slice() {
  ExpressionPtr slice = node(ExpressionKind::slice);
  slice->parts.resize(3);
  size_t part = 0;
  while (true) {
    if (!stream_.is_mark(":") && !stream_.is_mark("]")) {
      CHORUS_ASSIGN(slice->parts[part], parse());
    }
    if (part == 2 || !stream_.skip_mark(":")) break;
    ++part;
  }
  if (part > 0) return finish(std::move(slice));
  if (!slice->parts[0]) return template_error(stream_.line(), "expected an index, found " + stream_.shown());
  return std::move(slice->parts[0]);
}

Status ExpressionParser::parse_arguments(Expression& call) {
  CHORUS_TRY(stream_.expect_mark("("));
  while (!stream_.is_mark(")")) {
    if (stream_.is_mark("*") || stream_.is_mark("**")) {
      return template_error(stream_.line(), "'*' in the arguments of a call", ErrorCode::unsupported);
    }
    if (stream_.is(TokenKind::name) && stream_.next().kind == TokenKind::mark && stream_.next().text == "=") {
      std::string name = stream_.take().text;
      stream_.take();
      CHORUS_ASSIGN(ExpressionPtr value, parse());
      call.keywords.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.keywords.empty()) return template_error(stream_.line(), "an argument without a name follows one with a name");
      CHORUS_ASSIGN(ExpressionPtr value, parse());
      call.parts.push_back(std::move(value));
    }
    if (!stream_.skip_mark(",")) break;
  }
  return stream_.expect_mark(")");
}

Result<ExpressionPtr> ExpressionParser::parse_one_filter(ExpressionPtr input) {
  ExpressionPtr made = node(ExpressionKind::filter);
  if (!stream_.is(TokenKind::name)) return template_error(stream_.line(), "expected the name of a filter, found " + stream_.shown());
  made->text = stream_.take().text;
  made->parts.push_back(std::move(input));
  if (stream_.is_mark("(")) CHORUS_TRY(parse_arguments(*made));
  return finish(std::move(made));
}

Result<ExpressionPtr> ExpressionParser::parse_filters(ExpressionPtr input) {
  while (stream_.skip_mark("|")) {
    CHORUS_ASSIGN(input, parse_one_filter(std::move(input)));
  }
  return input;
}

Result<ExpressionPtr> ExpressionParser::parse_filter_after_word() {
  CHORUS_ASSIGN(ExpressionPtr first, parse_one_filter(nullptr));
  return parse_filters(std::move(first));
}

// A test takes arguments in brackets, or one operand without.
Result<ExpressionPtr> ExpressionParser::parse_test(ExpressionPtr input) {
  ExpressionPtr made = node(ExpressionKind::test);
  stream_.take();
  const bool negated = stream_.skip_name("not");
  if (!stream_.is(TokenKind::name)) return template_error(stream_.line(), "expected the name of a test, found " + stream_.shown());
  made->text = stream_.take().text;
  made->parts.push_back(std::move(input));
  if (stream_.is_mark("(")) {
    CHORUS_TRY(parse_arguments(*made));
  } else if (stream_.is(TokenKind::string) || stream_.is(TokenKind::integer) || stream_.is(TokenKind::floating) || stream_.is_mark("[") ||
             stream_.is_mark("{") ||
             (stream_.is(TokenKind::name) && !stream_.is_name("else") && !stream_.is_name("or") && !stream_.is_name("and"))) {
    constexpr std::string_view kEnds[] = {"if", "is", "not", "in", "recursive"};
    if (stream_.is_name("is")) return template_error(stream_.line(), "tests cannot be chained with 'is'");
    if (!stream_.is(TokenKind::name) || std::find(std::begin(kEnds), std::end(kEnds), stream_.current().text) == std::end(kEnds)) {
      CHORUS_ASSIGN(ExpressionPtr operand, parse_primary());
      CHORUS_ASSIGN(operand, parse_postfix(std::move(operand)));
      made->parts.push_back(std::move(operand));
    }
  }
  CHORUS_ASSIGN(made, finish(std::move(made)));
  if (!negated) return made;
  ExpressionPtr negation = node(ExpressionKind::negation);
  negation->line = made->line;
  negation->parts.push_back(std::move(made));
  return finish(std::move(negation));
}

}  // namespace chorus::generation::jinja
