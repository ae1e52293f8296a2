// Small checks: the first one that fails ends its test with file, line and the values.
#pragma once

#include <cmath>
#include <sstream>
#include <stdexcept>
#include <string>

namespace slipstream::test {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Which case of a loop is being checked; given in the message when a check fails.
class Context {
 public:
  template <typename... Parts>
  explicit Context(const Parts&... parts) : before_(current()) {
    std::ostringstream text;
    ((text << parts), ...);
    current() = before_.empty() ? text.str() : before_ + ", " + text.str();
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { current() = before_; }

  static std::string& current() {
    static thread_local std::string text;
    return text;
  }

 private:
  std::string before_;
};

template <typename... Parts>
[[noreturn]] void fail(const char* file, int line, const Parts&... parts) {
  std::ostringstream text;
  text.precision(17);
  text << file << ":" << line << ": ";
  ((text << parts), ...);
  if (!Context::current().empty()) text << " (" << Context::current() << ")";
  throw Failure(text.str());
}

}  // namespace slipstream::test

#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) slipstream::test::fail(__FILE__, __LINE__, #condition " is false"); \
  } while (false)

#define CHECK_EQUAL(actual, expected)                                                          \
  do {                                                                                         \
    const auto actual_value = (actual);                                                        \
    const auto expected_value = (expected);                                                    \
    if (!(actual_value == expected_value))                                                     \
      slipstream::test::fail(__FILE__, __LINE__, #actual " is ", actual_value, ", should be ", \
                             expected_value);                                                  \
  } while (false)

// |actual - expected| <= bound; fails for NaN.
#define CHECK_CLOSE(actual, expected, bound)                                                   \
  do {                                                                                         \
    const double actual_value = (actual), expected_value = (expected), bound_value = (bound);  \
    if (!(std::fabs(actual_value - expected_value) <= bound_value))                            \
      slipstream::test::fail(__FILE__, __LINE__, #actual " is ", actual_value, ", should be ", \
                             expected_value, " within ", bound_value);                         \
  } while (false)
