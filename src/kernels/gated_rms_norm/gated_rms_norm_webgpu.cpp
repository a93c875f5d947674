#include "kernels/gated_rms_norm/gated_rms_norm_webgpu.h"

#include "kernels/common/vec4_view.h"

namespace chorus::kernels {
namespace {

constexpr std::string_view kKernel = "gated_rms_norm";
constexpr std::string_view kVariant = "rows";
constexpr uint64_t kItemsPerWorkgroup = 8;

bool fits_vec4(const compute::GatedRmsNormArgs& args) {
  return args.head_dim % 4 == 0 && is_vec4_view(args.x) && is_vec4_view(args.gate) && is_vec4_view(args.out);
}

Status check_sharing(const compute::GatedRmsNormArgs& args, bool in_place) {
  if (args.gate.buffer == args.out.buffer || args.weight == args.out.buffer) {
    return make_error(ErrorCode::unsupported, "gated_rms_norm: expected gate and weight outside the output's buffer, found one buffer");
  }
  if (in_place && (args.x.offset != args.out.offset || args.x.stride != args.out.stride)) {
    return make_error(ErrorCode::unsupported,
                      "gated_rms_norm: expected x to be the output's view or in another buffer, found another view of one buffer");
  }
  return {};
}

}  // namespace

std::vector<std::string> gated_rms_norm_variants(const gpu::Capabilities&) { return {std::string(kVariant)}; }

Result<GatedRmsNormPlan> plan_gated_rms_norm(const compute::GatedRmsNormArgs& args, const gpu::Capabilities& capabilities,
                                             std::string_view forced) {
  if (!forced.empty() && forced != kVariant) {
    return make_error(ErrorCode::not_found, "gated_rms_norm: expected the variant rows, found " + std::string(forced));
  }
  GatedRmsNormPlan plan;
  if (args.x.rows == 0) return plan;
  const bool in_place = args.x.buffer == args.out.buffer;
  CHORUS_TRY(check_sharing(args, in_place));
  const bool vec4 = fits_vec4(args);
  const uint32_t width = vec4 ? 4 : 1;

  CHORUS_ASSIGN(const BoundView gate, bind_view(args.gate, gpu::Access::read, capabilities));
  CHORUS_ASSIGN(const BoundView out, bind_view(args.out, gpu::Access::read_write, capabilities));
  plan.bindings = {gate.binding, {storage_of(args.weight), gpu::Access::read, 0, 0}, out.binding};
  BoundView x = out;
  if (!in_place) {
    CHORUS_ASSIGN(x, bind_view(args.x, gpu::Access::read, capabilities));
    plan.bindings.push_back(x.binding);
  }
  const uint32_t heads = args.x.cols / args.head_dim;
  const uint64_t items = uint64_t{args.x.rows} * heads;
  CHORUS_CHECK(items < (uint64_t{1} << 32));
  plan.params = {static_cast<uint32_t>(items),
                 heads,
                 args.head_dim / width,
                 args.head_dim,
                 x.offset / width,
                 args.x.stride / width,
                 gate.offset / width,
                 args.gate.stride / width,
                 out.offset / width,
                 args.out.stride / width,
                 args.epsilon,
                 0};
  plan.grid = gpu::fold_grid((items + kItemsPerWorkgroup - 1) / kItemsPerWorkgroup, capabilities.workgroups_per_dimension_max);
  plan.shader = std::string(vec4 ? "vec4" : "scalar") + (in_place ? "_in_place" : "");
  return plan;
}

Status record_gated_rms_norm(WebgpuContext& context, const compute::GatedRmsNormArgs& args) {
  CHORUS_ASSIGN(const GatedRmsNormPlan plan, plan_gated_rms_norm(args, context.device.capabilities(), context.forced_variant(kKernel)));
  if (plan.shader.empty()) return {};
  const gpu::ShaderSource* shader = find_shader(kKernel, plan.shader);
  CHORUS_CHECK(shader != nullptr);
  return context.device.dispatch({shader, plan.bindings, as_params(plan.params), plan.grid});
}

}  // namespace chorus::kernels
