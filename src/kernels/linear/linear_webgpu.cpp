#include "kernels/linear/linear_webgpu.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

namespace chorus::kernels {
namespace {

constexpr std::string_view kRowVariant = "row";
constexpr std::string_view kSplitVariant = "split";  // for tests: a small tile with k always in several parts
constexpr uint32_t kSplitVariantSplits = 3;
constexpr uint32_t kRowVariantRowsMax = 8;
constexpr uint32_t kReduceWorkgroup = 64;
constexpr uint32_t kColumnsPerReduce = 4;
constexpr uint32_t kSplitsMax = 32;
constexpr uint32_t kBandRows = 16;  // tile rows whose x is meant to stay in cache while the weights pass by
constexpr uint64_t kScratchBytesMax = uint64_t{256} << 20;

// The tiles of linear.variants. `rate`: operations per second of one compute unit that is busy with several of this tile, relative to
// the best. `alone`: how much longer a single one takes than its share. Both measured on an H200 (docs/kernels-linear.md).
struct Tile {
  std::string_view name;
  uint32_t rows, cols;  // of the result
  uint32_t quads;       // vec4s of k per step
  uint32_t invocations;
  uint32_t workgroup_bytes;
  double rate;
  double alone;
};
constexpr std::array<Tile, 4> kTiles = {{
    {"tile32", 32, 64, 8, 128, 12288, 0.79, 1.25},
    {"tile64", 64, 64, 8, 256, 16384, 0.85, 1.40},
    {"tile64x128", 64, 128, 8, 256, 24576, 0.96, 1.20},
    {"tile128", 128, 128, 4, 256, 16384, 1.00, 1.00},
}};
constexpr std::string_view kSmallTile = "tile64";
constexpr uint32_t kSoftwareTileMax = 64 * 64;

bool runs(const Tile& tile, const gpu::Capabilities& capabilities) {
  return tile.invocations <= capabilities.workgroup_invocations_max && tile.workgroup_bytes <= capabilities.workgroup_storage_bytes_max;
}

// A software adapter compiles the big unrolled tiles for seconds and gains nothing from them.
bool worth_compiling(const Tile& tile, const gpu::Capabilities& capabilities) {
  return !capabilities.software || tile.rows * tile.cols <= kSoftwareTileMax;
}

// WebGPU does not tell how many compute units a device has; these are the multiprocessor counts that NVIDIA publishes.
uint32_t compute_units(const gpu::Capabilities& capabilities) {
  struct Known {
    std::string_view name;
    uint32_t units;
  };
  constexpr std::array<Known, 6> kKnown = {
      {{"H200", 132}, {"H100", 132}, {"A100", 108}, {"L40", 142}, {"RTX 4090", 128}, {"RTX 3090", 82}}};
  if (capabilities.software) return 1;
  for (const Known& known : kKnown) {
    if (capabilities.name.find(known.name) != std::string::npos) return known.units;
  }
  return 64;
}

uint32_t divide_up(uint32_t value, uint32_t by) { return value / by + (value % by != 0 ? 1 : 0); }

// Time of a cut in units of one multiply-add of one compute unit. Workgroups of a tile run in waves of one per unit (measured: two tiles
// that share a unit take about as long as one after the other); filling a tile's pipeline costs a part of a step. Adding up the planes
// costs their traffic, with the H200's ratio of about 4 multiply-adds to a byte, and the start of one more dispatch.
double modelled_time(const Tile& tile, uint32_t rows, uint32_t cols, const LinearCut& cut, uint32_t units) {
  constexpr double kMultiplyAddsPerByte = 4;
  constexpr double kDispatchTime = 500e3;  // about 3 us of a unit
  constexpr double kFillDepth = 16;        // in k
  const uint64_t tiles = uint64_t{divide_up(rows, tile.rows)} * divide_up(cols, tile.cols) * cut.splits;
  const uint64_t waves = (tiles + units - 1) / units;
  const double tile_time = 1.0 * tile.rows * tile.cols * (cut.split_quads * 4.0 + kFillDepth) / tile.rate;
  double time = static_cast<double>(waves) * tile_time * (waves == 1 ? tile.alone : 1);
  if (cut.splits > 1) {
    const double bytes = 4.0 * rows * cols * (2.0 * cut.splits + 1);
    time += bytes * kMultiplyAddsPerByte / units + kDispatchTime;
  }
  return time;
}

LinearCut split_evenly(const Tile& tile, uint32_t weight_quads, uint32_t splits) {
  const uint32_t steps = std::max(divide_up(weight_quads, tile.quads), 1u);
  const uint32_t steps_per_split = divide_up(steps, std::min(splits, steps));
  return {tile.name, divide_up(steps, steps_per_split), steps_per_split * tile.quads};
}

uint64_t plane_elements(uint32_t rows, uint32_t cols) { return uint64_t{rows} * divide_up(cols, 4) * 4; }

bool scratch_fits(uint32_t rows, uint32_t cols, uint32_t splits, const gpu::Capabilities& capabilities) {
  const uint64_t bytes = plane_elements(rows, cols) * splits * 4;
  return bytes <= std::min(kScratchBytesMax, capabilities.storage_binding_bytes_max);
}

}  // namespace

std::vector<std::string> linear_variants(const gpu::Capabilities& capabilities) {
  std::vector<std::string> names = {std::string(kRowVariant), std::string(kSplitVariant)};
  for (const Tile& tile : kTiles) {
    if (runs(tile, capabilities)) names.emplace_back(tile.name);
  }
  return names;
}

LinearCut cut_linear(uint32_t rows, uint32_t cols, uint32_t weight_quads, const gpu::Capabilities& capabilities, std::string_view forced) {
  if (forced.empty() ? rows <= kRowVariantRowsMax : forced == kRowVariant) return {kRowVariant, 1, weight_quads};
  const bool always_split = forced == kSplitVariant;
  const std::string_view wanted = always_split ? kSmallTile : forced;
  const uint32_t units = compute_units(capabilities);
  LinearCut best;
  double best_time = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    if (!runs(tile, capabilities) || !(wanted.empty() ? worth_compiling(tile, capabilities) : wanted == tile.name)) continue;
    for (uint32_t splits = 1; splits <= kSplitsMax; ++splits) {
      const LinearCut cut = split_evenly(tile, weight_quads, splits);
      if (cut.splits != splits || (splits > 1 && !scratch_fits(rows, cols, splits, capabilities))) continue;
      const double time = always_split ? -1.0 * std::min(splits, kSplitVariantSplits) : modelled_time(tile, rows, cols, cut, units);
      if (time < best_time) {
        best_time = time;
        best = cut;
      }
    }
  }
  return best;
}

