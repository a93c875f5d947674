// Writes the rows of x or of a weight as sums of $TERMS f16 numbers, for linear_matrix: value = scale of the row * (first + second).
// The scale is a power of two that brings the row's largest magnitude to [2^13, 2^14). `first` is the value rounded to the 11 bits of an f16,
// `second` what that left over, rounded again: 22 bits together. The first rounding is done on the bits, since compilers take
// a conversion to f16 and back for nothing. A value too small for a normal f16 goes to `second` alone. Planes of terms: rows x octs
// vec4<u32> of 8 halves, zero past the row's end. One workgroup per row.
//@include common/weight_$DTYPE.wgsl  //@if SOURCE=weight
struct Params {
  rows: u32,
  quads: u32,  // vec4s in a row of the source
  octs: u32,   // vec4<u32>s in a row of a plane
  depth: u32,
  x_offset: u32,
  x_stride: u32,
  plane: u32,  // vec4<u32>s from one plane to the next
  padding: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
//@include linear/x.$ACCESS.wgsl  //@if SOURCE=x
@group(0) @binding(1) var<storage, read> weight: array<WeightQuad>;  //@if SOURCE=weight
@group(0) @binding(2) var<storage, read_write> terms: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> scales: array<f32>;

const threads: u32 = 256;
const normal_min: f32 = 0x1p-14f;

var<workgroup> largest: array<f32, threads>;

fn source(row: u32, quad: u32) -> vec4<f32> {
  if (quad >= params.quads) {
    return vec4<f32>();
  }
  return load_x(row_of_x(row), quad);  //@if SOURCE=x
  return widen(weight[row * params.quads + quad]);  //@if SOURCE=weight
}

fn first_term(value: vec4<f32>) -> vec4<f32> {
  let bits = bitcast<vec4<u32>>(value);  //@if TERMS=2
  let even = (bits >> vec4<u32>(13u)) & vec4<u32>(1u);  //@if TERMS=2
  let rounded = (bits + vec4<u32>(0xfffu) + even) & vec4<u32>(0xffffe000u);  //@if TERMS=2
  return select(bitcast<vec4<f32>>(rounded), vec4<f32>(), abs(value) < vec4<f32>(normal_min));  //@if TERMS=2
  return value;  //@if TERMS=1
}

fn pack(value: vec4<f32>) -> vec2<u32> {
  return vec2<u32>(pack2x16float(value.xy), pack2x16float(value.zw));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let row = workgroup.x + workgroup.y * grid.x;
  if (row >= params.rows) {
    return;
  }
  var most = vec4<f32>();
  for (var quad = thread; quad < params.quads; quad += threads) {
    most = max(most, abs(source(row, quad)));
  }
  largest[thread] = max(max(most.x, most.y), max(most.z, most.w));
  for (var half = threads / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      largest[thread] = max(largest[thread], largest[thread + half]);
    }
  }
  workgroupBarrier();
  // Biased exponents: scale * 2^(largest's exponent) = 2^13. Clamped so that the scale and its inverse are normal numbers.
  let exponent = bitcast<u32>(largest[0]) >> 23u;
  let scale_exponent = min(267u - exponent, 253u);
  let scale = bitcast<f32>(scale_exponent << 23u);
  if (thread == 0u) {
    scales[row] = bitcast<f32>((254u - scale_exponent) << 23u);
  }
  for (var oct = thread; oct < params.octs; oct += threads) {
    let low = source(row, oct * 2u) * scale;
    let high = source(row, oct * 2u + 1u) * scale;
    let first_low = first_term(low);
    let first_high = first_term(high);
    let at = row * params.octs + oct;
    terms[at] = vec4<u32>(pack(first_low), pack(first_high));
    terms[params.plane + at] = vec4<u32>(pack(low - first_low), pack(high - first_high));  //@if TERMS=2
  }
}
