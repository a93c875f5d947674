#include "kernels/embed/embed_cpu.h"

#include "base/half.h"

namespace chorus::kernels {
namespace {

// Row `id` of a panel-packed table: one element out of every 32.
template <typename Stored, typename Widen>
void copy_row(const CpuWeight& table, uint32_t id, float* out, const Widen& widen) {
  const Stored* column = reinterpret_cast<const Stored*>(table.panel(id / CpuWeight::kPanelWidth)) + id % CpuWeight::kPanelWidth;
  for (uint64_t k = 0; k < table.cols(); ++k) out[k] = widen(column[k * CpuWeight::kPanelWidth]);
}

}  // namespace

Status embed_cpu(CpuContext& context, const compute::EmbedArgs& args) {
  if (args.out.rows == 0) return {};
  const CpuWeight& table = cpu_weight(args.table);
  const uint32_t* ids = indices(args.ids);
  const MutableRows out(args.out);
  for_row_ranges(context.pool, args.out.rows, table.cols(), [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      const uint32_t id = std::min(ids[row], table.rows() - 1);
      switch (table.dtype()) {
        case DType::f32:
          copy_row<float>(table, id, out.row(row), [](float value) { return value; });
          break;
        case DType::f16:
          copy_row<uint16_t>(table, id, out.row(row), f16_to_float);
          break;
        case DType::bf16:
          copy_row<uint16_t>(table, id, out.row(row), bf16_to_float);
          break;
      }
    }
  });
  return {};
}

}  // namespace chorus::kernels
