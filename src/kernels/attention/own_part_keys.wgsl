// Keys of one part of a sequence's own keys; the host's own_part_keys (attention_webgpu.cpp) is the same formula. It depends on nothing
// but the sequence's length, so a row's sums are taken in the same order in any batch.
fn own_part_keys(length: u32) -> u32 {
  return clamp((length / 8u + 63u) / 64u * 64u, 256u, 2048u);
}
