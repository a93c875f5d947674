#include "kernels/linear/linear_webgpu.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

namespace chorus::kernels {
namespace {

// For few rows: workgroups of 64, and of 256 for products of few columns, which else would not give the device enough to read at a time.
constexpr std::string_view kRowVariant = "row";
constexpr std::string_view kWideRowVariant = "row256";
constexpr uint32_t kRowThreads = 64;
constexpr uint32_t kWideRowThreads = 256;
constexpr uint32_t kWideRowColsMax = 8192;
constexpr std::string_view kSplitVariant = "split";  // for tests: a small tile with k always in several parts
constexpr uint32_t kSplitVariantSplits = 3;
constexpr uint32_t kRowVariantRowsMax = 8;
constexpr uint32_t kReduceWorkgroup = 64;
constexpr uint32_t kColumnsPerReduce = 4;
constexpr uint32_t kSplitsMax = 32;
constexpr uint32_t kBandRows = 16;  // tile rows whose x is meant to stay in cache while the weights pass by
// Scratch is kept small beside the weights: planes of partial sums, terms of x, terms of one part of a weight.
constexpr uint64_t kPlaneBytesMax = uint64_t{16} << 20;
constexpr uint64_t kXTermBytesMax = uint64_t{128} << 20;
constexpr uint64_t kWeightTermBytesMax = uint64_t{48} << 20;
constexpr uint32_t kPartFromRows = 128;   // fewer rows do not pay for a product in parts
constexpr uint32_t kPartAlignment = 128;  // weight rows; whole tiles, and a byte offset that every adapter can bind

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
  uint32_t weight_terms;  // f16 terms per weight (subgroup matrices); 0: plain arithmetic
};
constexpr std::array<Tile, 8> kTiles = {{
    {"tile32", 32, 64, 8, 128, 12288, 0.79, 1.25, 0},
    {"tile64", 64, 64, 8, 256, 16384, 0.85, 1.40, 0},
    {"tile64x128", 64, 128, 8, 256, 24576, 0.96, 1.20, 0},
    {"tile128", 128, 128, 8, 256, 32768, 1.00, 1.00, 0},
    {"matrix64", 64, 128, 8, 128, 20480, 2.85, 1.05, 1},
    {"matrix64", 64, 64, 8, 128, 20480, 1.70, 1.20, 2},
    {"matrix128", 128, 128, 8, 256, 30720, 3.20, 1.00, 1},
    {"matrix128", 128, 128, 8, 128, 40960, 2.25, 1.00, 2},
}};
constexpr std::string_view kSmallTile = "tile64";
constexpr uint32_t kSoftwareTileMax = 64 * 64;

bool is_row_variant(std::string_view variant) { return variant == kRowVariant || variant == kWideRowVariant; }

// Vec4s of a row that linear_row.wgsl reads at a time: 16 bytes where a row is a whole number of them.
uint32_t row_unit_quads(const LinearShape& shape) { return shape.dtype != DType::f32 && shape.weight_quads % 2 == 0 ? 2 : 1; }

// Depends on the weight alone: a row's bits do not depend on the other rows.
std::string_view row_variant_of(const LinearShape& shape, const gpu::Capabilities& capabilities) {
  const bool enough_k = shape.weight_quads / row_unit_quads(shape) > kRowThreads;
  return !capabilities.software && enough_k && shape.cols <= kWideRowColsMax ? kWideRowVariant : kRowVariant;
}

// Builds for fewer rows and with a norm exist of aligned layouts only.
bool is_common_row_layout(const LinearShape& shape, std::string_view access) {
  return access == "quad" && (row_unit_quads(shape) == 2 || shape.dtype == DType::f32);
}

// A line of linear_row.variants.
std::string row_build(const LinearShape& shape, std::string_view variant, const std::string& access) {
  const uint32_t unit_quads = row_unit_quads(shape);
  const uint32_t rows = !is_common_row_layout(shape, access) || shape.rows > 4 ? 8 : shape.rows > 1 ? 4 : 1;
  const uint32_t threads = variant == kRowVariant ? kRowThreads : kWideRowThreads;
  return std::string(dtype_name(shape.dtype)) + (unit_quads == 2 ? "_oct_" : "_quad_") + access + "_" + std::to_string(rows) + "_" +
         std::to_string(threads);
}

// What linear_matrix.wgsl is written for: f16 matrices of 16 x 16 x 16 with f32 sums, subgroups of exactly 32.
bool has_matrices(const gpu::Capabilities& capabilities) {
  if (!capabilities.subgroup_matrix || !capabilities.f16 || capabilities.subgroup_size_min != 32 || capabilities.subgroup_size_max != 32) {
    return false;
  }
  return std::any_of(capabilities.subgroup_matrix_shapes.begin(), capabilities.subgroup_matrix_shapes.end(), [](const auto& shape) {
    return shape.component == "f16" && shape.result == "f32" && shape.m == 16 && shape.n == 16 && shape.k == 16;
  });
}

bool runs(const Tile& tile, const gpu::Capabilities& capabilities) {
  if (tile.weight_terms > 0 && !has_matrices(capabilities)) return false;
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

uint32_t terms_of(DType dtype) { return dtype == DType::f32 ? 2 : 1; }

uint32_t octs_of(uint32_t quads) { return divide_up(quads, 2); }

// A 16-bit weight of whole octs is read by linear_matrix as it is, when it is f16.
bool needs_terms(const LinearShape& shape) { return shape.dtype != DType::f16 || shape.weight_quads % 2 != 0; }

constexpr double kMultiplyAddsPerByte = 4;
constexpr double kDispatchTime = 500e3;  // about 3 us of a unit

double traffic_time(double bytes, uint32_t units) { return bytes * kMultiplyAddsPerByte / units + kDispatchTime; }

// Time of a cut in units of one multiply-add of one compute unit. Workgroups of a tile run in waves of one per unit (measured: two tiles
// that share a unit take about as long as one after the other); filling a tile's pipeline costs a part of a step. Writing terms and adding
// up the planes costs their traffic, with the H200's ratio of about 4 multiply-adds to a byte, and the start of more dispatches.
double modelled_time(const Tile& tile, const LinearShape& shape, const LinearCut& cut, uint32_t units) {
  constexpr double kFillDepth = 16;  // in k
  const uint64_t tiles = uint64_t{divide_up(shape.rows, tile.rows)} * divide_up(shape.cols, tile.cols) * cut.splits;
  const uint64_t waves = (tiles + units - 1) / units;
  const double tile_time = 1.0 * tile.rows * tile.cols * (cut.split_quads * 4.0 + kFillDepth) / tile.rate;
  double time = static_cast<double>(waves) * tile_time * (waves == 1 ? tile.alone : 1);
  if (cut.splits > 1) time += traffic_time(4.0 * shape.rows * shape.cols * (2.0 * cut.splits + 1), units);
  if (tile.weight_terms > 0) {
    // Writing terms reads each row twice, the second time from cache, and waits more than a plain copy does.
    time += 1.5 * traffic_time(8.0 * 4 * shape.rows * shape.weight_quads, units);
    const double bytes_per_weight = dtype_bytes(shape.dtype) + 2.0 * tile.weight_terms;
    if (needs_terms(shape)) time += 1.5 * traffic_time(bytes_per_weight * 4 * shape.cols * shape.weight_quads, units);
  }
  return time;
}

LinearCut split_evenly(const Tile& tile, uint32_t weight_quads, uint32_t splits) {
  const uint32_t steps = std::max(divide_up(weight_quads, tile.quads), 1u);
  const uint32_t steps_per_split = divide_up(steps, std::min(splits, steps));
  return {tile.name, tile.rows, tile.cols, divide_up(steps, steps_per_split), steps_per_split * tile.quads, tile.weight_terms};
}

uint64_t plane_elements(uint32_t rows, uint32_t cols) { return uint64_t{rows} * divide_up(cols, 4) * 4; }

uint64_t term_bytes(uint32_t rows, uint32_t quads, uint32_t terms) { return uint64_t{rows} * octs_of(quads) * 16 * terms; }

bool scratch_fits(const LinearShape& shape, const LinearCut& cut, const gpu::Capabilities& capabilities) {
  const uint64_t binding = capabilities.storage_binding_bytes_max;
  if (cut.splits > 1 && plane_elements(shape.rows, shape.cols) * cut.splits * 4 > std::min(kPlaneBytesMax, binding)) return false;
  if (cut.weight_terms == 0) return true;
  if (term_bytes(shape.rows, shape.weight_quads, 2) > std::min(kXTermBytesMax, binding)) return false;
  return !needs_terms(shape) || term_bytes(shape.cols, shape.weight_quads, cut.weight_terms) <= std::min(kWeightTermBytesMax, binding);
}

}  // namespace

std::vector<std::string> linear_variants(const gpu::Capabilities& capabilities) {
  std::vector<std::string> names = {std::string(kRowVariant), std::string(kWideRowVariant), std::string(kSplitVariant)};
  for (const Tile& tile : kTiles) {
    if (runs(tile, capabilities) && names.back() != tile.name) names.emplace_back(tile.name);
  }
  return names;
}

LinearCut cut_linear(const LinearShape& shape, const gpu::Capabilities& capabilities, std::string_view forced) {
  if (forced.empty() ? shape.rows <= kRowVariantRowsMax : is_row_variant(forced)) {
    const std::string_view variant = forced.empty() ? row_variant_of(shape, capabilities) : forced;
    return {variant == kRowVariant ? kRowVariant : kWideRowVariant, shape.rows, kColumnsPerReduce, 1, shape.weight_quads, 0};
  }
  const bool always_split = forced == kSplitVariant;
  const std::string_view wanted = always_split ? kSmallTile : forced;
  const uint32_t units = compute_units(capabilities);
  LinearCut best;
  double best_time = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    if (!runs(tile, capabilities) || !(wanted.empty() ? worth_compiling(tile, capabilities) : wanted == tile.name)) continue;
    if (tile.weight_terms > 0 && tile.weight_terms != terms_of(shape.dtype)) continue;
    for (uint32_t splits = 1; splits <= kSplitsMax; ++splits) {
      const LinearCut cut = split_evenly(tile, shape.weight_quads, splits);
      if (cut.splits != splits || !scratch_fits(shape, cut, capabilities)) continue;
      const double time = always_split ? -1.0 * std::min(splits, kSplitVariantSplits) : modelled_time(tile, shape, cut, units);
      if (time < best_time) {
        best_time = time;
        best = cut;
      }
    }
  }
  // A forced matrix variant whose terms do not fit scratch.
  if (best.variant.empty() && !forced.empty()) return cut_linear(shape, capabilities, kSmallTile);
  return best;
}