namespace {

struct Product {
  const compute::LinearArgs& args;
  const WebgpuWeight& weight;
  const gpu::Capabilities& capabilities;
  std::string_view forced;
};

const Tile* tile_named(std::string_view name) {
  for (const Tile& tile : kTiles) {
    if (tile.name == name) return &tile;
  }
  return nullptr;
}

// The columns of `out` that a shard makes.
compute::View columns_of(const compute::MutableView& out, const WebgpuWeight::Shard& shard) {
  compute::View columns = out;
  columns.offset += shard.first_row;
  columns.cols = shard.row_count;
  return columns;
}

LinearParams product_params(const Product& product, const WebgpuWeight::Shard& shard, RowSlice slice) {
  LinearParams params;
  params.rows = slice.count;
  params.cols = shard.row_count;
  params.depth = product.args.x.cols;
  params.weight_quads = product.weight.padded_cols() / 4;
  params.x_stride = product.args.x.stride;
  params.result_stride = product.args.out.stride;
  params.bias_offset = shard.first_row;
  if (product.args.bias) params.flags |= kLinearFlagBias;
  if (product.args.store == compute::LinearStore::add) params.flags |= kLinearFlagAdd;
  return params;
}

// Moves the product's output to planes of partial sums and adds the dispatch that sums them up.
Status add_reduction(LinearStep& step, std::string_view access, const gpu::Capabilities& capabilities) {
  LinearParams& params = step.params;
  LinearParams& reduce = step.reduce_params;
  const uint32_t plane_stride = divide_up(params.cols, 4) * 4;
  const uint64_t plane = plane_elements(params.rows, params.cols);
  step.scratch_bytes = plane * params.splits * 4;
  reduce = params;
  reduce.depth = params.cols;
  reduce.x_offset = 0;
  reduce.x_stride = plane_stride;
  reduce.split_stride = static_cast<uint32_t>(plane);
  reduce.tiles_m = params.rows;
  reduce.tiles_n = divide_up(params.cols, kColumnsPerReduce);
  params.result_offset = 0;
  params.result_stride = plane_stride;
  params.split_stride = static_cast<uint32_t>(plane);
  params.flags = 0;
  CHORUS_ASSIGN(step.reduce_shader, require_shader("linear_reduce", access));
  const uint64_t invocations = uint64_t{reduce.tiles_m} * reduce.tiles_n;
  step.reduce_grid = gpu::fold_grid((invocations + kReduceWorkgroup - 1) / kReduceWorkgroup, capabilities.workgroups_per_dimension_max);
  return {};
}

Result<LinearStep> plan_step(const Product& product, size_t shard_index, RowSlice slice, std::string& variant) {
  const WebgpuWeight::Shard& shard = product.weight.shards()[shard_index];
  const gpu::Capabilities& capabilities = product.capabilities;
  const compute::View out = columns_of(product.args.out, shard);
  const bool quads = quad_aligned(product.args.x) && quad_aligned(out);
  const std::string access = quads ? "quad" : "element";

  LinearStep step;
  step.slice = slice;
  step.shard = shard_index;
  step.params = product_params(product, shard, slice);
  LinearParams& params = step.params;
  RowWindow x_window = bind_rows(product.args.x, slice, gpu::Access::read, capabilities);
  RowWindow out_window = bind_rows(out, slice, gpu::Access::read_write, capabilities);
  params.x_offset = x_window.offset;
  params.result_offset = out_window.offset;
  step.x = std::move(x_window.binding);
  step.out = std::move(out_window.binding);

  const LinearCut cut = cut_linear(params.rows, params.cols, params.weight_quads, capabilities, product.forced);
  CHORUS_CHECK(!cut.variant.empty());
  variant = cut.variant;
  params.splits = cut.splits;
  params.split_quads = cut.split_quads;
  params.band = kBandRows;
  const std::string build = std::string(dtype_name(product.weight.dtype())) + "_" + access;
  uint64_t workgroups = 0;
  if (const Tile* tile = tile_named(cut.variant)) {
    CHORUS_ASSIGN(step.shader, require_shader("linear", variant + "_" + build));
    params.tiles_m = divide_up(params.rows, tile->rows);
    params.tiles_n = divide_up(params.cols, tile->cols);
    workgroups = uint64_t{params.tiles_m} * params.tiles_n * params.splits;
  } else {
    CHORUS_ASSIGN(step.shader, require_shader("linear_row", build));
    params.tiles_m = 1;
    params.tiles_n = divide_up(params.cols, 4);
    workgroups = params.tiles_n;
  }
  CHORUS_CHECK(workgroups <= std::numeric_limits<uint32_t>::max());
  step.grid = gpu::fold_grid(workgroups, capabilities.workgroups_per_dimension_max);
  if (params.splits > 1) CHORUS_TRY(add_reduction(step, access, capabilities));
  return step;
}

}  // namespace

