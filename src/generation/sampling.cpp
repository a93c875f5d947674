#include "generation/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>

namespace chorus::generation {

namespace {

constexpr uint32_t kNoToken = 0xffffffffu;  // what the device says of a row that holds a NaN

Error bad_option(const char* name, float found, const char* expected) {
  return make_error(ErrorCode::invalid_argument, std::string("sampling: ") + name + " " + std::to_string(found) + ": expected " + expected);
}

Error not_a_number(uint32_t step) {
  return make_error(ErrorCode::invalid_input,
                    "the model's logits are not numbers (NaN) at token " + std::to_string(step + 1) + " of the answer");
}

}  // namespace

Status check_sampling(const SamplingOptions& options, uint32_t vocabulary) {
  // Written so that NaN fails.
  if (!(options.temperature >= 0 && options.temperature <= 1000)) return bad_option("temperature", options.temperature, "0 to 1000");
  if (!(options.top_p > 0 && options.top_p <= 1)) return bad_option("top_p", options.top_p, "above 0 and at most 1");
  if (!(options.min_p >= 0 && options.min_p <= 1)) return bad_option("min_p", options.min_p, "0 to 1");
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= 1000)) {
    return bad_option("repetition_penalty", options.repetition_penalty, "above 0 and at most 1000");
  }
  if (!(std::fabs(options.presence_penalty) <= 1000)) return bad_option("presence_penalty", options.presence_penalty, "-1000 to 1000");
  if (!(std::fabs(options.frequency_penalty) <= 1000)) return bad_option("frequency_penalty", options.frequency_penalty, "-1000 to 1000");
  for (const auto& [token, bias] : options.logit_bias) {
    if (token >= vocabulary) {
      return make_error(ErrorCode::invalid_argument, "sampling: logit_bias: token " + std::to_string(token) +
                                                         " is outside the vocabulary of " + std::to_string(vocabulary));
    }
    if (!std::isfinite(bias)) return bad_option("logit_bias", bias, "a finite number");
  }
  if (options.top_logprobs > std::min(kLogprobsMax, vocabulary)) {
    return make_error(ErrorCode::invalid_argument, "sampling: logprobs " + std::to_string(options.top_logprobs) + ": expected at most " +
                                                       std::to_string(std::min(kLogprobsMax, vocabulary)));
  }
  return {};
}

bool needs_row(const SamplingOptions& options) {
  return options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0 ||
         !options.logit_bias.empty() || options.logprobs || options.top_logprobs > 0;
}

compute::SampleRow sample_row(const SamplingOptions& options, uint32_t step) {
  compute::SampleRow row;
  if (options.temperature > 0) row.temperature = std::max(options.temperature, 1e-4f);
  row.top_k = options.top_k;
  row.top_p = options.top_p;
  row.min_p = options.min_p;
  row.seed_low = static_cast<uint32_t>(options.seed);
  row.seed_high = static_cast<uint32_t>(options.seed >> 32);
  row.step = step;
  return row;
}

namespace {

// The first word of Philox 4x32-10 (Salmon et al. 2011) as a number in [0, 1).
double draw(const compute::SampleRow& row) {
  std::array<uint32_t, 4> counter = {row.step, 0, 0, 0};
  std::array<uint32_t, 2> key = {row.seed_low, row.seed_high};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter[0] * 0x1p-32;
}

uint32_t most_probable(std::span<const float> row) {
  return static_cast<uint32_t>(std::max_element(row.begin(), row.end()) - row.begin());  // the first of equals
}

// The `count` first columns by falling value, of equals the lower; all when count is 0.
std::vector<uint32_t> ordered(std::span<const float> row, uint32_t count) {
  std::vector<uint32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto before = [&](uint32_t a, uint32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; };
  if (count > 0 && count < row.size()) {
    std::partial_sort(order.begin(), order.begin() + count, order.end(), before);
    order.resize(count);
  } else {
    std::sort(order.begin(), order.end(), before);
  }
  return order;
}

// Log probabilities of a row as it is.
class LogProbabilities {
 public:
  explicit LogProbabilities(std::span<const float> row) {
    largest_ = row[most_probable(row)];
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit) - largest_);
    log_sum_ = std::log(sum);
  }
  float of(float logit) const { return static_cast<float>(static_cast<double>(logit) - largest_ - log_sum_); }

 private:
  double largest_ = 0, log_sum_ = 0;
};

void apply_penalties(std::span<float> row, const SamplingOptions& options, const TokenHistory& history) {
  for (const auto& [token, bias] : options.logit_bias) row[token] += bias;
  const auto repeat = [&](uint32_t token) {
    if (token < row.size()) row[token] = row[token] > 0 ? row[token] / options.repetition_penalty : row[token] * options.repetition_penalty;
  };
  if (options.repetition_penalty != 1) {
    for (const uint32_t token : history.prompt) repeat(token);
  }
  for (const auto& [token, count] : history.answer) {
    if (token >= row.size()) continue;
    if (options.repetition_penalty != 1 && history.prompt.count(token) == 0) repeat(token);
    row[token] -= options.presence_penalty + options.frequency_penalty * static_cast<float>(count);
  }
}

