// WebGPU half of gated_delta. Variants:
//   recurrent   token by token, one dispatch
//   chunked     chunks of 64 tokens in two dispatches (prepare, scan); at most 16 KiB of workgroup memory
//   chunked16, chunked32   the same with 16 or 32 value columns per workgroup; 28 and 40 KiB, key_dim up to 128
//   by_length   recurrent for sequences of up to 8 tokens, the best chunked build for longer ones; the choice on hardware adapters.
//               Software adapters compile the chunked kernels for tens of seconds, so their choice is recurrent.
// The choice looks at each sequence's own length and at the head shape, never at the rest of the batch, so that a sequence gives the same
// bits in any company. Batches that hold both kinds get the dispatches of both; each kernel leaves the other's sequences alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

// Mirrors Params of gated_delta/params.wgsl.
struct GatedDeltaParams {
  uint32_t key_heads, value_heads, heads_per_key, key_width;
  uint32_t value_width, first_sequence, sequence_count, token_begin;
  uint32_t token_count, min_length, max_length, slots;
  uint32_t qkv_offset, qkv_stride, b_offset, b_stride;
  uint32_t a_offset, a_stride, out_offset, out_stride;
  uint32_t w_base, u_base, a_matrix_base, gate_base;
  uint32_t q_base, k_base, head_splits, column_blocks;
  uint32_t workgroups, key_split;
  float query_scale;
  uint32_t unused;
};
static_assert(sizeof(GatedDeltaParams) == 128);

// Where a dispatch finds or leaves the state: the arguments' buffers or one of two carried between windows of a long sequence.
enum class GatedDeltaState : uint8_t { none, argument, carry0, carry1 };

struct GatedDeltaDispatch {
  std::string kernel;   // "gated_delta_prepare", "gated_delta_scan" or "gated_delta_recurrent"
  std::string variant;  // build of its .wgsl
  GatedDeltaParams params{};
  gpu::Grid grid;
  GatedDeltaState state_in = GatedDeltaState::none;
  GatedDeltaState state_out = GatedDeltaState::none;
};

struct GatedDeltaPlan {
  std::vector<GatedDeltaDispatch> dispatches;
  std::vector<gpu::Binding> inputs;  // qkv, b, a
  gpu::Binding output;
  uint64_t scratch_bytes = 0;  // of the chunk-local matrices
  uint64_t carry_bytes = 0;    // of each carried state; 0 when no sequence is cut into windows
};

inline constexpr uint32_t kGatedDeltaChunk = 64;
inline constexpr uint32_t kGatedDeltaRecurrentTokens = 8;
inline constexpr uint32_t kGatedDeltaKeyDimMax = 256;
// Chunk-local matrices of one launch; longer work is cut into several launches.
inline constexpr uint64_t kGatedDeltaScratchBytes = uint64_t{128} << 20;

std::vector<std::string> gated_delta_variants(const gpu::Capabilities& capabilities);
Result<GatedDeltaPlan> plan_gated_delta(const compute::GatedDeltaArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced);
Status record_gated_delta(WebgpuContext& context, const compute::GatedDeltaArgs& args);

}  // namespace chorus::kernels
