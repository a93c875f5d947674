// Rotary embedding. An invocation turns one pair of columns, or copies one column that does not turn (not when in place).
struct Params {
  heads: u32,
  head_dim: u32,
  first: u32,        // turning column of a head
  half: u32,         // pairs of a head
  items: u32,        // of a head: pairs, then copied columns
  interleaved: u32,  // 1: columns 2i and 2i + 1 turn together; 0: i and i + half
  x_offset: u32,
  x_stride: u32,
  cosine_offset: u32,
  cosine_stride: u32,
  sine_offset: u32,
  sine_stride: u32,
  out_offset: u32,
  out_stride: u32,
  count: u32,        // rows * heads * items
  workgroups: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> cosine: array<f32>;
@group(0) @binding(2) var<storage, read> sine: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read> x: array<f32>;  //@if IN_PLACE=no

fn load(at: u32) -> f32 {
  return x[at];    //@if IN_PLACE=no
  return out[at];  //@if IN_PLACE=yes
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let workgroup = group.x + group.y * groups.x;
  let index = workgroup * 256u + thread;
  if (workgroup >= params.workgroups || index >= params.count) {
    return;
  }
  let item = index % params.items;
  let head = index / params.items % params.heads;
  let row = index / params.items / params.heads;
  let x_at = params.x_offset + row * params.x_stride + head * params.head_dim;
  let out_at = params.out_offset + row * params.out_stride + head * params.head_dim;
  if (item >= params.half) {
    var column = item - params.half;
    if (column >= params.first) {
      column += 2u * params.half;
    }
    out[out_at + column] = load(x_at + column);
    return;
  }
  let column_a = params.first + select(item, 2u * item, params.interleaved == 1u);
  let column_b = column_a + select(params.half, 1u, params.interleaved == 1u);
  let a = load(x_at + column_a);
  let b = load(x_at + column_b);
  let c = cosine[params.cosine_offset + row * params.cosine_stride + item];
  let s = sine[params.sine_offset + row * params.sine_stride + item];
  out[out_at + column_a] = a * c - b * s;
  out[out_at + column_b] = b * c + a * s;
}
