// Errors as values: Result<T> carries either a value or an Error.
// An Error says what went wrong, where, and what was expected and found; callers add context lines on the way up.
// Nothing in this library throws across a folder border or aborts on bad input.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace chorus {

enum class ErrorCode {
  invalid_argument,  // the caller broke the contract of a function or a command line
  invalid_input,     // a file or request is malformed
  limit_exceeded,    // well-formed, but over a stated limit
  not_found,         // a file, adapter or tensor is missing
  unsupported,       // well-formed, but not something this program runs
  io_failed,         // the operating system refused a read or write
  out_of_memory,     // a memory plan or an allocation does not fit
  device_lost,       // the compute device is gone; its owner must rebuild it
  internal,          // a promise inside this program was broken
};

const char* error_code_name(ErrorCode code);

// One failure. `message` is one line: what, where, expected and found.
// `context` holds the steps that led here, innermost first ("While reading layer 12").
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::vector<std::string> context;

  Error with_context(std::string line) && {
    context.push_back(std::move(line));
    return std::move(*this);
  }
  // The message, then each context line as "; while ...", all on one line.
  std::string to_line() const;
};

inline Error make_error(ErrorCode code, std::string message) { return Error{code, std::move(message), {}}; }
// clang-format off
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  template <typename U>
    requires(std::is_convertible_v<U&&, T> && !std::is_same_v<std::remove_cvref_t<U>, T> &&
             !std::is_same_v<std::remove_cvref_t<U>, Error> && !std::is_same_v<std::remove_cvref_t<U>, Result>)
  Result(U&& value) : state_(std::in_place_index<0>, std::forward<U>(value)) {}  // NOLINT
  // clang-format on
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace chorus

#define CHORUS_CONCAT_INNER(a, b) a##b
#define CHORUS_CONCAT(a, b) CHORUS_CONCAT_INNER(a, b)

// CHORUS_TRY(expression): returns the error of a Result<void> (or any Result) from the enclosing function.
#define CHORUS_TRY(expression)                                        \
  do {                                                                \
    auto chorus_status = (expression);                                \
    if (!chorus_status.ok()) return std::move(chorus_status).error(); \
  } while (false)

// CHORUS_ASSIGN(declaration, expression): unwraps a value or returns the error.
#define CHORUS_ASSIGN(declaration, expression) CHORUS_ASSIGN_IMPL(CHORUS_CONCAT(chorus_result_, __LINE__), declaration, expression)
#define CHORUS_ASSIGN_IMPL(name, declaration, expression) \
  auto name = (expression);                               \
  if (!name.ok()) return std::move(name).error();         \
  declaration = std::move(name).value()

// CHORUS_CHECK(condition): a promise inside our own code, kept in release builds. Inside a function that returns a Result.
#define CHORUS_CHECK(condition)                                                                                                          \
  do {                                                                                                                                   \
    if (!(condition))                                                                                                                    \
      return ::chorus::make_error(::chorus::ErrorCode::internal,                                                                         \
                                  std::string("internal check failed: " #condition " at ") + __FILE__ + ":" + std::to_string(__LINE__)); \
  } while (false)
