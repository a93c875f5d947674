// The top_k largest scores of a row, of equal ones the first, as a bitmask: a workgroup of 256 threads a row. Four passes over the scores
// find the top_k-th largest byte by byte; then every thread writes the words of a run of keys. Which of equal ones is not the last word:
// rows where it matters are marked for select_keys_ties.
struct Params {
  rows: u32,            // of the slice
  first_position: u32,  // of the slice's first row
  key_count: u32,
  words: u32,  // of a row of the bitmask
  top_k: u32,
  selected_offset: u32,  // words, to the slice's first row
  padding0: u32,
  padding1: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> scores: array<u32>;  // [row][key_count]
@group(0) @binding(2) var<storage, read_write> selected: array<u32>;
@group(0) @binding(3) var<storage, read_write> ties: array<u32>;  // [row]

const kThreads: u32 = 256;

var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> chosen_byte: u32;
var<workgroup> still_wanted: u32;

// How many of this thread's words' keys equal the threshold.
fn equals_in(first_word: u32, end_word: u32, row_at: u32, visible: u32, threshold: u32) -> u32 {
  var equals = 0u;
  for (var key = 32u * first_word; key < min(32u * end_word, visible); key++) {
    equals += select(0u, 1u, scores[row_at + key] == threshold);
  }
  return equals;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let row = group.x + group.y * groups.x;
  if (row >= params.rows) {
    return;
  }
  let visible = params.first_position + row + 1u;
  let row_at = row * params.key_count;
  var wanted = min(params.top_k, visible);
  var threshold = 0u;
  for (var shift = 32u; shift > 0u;) {
    shift -= 8u;
    atomicStore(&counts[thread], 0u);
    workgroupBarrier();
    let above = select(0xffffffffu << (shift + 8u), 0u, shift == 24u);  // bytes that are settled
    for (var key = thread; key < visible; key += 4u * kThreads) {
//@for I 4
      let score${I} = scores[row_at + min(key + ${I}u * kThreads, visible - 1u)];
//@endfor
//@for I 4
      if (key + ${I}u * kThreads < visible && (score${I} & above) == threshold) {
        atomicAdd(&counts[(score${I} >> shift) & 255u], 1u);
      }
//@endfor
    }
    workgroupBarrier();
    var larger = 0u;
    for (var byte = thread + 1u; byte < 256u; byte++) {
      larger += atomicLoad(&counts[byte]);
    }
    if (larger < wanted && larger + atomicLoad(&counts[thread]) >= wanted) {  // of one thread
      chosen_byte = thread;
      still_wanted = wanted - larger;
    }
    workgroupBarrier();
    threshold |= chosen_byte << shift;
    wanted = still_wanted;
  }

  // The last pass counted the scores that equal the threshold.
  if (thread == 0u) {
    ties[row] = select(0u, 1u, atomicLoad(&counts[threshold & 255u]) > wanted);
  }
  let run = (params.words + kThreads - 1u) / kThreads;
  let first_word = min(thread * run, params.words);
  let end_word = min(first_word + run, params.words);
  workgroupBarrier();  // the counts have been read
  atomicStore(&counts[thread], equals_in(first_word, end_word, row_at, visible, threshold));
  workgroupBarrier();
  var equals_before = 0u;
  for (var before = 0u; before < thread; before++) {
    equals_before += atomicLoad(&counts[before]);
  }
  for (var word = first_word; word < end_word; word++) {
    var bits = 0u;
    for (var key = 32u * word; key < min(32u * word + 32u, visible); key++) {
      let score = scores[row_at + key];
      let equal = score == threshold;
      bits |= select(0u, 1u, score > threshold || (equal && equals_before < wanted)) << (key % 32u);
      equals_before += select(0u, 1u, equal);
    }
    selected[params.selected_offset + row * params.words + word] = bits;
  }
}
