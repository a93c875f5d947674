#include "backends/cpu/cpu_backend.h"

#include <chrono>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <new>
#include <string>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "backends/cpu/operation_table.h"
#include "backends/cpu/weight_packing.h"
#include "compute/check.h"
#include "kernels/peak/peak_cpu.h"

namespace chorus::backends {
namespace {

using compute::Buffer;
using compute::Weight;
using kernels::CpuBuffer;
using kernels::CpuExpertBank;
using kernels::CpuWeight;

constexpr uint64_t kMemoryWhenUnknown = 16ull << 30;

uint64_t machine_memory() {
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) return static_cast<uint64_t>(pages) * static_cast<uint64_t>(page);
#endif
  return kMemoryWhenUnknown;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "processor";
}

Status check_transfer(const Buffer& buffer, uint64_t offset, uint64_t size, const char* what) {
  if (!dynamic_cast<const CpuBuffer*>(&buffer)) {
    return make_error(ErrorCode::invalid_argument, std::string(what) + ": expected a buffer of this backend, found another kind");
  }
  if (offset % 4 != 0 || size % 4 != 0) {
    return make_error(ErrorCode::invalid_argument, std::string(what) + ": expected offset and size in multiples of 4 bytes, found " +
                                                       std::to_string(offset) + " and " + std::to_string(size));
  }
  if (offset > buffer.bytes() || size > buffer.bytes() - offset) {
    return make_error(ErrorCode::invalid_argument, std::string(what) + ": expected " + std::to_string(size) + " bytes from offset " +
                                                       std::to_string(offset) + " inside the buffer, found a buffer of " +
                                                       std::to_string(buffer.bytes()) + " bytes");
  }
  return {};
}

class CpuBackend final : public compute::Backend {
 public:
  CpuBackend(const CpuOptions& options, std::unique_ptr<ThreadPool> pool, std::vector<compute::Fallback> fallbacks)
      : pool_(std::move(pool)),
        account_(std::make_shared<kernels::MemoryAccount>(options.memory_limit_bytes ? options.memory_limit_bytes : machine_memory())),
        scratch_(account_),
        fallbacks_(std::move(fallbacks)),
        profile_(options.profile) {
    info_.kind = "cpu";
    info_.device = processor_name() + " (" + std::to_string(pool_->threads()) + " threads, " + default_simd_target() + ")";
    info_.binding_bytes_max = info_.buffer_bytes_max = account_->limit();
  }

  const compute::BackendInfo& info() const override { return info_; }

  Result<std::shared_ptr<Buffer>> create_buffer(uint64_t bytes, std::string_view label) override {
    CHORUS_ASSIGN(auto memory, kernels::HostMemory::create(account_, bytes, label));
    return std::shared_ptr<Buffer>(std::make_shared<CpuBuffer>(bytes, std::move(memory)));
  }