Result<LinearPlan> plan_linear(const compute::LinearArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  LinearPlan plan;
  if (args.out.rows == 0 || args.out.cols == 0) return plan;
  CHORUS_ASSIGN(const std::string wanted, pick_variant("linear", forced, "", linear_variants(capabilities)));
  CHORUS_TRY(require_other_buffer("linear", args.out, {args.x.buffer, args.bias}));
  const Product product{args, weight_of(args.weight), capabilities, wanted};
  CHORUS_ASSIGN(std::vector<RowSlice> slices, slice_rows(args.out.rows, {args.x, args.out}, "linear", capabilities));
  if (wanted == kRowVariant) {
    // Forced: as many passes of its few rows as it takes.
    slices.clear();
    for (uint32_t first = 0; first < args.out.rows; first += kRowVariantRowsMax) {
      slices.push_back({first, std::min(kRowVariantRowsMax, args.out.rows - first)});
    }
  }
  for (const RowSlice& slice : slices) {
    for (size_t shard = 0; shard < product.weight.shards().size(); ++shard) {
      std::string variant;
      CHORUS_ASSIGN(LinearStep step, plan_step(product, shard, slice, variant));
      if (plan.variant.empty()) plan.variant = variant;
      plan.steps.push_back(std::move(step));
    }
  }
  return plan;
}

namespace {

Status record_step(WebgpuContext& context, const compute::LinearArgs& args, const LinearStep& step) {
  const std::shared_ptr<gpu::Storage>& shard = weight_of(args.weight).shards()[step.shard].storage;
  const gpu::Binding weight{shard, gpu::Access::read};
  const gpu::Binding bias{args.bias ? storage_of(args.bias) : shard, gpu::Access::read};  // without a bias: something that is only read
  gpu::Dispatch product{step.shader, {step.x, weight, bias, step.out}, as_params(step.params), step.grid};
  if (step.reduce_shader == nullptr) return context.device.dispatch(product);
  CHORUS_ASSIGN(const std::shared_ptr<gpu::Storage> scratch, context.scratch.acquire("linear", step.scratch_bytes));
  product.bindings[3] = gpu::Binding{scratch, gpu::Access::read_write};
  CHORUS_TRY(context.device.dispatch(product));
  const gpu::Binding planes{scratch, gpu::Access::read};
  return context.device.dispatch({step.reduce_shader, {planes, weight, bias, step.out}, as_params(step.reduce_params), step.reduce_grid});
}

}  // namespace

Status record_linear(WebgpuContext& context, const compute::LinearArgs& args) {
  CHORUS_ASSIGN(const LinearPlan plan, plan_linear(args, context.device.capabilities(), context.forced_variant("linear")));
  for (const LinearStep& step : plan.steps) CHORUS_TRY(record_step(context, args, step));
  return {};
}

}  // namespace chorus::kernels
