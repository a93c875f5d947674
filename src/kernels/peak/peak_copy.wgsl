// What memory reaches: a plain copy, 16 bytes an invocation and step, neighbours side by side.
struct Params {
  vectors: u32,  // of 16 bytes
  stride: u32,   // invocations of the whole grid
  pad0: u32,
  pad1: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  for (var i = id.x; i < params.vectors; i += params.stride) {
    out[i] = source[i];
  }
}