  Status write(Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override {
    CHORUS_TRY(check_transfer(buffer, offset, data.size(), "write"));
    if (!data.empty()) std::memcpy(static_cast<CpuBuffer&>(buffer).data() + offset, data.data(), data.size());
    return {};
  }

  Status read(const Buffer& buffer, uint64_t offset, std::span<std::byte> data) override {
    CHORUS_TRY(check_transfer(buffer, offset, data.size(), "read"));
    if (!data.empty()) std::memcpy(data.data(), static_cast<const CpuBuffer&>(buffer).data() + offset, data.size());
    return {};
  }

  Result<std::shared_ptr<Weight>> create_weight(std::string_view name, uint32_t rows, uint32_t cols, DType dtype,
                                                const compute::RowSource& source) override {
    CHORUS_ASSIGN(auto weight, pack_weight(name, rows, cols, dtype, source, *pool_, account_));
    return std::shared_ptr<Weight>(std::move(weight));
  }

  Result<std::shared_ptr<compute::ExpertBank>> create_expert_bank(const compute::ExpertShape& shape, uint32_t slots,
                                                                  std::string_view label) override {
    CHORUS_TRY(compute::check_bank(shape, slots));
    CHORUS_ASSIGN(auto bank, kernels::create_cpu_expert_bank(account_, shape, slots, label));
    return std::shared_ptr<compute::ExpertBank>(std::move(bank));
  }

  Status write_expert(compute::ExpertBank& bank, uint32_t slot, std::span<const std::byte> record) override {
    if (!dynamic_cast<const CpuExpertBank*>(&bank)) return foreign("write_expert", "bank");
    CHORUS_TRY(compute::check_expert(bank, slot, record.size()));
    std::memcpy(static_cast<CpuExpertBank&>(bank).record(slot), record.data(), record.size());
    return {};
  }

  std::byte* expert_memory(compute::ExpertBank& bank, uint32_t slot) override {
    const auto* own = dynamic_cast<const CpuExpertBank*>(&bank);
    return own && slot < own->slots() ? own->record(slot) : nullptr;
  }

  Result<std::unique_ptr<compute::Batch>> begin_batch() override;

  uint64_t weight_bytes(uint32_t rows, uint32_t cols, DType dtype) const override { return packed_weight_bytes(rows, cols, dtype); }
  uint64_t bytes_in_use() const override { return account_->in_use(); }
  uint64_t bytes_peak() const override { return account_->peak(); }
  uint64_t dispatches() const override { return operations_; }
  std::vector<compute::Fallback> fallbacks() const override { return fallbacks_; }
  std::vector<std::string> variants(std::string_view operation) const override { return cpu_variants(operation); }

  Status force_variant(std::string_view operation, std::string_view variant) override {
    if (variant.empty()) {
      const auto found = forced_.find(operation);
      if (found != forced_.end()) forced_.erase(found);
      return {};
    }
    for (const std::string& name : cpu_variants(operation)) {
      if (name != variant) continue;
      forced_.insert_or_assign(std::string(operation), name);
      return {};
    }
    return make_error(ErrorCode::not_found, "variant \"" + std::string(variant) + "\" of operation \"" + std::string(operation) +
                                                "\": expected one of those that this processor can run, found none of that name");
  }

  Result<compute::DevicePeak> measure_peak() override { return kernels::measure_cpu_peak(*pool_); }

  Result<std::vector<compute::KernelTime>> take_kernel_times() override {
    std::vector<compute::KernelTime> times;
    for (auto& [name, time] : times_) times.push_back(std::move(time));
    times_.clear();
    return times;
  }

  // Checks that the arguments are this backend's and good, runs the kernel, keeps the time if asked to. No exception leaves it.
  template <typename Args>
  Status run(const char* operation, std::initializer_list<const Buffer*> buffers, const Weight* weight, const Args& args,
             Status (*kernel)(kernels::CpuContext&, const Args&)) {
    CHORUS_TRY(compute::check(args));
    for (const Buffer* buffer : buffers) {
      if (buffer && !dynamic_cast<const CpuBuffer*>(buffer)) return foreign(operation, "buffer");
    }
    if (weight && !dynamic_cast<const CpuWeight*>(weight)) return foreign(operation, "weight");
    if constexpr (requires { args.bank; }) {
      if (!dynamic_cast<const CpuExpertBank*>(args.bank)) return foreign(operation, "bank");
    }
    ++operations_;
    const auto begin = std::chrono::steady_clock::now();
    kernels::CpuContext context{*pool_, scratch_, forced_};
    try {
      CHORUS_TRY(kernel(context, args));
      if (profile_) note_time(operation, std::chrono::steady_clock::now() - begin);
    } catch (const std::bad_alloc&) {
      return make_error(ErrorCode::out_of_memory, std::string(operation) + ": expected memory for its bookkeeping, the system refused");
    }
    return {};
  }

 private:
  static Error foreign(const char* operation, const char* what) {
    return make_error(ErrorCode::invalid_argument,
                      std::string(operation) + ": expected a " + what + " of the cpu backend, found another kind");
  }

  void note_time(const char* operation, std::chrono::steady_clock::duration duration) {
    compute::KernelTime& time = times_[operation];
    time.kernel = operation;
    ++time.calls;
    time.milliseconds += std::chrono::duration<double, std::milli>(duration).count();
  }

  std::unique_ptr<ThreadPool> pool_;
  std::shared_ptr<kernels::MemoryAccount> account_;
  kernels::CpuScratch scratch_;
  std::map<std::string, std::string, std::less<>> forced_;
  std::vector<compute::Fallback> fallbacks_;
  std::map<std::string, compute::KernelTime> times_;
  compute::BackendInfo info_;
  bool profile_;
  uint64_t operations_ = 0;
};

class CpuBatch final : public compute::Batch {
 public:
  explicit CpuBatch(CpuBackend& backend) : backend_(backend) {}

