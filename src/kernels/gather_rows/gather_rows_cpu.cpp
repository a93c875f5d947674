#include "kernels/gather_rows/gather_rows_cpu.h"

namespace chorus::kernels {

Status gather_rows_cpu(CpuContext& context, const compute::GatherRowsArgs& args) {
  if (args.out.rows == 0) return {};
  const Rows x(args.x);
  const uint32_t* sources = indices(args.indices);
  const MutableRows out(args.out);
  const uint32_t last_source = args.x.rows - 1;
  for_row_ranges(context.pool, args.out.rows, args.out.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) std::copy_n(x.row(std::min(sources[row], last_source)), args.out.cols, out.row(row));
  });
  return {};
}

}  // namespace chorus::kernels
