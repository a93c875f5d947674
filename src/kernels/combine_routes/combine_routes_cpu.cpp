#include "kernels/combine_routes/combine_routes_cpu.h"

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/combine_routes/combine_routes_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

#ifndef CHORUS_COMBINE_ROUTES_CPU_ONCE
#define CHORUS_COMBINE_ROUTES_CPU_ONCE
namespace chorus::kernels {

struct CombineRow {
  const float* routed;  // first of top_k rows
  uint64_t routed_stride;
  const float* weights;
  uint64_t top_k;
  const float* shared;  // null: none
  const float* gate;    // null: factor 1
  float* out;
  uint64_t cols;
};

}  // namespace chorus::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

void combine_row(const CombineRow& row) {
  const Floats d;
  const Vector factor = row.gate ? sigmoid(d, hn::Set(d, *row.gate)) : hn::Set(d, 1.0f);
  for_vectors(row.cols, [&](const auto& load, const auto& store) HWY_ATTR {
    Vector sum = hn::Zero(d);
    for (uint64_t rank = 0; rank < row.top_k; ++rank) {
      sum = hn::MulAdd(hn::Set(d, row.weights[rank]), load(row.routed + rank * row.routed_stride), sum);
    }
    sum = hn::Add(load(row.out), sum);
    if (row.shared) sum = hn::MulAdd(factor, load(row.shared), sum);
    store(sum, row.out);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(combine_row);

Status combine_routes_cpu(CpuContext& context, const compute::CombineRoutesArgs& args) {
  if (args.out.rows == 0) return {};
  const int64_t target = simd_target(context.forced_variant("combine_routes"));
  const Rows routed(args.routed);
  const MutableRows out(args.out);
  const float* weights = floats(args.weights);
  for_row_ranges(context.pool, args.out.rows, uint64_t{args.out.cols} * args.top_k, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      CombineRow work{routed.row(row * args.top_k),
                      routed.stride,
                      weights + row * args.top_k,
                      args.top_k,
                      nullptr,
                      nullptr,
                      out.row(row),
                      args.out.cols};
      if (args.shared.buffer) work.shared = Rows(args.shared).row(row);
      if (args.shared_gate.buffer) work.gate = Rows(args.shared_gate).row(row);
      CHORUS_SIMD(combine_row, target)(work);
    }
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
