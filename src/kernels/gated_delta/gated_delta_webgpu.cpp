#include "kernels/gated_delta/gated_delta_webgpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr std::string_view kKernel = "gated_delta";
constexpr std::string_view kRecurrent = "recurrent";
constexpr std::string_view kByLength = "by_length";
constexpr uint64_t kVec4Bytes = 16;
constexpr uint32_t kGateVec4s = 36;  // params.wgsl
constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kRecurrentColumnGroups = 2;
// Below this many (chunk, key head) pairs the value heads of a key head get workgroups of their own.
constexpr uint64_t kShareKeysFrom = 256;
// With this many workgroups of 16 columns per sequence, 32 columns use the device better. A function of the model alone.
constexpr uint32_t kWideFromWorkgroups = 192;

// Builds of gated_delta_scan.wgsl; the numbers mirror gated_delta_scan.variants.
struct ScanBuild {
  std::string_view variant;
  std::string_view shader;
  uint32_t column_groups;
  uint32_t split;
  uint32_t threads;
  uint32_t piece;  // vec4s
  uint32_t keys;
  uint64_t workgroup_bytes() const {
    return kVec4Bytes * ((uint64_t{keys} + 1) * column_groups + uint64_t{kGatedDeltaChunk} * column_groups + piece);
  }
};
constexpr std::array<ScanBuild, 3> kScanBuilds = {{
    {"chunked", "base", 2, 2, 64, 256, 256},
    {"chunked16", "columns16", 4, 4, 256, 1024, 128},
    {"chunked32", "columns32", 8, 2, 256, 1024, 128},
}};

bool adapter_runs(const ScanBuild& build, const gpu::Capabilities& capabilities) {
  return build.workgroup_bytes() <= capabilities.workgroup_storage_bytes_max && build.threads <= capabilities.workgroup_invocations_max;
}

const ScanBuild* find_build(std::string_view variant) {
  for (const ScanBuild& build : kScanBuilds) {
    if (build.variant == variant) return &build;
  }
  return nullptr;
}

const ScanBuild& choose_build(const compute::GatedDeltaShape& shape, const gpu::Capabilities& capabilities) {
  const uint64_t narrow_workgroups = uint64_t{shape.value_heads} * ((shape.value_dim + 15) / 16);
  if (narrow_workgroups >= kWideFromWorkgroups && shape.key_dim <= kScanBuilds[2].keys && adapter_runs(kScanBuilds[2], capabilities)) {
    return kScanBuilds[2];
  }
  return shape.key_dim <= kScanBuilds[1].keys && adapter_runs(kScanBuilds[1], capabilities) ? kScanBuilds[1] : kScanBuilds[0];
}

Status check_support(const compute::GatedDeltaArgs& args) {
  const compute::GatedDeltaShape& shape = args.shape;
  if (shape.key_dim % 4 != 0 || shape.value_dim % 4 != 0 || shape.key_dim > kGatedDeltaKeyDimMax) {
    return make_error(ErrorCode::unsupported, "gated_delta: expected head dims that are multiples of 4 and a key dim of at most " +
                                                  std::to_string(kGatedDeltaKeyDimMax) + ", found " + std::to_string(shape.key_dim) +
                                                  " and " + std::to_string(shape.value_dim));
  }
  const std::array<const compute::Buffer*, 7> inputs = {args.qkv.buffer, args.b.buffer, args.a.buffer,         args.a_log,
                                                        args.dt_bias,    args.state_in, args.sequences->device};
  for (const compute::Buffer* input : inputs) {
    if (input && (input == args.out.buffer || input == args.state_out)) {
      return make_error(ErrorCode::unsupported, "gated_delta: an output lies in the buffer of an input");
    }
  }
  if (args.out.buffer == args.state_out) {
    return make_error(ErrorCode::unsupported, "gated_delta: out and state_out lie in one buffer");
  }
  return {};
}

uint64_t slot_vec4s(const compute::GatedDeltaShape& shape) {
  const uint64_t chunk = kGatedDeltaChunk;
  const uint64_t per_value_head = (chunk * shape.key_dim + chunk * shape.value_dim + chunk * chunk) / 4 + kGateVec4s;
  const uint64_t per_key_head = 2 * chunk * shape.key_dim / 4;
  return shape.value_heads * per_value_head + shape.key_heads * per_key_head;
}

