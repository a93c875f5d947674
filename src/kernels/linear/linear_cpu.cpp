#include "kernels/linear/linear_cpu.h"

#include "base/half.h"

namespace chorus::kernels {
namespace {

constexpr uint64_t kWidth = CpuWeight::kPanelWidth;
constexpr uint64_t kBlock = 256;  // the sum of one output is the sum of the sums of blocks of this many products, in order

// sums[0..32) = x . panel
template <typename Stored, typename Widen>
void multiply_panel(const float* x, uint64_t cols, const Stored* panel, const Widen& widen, float* sums) {
  std::fill_n(sums, kWidth, 0.0f);
  for (uint64_t begin = 0; begin < cols; begin += kBlock) {
    float block[kWidth] = {};
    for (uint64_t k = begin; k < std::min(cols, begin + kBlock); ++k) {
      for (uint64_t n = 0; n < kWidth; ++n) block[n] += x[k] * widen(panel[k * kWidth + n]);
    }
    for (uint64_t n = 0; n < kWidth; ++n) sums[n] += block[n];
  }
}

}  // namespace

Status linear_cpu(CpuContext& context, const compute::LinearArgs& args) {
  if (args.x.rows == 0) return {};
  const CpuWeight& weight = cpu_weight(args.weight);
  const Rows x(args.x);
  const MutableRows out(args.out);
  const float* bias = args.bias ? floats(args.bias) : nullptr;
  context.pool.run(weight.panels(), [&](uint64_t panel, uint32_t) {
    const uint64_t first = panel * kWidth;
    const uint64_t width = std::min<uint64_t>(kWidth, weight.rows() - first);
    for (uint64_t row = 0; row < args.x.rows; ++row) {
      float sums[kWidth];
      const std::byte* data = weight.panel(panel);
      switch (weight.dtype()) {
        case DType::f32:
          multiply_panel(
              x.row(row), weight.cols(), reinterpret_cast<const float*>(data), [](float w) { return w; }, sums);
          break;
        case DType::f16:
          multiply_panel(x.row(row), weight.cols(), reinterpret_cast<const uint16_t*>(data), f16_to_float, sums);
          break;
        case DType::bf16:
          multiply_panel(x.row(row), weight.cols(), reinterpret_cast<const uint16_t*>(data), bf16_to_float, sums);
          break;
      }
      float* target = out.row(row) + first;
      for (uint64_t n = 0; n < width; ++n) {
        const float value = sums[n] + (bias ? bias[first + n] : 0.0f);
        target[n] = args.store == compute::LinearStore::add ? target[n] + value : value;
      }
    }
  });
  return {};
}

}  // namespace chorus::kernels
