#include "experts/expert_system.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "experts/expert_budget.h"
#include "experts/free_memory.h"
#include "experts/packed_store.h"
#include "experts/resident_experts.h"
#include "experts/shard_store.h"
#include "models/blueprint_tensors.h"

namespace chorus::experts {
namespace {

constexpr uint64_t kDeviceReserve = 512ull << 20;  // of device memory, for workspace and caches of keys and values
constexpr uint64_t kTrialFrom = 256ull << 20;      // a bank below this is made without asking first
constexpr uint64_t kReservePiece = 256ull << 20;
constexpr uint64_t kPagedFrom = 16 * kPackedAlignment;  // smaller records stand closer than a page

uint64_t experts_in(const models::Blueprint& blueprint) {
  uint64_t count = 0;
  for (const auto& layer : blueprint.layers) {
    if (const auto* moe = std::get_if<models::MoeSpec>(&layer.feed_forward)) count += moe->experts;
  }
  return count;
}

// What the weights beside the experts take; vectors are f32.
uint64_t resident_weight_bytes(const models::Blueprint& blueprint, DType dtype) {
  uint64_t bytes = 0;
  for (const auto& [name, shape] : models::resident_tensors(blueprint)) {
    uint64_t elements = 1;
    for (const uint64_t extent : shape) elements *= extent;
    bytes += elements * (shape.size() > 1 ? dtype_bytes(dtype) : sizeof(float));
  }
  return bytes;
}

class NoExperts final : public ExpertSystem {
 public:
  models::ExpertExecutor* executor() override { return nullptr; }
  const std::string& plan() const override { return plan_; }
  ExpertStatistics statistics() const override { return {}; }
  void save_usage() override {}

 private:
  std::string plan_ = "no routed experts";
};

class ResidentSystem final : public ExpertSystem {
 public:
  ResidentSystem(std::unique_ptr<ResidentExperts> experts, ExpertStatistics statistics, std::string plan)
      : experts_(std::move(experts)), statistics_(statistics), plan_(std::move(plan)) {}
  models::ExpertExecutor* executor() override { return experts_.get(); }
  const std::string& plan() const override { return plan_; }
  ExpertStatistics statistics() const override { return statistics_; }
  void save_usage() override {}

 private:
  std::unique_ptr<ResidentExperts> experts_;
  ExpertStatistics statistics_;
  std::string plan_;
};

class CachedSystem final : public ExpertSystem {
 public:
  CachedSystem(std::unique_ptr<ExpertStore> store, std::filesystem::path usage_file, LogSink log)
      : store_(std::move(store)), usage_file_(std::move(usage_file)), log_(std::move(log)) {}
  ~CachedSystem() override { save_usage(); }

  Status start(compute::Backend& backend, const models::Blueprint& blueprint, CachedExperts::Options options) {
    ExpertUsage learned(experts_per_layer());
    if (!usage_file_.empty()) {
      auto loaded = learned.load(usage_file_);
      if (!loaded.ok()) {
        log_to(log_, LogLevel::warning, "expert usage is not used: " + loaded.error().to_line());
        learned = ExpertUsage(experts_per_layer());
      }
    }
    CHORUS_ASSIGN(experts_, CachedExperts::create(backend, blueprint, *store_, std::move(options), learned));
    return {};
  }
  void set_plan(ExpertStatistics statistics, std::string plan) {
    statistics_ = statistics;
    plan_ = std::move(plan);
  }

  models::ExpertExecutor* executor() override { return experts_.get(); }
  const std::string& plan() const override { return plan_; }
  ExpertStatistics statistics() const override {
    ExpertStatistics now = statistics_;
    now.in_place = experts_->in_place();
    now.cache = experts_->cache_statistics();
    now.device = experts_->device_statistics();
    now.times = experts_->times();
    now.buffered_reason = store_->buffered_reason();
    return now;
  }