// One launch of prepare and scan: whole sequences, or a window of one.
struct Launch {
  uint32_t first_sequence = 0;
  uint32_t sequence_count = 0;
  uint32_t token_begin = 0;
  uint32_t token_count = kNoLimit;
  uint32_t slots = 0;
  bool first_window = true;
  bool last_window = true;
};

// Slots of sequences [first, last]: floor(rows before / 64) + sequences before is where each starts (gated_delta_prepare.wgsl).
uint64_t slots_of(const std::vector<compute::SequenceSpan>& spans, size_t first, size_t last) {
  const uint64_t before = (spans[last].start - spans[first].start) / kGatedDeltaChunk + (last - first);
  return before + (uint64_t{spans[last].length} + kGatedDeltaChunk - 1) / kGatedDeltaChunk;
}

void cut_into_windows(const compute::SequenceSpan& span, uint32_t sequence, uint64_t slots_max, std::vector<Launch>& launches) {
  const uint64_t window = slots_max * kGatedDeltaChunk;
  for (uint64_t begin = 0; begin < span.length; begin += window) {
    const uint64_t count = std::min<uint64_t>(window, span.length - begin);
    launches.push_back({sequence, 1, static_cast<uint32_t>(begin), static_cast<uint32_t>(count),
                        static_cast<uint32_t>((count + kGatedDeltaChunk - 1) / kGatedDeltaChunk), begin == 0,
                        begin + count == span.length});
  }
}

// Groups sequences so that a launch needs at most slots_max slots. Sequences under min_length take slots but no work.
std::vector<Launch> make_launches(const std::vector<compute::SequenceSpan>& spans, uint64_t slots_max, uint32_t min_length) {
  std::vector<Launch> launches;
  for (size_t first = 0; first < spans.size();) {
    if (slots_of(spans, first, first) > slots_max) {
      cut_into_windows(spans[first], static_cast<uint32_t>(first), slots_max, launches);
      ++first;
      continue;
    }
    size_t last = first;
    bool any = spans[first].length >= min_length;
    while (last + 1 < spans.size() && slots_of(spans, first, last + 1) <= slots_max) {
      ++last;
      any = any || spans[last].length >= min_length;
    }
    if (any) {
      Launch launch;
      launch.first_sequence = static_cast<uint32_t>(first);
      launch.sequence_count = static_cast<uint32_t>(last - first + 1);
      launch.slots = static_cast<uint32_t>(slots_of(spans, first, last));
      launches.push_back(launch);
    }
    first = last + 1;
  }
  return launches;
}

// Which sequences, by length, go to each kernel. Empty: none.
struct LengthClass {
  uint32_t min_length = 0;
  uint32_t max_length = kNoLimit;
};
struct Routes {
  std::optional<LengthClass> recurrent;
  std::optional<LengthClass> chunked;
};

Routes choose_routes(const std::vector<compute::SequenceSpan>& spans, const gpu::Capabilities& capabilities, std::string_view forced) {
  // Software adapters spend tens of seconds on compiling the chunked kernels and gain nothing from them.
  if (forced == kRecurrent || (forced.empty() && capabilities.software)) return {LengthClass{}, std::nullopt};
  if (!forced.empty() && forced != kByLength) return {std::nullopt, LengthClass{}};
  Routes routes;
  for (const compute::SequenceSpan& span : spans) {
    if (span.length <= kGatedDeltaRecurrentTokens) {
      routes.recurrent = LengthClass{0, kGatedDeltaRecurrentTokens};
    } else {
      routes.chunked = LengthClass{kGatedDeltaRecurrentTokens + 1, kNoLimit};
    }
  }
  return routes;
}

struct Planner {
  const compute::GatedDeltaArgs& args;
  const gpu::Capabilities& capabilities;
  bool vec4 = false;  // qkv can be read four elements at a time
  GatedDeltaParams common{};
  GatedDeltaPlan plan{};

