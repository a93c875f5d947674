// The result where every row starts at a multiple of four elements and holds whole vec4s.
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> result: array<vec4<f32>>;

fn store(row: u32, col: u32, split: u32, value: vec4<f32>) {
  if (col >= params.cols) {
    return;
  }
  var sum = value;
  if ((params.flags & flag_bias) != 0u) {
    let at = params.bias_offset + col;
    sum += vec4<f32>(bias[at], bias[at + 1u], bias[at + 2u], bias[at + 3u]);
  }
  let at = (params.result_offset + split * params.split_stride + row * params.result_stride + col) / 4u;
  if ((params.flags & flag_add) != 0u) {
    sum += result[at];
  }
  result[at] = sum;
}
