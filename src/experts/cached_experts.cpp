#include "experts/cached_experts.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "experts/packed_store.h"

namespace chorus::experts {
namespace {

constexpr uint32_t kPinnedShare = 2;    // one slot in so many may be pinned
constexpr uint32_t kLearningRows = 16;  // of a call; more teach little that is new

std::vector<uint32_t> experts_per_layer(const ExpertStore& store) {
  std::vector<uint32_t> counts;
  for (uint32_t layer = 0; layer < store.layers(); ++layer) counts.push_back(store.experts(layer));
  return counts;
}

// Adds the time of its life to `seconds`.
class Timer {
 public:
  explicit Timer(double& seconds) : seconds_(seconds), begin_(ExpertCache::steady_seconds()) {}
  ~Timer() { seconds_ += ExpertCache::steady_seconds() - begin_; }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double& seconds_;
  double begin_;
};

}  // namespace

// Memory for records at multiples of a page, taken from the system as slots are filled.
struct CachedExperts::HostArena {
  HostArena(uint32_t slots, uint64_t record_bytes)
      : stride(packed_stride(record_bytes)), memory(static_cast<std::byte*>(std::aligned_alloc(kPackedAlignment, slots * stride))) {}
  ~HostArena() { std::free(memory); }
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  uint64_t stride;
  std::byte* memory;
};

// Slots of the device's bank that a wave uses.
class CachedExperts::DeviceLeases {
 public:
  explicit DeviceLeases(CachePolicy& policy) : policy_(policy) {}
  ~DeviceLeases() {
    for (const Placed& each : placed_) policy_.release(each.slot);
  }
  DeviceLeases(const DeviceLeases&) = delete;
  DeviceLeases& operator=(const DeviceLeases&) = delete;

  void add(uint32_t expert, uint32_t slot) { placed_.push_back({expert, slot}); }
  std::span<const Placed> placed() const { return placed_; }