  Status bind_views() {
    const compute::GatedDeltaShape& shape = args.shape;
    vec4 = quad_aligned(args.qkv);
    const uint32_t width = vec4 ? 4 : 1;
    CHORUS_ASSIGN(const BoundView qkv, bind_view(args.qkv, gpu::Access::read, capabilities));
    CHORUS_ASSIGN(const BoundView b, bind_view(args.b, gpu::Access::read, capabilities));
    CHORUS_ASSIGN(const BoundView a, bind_view(args.a, gpu::Access::read, capabilities));
    CHORUS_ASSIGN(const BoundView out, bind_view(args.out, gpu::Access::read_write, capabilities));
    plan.inputs = {qkv.binding, b.binding, a.binding};
    plan.output = out.binding;
    common.key_heads = shape.key_heads;
    common.value_heads = shape.value_heads;
    common.heads_per_key = shape.value_heads / shape.key_heads;
    common.key_width = shape.key_dim / 4;
    common.value_width = shape.value_dim / 4;
    common.qkv_offset = qkv.offset / width;
    common.qkv_stride = args.qkv.stride / width;
    common.b_offset = b.offset;
    common.b_stride = args.b.stride;
    common.a_offset = a.offset;
    common.a_stride = args.a.stride;
    common.out_offset = out.offset;
    common.out_stride = args.out.stride;
    common.query_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.key_dim)));
    return {};
  }

  Result<gpu::Grid> fold(uint64_t workgroups, GatedDeltaParams& params) const {
    if (workgroups > kNoLimit) {
      return make_error(ErrorCode::limit_exceeded,
                        "gated_delta: expected at most 2^32 - 1 workgroups, found " + std::to_string(workgroups));
    }
    params.workgroups = static_cast<uint32_t>(workgroups);
    return gpu::fold_grid(workgroups, capabilities.workgroups_per_dimension_max);
  }

  Status add_recurrent(const LengthClass& lengths) {
    GatedDeltaDispatch dispatch;
    dispatch.kernel = "gated_delta_recurrent";
    dispatch.variant = std::string(vec4 ? "vec4" : "scalar") + (args.state_out ? "_state" : "");
    dispatch.params = common;
    dispatch.params.sequence_count = static_cast<uint32_t>(args.sequences->spans.size());
    dispatch.params.token_count = args.qkv.rows;
    dispatch.params.min_length = lengths.min_length;
    dispatch.params.max_length = lengths.max_length;
    dispatch.params.column_blocks = (common.value_width + kRecurrentColumnGroups - 1) / kRecurrentColumnGroups;
    dispatch.state_in = GatedDeltaState::argument;
    dispatch.state_out = args.state_out ? GatedDeltaState::argument : GatedDeltaState::none;
    const uint64_t workgroups = uint64_t{dispatch.params.sequence_count} * common.value_heads * dispatch.params.column_blocks;
    CHORUS_ASSIGN(dispatch.grid, fold(workgroups, dispatch.params));
    plan.dispatches.push_back(std::move(dispatch));
    return {};
  }

  void place_scratch(GatedDeltaParams& params) {
    const uint64_t chunk = kGatedDeltaChunk, slots = params.slots;
    const uint64_t value_pairs = slots * common.value_heads, key_pairs = slots * common.key_heads;
    uint64_t next = 0;
    auto place = [&next](uint64_t vec4s) {
      const uint64_t base = next;
      next += vec4s;
      return static_cast<uint32_t>(base);  // the scratch budget keeps this far below 2^32
    };
    params.w_base = place(value_pairs * chunk * common.key_width);
    params.u_base = place(value_pairs * chunk * common.value_width);
    params.a_matrix_base = place(value_pairs * chunk * chunk / 4);
    params.gate_base = place(value_pairs * kGateVec4s);
    params.q_base = place(key_pairs * chunk * common.key_width);
    params.k_base = place(key_pairs * chunk * common.key_width);
    plan.scratch_bytes = std::max({plan.scratch_bytes, next * kVec4Bytes, kVec4Bytes});  // bound even when there are no rows
  }

  Status add_launch(const Launch& launch, const LengthClass& lengths, const ScanBuild& build, uint32_t window_index) {
    GatedDeltaDispatch prepare;
    prepare.kernel = "gated_delta_prepare";
    prepare.variant = vec4 ? "vec4" : "scalar";
    GatedDeltaParams& params = prepare.params;
    params = common;
    params.first_sequence = launch.first_sequence;
    params.sequence_count = launch.sequence_count;
    params.token_begin = launch.token_begin;
    params.token_count = launch.token_count;
    params.min_length = lengths.min_length;
    params.max_length = lengths.max_length;
    params.slots = launch.slots;
    place_scratch(params);
    const uint64_t key_pairs = uint64_t{launch.slots} * common.key_heads;
    params.head_splits = key_pairs >= kShareKeysFrom ? 1 : common.heads_per_key;

    GatedDeltaDispatch scan;
    scan.kernel = "gated_delta_scan";
    scan.params = params;
    scan.params.column_blocks = (common.value_width + build.column_groups - 1) / build.column_groups;
    const uint32_t update_tiles = common.key_width * build.column_groups;
    scan.params.key_split = std::clamp(build.threads / update_tiles, 1u, build.split);
    scan.state_in = launch.first_window ? GatedDeltaState::argument : carry(window_index + 1);
    if (!launch.last_window) {
      scan.state_out = carry(window_index);
      plan.carry_bytes = args.state_in->bytes();
    } else if (args.state_out) {
      scan.state_out = GatedDeltaState::argument;
    }
    scan.variant = std::string(build.shader) + (scan.state_out != GatedDeltaState::none ? "_state" : "");
    if (launch.slots > 0) {
      CHORUS_ASSIGN(prepare.grid, fold(key_pairs * params.head_splits, params));
      plan.dispatches.push_back(std::move(prepare));
    }
    const uint64_t workgroups = uint64_t{launch.sequence_count} * common.value_heads * scan.params.column_blocks;
    CHORUS_ASSIGN(scan.grid, fold(workgroups, scan.params));
    plan.dispatches.push_back(std::move(scan));
    return {};
  }

  static GatedDeltaState carry(uint32_t window_index) { return window_index % 2 == 0 ? GatedDeltaState::carry0 : GatedDeltaState::carry1; }

  Status add_chunked(const LengthClass& lengths, const ScanBuild& build) {
    const uint64_t slot_bytes = slot_vec4s(args.shape) * kVec4Bytes;
    const uint64_t budget = std::min(kGatedDeltaScratchBytes, capabilities.storage_binding_bytes_max);
    if (slot_bytes > budget) {
      return make_error(ErrorCode::limit_exceeded, "gated_delta: expected the matrices of one chunk within " + std::to_string(budget) +
                                                       " bytes, found " + std::to_string(slot_bytes));
    }
    uint32_t window_index = 0;
    for (const Launch& launch : make_launches(args.sequences->spans, budget / slot_bytes, lengths.min_length)) {
      window_index = launch.first_window ? 0 : window_index + 1;
      CHORUS_TRY(add_launch(launch, lengths, build, window_index));
    }
    return {};
  }
};

