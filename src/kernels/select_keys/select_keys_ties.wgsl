// Rows of which select_keys_choose found more equal scores at the border than have room choose once more, as the reference would (see
// tie_order.h, of which this is the twin): entry by entry, in one thread a row. A workgroup takes every `workgroups`-th row of the slice
// and has a list of its own.
struct Params {
  rows: u32,            // of the slice
  first_position: u32,  // of the slice's first row
  key_count: u32,
  words: u32,  // of a row of the bitmask
  top_k: u32,
  selected_offset: u32,  // words, to the slice's first row
  horizon: u32,
  list_length: u32,  // room of each list
  workgroups: u32,
  padding0: u32,
  padding1: u32,
  padding2: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> scores: array<u32>;  // [row][key_count]
@group(0) @binding(2) var<storage, read> ties: array<u32>;    // [row]: not 0 where the row has to choose again
@group(0) @binding(3) var<storage, read_write> lists: array<u32>;
@group(0) @binding(4) var<storage, read_write> selected: array<u32>;

var<private> list_at: u32;
var<private> row_at: u32;
var<private> visible: u32;

fn entry(place: u32) -> u32 {
  return lists[list_at + place];
}

fn put(place: u32, value: u32) {
  lists[list_at + place] = value;
}

fn exchange(a: u32, b: u32) {
  let kept = entry(a);
  put(a, entry(b));
  put(b, kept);
}

// Scores are above 0, what is not seen comes last.
fn score(key: u32) -> u32 {
  if (key >= visible) {
    return 0u;
  }
  return scores[row_at + key];
}

fn before(a: u32, b: u32) -> bool {
  return score(a) > score(b);
}

fn median(a: u32, b: u32, c: u32) -> u32 {
  if (before(entry(a), entry(b))) {
    if (before(entry(b), entry(c))) {
      return b;
    }
    return select(a, c, before(entry(a), entry(c)));
  }
  if (before(entry(a), entry(c))) {
    return a;
  }
  return select(b, c, before(entry(b), entry(c)));
}

fn split(first: u32, last: u32) -> u32 {
  exchange(first, median(first + 1u, first + (last - first) / 2u, last - 1u));
  let pivot = entry(first);
  var low = first + 1u;
  var high = last;
  loop {
    while (before(entry(low), pivot)) {
      low++;
    }
    high--;
    while (before(pivot, entry(high))) {
      high--;
    }
    if (low >= high) {
      break;
    }
    exchange(low, high);
    low++;
  }
  return low;
}

fn insertion_sort(first: u32, last: u32) {
  for (var i = first + 1u; i < last; i++) {
    for (var k = i; k > first; k--) {
      if (!before(entry(k), entry(k - 1u))) {
        break;
      }
      exchange(k, k - 1u);
    }
  }
}

fn sift(first: u32, start: u32, size: u32, value: u32) {
  var hole = start;
  while (2u * hole + 2u < size) {
    var child = 2u * hole + 2u;
    if (before(entry(first + child), entry(first + child - 1u))) {
      child--;
    }
    put(first + hole, entry(first + child));
    hole = child;
  }
  if (2u * hole + 2u == size) {
    put(first + hole, entry(first + 2u * hole + 1u));
    hole = 2u * hole + 1u;
  }
  while (hole > start) {
    let parent = (hole - 1u) / 2u;
    if (!before(entry(first + parent), value)) {
      break;
    }
    put(first + hole, entry(first + parent));
    hole = parent;
  }
  put(first + hole, value);
}

fn heap_select(first: u32, middle: u32, last: u32) {
  let size = middle - first;
  for (var parent = size / 2u; parent > 0u; parent--) {
    sift(first, parent - 1u, size, entry(first + parent - 1u));
  }
  for (var i = middle; i < last; i++) {
    if (before(entry(i), entry(first))) {
      let value = entry(i);
      put(i, entry(first));
      sift(first, 0u, size, value);
    }
  }
}

fn quick_select(nth: u32, length: u32) {
  var first = 0u;
  var last = length;
  var depth = 2u * firstLeadingBit(length);
  while (last - first > 3u) {
    if (depth == 0u) {
      heap_select(first, nth + 1u, last);
      exchange(first, nth);
      return;
    }
    depth--;
    let cut = split(first, last);
    if (cut <= nth) {
      first = cut;
    } else {
      last = cut;
    }
  }
  insertion_sort(first, last);
}

fn choose(row: u32) {
  visible = params.first_position + row + 1u;
  row_at = row * params.key_count;
  let length = max(params.horizon, visible);
  for (var i = 0u; i < length; i++) {
    put(i, i);
  }
  if (params.top_k <= length / 64u) {
    heap_select(0u, params.top_k, length);
  } else {
    quick_select(params.top_k - 1u, length);
  }
  let bits_at = params.selected_offset + row * params.words;
  for (var word = 0u; word < params.words; word++) {
    selected[bits_at + word] = 0u;
  }
  for (var i = 0u; i < params.top_k; i++) {
    let key = entry(i);
    selected[bits_at + key / 32u] |= 1u << (key % 32u);
  }
}

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
  list_at = group.x * params.list_length;
  for (var row = group.x; row < params.rows; row += params.workgroups) {
    if (ties[row] != 0u) {
      choose(row);
    }
  }
}