namespace {

struct Product {
  const compute::LinearArgs& args;
  const WebgpuWeight& weight;
  const gpu::Capabilities& capabilities;
  std::string_view forced;
};

// Rows of the weight that one product takes: a shard, or a part of one whose terms fit scratch.
struct WeightPart {
  uint32_t first_row = 0;
  uint32_t row_count = 0;
  gpu::Binding binding;
};

std::vector<WeightPart> parts_of(const Product& product, uint32_t rows) {
  const WebgpuWeight& weight = product.weight;
  const uint32_t quads = weight.padded_cols() / 4;
  const uint64_t row_bytes = uint64_t{quads} * 4 * dtype_bytes(weight.dtype());
  const uint64_t term_row_bytes = term_bytes(1, quads, terms_of(weight.dtype()));
  const bool in_parts =
      rows >= kPartFromRows && has_matrices(product.capabilities) && needs_terms({rows, weight.rows(), quads, weight.dtype()});
  std::vector<WeightPart> parts;
  for (const WebgpuWeight::Shard& shard : weight.shards()) {
    uint32_t part_rows = shard.row_count;
    if (in_parts && term_row_bytes * shard.row_count > kWeightTermBytesMax) {
      const uint64_t term_bytes_of_shard = term_row_bytes * shard.row_count;
      const uint32_t count = static_cast<uint32_t>((term_bytes_of_shard + kWeightTermBytesMax - 1) / kWeightTermBytesMax);
      part_rows = divide_up(divide_up(shard.row_count, count), kPartAlignment) * kPartAlignment;
    }
    for (uint32_t first = 0; first < shard.row_count; first += part_rows) {
      const uint32_t count = std::min(part_rows, shard.row_count - first);
      parts.push_back({shard.first_row + first, count, {shard.storage, gpu::Access::read, first * row_bytes, count * row_bytes}});
    }
  }
  return parts;
}

// The columns of `out` that a part makes.
compute::View columns_of(const compute::MutableView& out, const WeightPart& part) {
  compute::View columns = out;
  columns.offset += part.first_row;
  columns.cols = part.row_count;
  return columns;
}

LinearParams product_params(const Product& product, const WeightPart& part, RowSlice slice) {
  LinearParams params;
  params.rows = slice.count;
  params.cols = part.row_count;
  params.depth = product.args.x.cols;
  params.weight_quads = product.weight.padded_cols() / 4;
  params.x_stride = product.args.x.stride;
  params.result_stride = product.args.out.stride;
  params.bias_offset = part.first_row;
  if (product.args.bias) params.flags |= kLinearFlagBias;
  if (product.args.store == compute::LinearStore::add) params.flags |= kLinearFlagAdd;
  return params;
}

Status add_norm(const compute::RowNorm& norm, RowSlice slice, LinearStep& step, const gpu::Capabilities& capabilities) {
  const RowWindow normed = bind_rows(norm.out, slice, gpu::Access::read_write, capabilities);
  step.params.normed_offset = normed.offset;
  step.params.normed_stride = norm.out.stride;
  step.params.epsilon = norm.epsilon;
  step.params.norm_shift = norm.form == compute::NormWeight::one_plus ? 1.0f : 0.0f;
  CHORUS_ASSIGN(const gpu::Binding weight, bind_buffer(norm.weight, gpu::Access::read, capabilities));
  step.norm = {weight, normed.binding};
  return {};
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

// Rows of one operand as f16 terms: one workgroup each.
Result<LinearTerms> plan_terms(std::string_view build, uint32_t rows, uint32_t quads, uint32_t terms,
                               const gpu::Capabilities& capabilities) {
  LinearTerms plan;
  CHORUS_ASSIGN(plan.shader, require_shader("linear_terms", build));
  plan.params.rows = rows;
  plan.params.quads = quads;
  plan.params.octs = octs_of(quads);
  plan.params.plane = rows * plan.params.octs;
  plan.plane_bytes = term_bytes(rows, quads, terms);
  plan.grid = gpu::fold_grid(rows, capabilities.workgroups_per_dimension_max);
  return plan;
}

Result<LinearMatrix> plan_matrix(const Product& product, const LinearStep& step, const LinearCut& cut, const std::string& access) {
  const LinearParams& plain = step.params;
  LinearMatrix matrix;
  CHORUS_ASSIGN(matrix.x, plan_terms("x_" + access, plain.rows, plain.weight_quads, 2, product.capabilities));
  matrix.x.params.depth = plain.depth;
  matrix.x.params.x_offset = plain.x_offset;
  matrix.x.params.x_stride = plain.x_stride;
  const DType dtype = product.weight.dtype();
  if (needs_terms({plain.rows, plain.cols, plain.weight_quads, dtype})) {
    CHORUS_ASSIGN(matrix.weight, plan_terms("weight_" + std::string(dtype_name(dtype)), plain.cols, plain.weight_quads, cut.weight_terms,
                                            product.capabilities));
    // One size for all weights that go in parts: scratch that grows in the middle of a pass is held twice until the pass has run.
    const uint64_t whole = term_bytes(product.weight.rows(), plain.weight_quads, cut.weight_terms);
    if (whole > kWeightTermBytesMax) {
      matrix.weight.reserve_bytes = std::min(kWeightTermBytesMax, product.capabilities.storage_binding_bytes_max);
    }
  }
  LinearMatrixParams& params = matrix.params;
  params.rows = plain.rows;
  params.cols = plain.cols;
  params.octs = octs_of(plain.weight_quads);
  params.x_plane = matrix.x.params.plane;
  params.w_plane = matrix.weight.params.plane;
  params.result_offset = plain.result_offset;
  params.result_stride = plain.result_stride;
  params.bias_offset = plain.bias_offset;
  params.flags = plain.flags | (matrix.weight.shader ? kLinearFlagWeightScales : 0);
  params.tiles_m = plain.tiles_m;
  params.tiles_n = plain.tiles_n;
  params.splits = plain.splits;
  params.split_octs = plain.split_quads / 2;
  params.split_stride = plain.split_stride;
  params.band = plain.band;
  return matrix;
}

Result<LinearStep> plan_step(const Product& product, const WeightPart& part, RowSlice slice, std::string& variant) {
  const gpu::Capabilities& capabilities = product.capabilities;
  const compute::View out = columns_of(product.args.out, part);
  const std::string access = quad_aligned(product.args.x) && quad_aligned(out) ? "quad" : "element";
  const std::string dtype(dtype_name(product.weight.dtype()));

  LinearStep step;
  step.slice = slice;
  step.weight = part.binding;
  step.params = product_params(product, part, slice);
  LinearParams& params = step.params;
  RowWindow x_window = bind_rows(product.args.x, slice, gpu::Access::read, capabilities);
  RowWindow out_window = bind_rows(out, slice, gpu::Access::read_write, capabilities);
  params.x_offset = x_window.offset;
  params.result_offset = out_window.offset;
  step.x = std::move(x_window.binding);
  step.out = std::move(out_window.binding);
  if (product.args.norm.weight) CHORUS_TRY(add_norm(product.args.norm, slice, step, capabilities));

  const LinearCut cut = cut_linear({params.rows, params.cols, params.weight_quads, product.weight.dtype()}, capabilities, product.forced);
  CHORUS_CHECK(!cut.variant.empty());
  variant = cut.variant;
  params.splits = cut.splits;
  params.split_quads = cut.split_quads;
  params.band = kBandRows;
  params.tiles_m = divide_up(params.rows, cut.tile_rows);
  params.tiles_n = divide_up(params.cols, cut.tile_cols);
  const uint64_t workgroups = uint64_t{params.tiles_m} * params.tiles_n * params.splits;
  CHORUS_CHECK(workgroups <= std::numeric_limits<uint32_t>::max());
  step.grid = gpu::fold_grid(workgroups, capabilities.workgroups_per_dimension_max);
  if (params.splits > 1) CHORUS_TRY(add_reduction(step, access, capabilities));
  if (cut.weight_terms > 0) {
    const std::string tile = "t" + std::to_string(cut.tile_rows) + "_" + std::to_string(cut.weight_terms);
    CHORUS_ASSIGN(step.shader, require_shader("linear_matrix", tile + "_" + access));
    CHORUS_ASSIGN(step.matrix, plan_matrix(product, step, cut, access));
  } else if (is_row_variant(cut.variant)) {
    const LinearShape shape{params.rows, params.cols, params.weight_quads, product.weight.dtype()};
    CHORUS_ASSIGN(step.shader,
                  require_shader("linear_row", row_build(shape, cut.variant, access) + (product.args.norm.weight ? "_norm" : "")));
  } else {
    CHORUS_ASSIGN(step.shader, require_shader("linear", variant + "_" + dtype + "_" + access));
  }
  return step;
}

}  // namespace

bool linear_takes_norm(const compute::LinearArgs& args, std::string_view forced) {
  const WebgpuWeight& weight = weight_of(args.weight);
  const LinearShape shape{args.out.rows, args.out.cols, weight.padded_cols() / 4, weight.dtype()};
  const bool aligned = quad_aligned(args.x) && quad_aligned(args.out) && quad_aligned(args.norm.out);
  if (!aligned || weight.shards().size() != 1 || !is_common_row_layout(shape, "quad")) return false;
  return forced.empty() ? args.out.rows <= kRowVariantRowsMax : is_row_variant(forced);
}

Result<LinearPlan> plan_linear(const compute::LinearArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  LinearPlan plan;
  if (args.out.rows == 0 || args.out.cols == 0) return plan;
  CHORUS_ASSIGN(const std::string wanted, pick_variant("linear", forced, "", capabilities, linear_variants));
  CHORUS_TRY(require_other_buffer("linear", args.out, {args.x.buffer, args.bias}));
  if (args.norm.weight) {
    if (!linear_takes_norm(args, wanted))
      return make_error(ErrorCode::unsupported, "linear: expected the rows of x normed before a product of this layout, found a norm");
    CHORUS_TRY(require_other_buffer("linear", args.norm.out, {args.x.buffer, args.bias, args.norm.weight, args.out.buffer}));
    CHORUS_TRY(require_other_buffer("linear", args.out, {args.norm.weight}));
  }
  const Product product{args, weight_of(args.weight), capabilities, wanted};
  CHORUS_ASSIGN(std::vector<RowSlice> slices,
                slice_rows(args.out.rows, {args.x, args.out, args.norm.weight ? args.norm.out : args.out}, "linear", capabilities));
  if (is_row_variant(wanted)) {
    // Forced: as many passes of its few rows as it takes.
    std::vector<RowSlice> passes;
    for (const RowSlice& slice : slices) {
      for (uint32_t done = 0; done < slice.count; done += kRowVariantRowsMax) {
        passes.push_back({slice.first + done, std::min(kRowVariantRowsMax, slice.count - done)});
      }
    }
    slices = std::move(passes);
  }
  for (const RowSlice& slice : slices) {
    for (const WeightPart& part : parts_of(product, slice.count)) {
      std::string variant;
      CHORUS_ASSIGN(LinearStep step, plan_step(product, part, slice, variant));
      if (plan.variant.empty()) plan.variant = variant;
      plan.steps.push_back(std::move(step));
    }
  }
  return plan;
}

namespace {

// Fills scratch with the terms of one operand. `terms` and `scales` come out as bindings to read.
Status record_terms(WebgpuContext& context, const LinearTerms& plan, const gpu::Binding& source, const std::string& slot,
                    gpu::Binding& terms, gpu::Binding& scales) {
  const uint64_t bytes = std::max(plan.plane_bytes, plan.reserve_bytes);
  CHORUS_ASSIGN(std::shared_ptr<gpu::Storage> terms_storage, context.scratch.acquire("linear terms of " + slot, bytes));
  CHORUS_ASSIGN(std::shared_ptr<gpu::Storage> scales_storage,
                context.scratch.acquire("linear scales of " + slot, uint64_t{plan.params.rows} * 4));
  terms = gpu::Binding{std::move(terms_storage), gpu::Access::read};  // whole: offset and size of another binding must not linger
  scales = gpu::Binding{std::move(scales_storage), gpu::Access::read};
  const gpu::Binding terms_out{terms.storage, gpu::Access::read_write};
  const gpu::Binding scales_out{scales.storage, gpu::Access::read_write};
  return context.device.dispatch({plan.shader, {source, terms_out, scales_out}, as_params(plan.params), plan.grid});
}

struct Operands {
  gpu::Binding x, weight, bias;
};

Status record_product(WebgpuContext& context, const LinearStep& step, const Operands& operands, const gpu::Binding& result) {
  if (!step.matrix) {
    std::vector<gpu::Binding> bindings{operands.x, operands.weight, operands.bias, result};
    bindings.insert(bindings.end(), step.norm.begin(), step.norm.end());
    return context.device.dispatch({step.shader, std::move(bindings), as_params(step.params), step.grid});
  }
  const LinearMatrix& matrix = *step.matrix;
  gpu::Binding x_terms, x_scales, weight_scales;
  gpu::Binding weight_terms = operands.weight;
  CHORUS_TRY(record_terms(context, matrix.x, operands.x, "x", x_terms, x_scales));
  if (matrix.weight.shader) {
    CHORUS_TRY(record_terms(context, matrix.weight, operands.weight, "weight", weight_terms, weight_scales));
  } else {
    weight_scales = x_scales;  // not read: the flag says so
  }
  return context.device.dispatch(
      {step.shader, {x_terms, weight_terms, operands.bias, result, x_scales, weight_scales}, as_params(matrix.params), step.grid});
}

Status record_step(WebgpuContext& context, const compute::LinearArgs& args, const LinearStep& step) {
  // Without a bias: something that is only read.
  const gpu::Binding bias = args.bias ? gpu::Binding{storage_of(args.bias), gpu::Access::read} : step.weight;
  const Operands operands{step.x, step.weight, bias};
  if (step.reduce_shader == nullptr) return record_product(context, step, operands, step.out);
  CHORUS_ASSIGN(const std::shared_ptr<gpu::Storage> scratch, context.scratch.acquire("linear", step.scratch_bytes));
  CHORUS_TRY(record_product(context, step, operands, gpu::Binding{scratch, gpu::Access::read_write}));
  const gpu::Binding planes{scratch, gpu::Access::read};
  return context.device.dispatch(
      {step.reduce_shader, {planes, step.weight, bias, step.out}, as_params(step.reduce_params), step.reduce_grid});
}

}  // namespace

Status record_linear(WebgpuContext& context, const compute::LinearArgs& args) {
  CHORUS_ASSIGN(const LinearPlan plan, plan_linear(args, context.device.capabilities(), context.forced_variant("linear")));
  for (const LinearStep& step : plan.steps) CHORUS_TRY(record_step(context, args, step));
  return {};
}

}  // namespace chorus::kernels