Result<const ScanBuild*> resolve_build(const compute::GatedDeltaArgs& args, const gpu::Capabilities& capabilities,
                                       std::string_view forced) {
  if (forced.empty() || forced == kByLength) return &choose_build(args.shape, capabilities);
  const ScanBuild* build = find_build(forced);
  if (!build) return make_error(ErrorCode::not_found, "gated_delta: expected a known variant, found " + std::string(forced));
  if (!adapter_runs(*build, capabilities) || args.shape.key_dim > build->keys) {
    return make_error(ErrorCode::unsupported, "gated_delta: variant " + std::string(forced) + " expected a key dim of at most " +
                                                  std::to_string(build->keys) + " and " + std::to_string(build->workgroup_bytes()) +
                                                  " bytes of workgroup memory, found " + std::to_string(args.shape.key_dim) + " and " +
                                                  std::to_string(capabilities.workgroup_storage_bytes_max));
  }
  return build;
}

// The buffers behind a plan's dispatches.
struct Buffers {
  std::shared_ptr<gpu::Storage> scratch;
  std::array<std::shared_ptr<gpu::Storage>, 2> carry;
};

Result<Buffers> acquire_buffers(WebgpuContext& context, const GatedDeltaPlan& plan) {
  Buffers buffers;
  if (plan.scratch_bytes > 0) {
    CHORUS_ASSIGN(buffers.scratch, context.scratch.acquire("gated_delta_chunks", plan.scratch_bytes));
  }
  if (plan.carry_bytes > 0) {
    CHORUS_ASSIGN(buffers.carry[0], context.scratch.acquire("gated_delta_carry0", plan.carry_bytes));
    CHORUS_ASSIGN(buffers.carry[1], context.scratch.acquire("gated_delta_carry1", plan.carry_bytes));
  }
  return buffers;
}

