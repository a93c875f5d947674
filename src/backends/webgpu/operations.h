// The one table of operations: which variants exist and how each is recorded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/ops.h"
#include "gpu/device.h"
#include "kernels/common/webgpu_context.h"

namespace chorus::backends {

struct Operation {
  std::string_view name;
  std::vector<std::string> (*variants)(const gpu::Capabilities&);
};
const std::vector<Operation>& webgpu_operations();

Status record(kernels::WebgpuContext& context, const compute::EmbedArgs& args);
Status record(kernels::WebgpuContext& context, const compute::LinearArgs& args);
Status record(kernels::WebgpuContext& context, const compute::RmsNormArgs& args);
Status record(kernels::WebgpuContext& context, const compute::GatedRmsNormArgs& args);
Status record(kernels::WebgpuContext& context, const compute::SwigluArgs& args);
Status record(kernels::WebgpuContext& context, const compute::CausalConvArgs& args);
Status record(kernels::WebgpuContext& context, const compute::GatedDeltaArgs& args);
Status record(kernels::WebgpuContext& context, const compute::QkNormRopeArgs& args);
Status record(kernels::WebgpuContext& context, const compute::AttentionArgs& args);
Status record(kernels::WebgpuContext& context, const compute::GatherRowsArgs& args);
Status record(kernels::WebgpuContext& context, const compute::PointerScoresArgs& args);
Status record(kernels::WebgpuContext& context, const compute::SegmentSoftmaxArgs& args);
Status record(kernels::WebgpuContext& context, const compute::LayerNormArgs& args);
Status record(kernels::WebgpuContext& context, const compute::RopeArgs& args);
Status record(kernels::WebgpuContext& context, const compute::HeadLinearArgs& args);
Status record(kernels::WebgpuContext& context, const compute::ArgmaxArgs& args);
Status record(kernels::WebgpuContext& context, const compute::AttendArgs& args);
Status record(kernels::WebgpuContext& context, const compute::SelectKeysArgs& args);
Status record(kernels::WebgpuContext& context, const compute::RouterArgs& args);
Status record(kernels::WebgpuContext& context, const compute::ExpertFfnArgs& args);
Status record(kernels::WebgpuContext& context, const compute::CombineRoutesArgs& args);
Status record(kernels::WebgpuContext& context, const compute::SampleArgs& args);

}  // namespace chorus::backends