uint32_t sample(std::span<const float> row, const compute::SampleRow& how) {
  std::vector<uint32_t> order = ordered(row, how.top_k);
  std::vector<double> weights;
  double total = 0;
  for (const uint32_t token : order) {
    weights.push_back(std::exp((static_cast<double>(row[token]) - row[order[0]]) / how.temperature));
    total += weights.back();
  }
  size_t kept = weights.size();
  if (how.top_p < 1) {
    double sum = 0;
    for (kept = 0; kept < weights.size() && (kept == 0 || sum < how.top_p * total); ++kept) sum += weights[kept];
  }
  size_t probable = 1;
  while (probable < kept && weights[probable] >= how.min_p) ++probable;
  total = std::accumulate(weights.begin(), weights.begin() + static_cast<ptrdiff_t>(probable), 0.0);
  const double target = draw(how) * total;
  double sum = 0;
  for (size_t i = 0; i < probable; ++i) {
    sum += weights[i];
    if (sum > target) return order[i];
  }
  return order[probable - 1];
}

}  // namespace

Result<TokenChoice> choose_on_host(std::span<float> row, const SamplingOptions& options, uint32_t step, const TokenHistory& history) {
  if (row.empty()) return make_error(ErrorCode::internal, "sampling: a row without logits");
  if (std::any_of(row.begin(), row.end(), [](float logit) { return std::isnan(logit); })) return not_a_number(step);
  if (!std::isfinite(row[most_probable(row)])) {
    return make_error(ErrorCode::invalid_input,
                      "the model's logits are not finite at token " + std::to_string(step + 1) + " of the answer");
  }
  TokenChoice choice;
  const bool wants_logprobs = options.logprobs || options.top_logprobs > 0;
  std::vector<float> own;  // before penalties
  if (wants_logprobs) {
    own.assign(row.begin(), row.end());
    if (options.top_logprobs > 0) {
      const LogProbabilities probabilities(own);
      for (const uint32_t token : ordered(own, options.top_logprobs)) choice.top_logprobs.push_back({token, probabilities.of(own[token])});
    }
  }
  apply_penalties(row, options, history);
  choice.token = options.temperature > 0 ? sample(row, sample_row(options, step)) : most_probable(row);
  if (wants_logprobs) choice.logprob = LogProbabilities(own).of(own[choice.token]);
  return choice;
}

Status TokenChooser::reserve(uint32_t rows) {
  if (rows <= reserved_) return {};
  CHORUS_ASSIGN(greedy_, backend_.create_buffer(uint64_t{4} * rows, "chosen tokens"));
  CHORUS_ASSIGN(drawn_, backend_.create_buffer(uint64_t{4} * rows, "drawn tokens"));
  CHORUS_ASSIGN(sample_rows_, backend_.create_buffer(sizeof(compute::SampleRow) * rows, "sampling options"));
  reserved_ = rows;
  return {};
}

// Greedy and drawn rows share one batch; an operation that no row needs is left out.
Status TokenChooser::choose_on_device(const models::Logits& logits, uint32_t vocabulary, std::span<const RowChoice> rows,
                                      std::vector<uint32_t>& greedy, std::vector<uint32_t>& drawn) {
  const auto count = static_cast<uint32_t>(rows.size());
  bool any_greedy = false, any_drawn = false;
  std::vector<compute::SampleRow> how;
  for (const RowChoice& row : rows) {
    if (!needs_row(*row.options)) (row.options->temperature > 0 ? any_drawn : any_greedy) = true;
    how.push_back(sample_row(*row.options, row.step));
  }
  if (!any_greedy && !any_drawn) return {};
  CHORUS_TRY(reserve(count));
  const compute::View view{logits.buffer.get(), 0, count, vocabulary, vocabulary};
  if (any_drawn) CHORUS_TRY(backend_.write(*sample_rows_, 0, std::as_bytes(std::span<const compute::SampleRow>(how))));
  CHORUS_ASSIGN(auto batch, backend_.begin_batch());
  if (any_greedy) CHORUS_TRY(batch->argmax({view, greedy_.get()}));
  if (any_drawn) CHORUS_TRY(batch->sample({view, sample_rows_.get(), drawn_.get()}));
  greedy.assign(count, kNoToken);
  drawn.assign(count, kNoToken);
  // The read submits the batch: one piece of work for the device instead of two.
  if (any_greedy) CHORUS_TRY(backend_.read(*greedy_, 0, std::as_writable_bytes(std::span(greedy))));
  if (any_drawn) CHORUS_TRY(backend_.read(*drawn_, 0, std::as_writable_bytes(std::span(drawn))));
  return {};
}

Result<std::vector<Result<TokenChoice>>> TokenChooser::choose(const models::Logits& logits, uint32_t vocabulary,
                                                              std::span<const RowChoice> rows) {
  CHORUS_CHECK(logits.rows == rows.size());
  std::vector<uint32_t> greedy, drawn;
  CHORUS_TRY(choose_on_device(logits, vocabulary, rows, greedy, drawn));
  std::vector<Result<TokenChoice>> choices;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowChoice& row = rows[i];
    if (needs_row(*row.options)) {
      row_.resize(vocabulary);
      CHORUS_TRY(backend_.read(*logits.buffer, uint64_t{4} * vocabulary * i, std::as_writable_bytes(std::span(row_))));
      choices.push_back(choose_on_host(row_, *row.options, row.step, *row.history));
      continue;
    }
    const uint32_t token = row.options->temperature > 0 ? drawn[i] : greedy[i];
    if (token == kNoToken) {
      choices.emplace_back(not_a_number(row.step));
    } else if (token >= vocabulary) {
      choices.emplace_back(make_error(ErrorCode::internal, "sampling: the device chose token " + std::to_string(token)));
    } else {
      TokenChoice choice;
      choice.token = token;
      choices.emplace_back(std::move(choice));
    }
  }
  return choices;
}

}  // namespace chorus::generation
