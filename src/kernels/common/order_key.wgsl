// The bits of an f32 as a whole number of the same order: both zeros alike, every NaN above all.
const kNanKey: u32 = 0xffffffffu;

fn order_key(bits: u32) -> u32 {
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return kNanKey;
  }
  if ((bits & 0x7fffffffu) == 0u) {
    return 0x80000000u;
  }
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}
