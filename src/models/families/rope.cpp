// Sources: Su et al. 2021 (RoFormer), Peng et al. 2023 (YaRN), the Llama 3.1 model card; transformers 5.17 where they leave a choice.
#include "models/families/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/bytes.h"

namespace chorus::models::families {

namespace {

constexpr double kThetaMax = 1e15;
constexpr double kFactorMax = 1e6;

// Where the settings stand: an inner object, or the outer one.
Result<ConfigReader> scaling_section(const ConfigReader& config) {
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (config.has(key)) return config.inner(key);
  }
  return config;
}

Result<std::string> rope_type(const ConfigReader& section, const ConfigReader& config) {
  if (!config.has("rope_scaling") && !config.has("rope_parameters")) return std::string("default");
  return section.text_or(section.present({"rope_type", "type"}), "default");
}

// theta^(-2i / rotary_dim).
std::vector<float> plain_frequencies(double theta, uint32_t rotary_dim) {
  std::vector<float> frequencies(rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    frequencies[i] = 1.0f / std::pow(static_cast<float>(theta), exponent);
  }
  return frequencies;
}

// Long wavelengths are divided by factor, short ones stay, between them a linear blend.
Status scale_llama3(const ConfigReader& section, uint32_t original_context, RopeSpec& rope) {
  CHORUS_ASSIGN(const double factor, section.number_or("factor", 8, 1, kFactorMax));
  CHORUS_ASSIGN(const double low, section.number_or("low_freq_factor", 1, 1e-3, kFactorMax));
  CHORUS_ASSIGN(const double high, section.number_or("high_freq_factor", 4, 1e-3, kFactorMax));
  if (!(low < high)) return section.invalid("low_freq_factor", "expected less than high_freq_factor, found no less");
  for (float& frequency : rope.inverse_frequencies) {
    const double turns = original_context * static_cast<double>(frequency) / (2 * std::numbers::pi);
    const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    frequency = static_cast<float>((1 - smooth) * frequency / factor + smooth * frequency);
  }
  return {};
}

double yarn_magnitude(double factor, double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0; }

Result<double> yarn_factor(const ConfigReader& section, const ConfigReader& config, uint32_t original_context) {
  if (section.has("factor")) return section.number_or("factor", 1, 1, kFactorMax);
  CHORUS_ASSIGN(const uint32_t context, config.size("max_position_embeddings", 1, INT32_MAX));
  return std::max(1.0, static_cast<double>(context) / original_context);
}

// Columns that turn more than beta_fast times over the original context keep their frequency, those below beta_slow are divided by factor.
Status scale_yarn(const ConfigReader& section, const ConfigReader& config, double theta, uint32_t original_context, RopeSpec& rope) {
  CHORUS_ASSIGN(const double factor, yarn_factor(section, config, original_context));
  CHORUS_ASSIGN(const double fast, section.number_or("beta_fast", 32, 1e-3, kFactorMax));
  CHORUS_ASSIGN(const double slow, section.number_or("beta_slow", 1, 1e-3, kFactorMax));
  CHORUS_ASSIGN(const bool truncate, section.flag_or("truncate", true));
  CHORUS_ASSIGN(const double mscale, section.number_or("mscale", 0, 0, kFactorMax));
  CHORUS_ASSIGN(const double mscale_all, section.number_or("mscale_all_dim", 0, 0, kFactorMax));
  const double implied =
      mscale > 0 && mscale_all > 0 ? yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all) : yarn_magnitude(factor, 1);
  CHORUS_ASSIGN(const double attention, section.number_or("attention_factor", implied, 1e-6, kFactorMax));
  rope.factor = static_cast<float>(attention);
  const auto column_of = [&](double turns) {
    return rope.rotary_dim * std::log(original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double first = column_of(fast), last = column_of(slow);
  if (truncate) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0);
  last = std::min(last, rope.rotary_dim - 1.0);
  if (first == last) last += 0.001;
  for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    float& frequency = rope.inverse_frequencies[i];
    frequency = static_cast<float>(frequency / factor * ramp + frequency * (1 - ramp));
  }
  return {};
}

Result<uint32_t> rotary_columns(const ConfigReader& section, const ConfigReader& config, uint32_t head_dim, double fallback) {
  const ConfigReader& holder = section.has("partial_rotary_factor") ? section : config;
  CHORUS_ASSIGN(const double share, holder.number_or("partial_rotary_factor", fallback, 0, 1));
  const auto columns = static_cast<uint32_t>(head_dim * share);
  if (columns >= 2 && columns % 2 == 0) return columns;
  return holder.invalid("partial_rotary_factor", formats::python_float_text(share) + " of heads of " + std::to_string(head_dim) +
                                                     " gives " + std::to_string(columns) +
                                                     " rotary columns, expected an even number of at least 2");
}

}  // namespace

Result<RopeSpec> read_rope(const ConfigReader& config, uint32_t head_dim, compute::RopeForm form, const RopeDefaults& defaults) {
  CHORUS_ASSIGN(const ConfigReader section, scaling_section(config));
  CHORUS_ASSIGN(const std::string type, rope_type(section, config));
  const ConfigReader& theta_holder = section.has("rope_theta") ? section : config;
  CHORUS_ASSIGN(const double theta, theta_holder.number_or("rope_theta", defaults.theta, 1.001, kThetaMax));
  RopeSpec rope;
  rope.form = form;
  CHORUS_ASSIGN(rope.rotary_dim, rotary_columns(section, config, head_dim, defaults.partial_factor));
  rope.inverse_frequencies = plain_frequencies(theta, rope.rotary_dim);
  if (type == "default") return rope;
  if (type == "linear") {
    CHORUS_ASSIGN(const double factor, section.number_or("factor", 1, 1, kFactorMax));
    for (float& frequency : rope.inverse_frequencies) frequency /= static_cast<float>(factor);
    return rope;
  }
  if (type != "llama3" && type != "yarn") {
    return section.unsupported(section.present({"rope_type", "type"}), "\"default\", \"linear\", \"llama3\" and \"yarn\"",
                               quote_text(type));
  }
  const ConfigReader& original_holder = section.has("original_max_position_embeddings") ? section : config;
  const auto original_key = original_holder.present({"original_max_position_embeddings", "max_position_embeddings"});
  CHORUS_ASSIGN(const uint32_t original_context, original_holder.size(original_key, 1, INT32_MAX));
  if (type == "llama3") {
    CHORUS_TRY(scale_llama3(section, original_context, rope));
  } else {
    CHORUS_TRY(scale_yarn(section, config, theta, original_context, rope));
  }
  return rope;
}

Result<double> read_yarn_scale(const ConfigReader& config) {
  CHORUS_ASSIGN(const ConfigReader section, scaling_section(config));
  CHORUS_ASSIGN(const std::string type, rope_type(section, config));
  if (type == "default") return 1.0;
  CHORUS_ASSIGN(const double mscale_all, section.number_or("mscale_all_dim", 0, 0, kFactorMax));
  CHORUS_ASSIGN(const double factor, section.number_or("factor", 1, 1, kFactorMax));
  if (mscale_all == 0) return 1.0;
  const double magnitude = yarn_magnitude(factor, mscale_all);
  return magnitude * magnitude;
}

}  // namespace chorus::models::families
