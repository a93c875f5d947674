// A pair of rows is made by a subgroup.
fn add_up(sums: vec2<f32>, thread: u32) -> vec2<f32> {
  return subgroupAdd(sums);
}
