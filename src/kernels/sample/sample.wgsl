// Draws a token without sorting. Tokens stand in one order: by falling logit, then by rising index. Each of top_k, top_p and the draw asks
// for the first token at which a running sum of weights reaches a goal, and finds it digit by digit of its 52-bit place (32 bits of logit,
// 20 of index) from histograms of the weights: 6 digits of 10 bits. Weights are whole numbers (1, or units of 2^-36 of the largest), added
// with integer atomics, so that sums do not depend on the order of the additions.
//
// A dispatch is one stage: `largest` (stage 0) finds the largest logit of every piece of a row. Every `step` first reads the histogram of the
// stage before and picks the digit (all workgroups of a row do the same), then fills the next: stages 1 to 18 are 3 searches of 6 digits,
// stage 19 writes the answer. State and histograms rotate, so that no workgroup reads what another writes in the same stage.
struct Params {
  rows: u32,
  vocabulary: u32,
  logits_offset: u32,
  logits_stride: u32,
  first_row: u32,   // of the sampling rows and indices; rows count from here
  piece: u32,       // logits that a workgroup takes
  pieces: u32,      // workgroups of a row in this dispatch
  stage: u32,
  row_words: u32,   // of the state: two slots, then the largest logit of every piece
  row_pieces: u32,  // largest logits in the state
  unused_0: u32,
  unused_1: u32,
}

struct SampleRow {
  temperature: f32,
  top_k: u32,
  top_p: f32,
  min_p: f32,
  seed_low: u32,
  seed_high: u32,
  step: u32,
  padding: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<u32>;
@group(0) @binding(2) var<storage, read_write> states: array<u32>;
@group(0) @binding(3) var<storage, read_write> histograms: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read> sampling: array<SampleRow>;      //@if PART=step
@group(0) @binding(5) var<storage, read_write> indices: array<u32>;       //@if PART=step

//@include common/order_key.wgsl

const kThreads: u32 = 256u;
const kDigits: u32 = 1024u;
const kHistogramWords: u32 = 3u * kDigits;  // a bin: three digits of 12 bits each of its weight, summed separately
const kSlotWords: u32 = 8u;

var<workgroup> scan: array<vec2<u32>, 256>;

fn histogram_of(row: u32, stage: u32) -> u32 {
  return (row * 3u + stage % 3u) * kHistogramWords;
}

fn clear_next_histogram(row: u32, thread: u32) {
  for (var i = thread; i < kHistogramWords; i += kThreads) {
    atomicStore(&histograms[histogram_of(row, params.stage + 1u) + i], 0u);
  }
}

fn largest_of_workgroup(thread: u32, value: u32) -> u32 {
  scan[thread].x = value;
  for (var half = kThreads / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      scan[thread].x = max(scan[thread].x, scan[thread + half].x);
    }
  }
  workgroupBarrier();
  return scan[0].x;
}
//@include sample/step.wgsl  //@if PART=step

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let workgroup = group.x + group.y * groups.x;
  let row = workgroup / params.pieces;
  let piece = workgroup % params.pieces;
  if (row >= params.rows) {
    return;
  }
  if (piece == 0u) {
    clear_next_histogram(row, thread);
  }
  run_step(row, piece, thread);  //@if PART=step
  var found = 0u;                                                                    //@if PART=largest
  let last = min((piece + 1u) * params.piece, params.vocabulary);                    //@if PART=largest
  for (var i = piece * params.piece + thread; i < last; i += kThreads) {             //@if PART=largest
    found = max(found, order_key(logits[params.logits_offset + row * params.logits_stride + i]));  //@if PART=largest
  }                                                                                  //@if PART=largest
  found = largest_of_workgroup(thread, found);                                       //@if PART=largest
  if (thread == 0u) {                                                                //@if PART=largest
    states[row * params.row_words + 2u * kSlotWords + piece] = found;                //@if PART=largest
  }                                                                                  //@if PART=largest
}
