// Every request of kev-mini.golden.jsonl (made by the float32 reference) through rendering, packing, answers and counts; the
// probabilities are the reference's own, so that everything here must be exact.
#include <gtest/gtest.h>

#include <sstream>

#include "decisions/answers.h"
#include "decisions/pack.h"
#include "decisions/request.h"
#include "formats/test_files.h"

namespace chorus::decisions {
namespace {

using formats::JsonValue;

template <typename Number>
std::vector<Number> numbers(const JsonValue& list) {
  std::vector<Number> values;
  for (const JsonValue& item : list.items()) values.push_back(static_cast<Number>(*item.as_double("number")));
  return values;
}

void expect_row(const PackedDecision& packed, const PackedBranch& branch, const JsonValue& row) {
  std::vector<uint32_t> tokens = packed.state.tokens;
  tokens.insert(tokens.end(), branch.tokens.begin(), branch.tokens.end());
  EXPECT_EQ(tokens, numbers<uint32_t>(*row.find("token_ids")));
  EXPECT_EQ(packed.state.tokens.size(), *row.find("state_tokens")->as_uint64("state_tokens"));
  std::vector<uint32_t> ends = branch.option_ends;
  for (uint32_t& end : ends) end += static_cast<uint32_t>(packed.state.tokens.size());
  EXPECT_EQ(ends, numbers<uint32_t>(*row.find("option_ends")));
  EXPECT_EQ(branch.decide + 1, branch.tokens.size());
}

void expect_record(const formats::Tokenizer& tokenizer, const JsonValue& record) {
  const auto request = request_from_json(*record.find("request"));
  ASSERT_TRUE(request.ok()) << request.error().to_line();
  const auto packed = pack(*request, tokenizer);
  ASSERT_TRUE(packed.ok()) << packed.error().to_line();
  EXPECT_EQ(packed->input_tokens, *record.find("input_tokens")->as_uint64("input_tokens"));
  std::vector<Answer> answers;
  for (size_t i = 0; i < request->questions.size(); ++i) {
    const JsonValue* row = record.find("rows")->find(request->questions[i].id);
    ASSERT_NE(row, nullptr) << request->questions[i].id;
    expect_row(*packed, packed->branches[i], *row);
    auto answer = make_answer(request->questions[i], numbers<float>(*row->find("probabilities")));
    ASSERT_TRUE(answer.ok()) << answer.error().to_line();
    answers.push_back(*answer);
  }
  const JsonValue body = answers_json(request->questions, answers);
  EXPECT_EQ(formats::json_dumps(body), formats::json_dumps(*record.find("answers")));
  const auto output_tokens = count_output_tokens(body, tokenizer);
  ASSERT_TRUE(output_tokens.ok());
  EXPECT_EQ(*output_tokens, *record.find("output_tokens")->as_uint64("output_tokens"));
}

TEST(KevGolden, RowsAnswersAndCountsAreExact) {
  const auto tokenizer = formats::Tokenizer::parse(formats::read_test_file(std::string(CHORUS_MODELS) + "/kev-mini-base/tokenizer.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_line();
  std::istringstream lines(formats::read_test_file(std::string(CHORUS_TEST_DATA) + "/kev-mini.golden.jsonl"));
  size_t records = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto record = formats::parse_json(line);
    ASSERT_TRUE(record.ok()) << record.error().to_line();
    SCOPED_TRACE("record " + std::to_string(records++));
    expect_record(*tokenizer, *record);
  }
  EXPECT_EQ(records, 48u);
}

}  // namespace
}  // namespace chorus::decisions
