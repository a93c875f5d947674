// The seam between models and devices. Model code names operations; a Backend carries them out.
// Owns: the interface of buffers, weights and batches. Must not know: any device API, any model.
//
// Rules that every backend keeps:
//  - activations are f32; weights are f32, f16 or bf16; every sum is accumulated in f32 or better;
//  - an operation's accumulation precision never depends on its row count;
//  - one thread at a time uses a backend (the owner serialises);
//  - an operation that a backend cannot run returns an Error; a slower route that it takes instead is listed by fallbacks().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/ops.h"
#include "tensor/dtype.h"

namespace chorus::compute {

// Device memory. Created zero-filled. Freed with its last owner; a Batch keeps what it uses alive until it has run.
class Buffer {
 public:
  virtual ~Buffer() = default;
  uint64_t bytes() const { return bytes_; }

 protected:
  explicit Buffer(uint64_t bytes) : bytes_(bytes) {}

 private:
  uint64_t bytes_;
};

// A matrix [rows, cols] used as the right operand of `linear` (y = x W^T) and as an embedding table.
// Its layout in memory is the backend's own business; it exists once.
class Weight {
 public:
  virtual ~Weight() = default;
  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }
  uint64_t bytes() const { return bytes_; }

 protected:
  Weight(uint32_t rows, uint32_t cols, DType dtype, uint64_t bytes) : rows_(rows), cols_(cols), dtype_(dtype), bytes_(bytes) {}

 private:
  uint32_t rows_, cols_;
  DType dtype_;
  uint64_t bytes_;
};

// Fills `out` (row-major, row_count x cols, f32) with rows [first_row, first_row + row_count) of a weight.
// Called with growing first_row, in slices that the backend chooses, so that a load needs little memory.
using RowSource = std::function<Status(uint32_t first_row, uint32_t row_count, std::span<float> out)>;

// The shape of an expert network: gate_up [2 * inner, hidden] (gate rows, then up rows), down [hidden, inner], f32 biases of both or none.
struct ExpertShape {
  uint32_t hidden = 0;
  uint32_t inner = 0;
  DType dtype = DType::f32;
  bool biases = false;
  bool operator==(const ExpertShape&) const = default;
};

// One expert as bytes, the same on disk, in memory and on every device. All parts start at multiples of 64 bytes:
//   gate_up [2 * inner][hidden_padded], down [hidden][inner_padded] in dtype, rows padded with zeros to a multiple of 8 elements;
//   then, with biases, f32 [2 * inner] and f32 [hidden].
// Sizes are at most limits::kModelDimensionMax, so that nothing here overflows.
struct ExpertRecord {
  uint32_t hidden_padded = 0, inner_padded = 0;  // elements
  uint64_t down_offset = 0;                      // bytes; gate_up starts at 0
  uint64_t gate_up_bias_offset = 0, down_bias_offset = 0;
  uint64_t bytes = 0;  // a multiple of 64

  explicit ExpertRecord(const ExpertShape& shape);
};

// Room for `slots` experts of one shape in memory that the backend computes from.
class ExpertBank {
 public:
  virtual ~ExpertBank() = default;
  const ExpertShape& shape() const { return shape_; }
  uint32_t slots() const { return slots_; }

 protected:
  ExpertBank(const ExpertShape& shape, uint32_t slots) : shape_(shape), slots_(slots) {}

 private:
  ExpertShape shape_;
  uint32_t slots_;
};

// Records operations, in order; each sees the results of those before it. Nothing is promised to have run before submit().
// The operations and their argument structs are documented in compute/ops.h. Arguments are checked (compute/check.h) before recording.
class Batch {
 public:
  virtual ~Batch() = default;
  virtual Status embed(const EmbedArgs&) = 0;
  virtual Status linear(const LinearArgs&) = 0;
  virtual Status rms_norm(const RmsNormArgs&) = 0;
  virtual Status gated_rms_norm(const GatedRmsNormArgs&) = 0;
  virtual Status swiglu(const SwigluArgs&) = 0;
  virtual Status causal_conv(const CausalConvArgs&) = 0;
  virtual Status gated_delta(const GatedDeltaArgs&) = 0;
  virtual Status qk_norm_rope(const QkNormRopeArgs&) = 0;
  virtual Status attention(const AttentionArgs&) = 0;
  virtual Status gather_rows(const GatherRowsArgs&) = 0;
  virtual Status pointer_scores(const PointerScoresArgs&) = 0;
  virtual Status segment_softmax(const SegmentSoftmaxArgs&) = 0;
  virtual Status copy(const CopyArgs&) = 0;
  virtual Status layer_norm(const LayerNormArgs&) { return not_here("layer_norm"); }
  virtual Status rope(const RopeArgs&) { return not_here("rope"); }
  virtual Status head_linear(const HeadLinearArgs&) { return not_here("head_linear"); }
  virtual Status attend(const AttendArgs&) { return not_here("attend"); }
  virtual Status select_keys(const SelectKeysArgs&) { return not_here("select_keys"); }
  virtual Status router(const RouterArgs&) { return not_here("router"); }
  virtual Status expert_ffn(const ExpertFfnArgs&) { return not_here("expert_ffn"); }
  virtual Status combine_routes(const CombineRoutesArgs&) { return not_here("combine_routes"); }
  virtual Status argmax(const ArgmaxArgs&) { return not_here("argmax"); }
  virtual Status sample(const SampleArgs&) { return not_here("sample"); }
  // Lets the device begin with what was recorded so far, while more is recorded. What follows cannot take it back.
  virtual Status flush() { return {}; }
  // Runs everything recorded since the last submit. Errors of the device during these operations are returned here
  // or by the next Backend::read, never lost.
  virtual Status submit() = 0;

