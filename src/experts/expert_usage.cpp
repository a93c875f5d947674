#include "experts/expert_usage.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "formats/json.h"

namespace chorus::experts {
namespace {

using formats::JsonValue;

constexpr std::string_view kFormat = "chorus-expert-usage";
constexpr std::string_view kFileName = ".chorus-experts.json";
constexpr uint64_t kFileBytesMax = 16 << 20;
constexpr double kUsesMax = 1e12;
constexpr double kUsesMin = 0.01;  // less is forgotten

Error bad_file(const std::string& where, const std::string& what) { return make_error(ErrorCode::invalid_input, where + ": " + what); }

}  // namespace

ExpertUsage::ExpertUsage(std::span<const uint32_t> experts_per_layer) {
  for (const uint32_t experts : experts_per_layer) uses_.emplace_back(experts, 0.0);
}

bool ExpertUsage::empty() const {
  return std::all_of(uses_.begin(), uses_.end(),
                     [](const auto& layer) { return std::all_of(layer.begin(), layer.end(), [](double uses) { return uses == 0; }); });
}

std::vector<ExpertKey> ExpertUsage::most_used(size_t count) const {
  std::vector<ExpertKey> keys;
  for (uint32_t layer = 0; layer < uses_.size(); ++layer) {
    for (uint32_t expert = 0; expert < uses_[layer].size(); ++expert) {
      if (uses_[layer][expert] > 0) keys.push_back({layer, expert});
    }
  }
  std::stable_sort(keys.begin(), keys.end(), [&](ExpertKey a, ExpertKey b) { return uses(a) > uses(b); });
  if (keys.size() > count) keys.resize(count);
  return keys;
}

Status ExpertUsage::load(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code) && !code) return {};
  const std::string where = path.string();
  CHORUS_ASSIGN(const std::string text, read_text_file(path, kFileBytesMax));
  auto parsed = formats::parse_json(text);
  if (!parsed.ok()) return std::move(parsed).error().with_context("reading " + where);
  CHORUS_ASSIGN(const JsonValue* format, parsed->member("format", where));
  CHORUS_ASSIGN(const std::string_view name, format->as_string(where + ": format"));
  if (name != kFormat) return bad_file(where, "format: expected " + quote_text(kFormat) + ", found " + quote_text(name));
  CHORUS_ASSIGN(const JsonValue* layers, parsed->member("layers", where));
  CHORUS_ASSIGN(const auto rows, layers->as_array(where + ": layers"));
  if (rows.size() != uses_.size()) {
    return bad_file(where, "expected " + std::to_string(uses_.size()) + " layers, found " + std::to_string(rows.size()));
  }
  auto sum = uses_;
  for (size_t layer = 0; layer < rows.size(); ++layer) {
    const std::string place = where + ": layer " + std::to_string(layer);
    CHORUS_ASSIGN(const auto counts, rows[layer].as_array(place));
    if (counts.size() != sum[layer].size()) {
      return bad_file(place, "expected " + std::to_string(sum[layer].size()) + " experts, found " + std::to_string(counts.size()));
    }
    for (size_t expert = 0; expert < counts.size(); ++expert) {
      CHORUS_ASSIGN(const double uses, counts[expert].as_double(place));
      if (!(uses >= 0 && uses <= kUsesMax)) return bad_file(place, "expected a count from 0 to 1e12");
      if (uses / 2 >= kUsesMin) sum[layer][expert] += uses / 2;
    }
  }
  uses_ = std::move(sum);
  return {};
}

Status ExpertUsage::save(const std::filesystem::path& path) const {
  JsonValue layers = JsonValue::array();
  for (const auto& layer : uses_) {
    JsonValue row = JsonValue::array();
    for (const double uses : layer) row.push_back(JsonValue::floating(std::min(std::round(uses * 100) / 100, kUsesMax)));
    layers.push_back(std::move(row));
  }
  JsonValue object = JsonValue::object();
  object.append("format", JsonValue::string(std::string(kFormat)));
  object.append("layers", std::move(layers));
  CHORUS_ASSIGN(AtomicFile file, AtomicFile::create(path));
  CHORUS_TRY(file.write(as_bytes(formats::json_dumps(object))));
  return file.commit();
}

std::filesystem::path usage_file_of(const std::filesystem::path& model) {
  std::error_code code;
  if (std::filesystem::is_directory(model, code)) return model / kFileName;
  return model.parent_path() / ("." + model.filename().string() + std::string(kFileName));
}

}  // namespace chorus::experts