  void save_usage() override {
    if (usage_saved_ || usage_file_.empty() || !experts_ || experts_->usage().empty()) return;
    usage_saved_ = true;
    ExpertUsage sum = experts_->usage();
    if (!sum.load(usage_file_).ok()) sum = experts_->usage();  // said at the start
    auto saved = sum.save(usage_file_);
    if (!saved.ok()) log_to(log_, LogLevel::warning, "expert usage is not kept: " + saved.error().to_line());
  }

 private:
  std::vector<uint32_t> experts_per_layer() const {
    std::vector<uint32_t> counts;
    for (uint32_t layer = 0; layer < store_->layers(); ++layer) counts.push_back(store_->experts(layer));
    return counts;
  }

  std::unique_ptr<ExpertStore> store_;
  std::filesystem::path usage_file_;
  LogSink log_;
  std::unique_ptr<CachedExperts> experts_;
  ExpertStatistics statistics_;
  std::string plan_;
  bool usage_saved_ = false;
};

// How many experts the device has room for beside the rest of the model, found out by asking it for the memory: WebGPU has no other way.
Result<uint32_t> device_slots_that_fit(compute::Backend& backend, const compute::ExpertShape& shape, uint32_t slots, uint64_t reserve) {
  std::vector<std::shared_ptr<compute::Buffer>> kept_free;
  const uint64_t piece = std::min(kReservePiece, backend.info().buffer_bytes_max / 4 * 4);
  for (uint64_t at = 0; at < reserve; at += piece) {
    auto buffer = backend.create_buffer(piece, "room kept free");
    if (!buffer.ok()) break;  // the model will say so itself
    kept_free.push_back(std::move(buffer).value());
  }
  for (;;) {
    auto bank = backend.create_expert_bank(shape, slots, "experts");
    if (bank.ok()) return slots;
    if (bank.error().code != ErrorCode::out_of_memory || slots == 1) return std::move(bank).error();
    slots -= std::max(1u, slots / 8);
  }
}

Result<bool> computes_in_place(compute::Backend& backend, const compute::ExpertShape& shape) {
  CHORUS_ASSIGN(const auto bank, backend.create_expert_bank(shape, 1, "one expert"));
  return backend.expert_memory(*bank, 0) != nullptr;
}

std::string cached_plan(const ExpertStatistics& numbers, bool direct, const ExpertOptions& options) {
  const auto part = [&](uint64_t slots) { return std::to_string(slots) + " (" + size_text(slots * numbers.record_bytes) + ")"; };
  std::string text = std::to_string(numbers.experts) + " experts of " + size_text(numbers.record_bytes) + ": ";
  if (!numbers.in_place) text += part(numbers.device_slots) + " in device memory, ";
  text += part(numbers.host_slots) + " in memory, the rest from disk, ";
  text += direct ? "past the page cache" : "through the page cache";
  return text + (options.prefetch ? ", read ahead on guesses" : "");
}

Result<std::unique_ptr<ExpertSystem>> open_resident(compute::Backend& backend, const models::LanguageCheckpoint& checkpoint, DType dtype,
                                                    const ExpertOptions& options, ExpertStatistics numbers) {
  // What fits in memory is read once: through the page cache, which makes the next start quick.
  CHORUS_ASSIGN(const auto store, open_expert_store(checkpoint, dtype, false));
  const auto source = [&](uint32_t layer, uint32_t expert, std::span<std::byte> record) {
    return read_record(*store, {layer, expert}, record);
  };
  CHORUS_ASSIGN(auto resident, ResidentExperts::load(backend, checkpoint.blueprint, dtype, source, options.progress));
  std::string plan = std::to_string(numbers.experts) + " experts of " + size_text(numbers.record_bytes) + ": all " +
                     (numbers.in_place ? "in memory" : "in device memory") + " (" + size_text(numbers.experts * numbers.record_bytes) + ")";
  return std::unique_ptr<ExpertSystem>(std::make_unique<ResidentSystem>(std::move(resident), numbers, std::move(plan)));
}

}  // namespace

Result<std::unique_ptr<ExpertStore>> open_expert_store(const models::LanguageCheckpoint& checkpoint, DType dtype, bool direct_io) {
  return checkpoint.files.packed ? open_packed_store(checkpoint, dtype, direct_io) : open_shard_store(checkpoint, dtype, direct_io);
}

Result<std::unique_ptr<ExpertSystem>> open_experts(compute::Backend& backend, const models::LanguageCheckpoint& checkpoint, DType dtype,
                                                   const ExpertOptions& options) {
  const uint64_t experts = experts_in(checkpoint.blueprint);
  if (experts == 0) return std::unique_ptr<ExpertSystem>(std::make_unique<NoExperts>());
  CHORUS_ASSIGN(auto store, open_expert_store(checkpoint, dtype, options.direct_io));
  const uint64_t record_bytes = store->record_bytes();
  BudgetInput input;
  input.record_bytes = record_bytes >= kPagedFrom ? packed_stride(record_bytes) : record_bytes;
  input.experts = experts;
  CHORUS_ASSIGN(input.in_place, computes_in_place(backend, store->shape()));
  input.shared_memory = !input.in_place && backend.info().software;
  input.host_bytes = options.expert_ram_bytes;
  input.device_bytes = options.expert_vram_bytes;
  input.free_bytes = free_memory_bytes();
  input.resident_bytes = resident_weight_bytes(checkpoint.blueprint, dtype);
  CHORUS_ASSIGN(Budget budget, plan_budget(input));
  if (!budget.resident && options.prefetch) {
    input.resident_bytes += RouterGuess::copied_bytes(checkpoint.blueprint, dtype);
    CHORUS_ASSIGN(budget, plan_budget(input));
  }
  if (!input.in_place && options.expert_vram_bytes == 0 && budget.device_slots * record_bytes >= kTrialFrom) {
    CHORUS_ASSIGN(const uint32_t slots,
                  device_slots_that_fit(backend, store->shape(), budget.device_slots, input.resident_bytes + kDeviceReserve));
    input.device_bytes = slots * input.record_bytes;
    CHORUS_ASSIGN(budget, plan_budget(input));
  }
  ExpertStatistics numbers;
  numbers.resident = budget.resident;
  numbers.in_place = input.in_place;
  numbers.record_bytes = record_bytes;
  numbers.experts = experts;
  if (budget.resident) return open_resident(backend, checkpoint, dtype, options, numbers);
  numbers.host_slots = budget.host_slots;
  numbers.device_slots = input.in_place ? 0 : budget.device_slots;
  const std::string plan = cached_plan(numbers, store->direct(), options);
  auto system = std::make_unique<CachedSystem>(std::move(store), options.usage_file.value_or(usage_file_of(checkpoint.path)), options.log);
  CachedExperts::Options executor{budget.host_slots, budget.device_slots, options.prefetch, options.reading_threads, nullptr, options.log};
  if (options.prefetch) {
    CHORUS_ASSIGN(executor.router_guess, RouterGuess::create(backend, checkpoint.blueprint, *checkpoint.weights, dtype));
  }
  CHORUS_TRY(system->start(backend, checkpoint.blueprint, std::move(executor)));
  system->set_plan(numbers, plan);
  return std::unique_ptr<ExpertSystem>(std::move(system));
}

Result<std::unique_ptr<ExpertSystem>> open_experts(compute::Backend& backend, const std::filesystem::path& model, DType dtype,
                                                   const ExpertOptions& options) {
  CHORUS_ASSIGN(const models::LanguageCheckpoint checkpoint, models::open_language_checkpoint(model));
  CHORUS_ASSIGN(auto system, open_experts(backend, checkpoint, dtype, options));
  // No model will bring its routers, and the checkpoint ends here.
  if (system->executor() != nullptr) CHORUS_TRY(system->executor()->take_routers({}));
  return system;
}

}  // namespace chorus::experts
