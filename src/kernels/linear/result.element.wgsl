// The result at any offset, stride and width: element by element.
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> result: array<f32>;

fn store(row: u32, col: u32, split: u32, value: vec4<f32>) {
  let at = params.result_offset + split * params.split_stride + row * params.result_stride + col;
  for (var part = 0u; col + part < params.cols && part < 4u; part++) {
    var sum = value[part];
    if ((params.flags & flag_bias) != 0u) {
      sum += bias[params.bias_offset + col + part];
    }
    if ((params.flags & flag_add) != 0u) {
      sum += result[at + part];
    }
    result[at + part] = sum;
  }
}