 private:
  CachePolicy& policy_;
  std::vector<Placed> placed_;
};

CachedExperts::CachedExperts(compute::Backend& backend, const models::Blueprint& blueprint, const ExpertStore& store, Options& options)
    : backend_(backend),
      activations_(blueprint.layers.size()),
      store_(store),
      prefetch_(options.prefetch),
      log_(options.log),
      usage_(experts_per_layer(store)),
      next_(experts_per_layer(store)),
      router_guess_(std::move(options.router_guess)) {
  for (size_t layer = 0; layer < activations_.size(); ++layer) {
    if (const auto* moe = std::get_if<models::MoeSpec>(&blueprint.layers[layer].feed_forward)) activations_[layer] = moe->activation;
  }
}

CachedExperts::~CachedExperts() {
  pending_.clear();
  pending_device_.reset();
}

Result<std::unique_ptr<CachedExperts>> CachedExperts::create(compute::Backend& backend, const models::Blueprint& blueprint,
                                                             const ExpertStore& store, Options options, const ExpertUsage& usage) {
  CHORUS_CHECK(store.layers() == blueprint.layers.size());
  std::unique_ptr<CachedExperts> cached(new CachedExperts(backend, blueprint, store, options));
  CHORUS_TRY(cached->make_room(options));
  cached->pin(usage);
  return cached;
}

Status CachedExperts::make_room(const Options& options) {
  const uint64_t record_bytes = store_.record_bytes();
  CHORUS_ASSIGN(bank_, backend_.create_expert_bank(store_.shape(), 1, "experts"));
  in_place_ = backend_.expert_memory(*bank_, 0) != nullptr;
  bank_.reset();
  const uint32_t bank_slots = in_place_ ? options.host_slots : options.device_slots;
  CHORUS_CHECK(options.host_slots > 0 && bank_slots > 0);
  CHORUS_ASSIGN(bank_, backend_.create_expert_bank(store_.shape(), bank_slots, "experts"));
  SlotMemory memory{options.host_slots, {}};
  if (in_place_) {
    // Records stand one after the other; what is between two is room that a read may use.
    std::byte* first = backend_.expert_memory(*bank_, 0);
    const uint64_t stride = bank_slots == 1 ? record_bytes : static_cast<uint64_t>(backend_.expert_memory(*bank_, 1) - first);
    memory.record = [first, stride](uint32_t slot) { return std::span<std::byte>(first + slot * stride, stride); };
  } else {
    arena_ = std::make_unique<HostArena>(options.host_slots, record_bytes);
    if (arena_->memory == nullptr) {
      return make_error(ErrorCode::out_of_memory,
                        "experts in memory: the system refused " + std::to_string(options.host_slots * arena_->stride) + " bytes");
    }
    memory.record = [arena = arena_.get()](uint32_t slot) {
      return std::span<std::byte>(arena->memory + slot * arena->stride, arena->stride);
    };
    device_ = std::make_unique<CachePolicy>(bank_slots, experts_per_layer(store_));
  }
  CHORUS_ASSIGN(cache_, ExpertCache::create(store_, std::move(memory), options.reading_threads));
  return {};
}

void CachedExperts::pin(const ExpertUsage& usage) {
  if (usage.empty()) return;
  const auto pinned = usage.most_used(cache_->slots() / kPinnedShare);
  if (device_) device_->set_pinned(usage.most_used(device_->slots() / kPinnedShare));
  cache_->set_pinned(pinned);
  if (prefetch_) cache_->warm(pinned);
}

Status CachedExperts::begin_pass(uint32_t) {
  cache_->begin_pass();
  if (device_) device_->begin_pass();
  return {};
}

// Here, not where it is found out: that is on a reading thread.
void CachedExperts::end_pass() {
  if (said_buffered_) return;
  const std::string reason = store_.buffered_reason();
  if (reason.empty()) return;
  said_buffered_ = true;
  log_to(log_, LogLevel::warning, reason + "; experts are read through the page cache");
}

Status CachedExperts::run(compute::Batch& batch, const models::ExpertCall& call) {
  CHORUS_CHECK(call.layer < store_.layers() && store_.experts(call.layer) > 0 && call.experts != nullptr && call.top_k > 0);
  {
    const Timer timer(times_.routes);
    CHORUS_TRY(read_routes(batch, call));
  }
  pending_.clear();
  pending_device_.reset();
  CHORUS_TRY(collect_wanted(call));
  learn(call);
  cache_->drop_guesses_except(wanted_);
  guessed_ = false;
  return in_place_ ? run_in_place(batch, call) : run_on_device(batch, call);
}

// The routes and, where guesses pay, the router's guess, by one read, which submits what was recorded.
Status CachedExperts::read_routes(compute::Batch& batch, const models::ExpertCall& call) {
  routes_.resize(size_t{call.x.rows} * call.top_k);
  guesses_.clear();
  if (routes_.empty()) return batch.submit();
  bool guessed = false;
  if (prefetch_ && router_guess_ && guesses_pay_) {
    CHORUS_ASSIGN(guessed, router_guess_->record(batch, call));
  }
  if (guessed) {
    CHORUS_ASSIGN(guesses_, router_guess_->read(routes_));
    return {};
  }
  return backend_.read(*call.experts, 0, std::as_writable_bytes(std::span(routes_)));
}

Status CachedExperts::collect_wanted(const models::ExpertCall& call) {
  const uint32_t experts = store_.experts(call.layer);
  wanted_.clear();
  slot_of_.assign(experts, 0);
  for (const uint32_t expert : routes_) {
    if (expert == compute::kNoSlot) continue;  // the row's logits were not numbers; its weights say so
    if (expert >= experts) {
      return make_error(ErrorCode::internal, "layer " + std::to_string(call.layer) + ": the router chose expert " + std::to_string(expert) +
                                                 " of " + std::to_string(experts));
    }
    if (slot_of_[expert]++ == 0) wanted_.push_back({call.layer, expert});
  }
  for (const ExpertKey key : wanted_) usage_.add(key);
  return {};
}

// What the layer before chose together with what this one chose.
void CachedExperts::learn(const models::ExpertCall& call) {
  const bool follows = next_.next_layer(layer_before_) == call.layer && routes_before_.size() == routes_.size();
  for (uint32_t row = 0; follows && row < std::min(call.x.rows, kLearningRows); ++row) {
    const size_t first = size_t{row} * call.top_k;
    next_.note(layer_before_, std::span(routes_before_).subspan(first, call.top_k), std::span(routes_).subspan(first, call.top_k));
  }
  routes_before_ = routes_;
  layer_before_ = call.layer;
}

void CachedExperts::guess_next(const models::ExpertCall& call) {
  if (!prefetch_ || guessed_ || call.x.rows > RouterGuess::kRowsMax) return;
  guessed_ = true;
  const CacheStatistics numbers = cache_->statistics();
  if (!std::exchange(guesses_pay_, judge_.worth_making(numbers.prefetches, numbers.prefetches_used))) return;
  auto keys = guesses_.empty() ? next_.likely(call.layer, routes_, wanted_.size()) : guesses_;
  if (device_) std::erase_if(keys, [&](ExpertKey key) { return device_->find(key).has_value(); });
  cache_->prefetch(keys);
}

// Leases on the experts from wanted_[next] on, as many as there are slots; reads begin where needed.
Status CachedExperts::acquire_more(size_t& next, std::vector<ExpertLease>& coming) {
  while (next < wanted_.size()) {
    CHORUS_ASSIGN(auto lease, cache_->acquire(wanted_[next]));
    if (!lease) return {};
    coming.push_back(std::move(*lease));
    ++next;
  }
  return {};
}

Status CachedExperts::take_ready(std::vector<ExpertLease>& coming, std::vector<ExpertLease>& ready) {
  const Timer timer(times_.reads);
  cache_->wait_for_any(coming);
  const auto first_ready = std::stable_partition(coming.begin(), coming.end(), [&](const auto& lease) { return !cache_->ready(lease); });
  std::move(first_ready, coming.end(), std::back_inserter(ready));
  coming.erase(first_ready, coming.end());
  for (auto& lease : ready) CHORUS_TRY(cache_->wait(lease));
  return {};
}

Status CachedExperts::run_in_place(compute::Batch& batch, const models::ExpertCall& call) {
  std::stable_partition(wanted_.begin(), wanted_.end(), [&](ExpertKey key) { return cache_->holds(key); });
  std::vector<ExpertLease> coming, wave;
  std::vector<Placed> placed;
  for (size_t next = 0; next < wanted_.size() || !coming.empty();) {
    CHORUS_TRY(acquire_more(next, coming));
    CHORUS_CHECK(!coming.empty());
    if (next == wanted_.size()) guess_next(call);
    CHORUS_TRY(take_ready(coming, wave));
    placed.clear();
    for (const auto& lease : wave) placed.push_back({lease.key().expert, lease.slot()});
    CHORUS_TRY(record_wave(batch, call, placed));
    if (next < wanted_.size() || !coming.empty()) {
      CHORUS_TRY(batch.submit());
      wave.clear();
    }
  }
  pending_ = std::move(wave);
  return {};
}

// Moves experts that have come from host memory to the bank, as far as it has room.
Status CachedExperts::upload(std::vector<ExpertLease>& coming, size_t& next, DeviceLeases& wave) {
  while (!coming.empty()) {
    {
      const Timer timer(times_.reads);
      CHORUS_TRY(cache_->wait(coming.front()));
    }
    const ExpertKey key = coming.front().key();
    const auto room = device_->make_room(key, CachePolicy::Purpose::use);
    if (!room) return {};
    const Timer timer(times_.compute);
    if (room->evicted) ++device_statistics_.evictions;
    auto written = backend_.write_expert(*bank_, room->slot, cache_->record(coming.front()).first(store_.record_bytes()));
    if (!written.ok()) {
      device_->forget(room->slot);
      return std::move(written).error().with_context("moving " + place_text(key) + " to the device");
    }
    device_statistics_.bytes_written += store_.record_bytes();
    wave.add(key.expert, room->slot);
    coming.erase(coming.begin());
    CHORUS_TRY(acquire_more(next, coming));
  }
  return {};
}

Status CachedExperts::run_on_device(compute::Batch& batch, const models::ExpertCall& call) {
  auto wave = std::make_unique<DeviceLeases>(*device_);
  for (const ExpertKey key : wanted_) device_->note_use(key);
  const auto first_miss =
      std::stable_partition(wanted_.begin(), wanted_.end(), [&](ExpertKey key) { return device_->find(key).has_value(); });
  auto next = static_cast<size_t>(first_miss - wanted_.begin());
  device_statistics_.hits += next;
  device_statistics_.misses += wanted_.size() - next;
  for (auto key = wanted_.begin(); key != first_miss; ++key) {
    const uint32_t slot = *device_->find(*key);
    device_->lease(slot);
    wave->add(key->expert, slot);
  }
  std::vector<ExpertLease> coming;
  CHORUS_TRY(acquire_more(next, coming));
  for (;;) {
    const bool more = next < wanted_.size() || !coming.empty();
    if (!more) guess_next(call);
    if (!wave->placed().empty()) CHORUS_TRY(record_wave(batch, call, wave->placed()));
    if (!more) break;
    CHORUS_TRY(batch.submit());
    wave = std::make_unique<DeviceLeases>(*device_);
    CHORUS_TRY(acquire_more(next, coming));
    if (next == wanted_.size()) guess_next(call);
    CHORUS_TRY(upload(coming, next, *wave));
    CHORUS_CHECK(!wave->placed().empty());
  }
  pending_device_ = std::move(wave);
  return {};
}

Status CachedExperts::record_wave(compute::Batch& batch, const models::ExpertCall& call, std::span<const Placed> placed) {
  const Timer timer(times_.compute);
  std::fill(slot_of_.begin(), slot_of_.end(), compute::kNoSlot);
  for (const Placed& each : placed) slot_of_[each.expert] = each.slot;
  slots_.resize(routes_.size());
  for (size_t route = 0; route < routes_.size(); ++route) {
    slots_[route] = routes_[route] == compute::kNoSlot ? compute::kNoSlot : slot_of_[routes_[route]];
  }
  const uint64_t bytes = slots_.size() * sizeof(uint32_t);
  if (!slots_buffer_ || slots_buffer_->bytes() < bytes) {
    CHORUS_ASSIGN(slots_buffer_, backend_.create_buffer(bytes, "expert slots"));
  }
  CHORUS_TRY(backend_.write(*slots_buffer_, 0, std::as_bytes(std::span(slots_))));
  compute::ExpertFfnArgs args;
  args.bank = bank_.get();
  args.top_k = call.top_k;
  args.activation = activations_[call.layer];
  args.x = call.x;
  args.slots = slots_buffer_.get();
  args.out = call.out;
  return batch.expert_ffn(args);
}

}  // namespace chorus::experts