 private:
  static Error not_here(const char* operation) {
    return make_error(ErrorCode::unsupported, std::string(operation) + ": this backend does not have the operation");
  }
};

struct BackendInfo {
  std::string kind;                // "cpu" or "webgpu"
  std::string device;              // adapter or processor name
  std::string driver;              // driver description; empty on the CPU
  bool software = false;           // a software adapter
  uint64_t binding_bytes_max = 0;  // largest piece of one buffer that one operation may see
  uint64_t buffer_bytes_max = 0;
};

// One operation that ran otherwise than asked for.
struct Fallback {
  std::string operation;
  std::string reason;
};

// What the device reaches on loops that do nothing else, measured now.
struct DevicePeak {
  double flops_per_second = 0;  // f32 multiply-adds, counted as two
  double bytes_per_second = 0;  // memory traffic, bytes read plus bytes written
};

struct KernelTime {
  std::string kernel;  // operation and variant
  uint32_t calls = 0;
  double milliseconds = 0;  // sum over calls
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;

  // Zero-filled device memory. Errors: out_of_memory, limit_exceeded.
  virtual Result<std::shared_ptr<Buffer>> create_buffer(uint64_t bytes, std::string_view label) = 0;
  // Ordered before every batch submitted later and after every batch submitted earlier. Offsets and sizes in bytes, multiples of 4.
  virtual Status write(Buffer& buffer, uint64_t offset, std::span<const std::byte> data) = 0;
  // Submits what an open batch has recorded, then waits for everything submitted. Errors: device_lost, internal (a device error of an
  // earlier batch).
  virtual Status read(const Buffer& buffer, uint64_t offset, std::span<std::byte> data) = 0;
  // Values are rounded once from f32 to `dtype` (nearest even).
  virtual Result<std::shared_ptr<Weight>> create_weight(std::string_view name, uint32_t rows, uint32_t cols, DType dtype,
                                                        const RowSource& source) = 0;
  // Contents undefined. Errors: out_of_memory, limit_exceeded (one expert does not fit the device's largest binding).
  virtual Result<std::shared_ptr<ExpertBank>> create_expert_bank(const ExpertShape& shape, uint32_t slots, std::string_view label) {
    (void)shape, (void)slots, (void)label;
    return make_error(ErrorCode::unsupported, "expert bank: this backend has none");
  }
  // Fills a slot with an ExpertRecord's bytes. Ordered like write().
  virtual Status write_expert(ExpertBank& bank, uint32_t slot, std::span<const std::byte> record) {
    (void)bank, (void)slot, (void)record;
    return make_error(ErrorCode::unsupported, "expert bank: this backend has none");
  }
  // Where slot's record lies when the device computes from host memory: readers may fill it in place while no operation uses the slot.
  // Null elsewhere.
  virtual std::byte* expert_memory(ExpertBank& bank, uint32_t slot) {
    (void)bank, (void)slot;
    return nullptr;
  }
  virtual Result<std::unique_ptr<Batch>> begin_batch() = 0;

  // Bytes that create_weight would keep for such a matrix (padding included).
  virtual uint64_t weight_bytes(uint32_t rows, uint32_t cols, DType dtype) const = 0;
  // Device bytes held now by buffers, weights and scratch of this backend, and the most ever held.
  virtual uint64_t bytes_in_use() const = 0;
  virtual uint64_t bytes_peak() const = 0;

  // Kernels that were started, ever: dispatches of a GPU, operations of the CPU.
  virtual uint64_t dispatches() const { return 0; }

  virtual std::vector<Fallback> fallbacks() const = 0;

  // Names of the variants of an operation that this device can run, for tests and self-test ("linear": "tile64", "row" ...).
  virtual std::vector<std::string> variants(std::string_view operation) const = 0;
  // Forces one variant until called with an empty name. Errors: not_found.
  virtual Status force_variant(std::string_view operation, std::string_view variant) = 0;

  // Takes about a second. For benchmarks, which state speeds as fractions of it.
  virtual Result<DevicePeak> measure_peak() = 0;

  // Per-kernel device times since the last call; empty unless profiling was asked for at creation.
  virtual Result<std::vector<KernelTime>> take_kernel_times() = 0;
};

}  // namespace chorus::compute