std::shared_ptr<gpu::Storage> state_storage(GatedDeltaState state, const compute::Buffer* argument, const Buffers& buffers) {
  if (state == GatedDeltaState::argument) return storage_of(argument);
  return buffers.carry[state == GatedDeltaState::carry0 ? 0 : 1];
}

std::vector<gpu::Binding> bindings_of(const GatedDeltaDispatch& dispatch, const compute::GatedDeltaArgs& args, const GatedDeltaPlan& plan,
                                      const Buffers& buffers) {
  const gpu::Binding spans{storage_of(args.sequences->device), gpu::Access::read, 0, 0};
  std::vector<gpu::Binding> bindings;
  auto add = [&bindings](std::shared_ptr<const gpu::Storage> storage, gpu::Access access) {
    bindings.push_back({std::move(storage), access, 0, 0});
  };
  const bool writes_state = dispatch.state_out != GatedDeltaState::none;
  if (dispatch.kernel != "gated_delta_scan") {
    bindings = plan.inputs;
    add(storage_of(args.a_log), gpu::Access::read);
    add(storage_of(args.dt_bias), gpu::Access::read);
  }
  if (dispatch.kernel == "gated_delta_prepare") {
    bindings.push_back(spans);
    add(buffers.scratch, gpu::Access::read_write);
    return bindings;
  }
  if (dispatch.kernel == "gated_delta_scan") {
    bindings.push_back(spans);
    add(buffers.scratch, gpu::Access::read);
  }
  add(state_storage(dispatch.state_in, args.state_in, buffers), gpu::Access::read);
  bindings.push_back(plan.output);
  if (writes_state) {
    add(state_storage(dispatch.state_out, args.state_out, buffers), gpu::Access::read_write);
  } else if (dispatch.kernel == "gated_delta_recurrent") {
    bindings.push_back(spans);  // with a state to write there is one sequence, described by the parameters
  }
  return bindings;
}

}  // namespace

std::vector<std::string> gated_delta_variants(const gpu::Capabilities& capabilities) {
  std::vector<std::string> variants = {std::string(kRecurrent), std::string(kByLength)};
  for (const ScanBuild& build : kScanBuilds) {
    if (adapter_runs(build, capabilities)) variants.emplace_back(build.variant);
  }
  return variants;
}

Result<GatedDeltaPlan> plan_gated_delta(const compute::GatedDeltaArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced) {
  const std::vector<compute::SequenceSpan>& spans = args.sequences->spans;
  // Without rows a lone sequence still hands its state on.
  if (spans.empty() || (args.qkv.rows == 0 && !args.state_out)) return GatedDeltaPlan{};
  CHORUS_TRY(check_support(args));
  const ScanBuild* build = nullptr;
  if (forced != kRecurrent) {
    CHORUS_ASSIGN(build, resolve_build(args, capabilities, forced));
  }
  Planner planner{args, capabilities};
  CHORUS_TRY(planner.bind_views());
  const Routes routes = choose_routes(spans, capabilities, forced);
  if (routes.recurrent) CHORUS_TRY(planner.add_recurrent(*routes.recurrent));
  if (routes.chunked) CHORUS_TRY(planner.add_chunked(*routes.chunked, *build));
  return std::move(planner.plan);
}

Status record_gated_delta(WebgpuContext& context, const compute::GatedDeltaArgs& args) {
  CHORUS_ASSIGN(const GatedDeltaPlan plan, plan_gated_delta(args, context.device.capabilities(), context.forced_variant(kKernel)));
  CHORUS_ASSIGN(const Buffers buffers, acquire_buffers(context, plan));
  for (const GatedDeltaDispatch& dispatch : plan.dispatches) {
    const gpu::ShaderSource* shader = find_shader(dispatch.kernel, dispatch.variant);
    CHORUS_CHECK(shader != nullptr);
    CHORUS_TRY(context.device.dispatch({shader, bindings_of(dispatch, args, plan, buffers), as_params(dispatch.params), dispatch.grid}));
  }
  return {};
}

}  // namespace chorus::kernels
