// Four consecutive columns of a row of q | k | v.
fn load_qkv(row: u32, column_group: u32) -> vec4<f32> {
  return qkv[params.qkv_offset + row * params.qkv_stride + column_group];  //@if ALIGNED=yes
  let at = params.qkv_offset + row * params.qkv_stride + column_group * 4u;  //@if ALIGNED=no
  return vec4<f32>(qkv[at], qkv[at + 1u], qkv[at + 2u], qkv[at + 3u]);  //@if ALIGNED=no
}
