// A few hundred dot products at the end of a pass: no SIMD needed. The sums are f64.
#include "kernels/pointer_scores/pointer_scores_cpu.h"

namespace chorus::kernels {

Status pointer_scores_cpu(CpuContext& context, const compute::PointerScoresArgs& args) {
  if (args.keys.rows == 0) return {};
  const Rows queries(args.queries), keys(args.keys);
  const uint32_t* owners = indices(args.question_of_option);
  const uint32_t last_question = args.queries.rows - 1;
  float* scores = floats(args.scores);
  for_row_ranges(context.pool, args.keys.rows, args.keys.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t option = first; option < last; ++option) {
      const float* key = keys.row(option);
      const float* query = queries.row(std::min(owners[option], last_question));
      double sum = 0;
      for (uint64_t col = 0; col < args.keys.cols; ++col) sum += static_cast<double>(key[col]) * query[col];
      scores[option] = static_cast<float>(sum * args.scale / args.temperature);
    }
  });
  return {};
}

}  // namespace chorus::kernels
