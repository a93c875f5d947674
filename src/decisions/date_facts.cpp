// kev.md 2.5. Choices where the reference's wording is not known: capitalised full month names only, a full stop after each sentence,
// "day" for 1 and "days" otherwise, an earlier annotation is replaced.
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <unordered_set>
#include <vector>

#include "decisions/render.h"
#include "formats/unicode.h"

namespace chorus::decisions {
namespace {

using formats::JsonArray;
using formats::JsonValue;

constexpr std::string_view kKey = "date_facts";
constexpr std::string_view kTextMark = "\n\ndate_facts: ";
constexpr std::array<std::string_view, 12> kMonths = {"January", "February", "March",     "April",   "May",      "June",
                                                      "July",    "August",   "September", "October", "November", "December"};

struct Date {
  std::string_view raw;
  std::chrono::sys_days day;
};

// Reads the pieces of a date from a text; every read either moves on or answers no.
struct Reader {
  std::string_view text;
  size_t at = 0;

  bool take(char expected) {
    if (at >= text.size() || text[at] != expected) return false;
    ++at;
    return true;
  }

  std::optional<unsigned> digits(size_t least, size_t most) {
    unsigned value = 0;
    size_t count = 0;
    while (count < most && at < text.size() && text[at] >= '0' && text[at] <= '9') {
      value = value * 10 + static_cast<unsigned>(text[at++] - '0');
      ++count;
    }
    if (count < least) return std::nullopt;
    return value;
  }

  std::optional<unsigned> month_name() {
    for (unsigned month = 0; month < kMonths.size(); ++month) {
      if (text.substr(at).starts_with(kMonths[month])) {
        at += kMonths[month].size();
        return month + 1;
      }
    }
    return std::nullopt;
  }
};

bool word_ends_at(std::string_view text, size_t at) {
  return at >= text.size() || !formats::is_word_character(formats::next_character(text, at));
}

bool word_starts_at(std::string_view text, size_t at) {
  return at == 0 || !formats::is_word_character(formats::previous_character(text, at));
}

struct Spelling {
  size_t end = 0;  // 0: no date is written here
  std::chrono::year_month_day date;
};

Spelling read_date(std::string_view text, size_t start) {
  Reader reader{text, start};
  std::optional<unsigned> year, month, day;
  if (month = reader.month_name(); month) {
    if (!reader.take(' ') || !(day = reader.digits(1, 2)) || !reader.take(',') || !reader.take(' ') || !(year = reader.digits(4, 4)))
      return {};
  } else {
    if (!(year = reader.digits(4, 4)) || !reader.take('-') || !(month = reader.digits(2, 2)) || !reader.take('-')) return {};
    if (!(day = reader.digits(2, 2))) return {};
  }
  if (!word_starts_at(text, start) || !word_ends_at(text, reader.at)) return {};
  return {reader.at, std::chrono::year(static_cast<int>(*year)) / std::chrono::month(*month) / std::chrono::day(*day)};
}

bool may_start_date(char byte) {
  return (byte >= '0' && byte <= '9') || byte == 'J' || byte == 'F' || byte == 'M' || byte == 'A' || byte == 'S' || byte == 'O' ||
         byte == 'N' || byte == 'D';
}

std::vector<Date> find_dates(std::string_view text) {
  std::vector<Date> dates;
  std::unordered_set<std::string_view> seen;
  for (size_t at = 0; at < text.size() && dates.size() < kDateFactsMax;) {
    const Spelling found = may_start_date(text[at]) ? read_date(text, at) : Spelling{};
    if (found.end == 0) {
      ++at;
      continue;
    }
    const std::string_view raw = text.substr(at, found.end - at);
    at = found.end;
    if (!found.date.ok() || static_cast<int>(found.date.year()) < 1) continue;
    if (seen.insert(raw).second) dates.push_back({raw, std::chrono::sys_days(found.date)});
  }
  return dates;
}

// Empty with fewer than two dates.
std::string date_sentences(std::string_view text) {
  const std::vector<Date> dates = find_dates(text);
  std::string out;
  for (size_t i = 0; i < dates.size(); ++i) {
    for (size_t j = i + 1; j < dates.size(); ++j) {
      const auto days = (dates[j].day - dates[i].day).count();
      if (!out.empty()) out += ' ';
      out += dates[j].raw;
      if (days == 0) {
        out += " is the same day as ";
      } else {
        const auto count = std::abs(days);
        out += " is " + std::to_string(count) + (count == 1 ? " day " : " days ") + (days > 0 ? "after " : "before ");
      }
      out += dates[i].raw;
      out += '.';
    }
  }
  return out;
}

bool is_annotation(const JsonValue& value) { return value.members().size() == 1 && value.members()[0].key == kKey; }

JsonValue annotated_object(const JsonValue& state) {
  JsonValue bare = JsonValue::object();
  for (const formats::JsonMember& member : state.members()) {
    if (member.key != kKey) bare.append(member.key, member.value);
  }
  std::string sentences = date_sentences(render(bare));
  if (sentences.empty()) return state;
  bare.append(std::string(kKey), JsonValue::string(std::move(sentences)));
  return bare;
}

JsonValue annotated_array(const JsonValue& state) {
  JsonArray items(state.items().begin(), state.items().end());
  if (!items.empty() && is_annotation(items.back())) items.pop_back();
  JsonValue bare = JsonValue::array(std::move(items));
  std::string sentences = date_sentences(render(bare));
  if (sentences.empty()) return state;
  JsonValue annotation = JsonValue::object();
  annotation.append(std::string(kKey), JsonValue::string(std::move(sentences)));
  bare.push_back(std::move(annotation));
  return bare;
}

// Text that already ends in exactly the sentences of what stands before them is an annotation of ours.
bool is_annotated_text(std::string_view text) {
  const size_t mark = text.rfind(kTextMark);
  return mark != std::string_view::npos && date_sentences(text.substr(0, mark)) == text.substr(mark + kTextMark.size());
}

JsonValue annotated_text(const JsonValue& state) {
  const std::string text = render(state);
  if (is_annotated_text(text)) return state;
  const std::string sentences = date_sentences(text);
  if (sentences.empty()) return state;
  return JsonValue::string(text + std::string(kTextMark) + sentences);
}

}  // namespace

JsonValue with_date_facts(const JsonValue& state) {
  if (state.is_object()) return annotated_object(state);
  if (state.is_array()) return annotated_array(state);
  return annotated_text(state);
}

}  // namespace chorus::decisions
