// The kernels of the cpu backend in one place, and the variants that this processor can run of each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/argmax/argmax_cpu.h"
#include "kernels/attend/attend_cpu.h"
#include "kernels/attention/attention_cpu.h"
#include "kernels/causal_conv/causal_conv_cpu.h"
#include "kernels/combine_routes/combine_routes_cpu.h"
#include "kernels/copy/copy_cpu.h"
#include "kernels/embed/embed_cpu.h"
#include "kernels/expert_ffn/expert_ffn_cpu.h"
#include "kernels/gated_delta/gated_delta_cpu.h"
#include "kernels/gated_rms_norm/gated_rms_norm_cpu.h"
#include "kernels/gather_rows/gather_rows_cpu.h"
#include "kernels/head_linear/head_linear_cpu.h"
#include "kernels/layer_norm/layer_norm_cpu.h"
#include "kernels/linear/linear_cpu.h"
#include "kernels/pointer_scores/pointer_scores_cpu.h"
#include "kernels/qk_norm_rope/qk_norm_rope_cpu.h"
#include "kernels/rms_norm/rms_norm_cpu.h"
#include "kernels/rope/rope_cpu.h"
#include "kernels/router/router_cpu.h"
#include "kernels/sample/sample_cpu.h"
#include "kernels/segment_softmax/segment_softmax_cpu.h"
#include "kernels/select_keys/select_keys_cpu.h"
#include "kernels/swiglu/swiglu_cpu.h"

namespace chorus::backends {

// Empty for an unknown operation.
std::vector<std::string> cpu_variants(std::string_view operation);

// The instruction set that operations use when none is forced.
std::string default_simd_target();

}  // namespace chorus::backends