  Status embed(const compute::EmbedArgs& args) override {
    return backend_.run("embed", {args.ids, args.out.buffer}, args.table, args, kernels::embed_cpu);
  }
  Status linear(const compute::LinearArgs& args) override {
    if (args.norm.weight) {
      CHORUS_TRY(compute::check(args));
      CHORUS_TRY(rms_norm({args.x, args.norm.weight, args.norm.epsilon, args.norm.form, args.norm.out}));
      return linear({args.norm.out, args.weight, args.bias, args.out, args.store, {}});
    }
    return backend_.run("linear", {args.x.buffer, args.bias, args.out.buffer}, args.weight, args, kernels::linear_cpu);
  }
  Status rms_norm(const compute::RmsNormArgs& args) override {
    return backend_.run("rms_norm", {args.x.buffer, args.weight, args.out.buffer}, nullptr, args, kernels::rms_norm_cpu);
  }
  Status gated_rms_norm(const compute::GatedRmsNormArgs& args) override {
    return backend_.run("gated_rms_norm", {args.x.buffer, args.gate.buffer, args.weight, args.out.buffer}, nullptr, args,
                        kernels::gated_rms_norm_cpu);
  }
  Status swiglu(const compute::SwigluArgs& args) override {
    return backend_.run("swiglu", {args.gate_up.buffer, args.out.buffer}, nullptr, args, kernels::swiglu_cpu);
  }
  Status causal_conv(const compute::CausalConvArgs& args) override {
    return backend_.run("causal_conv", {args.x.buffer, args.weight, args.history_in, args.history_out, args.out.buffer}, nullptr, args,
                        kernels::causal_conv_cpu);
  }
  Status gated_delta(const compute::GatedDeltaArgs& args) override {
    return backend_.run(
        "gated_delta",
        {args.qkv.buffer, args.b.buffer, args.a.buffer, args.a_log, args.dt_bias, args.state_in, args.state_out, args.out.buffer}, nullptr,
        args, kernels::gated_delta_cpu);
  }
  Status qk_norm_rope(const compute::QkNormRopeArgs& args) override {
    return backend_.run("qk_norm_rope",
                        {args.q_gate.buffer, args.kv.buffer, args.q_weight, args.k_weight, args.cosine.buffer, args.sine.buffer,
                         args.q_out.buffer, args.k_out.buffer, args.v_out.buffer},
                        nullptr, args, kernels::qk_norm_rope_cpu);
  }
  Status attention(const compute::AttentionArgs& args) override {
    return backend_.run("attention",
                        {args.q.buffer, args.q_gate.buffer, args.prefix_k.buffer, args.prefix_v.buffer, args.own_k.buffer,
                         args.own_v.buffer, args.out.buffer},
                        nullptr, args, kernels::attention_cpu);
  }
  Status gather_rows(const compute::GatherRowsArgs& args) override {
    return backend_.run("gather_rows", {args.x.buffer, args.indices, args.out.buffer}, nullptr, args, kernels::gather_rows_cpu);
  }
  Status pointer_scores(const compute::PointerScoresArgs& args) override {
    return backend_.run("pointer_scores", {args.queries.buffer, args.keys.buffer, args.question_of_option, args.scores}, nullptr, args,
                        kernels::pointer_scores_cpu);
  }
  Status segment_softmax(const compute::SegmentSoftmaxArgs& args) override {
    return backend_.run("segment_softmax", {args.values, args.segment_starts, args.out}, nullptr, args, kernels::segment_softmax_cpu);
  }
  Status copy(const compute::CopyArgs& args) override {
    return backend_.run("copy", {args.source, args.target}, nullptr, args, kernels::copy_cpu);
  }
  Status router(const compute::RouterArgs& args) override {
    return backend_.run("router", {args.logits.buffer, args.bias, args.experts, args.weights}, nullptr, args, kernels::router_cpu);
  }
  Status expert_ffn(const compute::ExpertFfnArgs& args) override {
    return backend_.run("expert_ffn", {args.x.buffer, args.slots, args.out.buffer}, nullptr, args, kernels::expert_ffn_cpu);
  }
  Status combine_routes(const compute::CombineRoutesArgs& args) override {
    return backend_.run("combine_routes", {args.routed.buffer, args.weights, args.shared.buffer, args.shared_gate.buffer, args.out.buffer},
                        nullptr, args, kernels::combine_routes_cpu);
  }
  Status attend(const compute::AttendArgs& args) override {
    return backend_.run("attend", {args.q.buffer, args.keys.buffer, args.values.buffer, args.sinks, args.selected, args.out.buffer},
                        nullptr, args, kernels::attend_cpu);
  }
  Status select_keys(const compute::SelectKeysArgs& args) override {
    return backend_.run("select_keys", {args.q.buffer, args.keys.buffer, args.weights.buffer, args.selected}, nullptr, args,
                        kernels::select_keys_cpu);
  }
  Status layer_norm(const compute::LayerNormArgs& args) override {
    return backend_.run("layer_norm", {args.x.buffer, args.weight, args.bias, args.out.buffer}, nullptr, args, kernels::layer_norm_cpu);
  }
  Status rope(const compute::RopeArgs& args) override {
    return backend_.run("rope", {args.x.buffer, args.cosine.buffer, args.sine.buffer, args.out.buffer}, nullptr, args, kernels::rope_cpu);
  }
  Status head_linear(const compute::HeadLinearArgs& args) override {
    return backend_.run("head_linear", {args.x.buffer, args.out.buffer}, args.weight, args, kernels::head_linear_cpu);
  }
  Status argmax(const compute::ArgmaxArgs& args) override {
    return backend_.run("argmax", {args.x.buffer, args.indices}, nullptr, args, kernels::argmax_cpu);
  }
  Status sample(const compute::SampleArgs& args) override {
    return backend_.run("sample", {args.logits.buffer, args.rows, args.indices}, nullptr, args, kernels::sample_cpu);
  }
  Status submit() override { return {}; }

 private:
  CpuBackend& backend_;
};

Result<std::unique_ptr<compute::Batch>> CpuBackend::begin_batch() {
  return std::unique_ptr<compute::Batch>(std::make_unique<CpuBatch>(*this));
}

}  // namespace

std::unique_ptr<compute::Backend> create_cpu_backend(const CpuOptions& options) {
  std::vector<compute::Fallback> fallbacks;
  auto pool = ThreadPool::create(options.threads);
  if (!pool) {
    fallbacks.push_back({"every operation", "one thread instead of " + std::to_string(options.threads) + ": " + pool.error().to_line()});
    pool = ThreadPool::create(1);
  }
  return std::make_unique<CpuBackend>(options, std::move(pool).value(), std::move(fallbacks));
}

}  // namespace chorus::backends
