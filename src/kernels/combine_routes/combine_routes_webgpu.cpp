#include "kernels/combine_routes/combine_routes_webgpu.h"

#include <limits>

namespace chorus::kernels {
namespace {

struct Params {
  uint32_t row_units, top_k, routed_offset, routed_stride, shared_offset, shared_stride, gate_offset, gate_stride;
  uint32_t out_offset, out_stride, route_first, flags, count, workgroups;
  uint32_t padding[2];
};
static_assert(sizeof(Params) == 64);

constexpr uint32_t kFlagShared = 1, kFlagGate = 2;
constexpr uint32_t kThreads = 256;

bool all_quads(const compute::CombineRoutesArgs& args) {
  return quad_aligned(args.routed) && quad_aligned(args.out) && (!args.shared.buffer || quad_aligned(args.shared));
}

Result<compute::View> routes_of_rows(const compute::CombineRoutesArgs& args) {
  const uint64_t stride = uint64_t{args.routed.stride} * args.top_k;
  if (stride > std::numeric_limits<uint32_t>::max()) {
    return make_error(ErrorCode::limit_exceeded,
                      "combine_routes: expected the routes of a row within 2^32 elements, found " + std::to_string(stride));
  }
  const uint32_t cols = static_cast<uint32_t>(stride - args.routed.stride + args.routed.cols);
  return compute::View{args.routed.buffer, args.routed.offset, args.out.rows, cols, static_cast<uint32_t>(stride)};
}

}  // namespace

std::vector<std::string> combine_routes_variants(const gpu::Capabilities&) { return {"scalar", "vec4"}; }

Result<CombineRoutesPlan> plan_combine_routes(const compute::CombineRoutesArgs& args, const gpu::Capabilities& capabilities,
                                              std::string_view forced) {
  const bool quads = all_quads(args);
  CHORUS_ASSIGN(const std::string variant,
                pick_variant("combine_routes", forced, quads ? "vec4" : "scalar", capabilities, combine_routes_variants));
  if (!quads && variant != "scalar") {
    return make_error(ErrorCode::unsupported,
                      "combine_routes: variant " + variant + " needs rows that start at multiples of four elements");
  }
  CHORUS_TRY(
      require_other_buffer("combine_routes", args.out, {args.routed.buffer, args.weights, args.shared.buffer, args.shared_gate.buffer}));
  CombineRoutesPlan plan;
  plan.width = variant == "scalar" ? 1 : 4;
  CHORUS_ASSIGN(plan.shader, require_shader("combine_routes", variant));
  CHORUS_ASSIGN(plan.routed, routes_of_rows(args));
  const compute::View shared = args.shared.buffer ? args.shared : plan.routed, gate = args.shared_gate.buffer ? args.shared_gate : shared;
  CHORUS_ASSIGN(plan.slices, slice_rows(args.out.rows, {plan.routed, args.out, shared, gate}, "combine_routes", capabilities));
  return plan;
}

Status record_combine_routes(WebgpuContext& context, const compute::CombineRoutesArgs& args) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  CHORUS_ASSIGN(const CombineRoutesPlan plan, plan_combine_routes(args, capabilities, context.forced_variant("combine_routes")));
  if (plan.slices.empty()) return {};
  CHORUS_ASSIGN(const gpu::Binding weights, bind_buffer(args.weights, gpu::Access::read, capabilities));
  for (const RowSlice& slice : plan.slices) {
    const RowWindow routed = bind_rows(plan.routed, slice, gpu::Access::read, capabilities);
    const RowWindow out = bind_rows(args.out, slice, gpu::Access::read_write, capabilities);
    RowWindow shared{weights, 0}, gate{weights, 0};  // where there is none: something that is only read
    if (args.shared.buffer) shared = bind_rows(args.shared, slice, gpu::Access::read, capabilities);
    if (args.shared_gate.buffer) gate = bind_rows(args.shared_gate, slice, gpu::Access::read, capabilities);
    const uint32_t row_units = args.out.cols / plan.width;
    const uint32_t count = slice.count * row_units;  // below 2^31: the slice fits a binding
    const uint32_t workgroups = (count + kThreads - 1) / kThreads;
    const Params params{row_units,
                        args.top_k,
                        routed.offset / plan.width,
                        args.routed.stride / plan.width,
                        shared.offset / plan.width,
                        args.shared.stride / plan.width,
                        gate.offset,
                        args.shared_gate.stride,
                        out.offset / plan.width,
                        args.out.stride / plan.width,
                        slice.first * args.top_k,
                        (args.shared.buffer ? kFlagShared : 0) | (args.shared_gate.buffer ? kFlagGate : 0),
                        count,
                        workgroups,
                        {}};
    CHORUS_TRY(context.device.dispatch({plan.shader,
                                        {routed.binding, weights, shared.binding, gate.binding, out.binding},
                                        as_params(params),
                                        gpu::fold_grid(workgroups, capabilities.workgroups_per_dimension_max)}));
  }
  return {};
}

}  // namespace chorus::kernels
